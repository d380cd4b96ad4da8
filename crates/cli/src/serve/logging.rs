//! Logging to stderr, as text for people or JSON for machines.
//!
//! Text of others is made harmless here, whatever a log line repeats of it.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use wayleave_core::plain;

use super::settings::LogForm;
use crate::exit::Usage;

/// Starts logging for the whole process.
pub fn start(form: LogForm, level: &str) -> anyhow::Result<()> {
    let wrong = |why: String| {
        Usage(format!("log level '{level}': {why}; use error, warn, info, debug, trace, off, or module=level pairs"))
    };
    // An unknown bare word would be taken for a module's name, and silence all others.
    if let Some(word) = level.split(',').map(str::trim).find(|part| !part.contains('=') && !is_level(part)) {
        return Err(wrong(format!("'{word}' is not a log level")).into());
    }
    let filter = EnvFilter::try_new(directives(level)).map_err(|error| wrong(error.to_string()))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter);
    let started = match form {
        LogForm::Text => {
            let fields = debug_fn(write_field).delimited(" ");
            let lines = lines.with_target(false).with_ansi(io::stderr().is_terminal());
            lines.fmt_fields(fields).with_writer(io::stderr).try_init()
        }
        LogForm::Json => lines.json().flatten_event(true).with_writer(|| PlainJson(io::stderr())).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

/// Writes a field of a line for people, who need none about logging itself.
fn write_field(out: &mut Writer<'_>, field: &tracing::field::Field, value: &dyn fmt::Debug) -> fmt::Result {
    if field.name().starts_with("log.") {
        return Ok(());
    }
    let text = format!("{value:?}");
    let text = plain::line(&text);
    if field.name() == "message" { out.write_str(&text) } else { write!(out, "{}={text}", field.name()) }
}

/// Writes lines of JSON; each arrives in one piece.
struct PlainJson<W>(W);

impl<W: Write> Write for PlainJson<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.0.write_all(plain::json(&text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn is_level(word: &str) -> bool {
    ["error", "warn", "info", "debug", "trace", "off"].iter().any(|level| level.eq_ignore_ascii_case(word))
}

/// A bare level applies to our own modules: at common levels those of others are noise. What the tables' library logs is returned to
/// us as an error too, which we log once, with the file and the remedy. h2 warns of each connection that resets too many
/// streams, which strangers can repeat without end.
fn directives(level: &str) -> String {
    match level {
        "error" | "warn" => format!("{level},lsm_tree=off,sfa=off,h2=error"),
        "info" => "info,lsm_tree=off,sfa=off,h2=error,hyper=info,hyper_util=info,tower=info".to_owned(),
        "debug" => "debug,lsm_tree=warn,h2=error,hyper=info,hyper_util=info,tower=info".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn text_of_others_neither_steers_a_terminal_nor_forges_lines() {
        const BAD: &str = "a\u{1b}]0;x\u{7}\r\nERROR forged\u{9b}31m\u{202e}";
        let log = || {
            let reason = BAD;
            tracing::warn!(cause = %BAD, reason, who = ?BAD, "failed: {BAD}");
        };
        let kept = Kept::default();
        let out = kept.clone();
        let fields = debug_fn(write_field).delimited(" ");
        let text = tracing_subscriber::fmt().with_ansi(false).fmt_fields(fields).with_writer(move || out.clone());
        tracing::subscriber::with_default(text.finish(), log);
        let said = String::from_utf8(std::mem::take(&mut *kept.0.lock().unwrap())).unwrap();
        let escaped = "a\\u{1b}]0;x\\u{7}\\r\\nERROR forged\\u{9b}31m\\u{202e}";
        assert!(said.contains(&format!("failed: {escaped} cause={escaped} reason=\"")), "{said}");
        let out = kept.clone();
        let json = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || PlainJson(out.clone()));
        tracing::subscriber::with_default(json.finish(), log);
        let line = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&read["cause"], &read["reason"]), (&BAD.into(), &BAD.into()));
        for said in [said, line] {
            let harmless = |c: char| plain::line(&c.to_string()) == c.to_string().as_str();
            assert!(said.trim_end_matches('\n').chars().all(harmless), "{said:?}");
        }
    }

    /// A regression: strangers wrote as many lines as they liked.
    #[test]
    fn what_h2_warns_of_is_not_logged_at_usual_levels() {
        assert!(["warn", "info", "debug"].iter().all(|level| directives(level).contains("h2=error")));
    }

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for level in ["foo", "info,foo", ""] {
            let refused = start(LogForm::Text, level).unwrap_err().to_string();
            assert!(refused.contains("is not a log level") && refused.contains("debug"), "{refused}");
        }
        assert!(is_level("WARN"));
    }
}
