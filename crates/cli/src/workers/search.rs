//! `search`: asks the index servers.

use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::io::IsTerminal;

use wayleave_core::plain;
use wayleave_workers::index::Refused;
use wayleave_workers::search::{self, Error, Hit, Search, SearchResults};

use super::worker_args::AllowArgs;
use crate::exit::{Ended, NOT_FOUND, UNAVAILABLE, Usage};
use crate::output::{self, counted};
use crate::remote::Remote;
use crate::values;

const AFTER_HELP: &str = "\
Examples:
  wayleave search river otter                pages with both words
  wayleave search --crawl news --limit 50 election
  wayleave search --json river | jq -r .url

Words are looked for in titles and texts; all must be there. There is no other syntax. Exits with 3 if nothing was found, with 5 if
no index server could be asked; what could not be searched is told on stderr.";

/// Arguments of `search`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Words that a page must have
    #[arg(required = true, value_name = "WORD")]
    words: Vec<String>,
    /// Only pages of this crawl
    #[arg(long, value_name = "CRAWL", value_parser = values::name)]
    crawl: Option<String>,
    /// Print at most this many
    #[arg(long, default_value_t = 10, value_name = "1-100", value_parser = values::between::<u64>(1, 100))]
    limit: u64,
    #[command(flatten)]
    allow: AllowArgs,
}

/// Searches and prints. Fails if the words are none, the map cannot be read, or nothing was found.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let words = args.words.join(" ");
    // Searches of many people spread over the rows.
    let first_row = RandomState::new().hash_one(()) as usize;
    let limit = usize::try_from(args.limit).unwrap_or(10);
    let search = Search { words, crawl: args.crawl, limit, first_row, policy: args.allow.policy(remote) };
    let found = match search::run(&remote.client, &search).await {
        Err(Error::Query(refused @ (Refused::Empty | Refused::TooLong))) => {
            return Err(Usage(refused.to_string()).into());
        }
        Err(Error::Server(error)) => return Err(error.into()),
        found => found?,
    };
    print(remote.json, &found)?;
    for (address, why) in &found.away {
        eprintln!("note: {address} did not answer ({})", output::shown(why));
    }
    if found.missing > 0 {
        eprintln!("{} could not be searched: see `wayleave map`", counted(found.missing as u64, "chunk"));
    }
    let SearchResults { chunks, servers, .. } = found;
    let searched = format!("{} on {}", counted(chunks as u64, "chunk"), counted(servers as u64, "server"));
    if found.hits.is_empty() {
        let (code, message) = match chunks {
            0 if found.missing > 0 => (UNAVAILABLE, "no index server answered".to_owned()),
            0 => (NOT_FOUND, "nothing is indexed yet".to_owned()),
            _ => (NOT_FOUND, format!("nothing found in {searched}")),
        };
        return Err(Ended { code, message }.into());
    }
    if !remote.json {
        eprintln!("{} in {searched}", counted(found.hits.len() as u64, "hit"));
    }
    Ok(())
}

/// Hits on stdout.
pub fn print(json: bool, found: &SearchResults) -> anyhow::Result<()> {
    let bold = std::io::stdout().is_terminal();
    for (number, hit) in (1..).zip(&found.hits) {
        if json {
            output::json(hit)?;
            continue;
        }
        let title = if hit.title.trim().is_empty() { "(no title)" } else { &hit.title };
        output::line(format_args!("{number}. {}", harmless(title)))?;
        output::line(format_args!("   {}", output::shown(&hit.url)))?;
        output::styled(format_args!("   {}", snippet(hit, bold)))?;
    }
    Ok(())
}

/// Text of the web, made safe for a terminal.
fn harmless(text: &str) -> String {
    let one_line = text.replace(['\n', '\r', '\t'], " ");
    plain::line(&one_line).into_owned()
}

/// The snippet, with the words in bold where that can be shown.
fn snippet(hit: &Hit, bold: bool) -> String {
    let (mut out, mut at) = (String::new(), 0);
    for (start, end) in &hit.words {
        // Ranges come from another machine: what does not fit the text is passed over.
        let (Some(before), Some(word)) = (hit.snippet.get(at..*start), hit.snippet.get(*start..*end)) else { continue };
        out += &harmless(before);
        let (on, off) = if bold { ("\u{1b}[1m", "\u{1b}[0m") } else { ("", "") };
        let _ = write!(out, "{on}{}{off}", harmless(word));
        at = *end;
    }
    out + &harmless(hit.snippet.get(at..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snippets_show_the_words_and_cannot_paint_the_terminal() {
        let hit = |snippet: &str, words: Vec<(usize, usize)>| Hit {
            url: "http://a.example/".to_owned(),
            title: String::new(),
            crawl: String::new(),
            chunk: String::new(),
            score: 1.0,
            snippet: snippet.to_owned(),
            words,
        };
        assert_eq!(snippet(&hit("a river runs", vec![(2, 7)]), true), "a \u{1b}[1mriver\u{1b}[0m runs");
        assert_eq!(snippet(&hit("a river runs", vec![(2, 7)]), false), "a river runs");
        assert_eq!(snippet(&hit("a\u{1b}[31mx", vec![]), false), "a\\u{1b}[31mx");
        assert_eq!(snippet(&hit("café", vec![(0, 4), (9, 12), (3, 1)]), false), "café");
    }
}
