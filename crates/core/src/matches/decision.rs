//! What a pool decides: plain values.

use std::sync::Arc;

use super::input::StepId;
use super::refusal::Refusal;
use super::row::{Instance, WorkerNo, Write};
use super::settings::Recipe;
use super::view::{MatchView, PoolView};
use crate::ids::Token;
use crate::names::{ClientName, SiteName};
use crate::time::{Millis, Time};

/// A decision. The order is law: first the writes become durable, then effects are carried out and answers given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The answer to the input.
    pub answer: Answer,
    /// Rows to commit, as one batch.
    pub writes: Vec<Write>,
    /// What to do once they are durable. Each may be lost or repeated: what matters is ordered again.
    pub effects: Vec<Effect>,
    /// Clients whose match has changed: calls that wait for them look again.
    pub news: Vec<ClientName>,
    /// When to tick, at the latest. A time that is not after now means at once: there was more than one decision takes.
    pub wake_at: Option<Time>,
}

/// The answer to an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The news was taken in.
    Taken,
    /// The news was of something that is over, and changed nothing.
    Stale,
    /// The client's match.
    Match(MatchView),
    /// The client is matched. Ask the worker whether it still holds the reservation, then give
    /// [`Input::Checked`](super::Input::Checked), whose answer is the call's.
    Verify(Ask),
    /// The client has no request here.
    NoMatch,
    /// The request is cancelled, or the slot is given back.
    Cancelled,
    /// The pool.
    Pool(Box<PoolView>),
    /// Nothing was changed.
    Refused(Refusal),
}

/// Something to do outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// `POST {address}/reservation/{client}`, by any node; ends in `Reserved`. Asking twice with one token is once.
    Reserve(Ask),
    /// `DELETE {address}/reservation/{client}`, by any node; ends in `Released`.
    Release(Ask),
    /// Create and start a worker; ends in `Made`. If there is one of this name already, it is that one. What the runtime
    /// started is recorded before it is used.
    Create(Make),
    /// Start a worker again that has exited; ends in `Made`.
    Restart(Make),
    /// Wait until a worker listens, by any node; ends in `Listening`.
    Await(Order),
    /// Stop a worker gently; ends in `Stopped`.
    Stop(Order),
    /// Remove a worker, whether it runs, has exited or was never made; ends in `Removed`.
    Remove(Order),
    /// Remove what has labels of this pool and is not known.
    RemoveUnknown {
        /// Where.
        site: SiteName,
        /// The number in its label.
        worker: WorkerNo,
        /// The generation in its label.
        generation: u64,
    },
    /// List what a site has of this pool; ends in `Listed`.
    List {
        /// Where.
        site: SiteName,
        /// To be given back.
        since: Time,
    },
}

/// A question to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The client.
    pub client: ClientName,
    /// The worker.
    pub worker: WorkerNo,
    /// The runtime that has it: an address on loopback is reached only from there.
    pub site: SiteName,
    /// Where it is.
    pub address: Arc<str>,
    /// The reservation.
    pub token: Token,
    /// How long the worker keeps it from then on, if nobody confirms it.
    pub reservation: Millis,
    /// The call is over by then, and counts as unknown.
    pub until: Time,
}

/// An order to make a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Make {
    /// The step.
    pub step: StepId,
    /// Where.
    pub site: SiteName,
    /// Which of its runs: a label.
    pub run: u32,
    /// The pool's generation: a label.
    pub generation: u64,
    /// How.
    pub recipe: Recipe,
    /// It is over by then, and has failed.
    pub until: Time,
}

/// An order about a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The step.
    pub step: StepId,
    /// Where.
    pub site: SiteName,
    /// What the runtime had started, if that is known.
    pub instance: Option<Instance>,
    /// It is over by then, and has failed.
    pub until: Time,
}
