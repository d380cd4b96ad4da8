//! `urls`: lists and looks up; requeuing and deleting is in [`super::rework`].

use wayleave_api::urls::{LastVisit, ListUrlsQuery, LookupUrlQuery, Url, UrlState};
use wayleave_api::{Code, Timestamp};
use wayleave_core::crawl_url;

use super::{ListArgs, or_list, rework};
use crate::exit::{Ended, NOT_FOUND};
use crate::output::{self, Table, or_dash, when};
use crate::remote::Remote;
use crate::values::{self, words};

/// Arguments of `urls`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListUrlsArgs,
}

const HELP: &str = "\
Examples:
  wayleave urls                                  the first hundred, with everything known about them
  wayleave urls --host example.com --state failed
  wayleave urls lookup https://example.com/
  wayleave urls requeue --crawl news --state failed
  wayleave urls delete --crawl news --contains /session/ --yes";

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List URLs with everything known about them
    #[command(after_help = LIST_HELP)]
    List(ListUrlsArgs),
    /// Look up one URL, in every crawl that has it; exits with 3 if none has
    #[command(visible_alias = "show")]
    Lookup {
        /// The URL
        url: String,
        /// Only in this crawl
        #[arg(long, value_name = "CRAWL", value_parser = values::name)]
        crawl: Option<String>,
        /// Its queue key, if not its host's
        #[arg(long, value_name = "KEY", value_parser = values::name)]
        key: Option<String>,
    },
    /// Requeue known URLs
    #[command(after_help = rework::REQUEUE_HELP)]
    Requeue(rework::ReworkArgs),
    /// Delete URLs
    #[command(after_help = rework::DELETE_HELP)]
    Delete {
        #[command(flatten)]
        args: rework::ReworkArgs,
        /// Confirm the deletion of all that match the filter
        #[arg(long)]
        yes: bool,
    },
}

const LIST_HELP: &str = "\
Examples:
  wayleave urls list --host example.com
  wayleave urls list --state failed --all --json | jq -r .url
  wayleave urls list --crawl news --contains /2026/";

words! {
    /// The state of a URL.
    pub UrlStateArg = UrlState {
        /// Waits for its turn.
        Queued,
        /// Handed out.
        Reserved,
        /// Fetched for good.
        Fetched,
        /// Gone.
        Gone,
        /// Set aside.
        Failed,
    }
}

/// Which URLs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ListUrlsArgs {
    /// Only those of this crawl
    #[arg(long, value_name = "CRAWL", value_parser = values::name)]
    crawl: Option<String>,
    /// Only those of this host or queue key
    #[arg(long, value_name = "HOST", value_parser = values::name)]
    host: Option<String>,
    /// Only those in this state
    #[arg(long, value_enum)]
    state: Option<UrlStateArg>,
    /// Only those that contain this text
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    #[command(flatten)]
    page: ListArgs,
}

/// Runs the command.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    match or_list(args.command, args.list, Command::List)? {
        Command::List(args) => list(remote, args).await,
        Command::Lookup { url, crawl, key } => {
            let found = lookup(remote, LookupUrlQuery { url, crawl, key }).await?;
            found.iter().try_for_each(|found| if remote.json { output::json(found) } else { show(found) })
        }
        Command::Requeue(args) => rework::run(remote, args, rework::What::Requeue).await,
        Command::Delete { args, yes } => rework::run(remote, args, rework::What::Delete { really: yes }).await,
    }
}

/// The URL in a crawl; without one in every crawl that has a queue of its host.
async fn lookup(remote: &Remote, query: LookupUrlQuery) -> anyhow::Result<Vec<Url>> {
    let LookupUrlQuery { url, crawl: None, key } = &query else {
        return Ok(vec![remote.client.lookup_url(&query).await?]);
    };
    let host = match key {
        Some(key) => Some(key.clone()),
        None => crawl_url::parse_loosely(url, "").ok().map(|host| host.to_string()),
    };
    let queues = match host {
        Some(host) => match remote.client.host(&host).await {
            Err(error) if error.problem().is_some_and(|problem| matches!(problem.status, 400 | 404)) => Vec::new(),
            other => other?.crawls,
        },
        None => Vec::new(),
    };
    let mut found = Vec::new();
    for queue in queues {
        match remote.client.lookup_url(&LookupUrlQuery { crawl: Some(queue.crawl), ..query.clone() }).await {
            Err(error) if error.code() == Some(Code::UnknownUrl) => {}
            other => found.push(other?),
        }
    }
    if found.is_empty() {
        // Its answer says what is wrong with the URL, if anything is.
        return match remote.client.lookup_url(&query).await {
            Err(error) if error.code() == Some(Code::UnknownUrl) => {
                let message = format!("'{}' is not known in any crawl; add it first", output::shown(url));
                Err(Ended { code: NOT_FOUND, message }.into())
            }
            other => Ok(vec![other?]),
        };
    }
    Ok(found)
}

async fn list(remote: &Remote, args: ListUrlsArgs) -> anyhow::Result<()> {
    let ListUrlsArgs { crawl, host, state, contains, page } = args;
    remote.check_crawl(crawl.as_deref()).await?;
    remote.check_host(host.as_deref()).await?;
    let query = ListUrlsQuery { crawl, host, state: state.map(UrlState::from), contains, ..ListUrlsQuery::default() };
    if remote.json && page.all {
        // Any number: streamed, without buffering.
        let mut urls = std::pin::pin!(remote.client.stream_urls(&query).await?);
        while let Some(url) = futures::StreamExt::next(&mut urls).await.transpose()? {
            output::json(&url)?;
        }
        return Ok(());
    }
    let now = output::now();
    let mut table = Table::new(["url", "crawl", "state", "due", "priority", "depth", "attempts"]);
    for url in page.collect(remote.client.all_urls(query)).await? {
        if remote.json {
            output::json(&url)?;
            continue;
        }
        let (priority, depth, attempts) = (url.priority.to_string(), url.depth.to_string(), url.attempts.to_string());
        table.row([url.url, url.crawl, word(url.state), when(url.due_at, now), priority, depth, attempts]);
    }
    if remote.json { Ok(()) } else { table.print() }
}

fn word(state: UrlState) -> String {
    format!("{state:?}").to_lowercase()
}

/// When the last visit was and how it ended; also why the URL failed, if that was not its own outcome.
fn last_result(last: LastVisit, now: Timestamp) -> String {
    let LastVisit { at, status, exhausted } = last;
    let set_aside = if exhausted { "; failed: its attempts are used up" } else { "" };
    format!("{}, status {}{set_aside}", when(Some(at), now), or_dash(status))
}

fn show(url: &Url) -> anyhow::Result<()> {
    let now = output::now();
    let mut table = Table::about("url", &url.url);
    table.row(["host".into(), url.host.clone()]);
    table.row(["crawl".into(), url.crawl.clone()]);
    table.row(["state".into(), word(url.state)]);
    table.row(["due".into(), when(url.due_at, now)]);
    table.row(["held until".into(), when(url.held_until, now)]);
    table.row(["stored".into(), when(Some(url.created_at), now)]);
    table.row(["priority".into(), url.priority.to_string()]);
    table.row(["depth".into(), url.depth.to_string()]);
    table.row(["attempts".into(), url.attempts.to_string()]);
    table.row(["last result".into(), or_dash(url.last.map(|last| last_result(last, now)))]);
    for (name, values) in &url.metadata.0 {
        table.row([format!("metadata {name}"), values.join(", ")]);
    }
    table.print()
}
