//! The summary of a seed: counts, and the first reasons of rejections.

use indicatif::ProgressBar;
use wayleave_api::urls::{AddCounts, AddResult, AddStatus};

use super::source::Origin;
use crate::exit::{Ended, PARTLY, UNAVAILABLE};
use crate::output::{self, counted};
use crate::remote::Remote;

/// How often the text of the progress bar is updated, in URLs.
const MESSAGE_EVERY: u64 = 1_024;

/// The results so far.
pub struct Summary {
    counts: AddCounts,
    /// Lines that were sent more than once.
    pub resent: u64,
    /// Sitemaps that an index names and that are not in its folder.
    pub unread: Vec<String>,
    reasons_max: usize,
    reasons: Vec<(Origin, AddResult)>,
}

impl Summary {
    /// An empty summary that keeps at most `reasons_max` reasons.
    pub fn new(reasons_max: usize) -> Self {
        Self { counts: AddCounts::default(), resent: 0, unread: Vec::new(), reasons_max, reasons: Vec::new() }
    }

    /// Adds a result.
    pub fn take(&mut self, origin: Origin, result: AddResult, bar: &ProgressBar) {
        self.counts.count(result.status);
        if matches!(result.status, AddStatus::Rejected | AddStatus::Failed) && self.reasons.len() < self.reasons_max {
            self.reasons.push((origin, result));
        }
        let AddCounts { added, known, requeued, .. } = self.counts;
        if (added + known + requeued).is_multiple_of(MESSAGE_EVERY) {
            bar.set_message(format!("{added} added, {known} known"));
        }
    }

    /// Prints it.
    pub fn tell(&self, remote: &Remote) -> anyhow::Result<()> {
        let AddCounts { added, known, requeued, rejected, failed } = self.counts;
        if remote.json {
            let Self { counts, resent, unread, .. } = self;
            output::json(&serde_json::json!({ "counts": counts, "resent": resent, "unread": unread }))?;
        } else {
            let requeued = if requeued > 0 { format!("{requeued} requeued, ") } else { String::new() };
            output::line(format_args!("{added} added, {known} known, {requeued}{rejected} rejected, {failed} failed"))?;
        }
        for (origin, result) in &self.reasons {
            let url = output::shown(result.url.as_deref().unwrap_or_default());
            eprintln!("{origin}: {url}: {}", result.reason.as_deref().unwrap_or("no reason given"));
        }
        let more = (rejected + failed).saturating_sub(self.reasons.len() as u64);
        if more > 0 {
            eprintln!("and {more} more; --reasons {} shows all of them", rejected + failed);
        }
        if self.resent > 0 {
            let resent = self.resent;
            let (resent, were) = (counted(resent, "line"), if resent == 1 { "was" } else { "were" });
            eprintln!("{resent} {were} sent again after a broken connection; added ones among them count as known");
        }
        for (no, sitemap) in self.unread.iter().enumerate() {
            if no == 0 {
                eprintln!("these sitemaps are not in the folder of the index that names them; download and seed them:");
            }
            eprintln!("  {sitemap}");
        }
        Ok(())
    }

    /// The result of the command. Fails if some URLs could not be stored, or were rejected, or sitemaps were not read.
    pub fn end(&self) -> anyhow::Result<()> {
        let AddCounts { added, known, requeued, rejected, failed } = self.counts;
        if failed > 0 {
            let message = format!("{} could not be stored; run the same command again", counted(failed, "URL"));
            return Err(Ended { code: UNAVAILABLE, message }.into());
        }
        let look = match self.reasons.len() as u64 {
            shown if shown == rejected => "their lines and reasons are above".to_owned(),
            _ => format!("run it again with --reasons {rejected} to see the line and the reason of each"),
        };
        Ended::after("URLs", added + known + requeued, rejected, &look)?;
        match self.unread.len() {
            0 => Ok(()),
            count => {
                let message = format!("{count} sitemaps of an index were not read, all the rest is stored");
                Err(Ended { code: PARTLY, message }.into())
            }
        }
    }
}
