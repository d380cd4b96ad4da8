//! `chunks`: list, show, retry, skip; and the calls of a worker, for scripts.

use wayleave_api::chunks::{
    Artifact, Chunk, ChunkLink, ChunkLinkState, ChunkMoved, ChunkState, ListChunksQuery, Stage,
};
use wayleave_core::redact;

use super::chunk_work::{self, ClaimArgs, CompleteArgs, FailArgs, ReportArgs};
use super::{ListArgs, or_list};
use crate::exit::{Ended, REFUSED};
use crate::output::{self, Table, counted, or_dash, relative, size, when};
use crate::remote::Remote;
use crate::values::{self, words};

/// Arguments of `chunks`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListChunksArgs,
}

const HELP: &str = "\
A chunk is a batch of links that one crawler fetches and one index builder turns into an index: crawling, crawled, building,
built. A worker holds it by a lease. If the lease ends, or the worker fails, the chunk is offered again; after five attempts at
a stage it is set aside until an operator decides.

Examples:
  wayleave chunks                                the first hundred, with state and reason
  wayleave chunks --state set-aside              those that need a decision
  wayleave chunks show 281474976710657           one chunk: why it waits, its links and artifacts
  wayleave chunks retry 281474976710657          offer it again
  wayleave chunks skip 281474976710657           give it up

Scripts can work on chunks too: `wayleave chunks claim`, `report`, `complete` and `fail`. docs/pipeline.md has a whole crawler.";

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List chunks with their state and reason
    List(ListChunksArgs),
    /// Show one chunk
    #[command(visible_alias = "get")]
    Show {
        /// Its id
        #[arg(value_parser = values::chunk)]
        id: String,
    },
    /// Offer a chunk again that was set aside or skipped
    Retry {
        /// Its id
        #[arg(value_parser = values::chunk)]
        id: String,
    },
    /// Give a chunk up: its worker's token ends, and URLs that it has not fetched are marked as failed; a built one leaves the
    /// index
    Skip {
        /// Its id
        #[arg(value_parser = values::chunk)]
        id: String,
    },
    /// Claim chunks as a worker
    Claim(Box<ClaimArgs>),
    /// Report links of a claimed chunk
    Report(ReportArgs),
    /// Complete the stage of a claimed chunk
    Complete(CompleteArgs),
    /// Fail the attempt at a claimed chunk: it is offered again
    Fail(FailArgs),
}

words! {
    /// A stage.
    pub StageArg = Stage {
        /// Links are fetched.
        Crawl,
        /// An index is built of them.
        Build,
    }
}

words! {
    /// The state of a chunk.
    StateArg = ChunkState {
        /// A crawler fetches its links, or is awaited.
        Crawling,
        /// Its links are fetched; an index builder is awaited.
        Crawled,
        /// An index builder works on it.
        Building,
        /// Its index is built.
        Built,
        /// Too many attempts have failed.
        #[value(alias = "set_aside")]
        SetAside,
        /// It ended without a result.
        Skipped,
    }
}

/// Which chunks to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
struct ListChunksArgs {
    /// Only those of this stage
    #[arg(long, value_enum)]
    stage: Option<StageArg>,
    /// Only those in this state
    #[arg(long, value_enum)]
    state: Option<StateArg>,
    /// Only those of this crawl
    #[arg(long, value_name = "CRAWL", value_parser = values::name)]
    crawl: Option<String>,
    #[command(flatten)]
    page: ListArgs,
}

/// Runs the command.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let client = &remote.client;
    match or_list(args.command, args.list, Command::List)? {
        Command::List(args) => list(remote, args).await,
        Command::Show { id } => show(remote, &client.chunk(&id).await?),
        Command::Retry { id } => retried(remote, &client.retry_chunk(&id).await?),
        Command::Skip { id } => moved(remote, &client.skip_chunk(&id).await?),
        Command::Claim(args) => chunk_work::claim(remote, *args).await,
        Command::Report(args) => chunk_work::report(remote, args).await,
        Command::Complete(args) => chunk_work::complete(remote, args).await,
        Command::Fail(args) => chunk_work::fail(remote, args).await,
    }
}

async fn list(remote: &Remote, args: ListChunksArgs) -> anyhow::Result<()> {
    let (stage, state, crawl) = (args.stage.map(Stage::from), args.state.map(ChunkState::from), args.crawl.clone());
    let query = ListChunksQuery { stage, state, crawl: args.crawl, ..ListChunksQuery::default() };
    let now = output::now();
    let chunks = args.page.collect(remote.client.all_chunks(query)).await?;
    if chunks.is_empty() {
        // Its name may be mistyped. One that was deleted may still have chunks, and is no error then.
        remote.check_crawl(crawl.as_deref()).await?;
    }
    output::list(remote.json, ["chunk", "crawl", "state", "since", "links", "attempts", "reason"], &chunks, |chunk| {
        let (id, crawl, state) = (chunk.id.clone(), chunk.crawl.clone(), word(chunk.state));
        let (since, attempts) = (relative(chunk.since, now), chunk.attempts.to_string());
        [id, crawl, state, since, links(chunk), attempts, chunk.reason.clone()]
    })
}

/// The state of a chunk after a retry, which may have found nothing to offer.
fn retried(remote: &Remote, chunk: &ChunkMoved) -> anyhow::Result<()> {
    moved(remote, chunk)?;
    if chunk.state != ChunkState::Skipped {
        return Ok(());
    }
    let why = "none of its links is left to crawl: their URLs are queued, were fetched since, or were deleted";
    Err(Ended { code: REFUSED, message: format!("chunk {} is not offered again: {why}", chunk.id) }.into())
}

/// Prints the state of a chunk after a call.
pub fn moved(remote: &Remote, chunk: &ChunkMoved) -> anyhow::Result<()> {
    if remote.json {
        return output::json(chunk);
    }
    for url in &chunk.ended {
        eprintln!("{} had left the chunk before, and is fetched again", output::shown(url));
    }
    output::line(format_args!("chunk {} is {}", chunk.id, word(chunk.state)))
}

fn links(chunk: &Chunk) -> String {
    let counts = [(chunk.links.crawling, "open"), (chunk.links.crawled, "fetched"), (chunk.links.error, "failed")];
    let told = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    Some(told.collect::<Vec<String>>().join(", ")).filter(|told| !told.is_empty()).unwrap_or_else(|| "none".to_owned())
}

fn show(remote: &Remote, chunk: &Chunk) -> anyhow::Result<()> {
    if remote.json {
        return output::json(chunk);
    }
    let now = output::now();
    let mut table = Table::about("chunk", &chunk.id);
    table.row(["crawl".into(), chunk.crawl.clone()]);
    if let Some(host) = &chunk.host {
        table.row(["host".into(), host.clone()]);
    }
    table.row(["state".into(), word(chunk.state)]);
    table.row(["reason".into(), chunk.reason.clone()]);
    table.row(["since".into(), relative(chunk.since, now)]);
    table.row(["changes".into(), when(chunk.until, now)]);
    table.row(["worker".into(), or_dash(chunk.worker.as_ref())]);
    table.row(["attempts".into(), chunk.attempts.to_string()]);
    table.row(["links".into(), links(chunk)]);
    for link in chunk.link_list.iter().flatten() {
        table.row(["link".into(), told_link(link)]);
    }
    if let Some(more @ 1..) = chunk.links_more {
        table.row(["link".into(), format!("and {more} more, which are not listed")]);
    }
    table.row(["content".into(), or_dash(chunk.artifacts.crawl.as_ref().map(artifact))]);
    table.row(["index".into(), or_dash(chunk.artifacts.build.as_ref().map(artifact))]);
    table.row(["last error".into(), or_dash(chunk.last_error.as_ref())]);
    table.row(["made".into(), relative(chunk.created_at, now)]);
    for copy in chunk.placements.iter().flatten() {
        let state = output::word(copy.state);
        table.row([format!("copy on {}", copy.server), format!("row {}, {state}: {}", copy.row, copy.reason)]);
    }
    table.print()
}

/// A link, what became of it, and where its URL is now if that says more.
fn told_link(link: &ChunkLink) -> String {
    let outcome = match link.state {
        ChunkLinkState::Crawling => "open",
        ChunkLinkState::Crawled => "fetched",
        ChunkLinkState::Error => "failed",
        ChunkLinkState::GivenUp => "given up",
        ChunkLinkState::Left => "left the chunk",
    };
    let status = link.status.map(|status| format!(", status {status}")).unwrap_or_default();
    let attempts = match link.attempts {
        0 => String::new(),
        n => format!(", {}", counted(n, "attempt")),
    };
    let now = link.url_state.map_or_else(|| "deleted or moved to another shard".to_owned(), output::word);
    let now = if now == outcome { String::new() } else { format!(", now {now}") };
    format!("{}: {outcome}{status}{attempts}{now}", output::shown(&link.url))
}

fn artifact(artifact: &Artifact) -> String {
    format!(
        "{} ({}, {})",
        output::shown(&redact::location(&artifact.location)),
        size(artifact.bytes),
        artifact.checksum
    )
}

fn word(state: ChunkState) -> String {
    let state: wayleave_core::pipeline::row::ChunkState = state.into();
    state.name().replace('_', " ")
}
