//! `urls requeue` and `urls delete`: known URLs, named or by a filter.

use std::time::Duration;

use indicatif::ProgressBar;
use wayleave_api::jobs::{Job, JobState, ReworkUrlsRequest, ReworkUrlsResponse, StartedJob};
use wayleave_api::urls::UrlState;
use wayleave_client::ReworkResponse;

use super::urls::UrlStateArg;
use crate::exit::{Ended, NOT_FOUND, Usage};
use crate::output;
use crate::remote::Remote;
use crate::values;

/// The polling interval of a job.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub const REQUEUE_HELP: &str = "\
Examples:
  wayleave urls requeue https://example.com/                       this one, directly
  wayleave urls requeue --crawl news --state failed                all that failed, by a job
  wayleave urls requeue --host example.com --state fetched --older-than 30d

Known URLs are requeued, due now, with their attempts reset; priority, depth and metadata stay. URLs that are handed out are left
alone, and so are those stored or visited after the job began. A filter starts a job that runs in the background and survives
restarts; the command waits for its end and may be interrupted. See `wayleave jobs`.";

pub const DELETE_HELP: &str = "\
Examples:
  wayleave urls delete https://example.com/private                 this one, directly
  wayleave urls delete --crawl news --contains /session/ --yes     all that contain it, by a job
  wayleave urls delete --state gone --older-than 90d --yes         stored longer ago than that

URLs that are handed out are left alone, and so are those stored after the job began. A filter starts a job that runs in the
background and survives restarts; the command waits for its end and may be interrupted. See `wayleave jobs`.";

/// Which URLs.
#[derive(Clone, Debug, clap::Args)]
pub struct ReworkArgs {
    /// These URLs; otherwise all that match the filter
    #[arg(value_name = "URL", conflicts_with_all = ["state", "contains", "older_than"])]
    urls: Vec<String>,
    /// Only those of this crawl; with URLs, their crawl
    #[arg(long, value_name = "CRAWL", value_parser = values::name)]
    crawl: Option<String>,
    /// Only those of this host or queue key; with URLs, the queue that they were put into, if not their host's
    #[arg(long, value_name = "HOST", value_parser = values::name)]
    host: Option<String>,
    /// Only those in this state
    #[arg(long, value_enum)]
    state: Option<UrlStateArg>,
    /// Only those with this text in them
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// Only those last visited (requeue) or stored (delete) longer ago than this
    #[arg(long, value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    older_than: Option<u64>,
    /// Do not wait for the job to end
    #[arg(long)]
    no_wait: bool,
}

/// The action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Requeue.
    Requeue,
    /// Delete; by a filter only if confirmed.
    Delete {
        /// It is confirmed.
        really: bool,
    },
}

/// Requeues or deletes, and waits for the job if there is one. Fails if the server refuses or does not answer, or none
/// of the URLs is known.
pub async fn run(remote: &Remote, args: ReworkArgs, what: What) -> anyhow::Result<()> {
    let ReworkArgs { urls, crawl, host, state, contains, older_than, no_wait } = args;
    if urls.is_empty() {
        if what == (What::Delete { really: false }) {
            let message =
                "this deletes all URLs that match the filter: check them with `wayleave urls list`, then add --yes";
            return Err(Usage(message.to_owned()).into());
        }
        remote.check_crawl(crawl.as_deref()).await?;
        remote.check_host(host.as_deref()).await?;
    }
    let state = state.map(UrlState::from);
    let request = ReworkUrlsRequest { crawl, host, state, contains, older_than_ms: older_than, urls };
    let answer = match what {
        What::Requeue => remote.client.requeue_urls(&request).await?,
        What::Delete { .. } => remote.client.delete_urls(&request).await?,
    };
    match answer {
        ReworkResponse::Urls(told) => tell(remote, told, what),
        ReworkResponse::Job(StartedJob { job }) if no_wait => {
            if remote.json {
                output::json(&StartedJob { job })
            } else {
                output::line(format_args!("job {job}"))
            }
        }
        ReworkResponse::Job(StartedJob { job }) => {
            let job = follow(remote, &job).await?;
            if remote.json { output::json(&job) } else { output::line(format_args!("job {}: {}", job.id, job.reason)) }
        }
    }
}

fn tell(remote: &Remote, told: ReworkUrlsResponse, what: What) -> anyhow::Result<()> {
    let verb = if what == What::Requeue { "requeued" } else { "deleted" };
    let ReworkUrlsResponse { done, reserved, unknown } = told;
    if remote.json {
        output::json(&told)?;
    } else {
        let reserved_too = if reserved > 0 { format!(", {reserved} handed out and left alone") } else { String::new() };
        output::line(format_args!("{done} {verb}, {unknown} unknown{reserved_too}"))?;
    }
    if done + reserved == 0 {
        let message = "none of the URLs is known in this crawl: name it with --crawl".to_owned();
        return Err(Ended { code: NOT_FOUND, message }.into());
    }
    Ok(())
}

/// Waits for the end of a job, and shows its progress.
async fn follow(remote: &Remote, id: &str) -> anyhow::Result<Job> {
    let client = remote.patient().await?;
    let bar = ProgressBar::new_spinner();
    loop {
        let job = client.job(id).await?;
        if job.state != JobState::Running {
            bar.finish_and_clear();
            return Ok(job);
        }
        bar.set_message(format!("job {id}: {}", job.reason));
        bar.tick();
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
