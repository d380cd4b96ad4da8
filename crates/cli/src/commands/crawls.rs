//! `crawls`: list, show, set, delete, purge.

use std::time::Instant;

use wayleave_api::chunks::{ChunkState, ListChunksQuery};
use wayleave_api::crawls::{Crawl, CrawlLimitsPatch, PurgeCrawlQuery, RetryPatch, Revisit, SetCrawlRequest};
use wayleave_api::hosts::DeleteUrlsResponse;
use wayleave_api::{Code, Patch};

use super::pace::patch;
use crate::exit::{Ended, NOT_FOUND, Usage};
use crate::output::{self, Table, counted, or_dash, span};
use crate::remote::Remote;
use crate::values;

/// The long-poll time of one call.
const CALL_WAIT_MS: u64 = 30_000;
/// Built chunks of a deleted crawl that are counted.
const BUILT_COUNTED: u64 = 100;
/// What the deletion of a crawl that is not known did.
const LEFT_OVER: &str = "nothing was deleted; chunks that an earlier deletion may have left have ended";

/// Arguments of `crawls`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

const HELP: &str = "\
Examples:
  wayleave crawls                                all of them
  wayleave crawls show news
  wayleave crawls set news --weight 5 --delay 2s
  wayleave crawls pause news";

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List all crawls
    List,
    /// Show one crawl
    #[command(after_help = SHOW_HELP)]
    Show {
        /// Its name
        #[arg(value_parser = values::name)]
        crawl: String,
        /// Wait until it is finished: nothing of it is handed out or can become due
        #[arg(long)]
        wait_finished: bool,
        /// Wait at most this long; by default without limit
        #[arg(long, value_name = "SPAN", value_parser = values::span, requires = "wait_finished")]
        wait: Option<u64>,
    },
    /// Create a crawl or change its settings
    #[command(after_help = SET_HELP, allow_negative_numbers = true)]
    Set(Box<SetArgs>),
    /// Stop handing out its URLs
    Pause {
        /// Its name
        #[arg(value_parser = values::name)]
        crawl: String,
    },
    /// Resume handing out its URLs
    Resume {
        /// Its name
        #[arg(value_parser = values::name)]
        crawl: String,
    },
    /// Delete a crawl: its URLs, queues and settings; a host without another queue is forgotten, including its settings
    /// and its last visit
    Delete {
        /// Its name
        #[arg(value_parser = values::name)]
        crawl: String,
        /// Confirm the deletion
        #[arg(long)]
        yes: bool,
    },
    /// Delete URLs of a crawl that were stored long ago
    Purge {
        /// Its name
        #[arg(value_parser = values::name)]
        crawl: String,
        /// Those stored longer ago than this
        #[arg(long, value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
        older_than: u64,
        /// Only those of this host
        #[arg(long, value_name = "HOST", value_parser = values::name)]
        host: Option<String>,
    },
}

const SHOW_HELP: &str = "\
Examples:
  wayleave crawls show news
  wayleave crawls show news --wait-finished && ./publish.sh
  wayleave crawls show news --wait-finished --wait 1h

With --wait-finished it ends with 3 if the crawl was not finished in time.";

const SET_HELP: &str = "\
Examples:
  wayleave crawls set news --weight 5 --delay 2s
  wayleave crawls set news --max-urls 1000000 --max-depth 3 --max-attempts 5
  wayleave crawls set news --revisit 1d                    every day
  wayleave crawls set news --revisit-adaptive 1h,30d       sooner if it has changed, later if not
  wayleave crawls set news --clear max-urls,revisit";

/// Settings that can be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Clear {
    /// The weight.
    Weight,
    /// The delay.
    Delay,
    /// The first retry wait.
    RetryFirst,
    /// The longest retry wait.
    RetryMax,
    /// The revisit policy.
    Revisit,
    /// The limit on URLs.
    MaxUrls,
    /// The limit on pages.
    MaxPages,
    /// The limit on URLs per host.
    MaxUrlsPerHost,
    /// The limit on pages per host.
    MaxPagesPerHost,
    /// The limit on depth.
    MaxDepth,
    /// The limit on attempts.
    MaxAttempts,
    /// The limit on hosts.
    MaxHosts,
}

/// The settings to change.
#[derive(Clone, Debug, clap::Args)]
struct SetArgs {
    /// Its name
    #[arg(value_parser = values::name)]
    crawl: String,
    /// Share of visits relative to other crawls
    #[arg(long, value_name = "NUMBER")]
    weight: Option<u32>,
    /// Delay where neither group nor host sets one
    #[arg(long, value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    delay: Option<u64>,
    /// Stop handing out its URLs
    #[arg(long, conflicts_with = "resume")]
    pause: bool,
    /// Resume handing out its URLs
    #[arg(long)]
    resume: bool,
    /// Revisit pages after this time
    #[arg(
        long,
        value_name = "SPAN",
        value_parser = values::span,
        allow_hyphen_values = true,
        conflicts_with = "revisit_adaptive"
    )]
    revisit: Option<u64>,
    /// Revisit pages between these times, depending on how often they change
    #[arg(long, value_name = "MIN,MAX", value_parser = spans, allow_hyphen_values = true)]
    revisit_adaptive: Option<(u64, u64)>,
    /// Limit on URLs of the whole crawl; concurrent additions may exceed it
    #[arg(long, value_name = "NUMBER")]
    max_urls: Option<u64>,
    /// Limit on pages fetched in the whole crawl, including those handed out
    #[arg(long, value_name = "NUMBER")]
    max_pages: Option<u64>,
    /// Limit on URLs per host
    #[arg(long, value_name = "NUMBER")]
    max_urls_per_host: Option<u64>,
    /// Limit on pages fetched per host
    #[arg(long, value_name = "NUMBER")]
    max_pages_per_host: Option<u64>,
    /// Limit on depth
    #[arg(long, value_name = "NUMBER")]
    max_depth: Option<u32>,
    /// Attempts after which a URL fails
    #[arg(long, value_name = "NUMBER")]
    max_attempts: Option<u32>,
    /// Wait after the first attempt; doubles with each further one
    #[arg(long, value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    retry_first: Option<u64>,
    /// Longest retry wait
    #[arg(long, value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    retry_max: Option<u64>,
    /// Limit on hosts of the whole crawl; concurrent additions may exceed it
    #[arg(long, value_name = "NUMBER")]
    max_hosts: Option<u64>,
    /// Settings to clear; may be repeated
    #[arg(long, value_enum, value_name = "SETTING", value_delimiter = ',')]
    clear: Vec<Clear>,
}

fn spans(text: &str) -> Result<(u64, u64), String> {
    let (min, max) = text.split_once(',').ok_or("write two spans, such as 1h,30d")?;
    Ok((values::span(min)?, values::span(max)?))
}

/// Runs the command.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let client = &remote.client;
    match args.command.unwrap_or(Command::List) {
        Command::List => list(remote).await,
        Command::Show { crawl, wait_finished: false, .. } => show(remote, &client.crawl(&crawl).await?),
        Command::Show { crawl, wait, .. } => show_when_finished(remote, &crawl, wait).await,
        Command::Set(args) => show(remote, &client.patch_crawl(&args.crawl, &request(&args)).await?),
        Command::Pause { crawl } => pause(remote, &crawl, true).await,
        Command::Resume { crawl } => pause(remote, &crawl, false).await,
        Command::Delete { crawl, yes: false } => {
            let found = client.crawl(&crawl).await?;
            let text = format!("crawl {crawl} has {}; add --yes to delete all of it", output::counts(&found.counts));
            Err(Usage(text).into())
        }
        Command::Delete { crawl, yes: true } => {
            let unknown = match remote.check_crawl(Some(&crawl)).await {
                Err(error) if error.code() == Some(Code::UnknownCrawl) => Some(error),
                known => known.map(|()| None)?,
            };
            // Also if it is gone: a deletion that was cut short may have left chunks of it.
            let answer = client.delete_crawl(&crawl).await?;
            match unknown {
                Some(error) if answer.deleted == 0 => return Err(anyhow::Error::new(error).context(LEFT_OVER)),
                _ => deleted(remote, answer)?,
            }
            note_built(remote, crawl).await;
            Ok(())
        }
        Command::Purge { crawl, older_than, host } => {
            remote.check_crawl(Some(&crawl)).await?;
            remote.check_host(host.as_deref()).await?;
            let query = PurgeCrawlQuery { older_than_ms: older_than, host };
            deleted(remote, client.purge_crawl(&crawl, &query).await?)
        }
    }
}

/// Pauses or resumes a crawl that is known: `set` would create any other.
async fn pause(remote: &Remote, crawl: &str, paused: bool) -> anyhow::Result<()> {
    remote.check_crawl(Some(crawl)).await?;
    let request = SetCrawlRequest { paused: Patch::Set(paused), ..SetCrawlRequest::default() };
    show(remote, &remote.client.patch_crawl(crawl, &request).await?)
}

/// Long-polls a crawl until it is finished, or the time is up.
async fn show_when_finished(remote: &Remote, crawl: &str, wait: Option<u64>) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let spent = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let left = wait.map_or(CALL_WAIT_MS, |wait| wait.saturating_sub(spent).min(CALL_WAIT_MS));
        let found = remote.client.crawl_when_finished(crawl, left).await?;
        if found.finished {
            return show(remote, &found);
        }
        if left < CALL_WAIT_MS {
            show(remote, &found)?;
            let why = found.waits_for.unwrap_or_default();
            return Err(
                Ended { code: NOT_FOUND, message: format!("crawl {crawl} was not finished in time: {why}") }.into()
            );
        }
    }
}

/// Says on stderr how many chunks of a deleted crawl are still searched, and what removes them. The crawl is deleted, so an
/// error here is told and is none of the command.
async fn note_built(remote: &Remote, crawl: String) {
    let (state, limit) = (Some(ChunkState::Built), Some(BUILT_COUNTED));
    let query = ListChunksQuery { state, crawl: Some(crawl.clone()), limit, ..ListChunksQuery::default() };
    let list = format!("`wayleave chunks --crawl {crawl} --state built`");
    match remote.client.list_chunks(&query).await {
        Ok(page) => {
            if let Some(built) = told_built(page.chunks.len() as u64, page.next.is_some()) {
                let out = "`wayleave chunks skip ID` takes one out of the index";
                eprintln!("{built} of it can still be searched: {list} lists them, and {out}");
            }
        }
        Err(error) => {
            eprintln!("it is not known whether built chunks of it can still be searched ({error}): {list} lists them")
        }
    }
}

/// How many built chunks there are, as far as one page tells; `None` if there is none.
fn told_built(built: u64, more: bool) -> Option<String> {
    let built = match (built, more) {
        (0, _) => return None,
        (built, true) => format!("at least {}", counted(built, "built chunk")),
        (built, false) => counted(built, "built chunk"),
    };
    Some(built)
}

fn deleted(remote: &Remote, answer: DeleteUrlsResponse) -> anyhow::Result<()> {
    if remote.json {
        output::json(&answer)
    } else {
        output::line(format_args!("{} deleted", counted(answer.deleted, "URL")))
    }
}

fn request(args: &SetArgs) -> SetCrawlRequest {
    let clears = |setting| args.clear.contains(&setting);
    let limits = CrawlLimitsPatch {
        urls: patch(args.max_urls, clears(Clear::MaxUrls)),
        pages: patch(args.max_pages, clears(Clear::MaxPages)),
        urls_per_host: patch(args.max_urls_per_host, clears(Clear::MaxUrlsPerHost)),
        pages_per_host: patch(args.max_pages_per_host, clears(Clear::MaxPagesPerHost)),
        depth: patch(args.max_depth, clears(Clear::MaxDepth)),
        attempts: patch(args.max_attempts, clears(Clear::MaxAttempts)),
        hosts: patch(args.max_hosts, clears(Clear::MaxHosts)),
    };
    let retry = RetryPatch {
        attempts: Patch::Keep,
        first_ms: patch(args.retry_first, clears(Clear::RetryFirst)),
        max_ms: patch(args.retry_max, clears(Clear::RetryMax)),
    };
    let adaptive = args.revisit_adaptive.map(|(min_ms, max_ms)| Revisit::Adaptive { min_ms, max_ms });
    SetCrawlRequest {
        weight: patch(args.weight, clears(Clear::Weight)),
        paused: patch(args.pause.then_some(true), args.resume),
        delay_ms: patch(args.delay, clears(Clear::Delay)),
        limits: if limits == CrawlLimitsPatch::default() { Patch::Keep } else { Patch::Set(limits) },
        revisit: patch(args.revisit.map(Revisit::FixedMs).or(adaptive), clears(Clear::Revisit)),
        retry: if retry == RetryPatch::default() { Patch::Keep } else { Patch::Set(retry) },
    }
}

async fn list(remote: &Remote) -> anyhow::Result<()> {
    let mut crawls = std::pin::pin!(remote.client.all_crawls());
    let mut table = Table::new(["crawl", "hosts", "active", "queued", "reserved", "fetched", "weight", "paused"]);
    while let Some(crawl) = futures::StreamExt::next(&mut crawls).await.transpose()? {
        if remote.json {
            output::json(&crawl)?;
            continue;
        }
        let counts = &crawl.counts;
        let numbers = [crawl.hosts, crawl.active_hosts, counts.queued, counts.reserved, counts.fetched];
        let [hosts, active, queued, reserved, fetched] = numbers.map(|n| n.to_string());
        let (weight, paused) = (crawl.weight.to_string(), crawl.paused.to_string());
        table.row([crawl.crawl, hosts, active, queued, reserved, fetched, weight, paused]);
    }
    if remote.json { Ok(()) } else { table.print() }
}

fn show(remote: &Remote, crawl: &Crawl) -> anyhow::Result<()> {
    if remote.json {
        return output::json(crawl);
    }
    let mut table = Table::about("crawl", &crawl.crawl);
    table.row(["urls".into(), output::counts(&crawl.counts)]);
    table.row(["hosts".into(), format!("{}, of which {} active", crawl.hosts, crawl.active_hosts)]);
    let finished = match (&crawl.waits_for, crawl.finished_at) {
        (Some(why), _) => format!("no: {why}"),
        (None, Some(at)) => format!("yes, since {}", output::when(Some(at), output::now())),
        (None, None) => "yes".to_owned(),
    };
    table.row(["finished".into(), finished]);
    if let Some(why) = &crawl.limit_reached {
        let queued = if crawl.over_limit > 0 {
            format!(" ({} still queued)", counted(crawl.over_limit, "URL"))
        } else {
            String::new()
        };
        table.row(["limit".into(), format!("{why}{queued}")]);
    }
    table.row(["weight".into(), crawl.weight.to_string()]);
    table.row(["paused".into(), crawl.paused.to_string()]);
    table.row(["delay".into(), or_dash(crawl.delay_ms.map(span))]);
    let revisit = match crawl.revisit {
        Revisit::Never => "never".to_owned(),
        Revisit::FixedMs(ms) => format!("after {}", span(ms)),
        Revisit::Adaptive { min_ms, max_ms } => format!("between {} and {}", span(min_ms), span(max_ms)),
    };
    table.row(["revisit".into(), revisit]);
    let retry = crawl.retry;
    let waits = format!(
        "{}, after {}, then twice as long, at most {}",
        counted(retry.attempts, "attempt"),
        span(retry.first_ms),
        span(retry.max_ms)
    );
    table.row(["retry".into(), waits]);
    let limits = &crawl.limits;
    table.row(["max urls".into(), or_dash(limits.urls)]);
    table.row(["max pages".into(), or_dash(limits.pages)]);
    table.row(["max urls per host".into(), or_dash(limits.urls_per_host)]);
    table.row(["max pages per host".into(), or_dash(limits.pages_per_host)]);
    table.row(["max depth".into(), or_dash(limits.depth)]);
    table.row(["max attempts".into(), or_dash(limits.attempts)]);
    table.row(["max hosts".into(), or_dash(limits.hosts)]);
    table.print()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_chunks_that_are_not_all_counted_are_said_to_be_more() {
        let told = [(0, false), (1, false), (2, false), (100, true)].map(|(built, more)| told_built(built, more));
        let expected = [None, Some("1 built chunk"), Some("2 built chunks"), Some("at least 100 built chunks")];
        assert_eq!(told.each_ref().map(Option::as_deref), expected);
    }
}
