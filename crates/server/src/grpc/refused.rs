//! Maps the frontier's refusals to gRPC statuses, in one table.

use tonic::{Code, Status};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::names::BadName;

/// The gRPC status of a refusal.
pub fn status(refusal: &Refusal) -> Status {
    let code = match refusal {
        Refusal::NotCurrent | Refusal::HostTaken { .. } | Refusal::NameInUse(_) | Refusal::RequestReused(_) => {
            Code::FailedPrecondition
        }
        Refusal::UnknownHost(_) | Refusal::UnknownGroup(_) | Refusal::UnknownCrawl(_) => Code::NotFound,
        // As the protocol's reference server answers where a call must fail for an unknown queue.
        Refusal::UnknownQueue { .. } | Refusal::OutcomeUnknown(_) => Code::Unknown,
        // No call of this protocol is about chunks, machines or pools.
        Refusal::Contradiction(_)
        | Refusal::Chunk(_)
        | Refusal::Fleet(_)
        | Refusal::Placement(_)
        | Refusal::Match(_) => Code::FailedPrecondition,
        Refusal::OverLimit(_)
        | Refusal::HostsFull(_)
        | Refusal::CrawlsFull(_)
        | Refusal::Overloaded
        | Refusal::ManyListings(_)
        | Refusal::StoreFull(_) => Code::ResourceExhausted,
        Refusal::ForeignResult(_) | Refusal::BadCursor => Code::InvalidArgument,
        Refusal::Unavailable(_) | Refusal::Elsewhere | Refusal::Moved => Code::Unavailable,
        Refusal::Internal(_) => Code::Internal,
        Refusal::Corrupt(_) | Refusal::Damaged { .. } | Refusal::DamagedChunk { .. } => Code::DataLoss,
    };
    Status::new(code, refusal.to_string())
}

/// The status of a call whose response exceeds the memory budget.
pub fn memory_full() -> Status {
    Status::unavailable("the server's memory budget for unread answers is exhausted; try again")
}

/// The status for an invalid name.
pub fn bad_name(name: &BadName) -> Status {
    Status::invalid_argument(name.to_string())
}

/// Whether the frontier refuses because the thing does not exist, which the protocol answers with an empty response.
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
