//! URLs on their way in: valid ones go to the frontier, refusals are remembered, and the results come out in the order
//! sent.

use wayleave_api::reservations::UrlResult;
use wayleave_api::urls::{AddCounts, AddResult, UrlToAdd};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Parent, Put, PutOutcome};
use wayleave_core::names::CrawlName;
use wayleave_core::redact;

/// The URLs of one request, or of one chunk of a stream.
#[derive(Default)]
pub struct AddBatch {
    puts: Vec<Put>,
    pending: Pending,
}

/// The state of each URL until the frontier answers.
#[derive(Default)]
pub struct Pending(Vec<Entry>);

struct Entry {
    line: Option<u64>,
    url: Option<String>,
    /// Why it was refused before it reached the frontier.
    refused: Option<String>,
}

impl AddBatch {
    /// Adds a URL; its crawl and depth default to `crawl` and `depth`.
    pub fn push(&mut self, line: Option<u64>, url: UrlToAdd, crawl: &CrawlName, depth: u32) {
        let refused = match url.to_put(crawl, depth) {
            Ok(put) => {
                self.puts.push(put);
                None
            }
            Err(bad) => Some(bad.to_string()),
        };
        self.pending.0.push(Entry { line, url: Some(url.url), refused });
    }

    /// Adds a link found on a page: it defaults to the page's crawl, if that still exists, and is one level deeper.
    pub fn push_found(&mut self, url: UrlToAdd, page: &Parent) {
        let (inherits, before) = (url.crawl.is_none(), self.puts.len());
        self.push(None, url, &page.crawl, page.depth.saturating_add(1));
        if inherits {
            let new = self.puts.split_off(before);
            self.puts.extend(new.into_iter().map(|put| put.found(page)));
        }
    }

    /// The links found on pages, each with what its links inherit; `None` for a page that is `gone`.
    pub fn found(results: Vec<UrlResult>, parents: Vec<Option<Parent>>, gone: &str) -> Self {
        let mut batch = Self::default();
        for (result, parent) in results.into_iter().zip(parents) {
            for url in result.found {
                match (&parent, url.crawl.clone(), url.depth) {
                    (Some(parent), ..) => batch.push_found(url, parent),
                    (None, Some(crawl), Some(depth)) => batch.push(None, url, &crawl.as_str().into(), depth),
                    (None, ..) => {
                        let page = redact::url(&result.url);
                        let remedy = "name 'crawl' and 'depth' of the link to store it all the same";
                        batch.refuse(url, format!("the page '{page}' {gone}: {remedy}"));
                    }
                }
            }
        }
        batch
    }

    /// Adds a URL that cannot be stored.
    fn refuse(&mut self, url: UrlToAdd, reason: String) {
        self.pending.0.push(Entry { line: None, url: Some(url.url), refused: Some(reason) });
    }

    /// Adds a line that is not a URL at all.
    pub fn reject(&mut self, line: u64, reason: String) {
        self.pending.0.push(Entry { line: Some(line), url: None, refused: Some(reason) });
    }

    /// The number of URLs and lines.
    pub fn len(&self) -> usize {
        self.pending.0.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.pending.0.is_empty()
    }

    /// The puts for the frontier, and what awaits their outcomes.
    pub fn into_parts(self) -> (Vec<Put>, Pending) {
        (self.puts, self.pending)
    }
}

impl Pending {
    /// The results in the order sent.
    pub fn resolve(self, outcomes: Vec<PutOutcome>) -> Vec<AddResult> {
        let mut outcomes = outcomes.into_iter();
        let resolve = |entry: Entry| {
            let result = match entry.refused {
                Some(reason) => AddResult::new(entry.url, PutOutcome::Rejected(reason.into())),
                None => {
                    let lost = || PutOutcome::Failed(Box::new(Refusal::OutcomeUnknown("no answer".to_owned())));
                    AddResult::new(entry.url, outcomes.next().unwrap_or_else(lost))
                }
            };
            AddResult { line: entry.line, ..result }
        };
        self.0.into_iter().map(resolve).collect()
    }
}

/// The number of each status.
pub fn count(results: &[AddResult]) -> AddCounts {
    let mut counts = AddCounts::default();
    for result in results {
        counts.count(result.status);
    }
    counts
}

/// Adds one chunk's counts to the total.
pub fn sum(total: &mut AddCounts, part: &AddCounts) {
    let AddCounts { added, known, requeued, rejected, failed } = part;
    total.requeued += requeued;
    total.added += added;
    total.known += known;
    total.rejected += rejected;
    total.failed += failed;
}

#[cfg(test)]
mod tests {
    use super::*;
    use wayleave_api::urls::AddStatus;

    fn url(text: &str) -> UrlToAdd {
        UrlToAdd { url: text.into(), ..UrlToAdd::default() }
    }

    #[test]
    fn results_keep_the_order_sent_with_refused_ones_in_their_places() {
        let mut batch = AddBatch::default();
        batch.push(Some(1), url("http://a/"), &"c".into(), 0);
        batch.push(Some(2), url("nonsense"), &"c".into(), 0);
        batch.reject(3, "not JSON".into());
        batch.push(Some(5), url("http://b/"), &"c".into(), 0);
        batch.push(Some(6), url("http://lost/"), &"c".into(), 0);
        let (puts, pending) = batch.into_parts();
        assert_eq!(
            puts.iter().map(|put| put.url.as_ref()).collect::<Vec<_>>(),
            ["http://a/", "http://b/", "http://lost/"]
        );
        let results = pending.resolve(vec![PutOutcome::Known, PutOutcome::Added]);
        let told: Vec<_> = results.iter().map(|r| (r.line.unwrap(), r.status)).collect();
        use AddStatus::{Added, Failed, Known, Rejected};
        assert_eq!(told, [(1, Known), (2, Rejected), (3, Rejected), (5, Added), (6, Failed)]);
        assert_eq!(count(&results), AddCounts { added: 1, known: 1, requeued: 0, rejected: 2, failed: 1 });
    }
}
