//! Messages in an owner's inbox. The owner task holds the receiving end, callers the sending end.

use tokio::sync::{mpsc, oneshot};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Put, PutOutcome};

use crate::ask::{Ask, Response};
use crate::fleet::call::{ControlCall, ControlResponse};
use crate::matches::call::{MatchCall, MatchResponse};
use crate::pipeline::call::{ChunkCall, ChunkResponse};

/// Outcomes of a streamed put, each with the tag of its item.
pub type Outcomes = Vec<(u64, PutOutcome)>;
/// Where an answer is sent.
pub(crate) type Reply = oneshot::Sender<Result<Response, Refusal>>;
/// Where an answer of the pipeline is sent.
pub(crate) type ChunkReply = oneshot::Sender<Result<ChunkResponse, Refusal>>;
/// Where an answer about the fleet is sent.
pub(crate) type ControlReply = oneshot::Sender<Result<ControlResponse, Refusal>>;
/// Where an answer about pools is sent.
pub(crate) type MatchReply = oneshot::Sender<Result<MatchResponse, Refusal>>;
/// Sends an answer when everything before it is durable, or the reason why it is not.
pub(crate) type Deferred = Box<dyn FnOnce(Result<(), Refusal>) + Send>;

pub(crate) enum Message {
    Put { items: Vec<(u64, Put)>, sink: mpsc::UnboundedSender<Outcomes> },
    Ask { ask: Ask, reply: Reply },
    Chunk { call: ChunkCall, reply: ChunkReply },
    Control { call: ControlCall, reply: ControlReply },
    Match { call: MatchCall, reply: MatchReply },
    Stop { done: oneshot::Sender<()> },
}

impl Message {
    /// How much of a turn's message budget this takes.
    pub fn weight(&self) -> usize {
        match self {
            Self::Put { items, .. } => items.len(),
            Self::Match { call: MatchCall::Tell(told), .. } => told.len().max(1),
            _ => 1,
        }
    }

    /// Whether this is a slice of a listing.
    pub const fn is_slice(&self) -> bool {
        match self {
            Self::Ask { ask, .. } => ask.is_listing(),
            Self::Chunk { call, .. } => call.is_listing(),
            Self::Control { call, .. } => call.is_listing(),
            Self::Match { call, .. } => call.is_listing(),
            Self::Put { .. } | Self::Stop { .. } => false,
        }
    }

    /// Refuses the message.
    pub fn refuse(self, why: &Refusal) {
        match self {
            Self::Put { items, sink } => {
                let failed = |tag| (tag, PutOutcome::Failed(Box::new(why.clone())));
                _ = sink.send(items.into_iter().map(|(tag, _)| failed(tag)).collect());
            }
            Self::Ask { reply, .. } => _ = reply.send(Err(why.clone())),
            Self::Chunk { reply, .. } => _ = reply.send(Err(why.clone())),
            Self::Control { reply, .. } => _ = reply.send(Err(why.clone())),
            Self::Match { reply, .. } => _ = reply.send(Err(why.clone())),
            Self::Stop { done } => _ = done.send(()),
        }
    }
}

/// A put for tests.
#[cfg(test)]
pub(crate) fn put_of(kind: wayleave_core::frontier::request::PutKind) -> Put {
    Put { url: "http://a/".into(), host: "a".into(), crawl: "c".into(), kind, metadata: Default::default() }
}

/// A new URL for tests.
#[cfg(test)]
pub(crate) fn new_url() -> Put {
    use wayleave_core::frontier::request::PutKind;
    use wayleave_core::limits::PRIORITY_DEFAULT;
    put_of(PutKind::Discovered { at: None, priority: PRIORITY_DEFAULT, depth: 0 })
}
