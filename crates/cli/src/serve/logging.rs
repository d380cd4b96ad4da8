//! Where log lines go: stderr, as text for people or JSON for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::settings::LogForm;
use crate::exit::Usage;

/// Starts logging for the whole process.
///
/// # Errors
/// If the level cannot be read.
pub fn start(form: LogForm, level: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(directives(level)).map_err(|error| {
        Usage(format!("log level '{level}': {error}; use error, warn, info, debug, trace, or module=level pairs"))
    })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match form {
        LogForm::Text => lines.with_target(false).with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogForm::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

/// A bare level speaks of us: the database's own steps are noise at the levels that people use.
fn directives(level: &str) -> String {
    match level {
        "info" | "debug" => format!("{level},fjall=warn,lsm_tree=warn,h2=info,hyper=info,hyper_util=info,tower=info"),
        other => other.to_owned(),
    }
}
