//! The calls of a worker on chunks: claim, report, complete, fail.

use wayleave_api::chunks::{
    Artifact, ClaimChunksRequest, ClaimedChunk, CompleteChunkRequest, FailChunkRequest, ReportLinksRequest,
};
use wayleave_core::redact;

use super::chunks::{StageArg, moved};
use super::outcomes::OutcomeArgs;
use crate::exit::{Ended, NOT_FOUND};
use crate::output::{self, Table, counted, relative, span};
use crate::remote::Remote;
use crate::values;

const CLAIM_HELP: &str = "\
Examples:
  wayleave chunks claim                                 up to five links, for a minute
  wayleave chunks claim --links 50 --linger 2s --wait 30s
  wayleave chunks claim --stage build                   what up to five crawlers have left behind
  wayleave chunks claim --json | jq -r .token           one chunk per line

Ends with 3 if there was nothing in time.";

/// Arguments of `chunks claim`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = CLAIM_HELP)]
pub struct ClaimArgs {
    /// Which kind of work
    #[arg(long, value_enum, default_value = "crawl")]
    stage: StageArg,
    /// Name of the worker, for people
    #[arg(long, env = "WAYLEAVE_HOLDER", default_value = "wayleave-cli", value_name = "NAME")]
    worker: String,
    /// Only chunks of this crawl
    #[arg(long, value_name = "CRAWL", value_parser = values::name)]
    crawl: Option<String>,
    /// Maximum number of chunks; 1 to crawl and 5 to build by default
    #[arg(long, value_name = "NUMBER")]
    max: Option<u64>,
    /// Maximum number of links of a chunk, each of another group
    #[arg(long, default_value_t = 5, value_name = "NUMBER")]
    links: u64,
    /// Only links of this host, of crawl DEFAULT unless --crawl names another; keep the delay between them yourself
    #[arg(long, value_name = "HOST", value_parser = values::name)]
    host: Option<String>,
    /// Lease time of the chunks
    #[arg(long, default_value = "60s", value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    lease: u64,
    /// How long to wait for a chunk to have all its links; at most as long as --wait
    #[arg(long, default_value = "0", value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    linger: u64,
    /// How long to wait for a chunk, at most 60s
    #[arg(long, default_value = "0", value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    wait: u64,
}

/// Claims chunks and prints them. Fails if the server refuses or does not answer, or there is no chunk.
pub async fn claim(remote: &Remote, args: ClaimArgs) -> anyhow::Result<()> {
    let request = ClaimChunksRequest {
        stage: args.stage.into(),
        worker: args.worker,
        crawl: args.crawl,
        max: args.max,
        links: args.links,
        host: args.host,
        lease_ms: args.lease,
        linger_ms: args.linger,
        wait_ms: args.wait,
        request_id: None,
    };
    let answer = remote.client.claim_chunks(&request).await?;
    for chunk in &answer.chunks {
        if remote.json { output::json(chunk)? } else { print(chunk)? }
    }
    if !answer.chunks.is_empty() {
        return Ok(());
    }
    if let Some(crawl) = &request.crawl {
        // A crawl without URLs is no error of the server's, but its name may well be mistyped.
        remote.client.crawl(crawl).await?;
    }
    let message = match request.crawl.filter(|_| answer.finished) {
        Some(crawl) => format!("crawl {crawl} is finished"),
        None => "there is no chunk to claim; `wayleave chunks` shows what others work on".to_owned(),
    };
    Err(Ended { code: NOT_FOUND, message }.into())
}

fn print(chunk: &ClaimedChunk) -> anyhow::Result<()> {
    let ClaimedChunk { id, token, expires_at, attempts, links, inputs, .. } = chunk;
    let end = relative(*expires_at, output::now());
    let again = if *attempts > 0 { format!("  after {}", counted(*attempts, "attempt")) } else { String::new() };
    output::line(format_args!("chunk {id}  token {token}  ends {end}{again}"))?;
    for input in inputs {
        output::line(format_args!("  {}", output::shown(&redact::location(&input.artifact.location))))?;
    }
    let mut table = Table::new(["  url", "crawl", "depth", "delay"]);
    for link in links {
        table.row([format!("  {}", link.url), link.crawl.clone(), link.depth.to_string(), span(link.delay_ms)]);
    }
    if links.is_empty() { Ok(()) } else { table.print() }
}

/// The chunk that a worker has claimed.
#[derive(Clone, Debug, clap::Args)]
struct Held {
    /// The chunk's id
    #[arg(value_parser = values::chunk)]
    id: String,
    /// The token of the claim
    #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
    token: String,
}

/// Arguments of `chunks report`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReportArgs {
    #[command(flatten)]
    held: Held,
    #[command(flatten)]
    outcomes: OutcomeArgs,
    /// Replace links that were not fetched by fresh ones
    #[arg(long)]
    replace: bool,
}

/// Reports links. Fails if the token is not current, a result is refused, or the server does not answer.
pub async fn report(remote: &Remote, args: ReportArgs) -> anyhow::Result<()> {
    let ReportArgs { held, outcomes, replace } = args;
    let request = ReportLinksRequest { token: held.token, results: outcomes.results(), replace };
    let told = remote.client.report_links(&held.id, &request).await?;
    if remote.json {
        return output::json(&told);
    }
    for link in &told.replacements {
        output::line(&link.url)?;
    }
    for url in &told.ended {
        eprintln!("{} is no longer part of the chunk, its result was not taken", output::shown(url));
    }
    eprintln!("{} left to report", counted(told.left, "link"));
    Ok(())
}

const COMPLETE_HELP: &str = "\
Example:
  wayleave chunks complete 281474976710657 --token TOKEN --location s3://crawl/7f3a.warc.gz --bytes 48213 \\
    --checksum sha256:$(sha256sum 7f3a.warc.gz | cut -c1-64)

Put the token or a random name into the location, so that two attempts never write to the same place. A crawler that fetched
nothing leaves --location, --bytes and --checksum out. Ends with 4 if the token is not current: then delete what was stored.";

/// Arguments of `chunks complete`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = COMPLETE_HELP)]
pub struct CompleteArgs {
    #[command(flatten)]
    held: Held,
    /// URL of what the stage left behind
    #[arg(long, value_name = "URL", requires_all = ["bytes", "checksum"])]
    location: Option<String>,
    /// Its size
    #[arg(long, value_name = "BYTES", requires = "location")]
    bytes: Option<u64>,
    /// Its checksum: sha256: and 64 hexadecimal digits
    #[arg(long, value_name = "CHECKSUM", requires = "location")]
    checksum: Option<String>,
}

/// Completes a stage. Fails if the token is not current, the artifact is refused, or the server does not answer.
pub async fn complete(remote: &Remote, args: CompleteArgs) -> anyhow::Result<()> {
    let CompleteArgs { held, location, bytes, checksum } = args;
    let artifact = location.zip(bytes).zip(checksum);
    let artifact = artifact.map(|((location, bytes), checksum)| Artifact { location, bytes, checksum });
    let request = CompleteChunkRequest { token: held.token, artifact };
    moved(remote, &remote.client.complete_chunk(&held.id, &request).await?)
}

/// Arguments of `chunks fail`.
#[derive(Clone, Debug, clap::Args)]
pub struct FailArgs {
    #[command(flatten)]
    held: Held,
    /// Why, for people
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The content that the crawler left behind is gone: its links are crawled again
    #[arg(long)]
    input_lost: bool,
}

/// Fails an attempt.
pub async fn fail(remote: &Remote, args: FailArgs) -> anyhow::Result<()> {
    let FailArgs { held, reason, input_lost } = args;
    let request = FailChunkRequest { token: held.token, reason, input_lost };
    moved(remote, &remote.client.fail_chunk(&held.id, &request).await?)
}
