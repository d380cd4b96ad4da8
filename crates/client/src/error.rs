//! Why a call failed, classified by what the caller can do about it.

use wayleave_api::{Code, Problem};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused; the problem has a code and details.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// A release was refused as not current, but the response of an earlier attempt was lost: that attempt may have
    /// released the reservation.
    #[error(
        "{0}; an earlier attempt to release it was sent and its answer was lost, so it may have been released then"
    )]
    PerhapsReleased(Box<Problem>),
    /// No connection: nothing was sent.
    #[error("cannot reach {server}: {cause}; is a server running there?")]
    Unreachable {
        /// The server.
        server: String,
        /// The cause.
        cause: String,
    },
    /// The response was lost: the request may or may not have been applied.
    #[error("lost the answer of {server}: {cause}; the request may have been carried out")]
    Lost {
        /// The server.
        server: String,
        /// The cause.
        cause: String,
    },
    /// A call that must not be made twice may have been applied.
    #[error("{cause}; the outcome is unknown, and it was not sent again: {remedy}")]
    OutcomeUnknown {
        /// Why.
        cause: Box<Error>,
        /// What to do.
        remedy: &'static str,
    },
    /// The response cannot be parsed.
    #[error("cannot understand the answer of {server}: {cause}; is it a wayleave server of this version?")]
    BadAnswer {
        /// The server.
        server: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The server's address is invalid.
    #[error("'{address}' is not the address of a server: {cause}; write it like http://127.0.0.1:7071")]
    BadAddress {
        /// The address.
        address: String,
        /// What is wrong with it.
        cause: String,
    },
}

impl Error {
    /// The server's problem, if it answered with one.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) | Self::PerhapsReleased(problem) => Some(problem),
            Self::OutcomeUnknown { cause, .. } => cause.problem(),
            _ => None,
        }
    }

    /// The problem's code, if the server answered with one that this version knows.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.problem().and_then(Problem::code)
    }

    /// Whether the request may have been applied all the same.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::OutcomeUnknown { .. }) || self.code() == Some(Code::OutcomeUnknown)
    }

    /// Whether the error concerns the one server that was asked: another one may do better.
    pub(crate) fn is_of_one_server(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost { .. } => true,
            // A match that failed is an answer about the match, whichever server gives it.
            Self::Refused(problem) => matches!(problem.status, 502..=504) && !is_failed_match(problem),
            _ => false,
        }
    }

    /// Whether a retry may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost { .. } => true,
            // The next call would queue a failed match anew: only the caller may want that.
            Self::Refused(problem) => matches!(problem.status, 429 | 503) && !is_failed_match(problem),
            _ => false,
        }
    }
}

fn is_failed_match(problem: &Problem) -> bool {
    problem.code() == Some(Code::MatchFailed)
}

/// The innermost cause of an error: the outer ones only say that a request failed.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_match_is_an_answer_and_not_retried_or_asked_elsewhere() {
        let refused = |code| Error::Refused(Box::new(Problem::new(code, "no")));
        assert!(!refused(Code::MatchFailed).is_transient() && !refused(Code::MatchFailed).is_of_one_server());
        assert!(refused(Code::Unavailable).is_transient() && refused(Code::Unavailable).is_of_one_server());
        assert!(refused(Code::QueueFull).is_transient());
    }
}
