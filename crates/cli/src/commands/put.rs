//! `put`: adds a few URLs and prints the result of each.

use wayleave_api::Timestamp;
use wayleave_api::metadata::Metadata;
use wayleave_api::urls::{AddCounts, AddUrlsRequest, UrlToAdd};

use crate::exit::{Ended, UNAVAILABLE, Usage};
use crate::output::{self, Table, counted};
use crate::remote::Remote;
use crate::values;

const AFTER_HELP: &str = "\
Examples:
  wayleave put https://example.com/ https://example.org/a
  wayleave put --crawl news --priority 9 --metadata source=editor https://example.com/today
  wayleave put --at 10m https://example.com/later
  wayleave put --again https://example.com/changed     also if it was fetched, or has failed

For whole files use `wayleave seed`. Ends with 6 if some URLs are rejected and the others taken, with 4 if all are rejected.";

/// Arguments of `put`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP, allow_negative_numbers = true)]
pub struct Args {
    /// The URLs
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Their crawl
    #[arg(long, value_name = "CRAWL", value_parser = values::name)]
    crawl: Option<String>,
    /// Priority from 0 to 9; 9 comes first among the URLs of its host
    #[arg(long, value_name = "0-9", value_parser = values::between::<u8>(0, 9))]
    priority: Option<u8>,
    /// Number of links from the seed
    #[arg(long, value_name = "NUMBER")]
    depth: Option<u32>,
    /// When they are due: a time, or a span from now
    #[arg(long, value_name = "WHEN", value_parser = values::when, allow_hyphen_values = true)]
    at: Option<Timestamp>,
    /// Requeue known ones, unless they are handed out
    #[arg(long)]
    again: bool,
    /// Queue key, if not the host's
    #[arg(long, value_name = "KEY", value_parser = values::name)]
    key: Option<String>,
    /// Metadata that is handed out with them; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("'{text}' is not of the form name=value"))?;
    Ok((name.to_owned(), value.to_owned()))
}

fn metadata(pairs: &[(String, String)]) -> Metadata {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for (name, value) in pairs {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(value.clone()),
            None => all.push((name.clone(), vec![value.clone()])),
        }
    }
    Metadata(all)
}

/// Adds the URLs. Fails if the server does not answer, or a URL is rejected or could not be stored.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    if args.urls.iter().any(|url| url == "-") {
        return Err(Usage("- is not a URL; `wayleave seed -` reads URLs from stdin, one per line".to_owned()).into());
    }
    let metadata = metadata(&args.metadata);
    let url = |url: String| UrlToAdd {
        url,
        key: args.key.clone(),
        crawl: None,
        at: args.at,
        priority: args.priority,
        depth: args.depth,
        metadata: metadata.clone(),
        again: args.again,
        ..UrlToAdd::default()
    };
    let request = AddUrlsRequest { crawl: args.crawl, urls: args.urls.into_iter().map(url).collect() };
    let answer = remote.client.add_urls(&request).await?;
    let mut table = Table::new(["result", "url", "reason"]);
    for result in answer.results.iter().flatten() {
        if remote.json {
            output::json(result)?;
        }
        let status = format!("{:?}", result.status).to_lowercase();
        let url = output::or_dash(result.url.as_deref().map(output::shown));
        table.row([status, url, result.reason.clone().unwrap_or_default()]);
    }
    if !remote.json {
        table.print()?;
    }
    let AddCounts { added, known, requeued, rejected, failed } = answer.counts;
    if failed > 0 {
        let message = format!("{} could not be stored; run the same command again", counted(failed, "URL"));
        return Err(Ended { code: UNAVAILABLE, message }.into());
    }
    if known > 0 && (args.at.is_some() || !args.metadata.is_empty()) {
        let (known, verb) = (counted(known, "URL"), if known == 1 { "was" } else { "were" });
        eprintln!("{known} {verb} already known, and nothing was changed; --again requeues what is known");
    }
    Ended::after("URLs", added + known + requeued, rejected, "the table says why")
}
