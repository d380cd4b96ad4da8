//! Progress on stderr: one line that is rewritten on a terminal, else a line now and then.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::task::AbortHandle;

/// How often the line on a terminal changes.
const ON_TERMINAL: Duration = Duration::from_millis(500);
/// How often a line is written elsewhere.
const IN_LOG: Duration = Duration::from_secs(10);

/// Tells progress until it is dropped.
#[derive(Debug)]
pub struct Progress {
    task: AbortHandle,
    bar: ProgressBar,
}

impl Progress {
    /// Tells what `line` says; nothing where it says what it said before.
    pub fn start(line: impl Fn() -> String + Send + 'static) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        let shown = bar.clone();
        let task = tokio::spawn(async move {
            let mut last = String::new();
            loop {
                tokio::time::sleep(if terminal { ON_TERMINAL } else { IN_LOG }).await;
                let now = line();
                if terminal {
                    shown.set_message(now);
                    shown.tick();
                } else if now != last {
                    eprintln!("{now}");
                    last = now;
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

/// Things per second, with one digit after the point.
pub fn rate(count: u64, elapsed: Duration) -> String {
    let tenths = u128::from(count) * 10_000 / elapsed.as_millis().max(1);
    format!("{}.{}/s", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_one_digit() {
        assert_eq!(rate(0, Duration::ZERO), "0.0/s");
        assert_eq!(rate(25, Duration::from_secs(10)), "2.5/s");
        assert_eq!(rate(1_000, Duration::from_millis(500)), "2000.0/s");
    }
}
