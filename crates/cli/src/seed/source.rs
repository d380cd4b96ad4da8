//! Reads URLs from inputs, one after the other, on a separate thread.
//!
//! An index may come from an untrusted source, and what it names is read and sent away. So it leads only to sitemaps in
//! its own folder: a path or a `file:` URL is followed only from an input that the user named, with `--local`.

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
use crate::limits::{INDEX_BYTES_MAX, INDEX_NESTING_MAX, LINE_BYTES_MAX, LINE_SKIPPED_MAX};

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

/// Reads URLs into a channel.
pub struct Source {
    bar: ProgressBar,
    sink: mpsc::Sender<(Origin, String)>,
    /// Whether inputs that the user named may name any file.
    trusts: bool,
    named_bytes: usize,
    seen: HashSet<PathBuf>,
    unread: Vec<String>,
}

/// Whether to continue: the receiver may be gone, and then reports its own error.
enum Flow {
    On,
    Stop,
}

impl Source {
    /// A source that advances `bar` and feeds `sink`. With `local`, the index files among its inputs may name any file.
    pub fn new(bar: ProgressBar, sink: mpsc::Sender<(Origin, String)>, local: bool) -> Self {
        Self { bar, sink, trusts: local, named_bytes: 0, seen: HashSet::new(), unread: Vec::new() }
    }

    /// Reads all inputs. Returns the sitemaps that an index names and that were not found.
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

    fn read_lines(&self, name: &Arc<str>, mut reader: impl BufRead) -> anyhow::Result<Flow> {
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            number += 1;
            line.clear();
            if std::io::Read::take(&mut reader, LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
                return Ok(Flow::On);
            }
            if !line.ends_with(b"\n") {
                let skipped = std::io::Read::take(&mut reader, LINE_SKIPPED_MAX).skip_until(b'\n')?;
                if skipped as u64 == LINE_SKIPPED_MAX {
                    anyhow::bail!("line {number} is longer than {LINE_SKIPPED_MAX} bytes, which is the limit");
                }
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
            match entry.with_context(|| format!("{name} is not a sitemap that can be read"))? {
                Entry::Sitemap(location) => {
                    self.named_bytes += location.len();
                    if self.named_bytes > INDEX_BYTES_MAX {
                        anyhow::bail!("{name} names too many sitemaps: more than {INDEX_BYTES_MAX} bytes, the limit");
                    }
                    below.push(location);
                }
                Entry::Url(url) => {
                    if let Flow::Stop = self.give(name, "entry", number, url) {
                        return Ok(Flow::Stop);
                    }
                }
            }
        }
        for location in below {
            let trusted = self.trusts && nesting == 0;
            let Some(path) = local(input, &location, trusted).filter(|_| nesting < INDEX_NESTING_MAX) else {
                self.unread.push(location);
                continue;
            };
            // Prevents an endless loop over an index that names itself.
            if path.canonicalize().is_ok_and(|path| self.seen.contains(&path)) {
                continue;
            }
            let file = Input::File(path);
            // Lines of any other file would be sent to the server, and shown among the rejected ones.
            if !trusted && !is_sitemap(&file)? {
                self.unread.push(location);
                continue;
            }
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

fn is_sitemap(file: &Input) -> anyhow::Result<bool> {
    let mut reader = file.open(&ProgressBar::hidden())?;
    Ok(looks_like_xml(reader.fill_buf().with_context(|| format!("cannot read {}", file.name()))?))
}

/// The file for a location in an index: for a web URL, its last part in the folder of the index; in a trusted index, a
/// path or a `file:` URL as it is.
fn local(index: &Input, location: &str, trusted: bool) -> Option<PathBuf> {
    let folder = match index {
        Input::Stdin => Path::new("."),
        Input::File(path) => path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    };
    let path = match url::Url::parse(location) {
        Ok(url) if url.scheme() == "file" => url.to_file_path().ok().filter(|_| trusted)?,
        Ok(url) if matches!(url.scheme(), "http" | "https") => {
            folder.join(url.path_segments()?.next_back().filter(|name| !name.is_empty())?)
        }
        Ok(_) | Err(_) if !trusted => return None,
        Ok(_) | Err(_) => folder.join(location),
    };
    path.is_file().then_some(path)
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
