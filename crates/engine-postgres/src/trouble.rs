//! Database errors, classified by what must be done about them.

use std::error::Error as _;
use std::time::Duration;

use tokio_postgres::error::{DbError, Severity, SqlState};
use wayleave_engine::Error;

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The database returned an error, or the connection broke.
    Said(tokio_postgres::Error),
    /// No connection could be opened, because the database cannot read something of its own. That says nothing about rows.
    Unopened(tokio_postgres::Error),
    /// No response in time.
    Slow(Duration),
    /// The database succeeded with a warning, as when the wait for a standby was cancelled.
    Warned(String),
    /// No connection became free in time.
    Crowded(usize),
    /// The server is on an older timeline than one seen before.
    Outdated {
        /// Its timeline.
        found: u64,
        /// The newest one seen.
        newest: u64,
    },
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The connection is unusable; requests in flight on it may or may not have taken effect.
    Lost,
    /// The database rolled back: a retry may succeed.
    Again,
    /// The database's content is invalid or incomplete.
    Damaged,
    /// The database refused, and will refuse again.
    Refused,
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Said(error)
    }
}

impl Trouble {
    /// The same of a connection that could not be opened: it must not look like damaged rows, of which callers would then
    /// search for the end.
    pub(crate) fn of_opening(self) -> Self {
        match (self.class(), self) {
            (Class::Damaged, Self::Said(error)) => Self::Unopened(error),
            (_, other) => other,
        }
    }

    /// What to do about it.
    pub(crate) fn class(&self) -> Class {
        let Self::Said(error) = self else { return Class::Lost };
        let Some(db_error) = error.as_db_error() else { return Class::Lost };
        let fatal = matches!(db_error.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
        if fatal || db_error.code().code().starts_with("08") {
            return Class::Lost;
        }
        match db_error.code().code() {
            // A read-only database is an old primary or a standby: the right one is elsewhere. A session stuck in an
            // aborted transaction (its COMMIT was cancelled) never recovers by itself.
            "25006" | "25P02" => Class::Lost,
            // Serialization failure, deadlock, a lock timeout, or a recovery in progress.
            "40001" | "40P01" | "55P03" | "57P03" => Class::Again,
            // A table or column is missing, or the database detected corruption.
            "42P01" | "42703" | "XX001" | "XX002" => Class::Damaged,
            // The disk cannot read a file of the database, or the file is missing.
            "58030" | "58P01" if !is_of_writing(db_error) => Class::Damaged,
            _ => Class::Refused,
        }
    }

    /// Whether this error, as the response to a statement of a transaction, proves that the transaction was rolled back
    /// although COMMIT had been sent. A connection error does not: a pooler makes it up when it loses the server, which
    /// continues and commits; so is 58000. Nor does "statement completion unknown".
    pub(crate) fn proves_rollback(&self) -> bool {
        let Self::Said(error) = self else { return false };
        let Some(db_error) = error.as_db_error() else { return false };
        let code = db_error.code().code();
        let of_the_connection = ["08", "57P", "58000"].iter().any(|class| code.starts_with(class));
        let fatal = !matches!(db_error.parsed_severity(), Some(Severity::Error));
        !fatal && !of_the_connection && code != "40003"
    }

    /// The same for a response to COMMIT itself. Only errors that the database is known to return when it refuses to
    /// commit count: a serialization failure, a deadlock, a deferred constraint.
    pub(crate) fn proves_refused_commit(&self) -> bool {
        let refusal = |code: &SqlState| ["40", "23"].iter().any(|class| code.code().starts_with(class));
        self.proves_rollback() && self.code().is_some_and(refusal)
    }

    /// Whether another session held row locks for too long.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        self.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// Whether the statement was cancelled. No timeout of the database does that to a transaction that writes.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.code() == Some(&SqlState::QUERY_CANCELED)
    }

    /// The SQLSTATE of the error.
    pub(crate) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Said(error) => error.code(),
            _ => None,
        }
    }

    /// For the operator: what happened and what to try. Never contains row values or passwords.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Slow(waited) => format!("the database did not answer within {} ms", waited.as_millis()),
            // Only this warning concerns standbys; others come with a shutdown, or from anywhere in the database.
            Self::Warned(text) if text.contains("synchronous replication") => {
                format!("the database committed with a warning, a standby may not have it: {text}")
            }
            Self::Warned(text) => format!("the database warned while it committed: {text}"),
            Self::Crowded(size) => format!("all {size} connections to the database are busy"),
            Self::Outdated { found, newest } => format!(
                "the database is on timeline {found}, and timeline {newest} was seen: it is an old primary that still runs. Stop it; if \
                 the database was restored from a backup, start this node again"
            ),
            Self::Said(error) | Self::Unopened(error) => words(error),
        }
    }

    /// The error for a read or any other call that certainly changed nothing.
    pub(crate) fn unchanged(&self) -> Error {
        match self.class() {
            Class::Damaged => Error::Corrupt(self.words()),
            _ => Error::Unavailable(self.words()),
        }
    }
}

/// Whether an error of the disk concerns a write of the database, which has damaged nothing. The names of its
/// routines are the same in every language.
fn is_of_writing(db_error: &DbError) -> bool {
    let routine = db_error.routine().unwrap_or_default().to_ascii_lowercase();
    ["write", "extend", "sync", "truncate"].iter().any(|word| routine.contains(word))
}

/// What to do about rows that another session has locked.
pub(crate) const LOCKED_REMEDY: &str = ": another session holds the rows; pg_blocking_pids shows which";

/// The text of a database error, with a remedy where we know one.
pub(crate) fn words(error: &tokio_postgres::Error) -> String {
    let Some(db_error) = error.as_db_error() else {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            text = format!("{text}: {inner}");
            cause = inner.source();
        }
        return text;
    };
    let remedy = match db_error.code().code() {
        "53100" => ": free some space on the database's disk",
        "53300" => ": raise max_connections, or let fewer nodes connect",
        "25006" => ": this is a standby or an old primary; name the primary, or all hosts, in the URL",
        "42501" => ": grant the user what it needs",
        "57P01" | "57P02" | "57P03" => ": the database is stopping or starting; it is asked again",
        "55P03" => LOCKED_REMEDY,
        "58030" if is_of_writing(db_error) => ": check the database's disk",
        "XX001" | "XX002" | "58030" | "58P01" => {
            ": a file of the database cannot be read; check its disk, restore a backup, or save the rest with \
             `wayleave snapshot --partial`"
        }
        _ => "",
    };
    format!("{} (SQLSTATE {}){remedy}", db_error.message(), db_error.code().code())
}

/// A timeout for every call: none may wait forever.
pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Trouble> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(Trouble::Said),
        Err(_) => Err(Trouble::Slow(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_warning_about_replication_speaks_of_standbys() {
        let cut = Trouble::Warned("canceling wait for synchronous replication due to user request".into()).words();
        assert!(cut.contains("a standby may not have it") && cut.contains("canceling"), "{cut}");
        let shutdown = "terminating connection due to immediate shutdown command";
        let ended = Trouble::Warned(shutdown.into()).words();
        assert!(!ended.contains("standby") && ended.contains(shutdown), "{ended}");
    }
}
