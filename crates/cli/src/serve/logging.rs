//! Logging to stderr, as text for people or JSON for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::settings::LogForm;
use crate::exit::Usage;

/// Starts logging for the whole process.
///
/// # Errors
/// If the level is invalid.
pub fn start(form: LogForm, level: &str) -> anyhow::Result<()> {
    let wrong = |why: String| {
        Usage(format!("log level '{level}': {why}; use error, warn, info, debug, trace, off, or module=level pairs"))
    };
    // An unknown bare word would be taken for a module's name, and silence all others.
    if let Some(word) = level.split(',').map(str::trim).find(|part| !part.contains('=') && !is_level(part)) {
        return Err(wrong(format!("'{word}' is not a log level")).into());
    }
    let filter = EnvFilter::try_new(directives(level)).map_err(|error| wrong(error.to_string()))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match form {
        LogForm::Text => lines.with_target(false).with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogForm::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

fn is_level(word: &str) -> bool {
    ["error", "warn", "info", "debug", "trace", "off"].iter().any(|level| level.eq_ignore_ascii_case(word))
}

/// A bare level applies to our own modules: at common levels the database's are noise.
fn directives(level: &str) -> String {
    match level {
        "info" | "debug" => format!("{level},fjall=warn,lsm_tree=warn,h2=info,hyper=info,hyper_util=info,tower=info"),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for level in ["foo", "info,foo", ""] {
            let refused = start(LogForm::Text, level).unwrap_err().to_string();
            assert!(refused.contains("is not a log level") && refused.contains("debug"), "{refused}");
        }
        assert!(is_level("WARN"));
    }
}
