//! One table from the frontier's refusals to gRPC statuses.

use tonic::{Code, Status};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::names::BadName;

/// The status that tells a gRPC client of a refusal.
pub fn status(refusal: &Refusal) -> Status {
    let code = match refusal {
        Refusal::NotCurrent | Refusal::HostTaken { .. } | Refusal::NameInUse(_) | Refusal::RequestReused(_) => {
            Code::FailedPrecondition
        }
        Refusal::UnknownHost(_) | Refusal::UnknownGroup(_) | Refusal::UnknownCrawl(_) => Code::NotFound,
        // What the protocol's reference server answers, where a call must fail for a queue that it does not have.
        Refusal::UnknownQueue { .. } | Refusal::OutcomeUnknown(_) => Code::Unknown,
        Refusal::Contradiction(_) => Code::FailedPrecondition,
        Refusal::OverLimit(_) | Refusal::HostsFull(_) | Refusal::Overloaded | Refusal::ManyListings(_) => {
            Code::ResourceExhausted
        }
        Refusal::ForeignResult(_) | Refusal::BadCursor => Code::InvalidArgument,
        Refusal::Unavailable(_) | Refusal::Elsewhere | Refusal::Moved => Code::Unavailable,
        Refusal::Internal(_) => Code::Internal,
        Refusal::Corrupt(_) => Code::DataLoss,
    };
    Status::new(code, refusal.to_string())
}

/// The status of a call for whose answer there is no memory.
pub fn memory_full() -> Status {
    Status::unavailable("the server holds as many bytes of unread answers as it may; try again")
}

/// The status for a name that cannot be taken.
pub fn bad_name(name: &BadName) -> Status {
    Status::invalid_argument(name.to_string())
}

/// Whether the frontier refuses because there is no such thing, which the protocol answers with nothing.
pub const fn is_unknown(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::UnknownHost(_) | Refusal::UnknownCrawl(_) | Refusal::UnknownQueue { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_can_tell_try_again_from_never() {
        assert_eq!(status(&Refusal::Overloaded).code(), Code::ResourceExhausted);
        assert_eq!(status(&Refusal::Unavailable("stopping".into())).code(), Code::Unavailable);
        let unknown = Refusal::UnknownQueue { host: "h".into(), crawl: "c".into() };
        assert_eq!(status(&unknown).code(), Code::Unknown);
        assert!(status(&unknown).message().contains("'h'"));
    }
}
