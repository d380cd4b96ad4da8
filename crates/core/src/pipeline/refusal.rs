//! Why the pipeline refuses a call: values that name the thing and the remedy.

use serde::{Deserialize, Serialize};

use crate::ids::ChunkId;

/// Why a call was refused; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ChunkRefusal {
    #[error("chunk '{0}' is not known; list the chunks (GET /v1/chunks) to find its id")]
    Unknown(ChunkId),
    #[error("the token is not current for chunk '{chunk}': {why}; nothing was changed. Claim again{garbage}")]
    NotCurrent {
        chunk: ChunkId,
        /// What the chunk is doing instead.
        why: String,
        /// The caller's discarded work, as a part of the sentence.
        garbage: String,
    },
    #[error("result for '{url}', which is not a link of chunk '{chunk}'; send results for its own links only")]
    ForeignLink { chunk: ChunkId, url: String },
    #[error("'{url}' of chunk '{chunk}' was already reported with another result; a link is reported once")]
    Reported { chunk: ChunkId, url: String },
    #[error(
        "chunk '{0}' has content: complete it with an artifact (location, bytes, checksum), or fail it with a reason"
    )]
    ArtifactMissing(ChunkId),
    #[error("{why}, so chunk '{chunk}' has no content: {remedy}")]
    NoContent { chunk: ChunkId, why: Box<str>, remedy: Box<str> },
    #[error("chunk '{0}' is being crawled and has no input that could be lost; leave out input_lost")]
    NoInput(ChunkId),
    #[error("chunk '{chunk}' is {state}, which cannot be {what}: {remedy}")]
    WrongState { chunk: ChunkId, state: Box<str>, what: Box<str>, remedy: Box<str> },
    #[error(
        "chunk '{0}' is being built, and links are reported by its crawler; complete it with its index, or fail it"
    )]
    NotCrawling(ChunkId),
}

impl ChunkRefusal {
    /// The chunk that was named.
    #[must_use]
    pub const fn chunk(&self) -> ChunkId {
        match self {
            Self::Unknown(chunk) | Self::ArtifactMissing(chunk) | Self::NotCrawling(chunk) | Self::NoInput(chunk) => {
                *chunk
            }
            Self::NotCurrent { chunk, .. }
            | Self::NoContent { chunk, .. }
            | Self::ForeignLink { chunk, .. }
            | Self::Reported { chunk, .. }
            | Self::WrongState { chunk, .. } => *chunk,
        }
    }
}
