//! Reads URLs out of inputs, one after the other, on a thread of its own.

use std::collections::HashSet;
use std::fmt;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use indicatif::ProgressBar;
use tokio::sync::mpsc;

use super::sitemap::{Entry, Sitemap};
use crate::input::Input;

/// Index files that may lie in each other.
const NESTING_MAX: usize = 4;
/// Longest line that is read; longer ones are sent cut, for the server to reject.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Where a URL was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    name: Arc<str>,
    unit: &'static str,
    number: u64,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} {}", self.name, self.unit, self.number)
    }
}

/// Reads URLs and hands them over.
pub struct Source {
    bar: ProgressBar,
    sink: mpsc::Sender<(Origin, String)>,
    seen: HashSet<PathBuf>,
    unread: Vec<String>,
}

/// Whether to go on: the receiving side may be gone, and then says itself why.
enum Flow {
    On,
    Stop,
}

impl Source {
    /// A source that moves `bar` and feeds `sink`.
    pub fn new(bar: ProgressBar, sink: mpsc::Sender<(Origin, String)>) -> Self {
        Self { bar, sink, seen: HashSet::new(), unread: Vec::new() }
    }

    /// Reads all inputs. Returns the sitemaps that an index names and that are not here.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub fn read_all(mut self, inputs: &[Input]) -> anyhow::Result<Vec<String>> {
        for input in inputs {
            if let Flow::Stop = self.read(input, 0)? {
                break;
            }
        }
        Ok(self.unread)
    }

    fn read(&mut self, input: &Input, nesting: usize) -> anyhow::Result<Flow> {
        if let Input::File(path) = input {
            self.seen.extend(path.canonicalize());
        }
        let mut reader = input.open(&self.bar)?;
        let name: Arc<str> = input.name().into();
        let start = reader.fill_buf().with_context(|| format!("cannot read {name}"))?;
        if looks_like_xml(start) {
            self.read_sitemap(input, &name, reader, nesting)
        } else {
            self.read_lines(&name, reader).with_context(|| format!("cannot read {name}"))
        }
    }

    fn read_lines(&self, name: &Arc<str>, mut reader: impl BufRead) -> std::io::Result<Flow> {
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            number += 1;
            line.clear();
            if std::io::Read::take(&mut reader, LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
                return Ok(Flow::On);
            }
            if !line.ends_with(b"\n") {
                reader.skip_until(b'\n')?;
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_start_matches('\u{feff}').trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if let Flow::Stop = self.give(name, "line", number, text.to_owned()) {
                return Ok(Flow::Stop);
            }
        }
    }

    fn read_sitemap(
        &mut self,
        input: &Input,
        name: &Arc<str>,
        reader: Box<dyn BufRead + Send>,
        nesting: usize,
    ) -> anyhow::Result<Flow> {
        let mut below = Vec::new();
        for (number, entry) in (1..).zip(Sitemap::new(reader)) {
            match entry.with_context(|| format!("{name} is not a sitemap"))? {
                Entry::Sitemap(location) => below.push(location),
                Entry::Url(url) => {
                    if let Flow::Stop = self.give(name, "entry", number, url) {
                        return Ok(Flow::Stop);
                    }
                }
            }
        }
        for location in below {
            let Some(path) = local(input, &location).filter(|_| nesting < NESTING_MAX) else {
                self.unread.push(location);
                continue;
            };
            // An index that names itself must not be read for ever.
            if path.canonicalize().is_ok_and(|path| self.seen.contains(&path)) {
                continue;
            }
            let file = Input::File(path);
            self.bar.inc_length(file.bytes().unwrap_or(0));
            if let Flow::Stop = self.read(&file, nesting + 1)? {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::On)
    }

    fn give(&self, name: &Arc<str>, unit: &'static str, number: u64, url: String) -> Flow {
        let origin = Origin { name: name.clone(), unit, number };
        if self.sink.blocking_send((origin, url)).is_ok() { Flow::On } else { Flow::Stop }
    }
}

fn looks_like_xml(start: &[u8]) -> bool {
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    start.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'<')
}

/// The file that a location of an index stands for: a path as it is, a web address by its last part; next to the index.
fn local(index: &Input, location: &str) -> Option<PathBuf> {
    let folder = match index {
        Input::Stdin => Path::new("."),
        Input::File(path) => path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    };
    let path = match url::Url::parse(location) {
        Ok(url) if url.scheme() == "file" => url.to_file_path().ok()?,
        Ok(url) => folder.join(url.path_segments()?.next_back().filter(|name| !name.is_empty())?),
        Err(_) => folder.join(location),
    };
    path.is_file().then_some(path)
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
