//! Matches: a client gets a worker of a pool; if none has room, one is started.
//!
//! This module decides. It must not know the time, where rows are stored, who waits for an answer, how a worker is
//! called or how a runtime starts one. In: an [`Input`], *now* and random values. Out: a [`Decision`] with rows, effects,
//! the answer, and whom to wake. If a commit fails, the state must be dropped and loaded again.
//!
//! **Where pools live.** A pool is the unit of serialisation: queue, free slots and demand belong together. So each pool
//! is one [`State`] in the memory of the owner of the shard that the pool's name hashes to, and its rows are in that
//! shard. The owner decides many calls in a turn and commits them as one fenced batch, so a thousand matches a second
//! are a few dozen syncs. It knows positions and free slots without a read, and counts workers in the making once for
//! all nodes. An owner that was replaced is fenced. The alternative, registry rows with compare-and-swap, costs one
//! sync per change of the pool's counters, and its conflicts grow with the rate of matches.
//!
//! **What is durable before what.**
//!
//! 1. The request, before the client learns that it is queued. The row is the queue: there is no second copy to lose.
//! 2. The chosen worker and the token ([`MatchState::Making`]), before the worker is asked. After a crash the same
//!    worker is asked again with the same token, or asked to release it.
//! 3. The worker's yes ([`MatchState::Matched`]), before the client gets the address.
//! 4. That a slot is to be released ([`Leftover`](row::Leftover)), before the worker is asked to. The slot stays
//!    booked until the worker confirms it, or must have dropped it by itself.
//! 5. A worker's name, site and run ([`Phase::Creating`]), before the order to create it; so every worker found there
//!    later is known or an orphan.
//! 6. What the runtime has started ([`Instance`]), before it is used.
//! 7. That a worker gets no more clients and has none ([`Phase::Stopping`]), before it is stopped.
//!
//! Polling is a read: no call marks a request as occupied.
//!
//! **Matches.** queued → making → matched, or failed with a reason. One request per client. An unclear answer of a
//! worker is not a no. If it answers a reservation, the client is tried elsewhere and the slot is released. A matched
//! client keeps its worker, unverified, until the match ends unconfirmed. Only a worker's yes extends a match,
//! counted from when the question was sent, so a match never outlives its reservation, and a lost machine holds no
//! client longer than the reservation time. A client is never booked twice on one worker, because a late release
//! would hit the wrong reservation.
//!
//! **Calls in flight.** A call to a worker may arrive until its deadline, even after later calls were answered. A
//! slot stays booked until no call can arrive that takes it or releases it, and a worker that exited is not started
//! again before. After a load the calls of the former owner count as in flight.
//!
//! **Workers.** See [`steps`] for the steps, `scale` for what decides them, `trouble` for failures. A worker with a booked
//! slot is never stopped. Clients go to the fullest worker, so that others fall idle. Calls that fail together count
//! as one failure. A call without any answer until its deadline does not count, because the order may have been lost.
//! Only a yes to a reservation or a check proves a worker.
//!
//! **Sites.** A site is a runtime that starts workers: a Docker engine, or the processes of a machine. A node
//! announces the sites of its Makers, and pools look every 2 s. A site's list is compared with the rows when it comes
//! and every minute. A worker of a silent site is not ordered to stop again and again. After the step's deadline it
//! is forgotten, and the site is *owed*: a deleted pool stays until the site has listed that nothing is left. An
//! orphan, which no row knows, is removed after a write, because the commit of a replaced owner fails. Two sites may
//! be names of one runtime, or one a new name of the other. So a worker that another site lists is left alone, and
//! moves there if its own site is silent.
//!
//! **Effects** may be lost or late; each is for one site, whose Maker carries it out at most once. An order to a runtime
//! is sent again until its outcome is known; Outcomes carry the number of their step, exits the instance that ended,
//! answers of workers their token and the time of the question. Stale ones change nothing.
//!
//! **Makers** are the tasks that carry out effects. At most `makers_max` requests and workers of a pool are worked on at
//! once, each until a deadline that is in its row: the Maker's lease.

mod apply;
mod decision;
mod input;
mod put;
mod queue;
mod randomness;
pub mod refusal;
mod release;
mod reserve;
pub mod row;
mod scale;
mod self_check;
mod set;
pub mod settings;
mod sites;
mod state;
pub mod steps;
mod trouble;
pub mod view;
mod wake;
pub mod why;

pub use decision::{Answer, Caller, Decision, Effect, Labels, Make, Order, WorkerAsk};
pub use input::{Asker, Call, Exit, Input, Lack, StepId, Verdict, WorkerFound};
pub use refusal::Refusal;
pub use row::{Booking, Instance, MatchRow, MatchState, Phase, PoolRow, Secret, Trouble, WorkerNo, WorkerRow, Write};
pub use settings::{BadSetting, PoolSpec, PullPolicy, Recipe, RuntimeKind, Settings};
pub use state::{State, worker_name, worker_suffix};
pub use view::{MatchStage, MatchView, Matched, PoolSummary, PoolView, RemovedView, WorkerView};
pub use why::{Held, MatchWhy, PoolWhy, Setback};
