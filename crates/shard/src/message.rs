//! What an owner task is told. The task owns its channel; outsiders hold the sending end.

use tokio::sync::{mpsc, oneshot};
use wayleave_core::frontier::State;
use wayleave_core::frontier::move_host::Moving;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{HandOut, Put, PutOutcome, Release, Released, Reservation, Reserve, UrlToFetch};
use wayleave_core::frontier::row::Write;
use wayleave_core::frontier::view::{UrlFilter, UrlView};
use wayleave_core::ids::QueueId;
use wayleave_core::names::{Alias, CrawlName, HostName};
use wayleave_core::time::Time;
use wayleave_engine::{Batch, Key};

use crate::inbox::Inbox;

/// Outcomes of a streamed put, each with the tag that its item was sent under.
pub type Outcomes = Vec<(u64, PutOutcome)>;
/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Refusal>>;
/// Sends an answer once all that came before it is durable, or the reason why it is not.
pub(crate) type Deferred = Box<dyn FnOnce(Result<(), Refusal>) + Send>;
/// Decides something that needs no rows.
pub(crate) type Decide = Box<dyn FnOnce(&mut State, Time, &mut Vec<Write>) -> Deferred + Send>;

/// Where a listing of URLs goes on: after this queue and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlPlace {
    pub queue: QueueId,
    pub key: Key,
}

/// A page of URLs and where the next one starts.
pub(crate) type UrlPage = (Vec<UrlView>, Option<UrlPlace>);

pub(crate) enum Message {
    Put {
        items: Vec<(u64, Put)>,
        sink: mpsc::UnboundedSender<Outcomes>,
    },
    HandOut {
        request: HandOut,
        reply: Reply<Vec<UrlToFetch>>,
    },
    Reserve {
        request: Reserve,
        reply: Reply<Vec<Reservation>>,
    },
    Release {
        release: Release,
        reply: Reply<Released>,
    },
    Lookup {
        crawl: CrawlName,
        host: HostName,
        url: Box<str>,
        reply: Reply<Option<UrlView>>,
    },
    Urls {
        filter: UrlFilter,
        after: Option<UrlPlace>,
        limit: usize,
        reply: Reply<UrlPage>,
    },
    Purge {
        queue: QueueId,
        before: Time,
        after: Option<Key>,
        reply: Reply<(u64, Option<Key>)>,
    },
    Decide(Decide),
    /// Let hosts go to the owner at the other end of `to`, which takes them into `alias` or as groups of their own.
    Give {
        hosts: Vec<HostName>,
        alias: Option<Alias>,
        to: Inbox,
        same: bool,
        reply: Reply<()>,
    },
    /// Take hosts in; `part` is the giver's side of the one commit.
    Take {
        moving: Vec<Moving>,
        alias: Option<Alias>,
        part: Batch,
        done: Reply<()>,
    },
    Stop {
        done: oneshot::Sender<()>,
    },
}

/// Decides something and answers with a value once it is durable.
pub(crate) fn decide<T: Send + 'static>(
    reply: Reply<T>,
    decision: impl FnOnce(&mut State, Time, &mut Vec<Write>) -> Result<T, Refusal> + Send + 'static,
) -> Message {
    Message::Decide(Box::new(move |state, now, writes| {
        let answer = decision(state, now, writes);
        Box::new(move |durable| _ = reply.send(durable.and(answer)))
    }))
}
