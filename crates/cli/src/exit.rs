//! Exit codes: scripts must be able to tell a wrong argument from a missing host from a server that is away.

use std::process::ExitCode;

use wayleave_engine_fjall::OpenError;
use wayleave_server::server::BindError;

/// Something went wrong that has no code of its own.
const ERROR: u8 = 1;
/// The arguments or settings are wrong; clap uses the same code.
const USAGE: u8 = 2;
/// Another process or a decision of the server stands in the way.
const REFUSED: u8 = 4;

/// Arguments or settings that clap cannot check.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Says what went wrong and with which code to end.
pub fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(code_of(error))
}

fn code_of(error: &anyhow::Error) -> u8 {
    error.chain().find_map(code_of_cause).unwrap_or(ERROR)
}

fn code_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if cause.is::<Usage>() {
        return Some(USAGE);
    }
    if let Some(open) = cause.downcast_ref::<OpenError>() {
        return match open {
            OpenError::InUse { .. } => Some(REFUSED),
            OpenError::Options(_) => Some(USAGE),
            _ => None,
        };
    }
    match cause.downcast_ref::<BindError>()? {
        BindError::Config(_) => Some(USAGE),
        BindError::Listen { .. } => Some(REFUSED),
    }
}
