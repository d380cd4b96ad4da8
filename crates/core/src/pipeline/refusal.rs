//! Why the pipeline refuses a call: values that name the thing and the remedy.

use serde::{Deserialize, Serialize};

use crate::ids::ChunkId;

/// Why a call was refused; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ChunkRefusal {
    /// No such chunk.
    #[error("chunk '{0}' is not known; list the chunks (GET /v1/chunks) to find its id")]
    Unknown(ChunkId),
    /// The token is not that of the chunk's live lease.
    #[error("the token is not current for chunk '{chunk}': {why}; nothing was changed. Claim again{garbage}")]
    NotCurrent {
        /// The chunk.
        chunk: ChunkId,
        /// What the chunk is doing instead.
        why: String,
        /// What the caller has made in vain, as a part of the sentence.
        garbage: String,
    },
    /// A result names a URL that was never part of the chunk.
    #[error("result for '{url}', which is not a link of chunk '{chunk}'; send results for its own links only")]
    ForeignLink {
        /// The chunk.
        chunk: ChunkId,
        /// The URL.
        url: String,
    },
    /// A link was reported before with another result.
    #[error("'{url}' of chunk '{chunk}' was already reported with another result; a link is reported once")]
    Reported {
        /// The chunk.
        chunk: ChunkId,
        /// The URL.
        url: String,
    },
    /// A chunk with fetched links cannot be completed without an artifact.
    #[error(
        "chunk '{0}' has content: complete it with an artifact (location, bytes, checksum), or fail it with a reason"
    )]
    ArtifactMissing(ChunkId),
    /// A chunk without content has no artifact.
    #[error("{why}, so chunk '{chunk}' has no content: {remedy}")]
    NoContent {
        /// The chunk.
        chunk: ChunkId,
        /// Why it has none.
        why: Box<str>,
        /// What to do instead.
        remedy: Box<str>,
    },
    /// Only a build has an input that can be lost.
    #[error("chunk '{0}' is being crawled and has no input that could be lost; leave out input_lost")]
    NoInput(ChunkId),
    /// The operator's decision does not fit the chunk's state.
    #[error("chunk '{chunk}' is {state}, which cannot be {what}: {remedy}")]
    WrongState {
        /// The chunk.
        chunk: ChunkId,
        /// Its state.
        state: Box<str>,
        /// What was asked.
        what: Box<str>,
        /// What to do instead.
        remedy: Box<str>,
    },
    /// Links are reported while a chunk is crawled.
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
