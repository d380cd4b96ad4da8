//! How far a copy has come: a bar on a terminal, else a line now and then.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::{counted, size};

/// Between two lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How far a copy has come.
pub struct Progress {
    bar: ProgressBar,
    told: Instant,
    rows: u64,
    bytes: u64,
}

impl Progress {
    /// Nothing is copied yet.
    pub fn new() -> Self {
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} in {elapsed}") {
            bar.set_style(style);
        }
        Self { bar, told: Instant::now(), rows: 0, bytes: 0 }
    }

    /// More rows were copied.
    pub fn add(&mut self, rows: u64, bytes: u64) {
        self.rows += rows;
        self.bytes += bytes;
        let text = || format!("{}, {} copied", counted(self.rows, "row"), size(self.bytes));
        if !self.bar.is_hidden() {
            self.bar.set_message(text());
            self.bar.tick();
        } else if self.told.elapsed() >= LINE_EVERY {
            self.told = Instant::now();
            eprintln!("{}", text());
        }
    }

    /// Rows and bytes so far.
    pub const fn counts(&self) -> (u64, u64) {
        (self.rows, self.bytes)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
