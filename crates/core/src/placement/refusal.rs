//! Refusals of placement requests are values: each names the thing and the remedy. The API layers map them to their
//! codes.

use serde::{Deserialize, Serialize};

use crate::limits;

/// Why a request was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
// Named apart from the other refusals where the copies of messages is pinned.
#[serde(rename = "PlacementRefusal")]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Refusal {
    #[error("chunk {0} is not known: it has not been built yet, or is gone")]
    UnknownChunk(u64),
    #[error("server '{0}' is not known; it registers itself with its first report to the fleet")]
    UnknownServer(String),
    #[error(
        "chunk {chunk} is not placed on server '{server}'; drop it, and fetch only what the server's placements name"
    )]
    NotPlaced { chunk: u64, server: String },
    #[error(
        "chunk {chunk} is no longer wanted on server '{server}': delete it and report it gone; nothing else is taken now"
    )]
    NotWanted { chunk: u64, server: String },
    #[error(
        "chunk {chunk} on server '{server}' is {is} and cannot become {asked}: assigned may become fetching or ready, fetching \
         may become ready, and every copy may become gone; a copy that must be fetched again is reported gone first"
    )]
    WrongStep { chunk: u64, server: String, is: String, asked: String },
    #[error(
        "chunk {chunk} has another index by now than the one that server '{server}' reports: look at the server's placements, and \
         fetch what they name"
    )]
    AnotherIndex { chunk: u64, server: String },
    #[error("chunk {0} was built before with another artifact; it must be gone before it is built anew")]
    AnotherArtifact(u64),
    #[error(
        "the artifact of chunk {chunk} is malformed: it needs a location of 1 to {} bytes and a size of at most {} bytes",
        limits::LOCATION_BYTES_MAX,
        limits::NUMBER_MAX
    )]
    BadArtifact { chunk: u64 },
    #[error("{0}")]
    OverLimit(String),
}
