//! Parses the lines of a file: our own records, items of a URLFrontier dump, or bare URLs.

use std::io::BufRead;

use anyhow::Context;
use indicatif::ProgressBar;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use wayleave_api::object;
use wayleave_api::urlfrontier::{DiscoveredUrlItem, UrlInfo, UrlItem, url_item};
use wayleave_api::wording::TextError;
use wayleave_engine::snapshot_file::MAGIC;

use super::dump;
use crate::exit::{ERROR, Ended, Usage};
use crate::input::Input;
use crate::record::Record;

/// A parsed line.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A record of our own.
    Record(Record),
    /// An item of a URLFrontier dump, or a bare URL.
    Item(Box<UrlItem>),
    /// An invalid line, and why.
    Bad(String),
}

/// Reads an input line by line into `sink`, with line numbers. Fails if it cannot be read, or has no line: an export
/// has at least a first and a last one.
pub fn read(
    input: &Input,
    crawl: Option<&str>,
    bar: &ProgressBar,
    sink: &mpsc::Sender<(u64, Line)>,
) -> anyhow::Result<()> {
    let mut reader = input.open(bar)?;
    let mut text = Vec::new();
    let (mut number, mut found) = (0, false);
    loop {
        number += 1;
        text.clear();
        if reader.read_until(b'\n', &mut text).with_context(|| format!("cannot read {}", input.name()))? == 0 {
            if !found {
                let message = format!("{} has no line to import: it is no export, or an interrupted one", input.name());
                return Err(Ended { code: ERROR, message }.into());
            }
            return Ok(());
        }
        if number == 1 && text == MAGIC {
            let name = input.name();
            let message = format!(
                "{name} is a snapshot, not an export: `wayleave restore {name} --data FOLDER` makes a data folder of it"
            );
            return Err(Usage(message).into());
        }
        let text = String::from_utf8_lossy(&text);
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        found = true;
        if sink.blocking_send((number, parse(text, crawl))).is_err() {
            // The receiver is gone and reports its own error.
            return Ok(());
        }
    }
}

fn parse(text: &str, crawl: Option<&str>) -> Line {
    if !text.starts_with('{') {
        if !is_url(text) {
            let what =
                "neither JSON nor a URL alone on its line; for lists of URLs and sitemaps there is `wayleave seed`";
            return Line::Bad(what.to_owned());
        }
        return Line::Item(Box::new(bare(text, crawl)));
    }
    let value: Map<String, Value> = match object::read(text.as_bytes()) {
        Ok(value) => value,
        Err(error) => {
            // The number of the line in the file is told with it.
            return Line::Bad(wrong(&error).replace("(line 1, ", "("));
        }
    };
    if value.contains_key("known") || value.contains_key("discovered") {
        return dump::item(text).map_or_else(|error| Line::Bad(wrong(&error)), |item| Line::Item(Box::new(item)));
    }
    object::read(text.as_bytes()).map_or_else(
        |error| Line::Bad(format!("neither a line of an export nor of a URLFrontier dump: {}", wrong(&error))),
        Line::Record,
    )
}

/// Whether a line looks like one URL and nothing else. The server reports whatever else is wrong with it.
fn is_url(text: &str) -> bool {
    let scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    text.split_once("://").is_some_and(|(before, _)| scheme(before)) && !text.contains(char::is_whitespace)
}

fn wrong(error: &TextError) -> String {
    error.sentence("the line")
}

fn bare(url: &str, crawl: Option<&str>) -> UrlItem {
    let info = UrlInfo { url: url.to_owned(), crawl_id: crawl.unwrap_or_default().to_owned(), ..UrlInfo::default() };
    let item = url_item::Item::Discovered(DiscoveredUrlItem { info: Some(info) });
    UrlItem { item: Some(item), ..UrlItem::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{End, Totals};

    #[test]
    fn a_file_without_a_line_is_no_export() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("all.jsonl");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let (sink, _lines) = mpsc::channel(9);
            super::read(&Input::new(&file), None, &ProgressBar::hidden(), &sink)
        };
        for text in ["", "\n", "# nothing\n"] {
            let refused = read(text).unwrap_err().to_string();
            assert!(refused.contains("all.jsonl has no line to import"), "{refused}");
        }
        read("# one\nhttp://a/\n").unwrap();
    }

    #[test]
    fn each_form_of_a_line_is_told_apart() {
        let Line::Bad(why) = parse("{\"url\": }", None) else { panic!("it is no JSON") };
        assert!(why.contains("(column 9)") && !why.contains("line 1"), "{why}");
        for text in ["not json", "see http://a/", "<loc>http://a/</loc>", "http://a/ 7", "://a/"] {
            assert!(matches!(parse(text, None), Line::Bad(_)), "{text}");
        }
        assert_eq!(parse("http://a/", Some("c")), Line::Item(Box::new(bare("http://a/", Some("c")))));
        assert_eq!(parse(r#"{"end":{"crawls":0,"groups":0,"hosts":0,"roles":0,"pools":0,"urls":2}}"#, None), {
            let totals = Totals { urls: 2, ..Totals::default() };
            Line::Record(Record::End(End { totals, left_out: Vec::new() }))
        });
        assert!(matches!(parse(r#"{"known":{"info":{"url":"http://a/"}}}"#, None), Line::Item(_)));
        for text in ["{", "{}", r#"{"strange":1}"#, r#"{"known":7}"#] {
            assert!(matches!(parse(text, None), Line::Bad(_)), "{text}");
        }
    }
}
