//! Files and standard input: opened by name, decompressed by content, with progress.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use crate::unpacked::Unpacked;

/// The buffer size of a reader.
const BUFFER: usize = 256 * 1024;

/// An input: a file, or `-` for standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

impl Input {
    /// The input that a name stands for.
    pub fn new(path: &Path) -> Self {
        if path.as_os_str() == "-" { Self::Stdin } else { Self::File(path.to_owned()) }
    }

    /// Its name, for people.
    pub fn name(&self) -> String {
        match self {
            Self::Stdin => "stdin".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// Its size, if known in advance.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::Stdin => None,
            Self::File(path) => std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|data| data.len()),
        }
    }

    /// Opens it; gzip is detected by content. The progress bar counts compressed bytes.
    pub fn open(&self, bar: &ProgressBar) -> anyhow::Result<Box<dyn BufRead + Send>> {
        let raw: Box<dyn Read + Send> = match self {
            Self::Stdin => Box::new(std::io::stdin()),
            Self::File(path) => Box::new(File::open(path).with_context(|| format!("cannot read {}", path.display()))?),
        };
        let mut reader = BufReader::with_capacity(BUFFER, bar.wrap_read(raw));
        let start = reader.fill_buf().with_context(|| format!("cannot read {}", self.name()))?;
        if start.starts_with(&[0x1f, 0x8b]) {
            return Ok(Box::new(BufReader::with_capacity(BUFFER, Unpacked::new(reader))));
        }
        Ok(Box::new(reader))
    }
}

/// Reads a small text file.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut reader = Input::new(path).open(&ProgressBar::hidden())?;
    reader.read_to_string(&mut text).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text)
}

/// A progress bar on stderr over the bytes of all inputs; shown on a terminal only.
pub fn progress(inputs: &[Input]) -> ProgressBar {
    let total: Option<u64> = inputs.iter().map(Input::bytes).sum();
    let (bar, form) = match total {
        Some(total) => (ProgressBar::new(total), "{bar:30} {bytes}/{total_bytes} {eta} left, {msg}"),
        None => (ProgressBar::no_length(), "{spinner} {bytes} read in {elapsed}, {msg}"),
    };
    styled(bar, form)
}

/// A progress bar over a number of items.
pub fn progress_of(total: u64) -> ProgressBar {
    styled(ProgressBar::new(total), "{bar:30} {human_pos}/{human_len} {per_sec}, {eta} left {msg}")
}

fn styled(bar: ProgressBar, form: &str) -> ProgressBar {
    // The templates are constants of this file; if one were invalid, the default would do.
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    bar
}
