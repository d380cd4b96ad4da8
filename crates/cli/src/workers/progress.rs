//! Progress on stderr: one line that is rewritten on a terminal, else a line now and then.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tokio::task::AbortHandle;

/// How often the line on a terminal changes.
const ON_TERMINAL: Duration = Duration::from_millis(500);
/// How often a line may be written elsewhere.
const IN_LOG: Duration = Duration::from_secs(10);
/// How often it is written there although only numbers of its note have changed, such as a time that passes.
const SAID_AGAIN: Duration = Duration::from_secs(60);

/// Tells progress until it is dropped.
#[derive(Debug)]
pub struct Progress {
    task: AbortHandle,
    bar: ProgressBar,
}

impl Progress {
    /// Tells how far the work is, with a note of what it waits for; nothing where it would say what it said before.
    pub fn start(told: impl Fn() -> (String, Option<String>) + Send + 'static) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        let shown = bar.clone();
        let task = tokio::spawn(async move {
            let mut log = Log::default();
            loop {
                tokio::time::sleep(if terminal { ON_TERMINAL } else { IN_LOG }).await;
                let (line, note) = told();
                let whole = note.as_ref().map_or_else(|| line.clone(), |note| format!("{line}; {note}"));
                if terminal {
                    shown.set_message(whole);
                    shown.tick();
                } else if log.is_news(line, note.as_deref().unwrap_or_default(), Instant::now()) {
                    eprintln!("{whole}");
                }
            }
        });
        Self { task: task.abort_handle(), bar }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.task.abort();
        self.bar.finish_and_clear();
    }
}

/// What a log says already.
#[derive(Default)]
struct Log {
    line: String,
    words: String,
    said_at: Option<Instant>,
}

impl Log {
    fn is_news(&mut self, line: String, note: &str, now: Instant) -> bool {
        let words: String = note.chars().filter(|c| !c.is_ascii_digit()).collect();
        let waits_long = !note.is_empty() && self.said_at.is_none_or(|at| now.duration_since(at) >= SAID_AGAIN);
        let news = line != self.line || words != self.words || waits_long;
        if news {
            *self = Self { line, words, said_at: Some(now) };
        }
        news
    }
}

/// Things per second, with one digit after the point.
pub fn rate(count: u64, elapsed: Duration) -> String {
    let tenths = u128::from(count) * 10_000 / elapsed.as_millis().max(1);
    format!("{}.{}/s", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_tells_what_is_waited_for_when_that_changes_and_every_minute() {
        let (mut log, start) = (Log::default(), Instant::now());
        let mut is_news =
            |line: &str, note: &str, secs: u64| log.is_news(line.to_owned(), note, start + Duration::from_secs(secs));
        for (line, note, secs, news) in [
            ("1 page", "", 0, true),
            ("1 page", "", 100, false),
            ("1 page", "due in 58 s", 110, true),
            ("1 page", "due in 48 s", 120, false),
            ("1 page", "2 URLs are handed out", 130, true),
            ("1 page", "3 URLs are handed out", 189, false),
            ("1 page", "3 URLs are handed out", 190, true),
            ("2 pages", "3 URLs are handed out", 200, true),
        ] {
            assert_eq!(is_news(line, note, secs), news, "{line}; {note} after {secs} s");
        }
    }

    #[test]
    fn rates_have_one_digit() {
        assert_eq!(rate(0, Duration::ZERO), "0.0/s");
        assert_eq!(rate(25, Duration::from_secs(10)), "2.5/s");
        assert_eq!(rate(1_000, Duration::from_millis(500)), "2000.0/s");
    }
}
