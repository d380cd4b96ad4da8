//! Exit codes: scripts must be able to distinguish a wrong argument, a missing host and an unreachable server.

use std::process::ExitCode;

use wayleave_api::Code;
use wayleave_bench::Unreachable;
use wayleave_client::Error;
use wayleave_engine_fjall::{LoadError, OpenError};
use wayleave_engine_postgres::OpenError as DatabaseError;
use wayleave_server::server::BindError;
use wayleave_workers::{folder_lock, serving};

/// An error without a code of its own.
pub const ERROR: u8 = 1;
/// The arguments or settings are wrong; clap uses the same code.
pub const USAGE: u8 = 2;
/// Not found, or nothing available now.
pub const NOT_FOUND: u8 = 3;
/// Refused: by another process or a decision of the server.
pub const REFUSED: u8 = 4;
/// The server cannot be reached, or cannot answer.
pub const UNAVAILABLE: u8 = 5;

/// Part of the input was rejected; the rest is stored.
pub const PARTLY: u8 = 6;

/// The store of a server has failed, and the server has exited in order to be restarted.
pub const STORE_FAILED: u8 = 7;

/// Another process is primary of the role, and the command was not to wait; `EX_TEMPFAIL` of sysexits.h, which few
/// commands use.
pub const STANDBY: u8 = 75;

/// The command to run was not found or cannot be run; shells use the same code.
pub const COMMAND_NOT_FOUND: u8 = 127;

/// Invalid arguments or settings that clap cannot check.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// An exit code with an optional message; empty if the command has already printed one.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Ended {
    /// The exit code.
    pub code: u8,
    /// What to say on stderr.
    pub message: String,
}

impl Ended {
    /// The result of a command with many `things`, of which some were accepted and some rejected: what is stored stays,
    /// but a script must notice. `look` says where the rejected ones are reported.
    pub fn after(things: &str, taken: u64, rejected: u64, look: &str) -> anyhow::Result<()> {
        let (code, rest) = match (taken, rejected) {
            (_, 0) => return Ok(()),
            (0, _) => (REFUSED, "nothing is stored"),
            _ => (PARTLY, "all the rest is stored"),
        };
        let (all, were) = (taken + rejected, if rejected == 1 { "was" } else { "were" });
        Err(Self { code, message: format!("{rejected} of {all} {things} {were} rejected, {rest}; {look}") }.into())
    }
}

/// Prints an error and returns its exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    // A reader such as `head` that has seen enough is not an error.
    let closed = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::BrokenPipe;
    if error.chain().any(|cause| cause.downcast_ref().is_some_and(closed)) {
        return ExitCode::SUCCESS;
    }
    let text = describe(error);
    if !text.is_empty() {
        eprintln!("error: {text}");
    }
    ExitCode::from(code_of(error))
}

/// The chain of causes, without those that an outer one already contains.
fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn code_of(error: &anyhow::Error) -> u8 {
    error.chain().find_map(code_of_cause).unwrap_or(ERROR)
}

fn code_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if let Some(ended) = cause.downcast_ref::<Ended>() {
        return Some(ended.code);
    }
    if cause.is::<Usage>() {
        return Some(USAGE);
    }
    if let Some(error) = cause.downcast_ref::<Error>() {
        return Some(code_of_call(error));
    }
    if cause.is::<Unreachable>() {
        return Some(UNAVAILABLE);
    }
    if matches!(cause.downcast_ref(), Some(LoadError::NotEmpty { .. } | LoadError::Busy { .. })) {
        return Some(REFUSED);
    }
    if matches!(cause.downcast_ref(), Some(DatabaseError::NotEmpty { .. })) {
        return Some(REFUSED);
    }
    if let Some(open) = cause.downcast_ref::<OpenError>() {
        return match open {
            OpenError::InUse { .. } => Some(REFUSED),
            OpenError::Options(_) => Some(USAGE),
            _ => None,
        };
    }
    if let Some(error) = cause.downcast_ref::<serving::Error>() {
        return match error {
            serving::Error::Listen { .. } => Some(REFUSED),
            serving::Error::Unspecified(_) | serving::Error::Advertise(_) => Some(USAGE),
        };
    }
    if let Some(error) = cause.downcast_ref::<folder_lock::Error>() {
        return match error {
            folder_lock::Error::Id { .. } | folder_lock::Error::Folder { .. } => Some(REFUSED),
            folder_lock::Error::File { .. } => None,
        };
    }
    match cause.downcast_ref::<BindError>()? {
        BindError::Config(_) => Some(USAGE),
        BindError::Listen { .. } => Some(REFUSED),
    }
}

fn code_of_call(error: &Error) -> u8 {
    match error {
        Error::Refused(problem) | Error::PerhapsReleased(problem) => match problem.status {
            // An answer about the match; the server is well.
            _ if problem.code() == Some(Code::MatchFailed) => REFUSED,
            404 => NOT_FOUND,
            403 | 409 | 421 | 422 => REFUSED,
            429 | 502..=504 => UNAVAILABLE,
            400..=499 => USAGE,
            _ => ERROR,
        },
        Error::OutcomeUnknown { cause, .. } => code_of_call(cause),
        Error::Unreachable { .. } | Error::Lost { .. } => UNAVAILABLE,
        Error::BadAddress { .. } => USAGE,
        Error::BadAnswer { .. } => ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use wayleave_api::Problem;

    #[test]
    fn each_refusal_has_its_exit_code() {
        for (code, want) in [
            (Code::UnknownHost, NOT_FOUND),
            (Code::NotCurrent, REFUSED),
            (Code::OverLimit, REFUSED),
            (Code::CommandsNotAllowed, REFUSED),
            (Code::MatchFailed, REFUSED),
            (Code::QueueFull, UNAVAILABLE),
            (Code::UnknownMatch, NOT_FOUND),
            (Code::BadValue, USAGE),
            (Code::Overloaded, UNAVAILABLE),
            (Code::Unavailable, UNAVAILABLE),
            (Code::Internal, ERROR),
        ] {
            let error = anyhow::Error::from(Error::Refused(Box::new(Problem::new(code, "x")))).context("while trying");
            assert_eq!(code_of(&error), want, "{code:?}");
        }
        assert_eq!(code_of(&anyhow::anyhow!("anything")), ERROR);
        assert_eq!(code_of(&Usage("x".into()).into()), USAGE);
        let (address, cause) = (([127, 0, 0, 1], 80).into(), std::io::ErrorKind::AddrInUse.into());
        assert_eq!(code_of(&serving::Error::Listen { address, cause }.into()), REFUSED);
    }

    #[test]
    fn what_was_rejected_in_part_is_told_from_what_was_rejected_as_a_whole() {
        let told = |error: anyhow::Error| (code_of(&error), describe(&error));
        let end = |taken, rejected| Ended::after("URLs", taken, rejected, "see above").map_err(told);
        assert_eq!(end(3, 0), Ok(()));
        assert_eq!(end(0, 0), Ok(()));
        let nothing = "2 of 2 URLs were rejected, nothing is stored; see above";
        assert_eq!(end(0, 2), Err((REFUSED, nothing.to_owned())));
        let partly = "1 of 4 URLs was rejected, all the rest is stored; see above";
        assert_eq!(end(3, 1), Err((PARTLY, partly.to_owned())));
    }

    #[test]
    fn a_cause_that_was_told_is_not_repeated() {
        let inner = std::io::Error::other("disk on fire");
        let error = Err::<(), _>(inner).context("cannot read a: disk on fire").context("seeding").expect_err("error");
        assert_eq!(describe(&error), "seeding: cannot read a: disk on fire");
    }
}
