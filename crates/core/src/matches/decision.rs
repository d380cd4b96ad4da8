//! What a pool decides: plain values.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::input::{Asker, Call, Input, StepId, Verdict};
use super::refusal::Refusal;
use super::row::{Instance, Secret, WorkerNo, Write};
use super::settings::{PullPolicy, Recipe};
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
    /// What to do once they are durable. Each may be lost: what matters is ordered again.
    pub effects: Vec<Effect>,
    /// Clients whose match has changed: calls that wait for them look again.
    pub news: Vec<ClientName>,
    /// When to tick, at the latest. A time that is not after now means at once: there was more than one decision takes.
    pub wake_at: Option<Time>,
}

/// The answer to an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "MatchAnswer")]
pub enum Answer {
    /// The news was taken in.
    Taken,
    /// The news was of something that is over, and changed nothing.
    Stale,
    /// The client's match.
    Match(MatchView),
    /// The client is matched, and [`Effect::Check`] with this question is among the effects. The call waits for
    /// [`Input::Checked`] with the same call, token and time of sending, whose answer is the call's. At the question's
    /// deadline the owner itself gives [`Input::Checked`] with an unknown verdict, which is not held against the worker.
    Verify(WorkerAsk),
    /// The client has no request here.
    NoMatch,
    /// The request is cancelled, or the slot is given back.
    Cancelled,
    /// The pool.
    Pool(Box<PoolView>),
    /// Nothing was changed.
    Refused(Refusal),
}

/// Something to do at a site. A Maker carries an effect out at most once; the core orders again, with a later time of
/// sending, what was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "MatchEffect")]
pub enum Effect {
    /// `POST {address}/reservation/{client}`; ends in `Reserved`. Asking twice with one token is once.
    Reserve(WorkerAsk),
    /// `GET {address}/reservation/{client}`; ends in `Checked`.
    Check(WorkerAsk),
    /// `DELETE {address}/reservation/{client}`; ends in `Released`.
    Release(WorkerAsk),
    /// Create and start a worker; ends in `Made`. If there is one of this name already, it is that one. What the runtime
    /// started is recorded before it is used.
    Create(Make),
    /// Start a worker again that has exited; ends in `Made`. If it runs, it is that one.
    Restart(Make),
    /// Wait until a worker listens; ends in `Listening`.
    Await(Order),
    /// Stop a worker gently; ends in `Stopped`.
    Stop(Order),
    /// Remove a worker, whether it runs, has exited or was never made; ends in `Removed`.
    Remove(Order),
    /// Remove what has labels of this pool and is not known. The next list shows whether it is gone.
    RemoveUnknown {
        /// Where.
        site: SiteName,
        /// Whose, by its labels.
        labels: Labels,
    },
    /// List what a site has of this pool and owner, of every generation; ends in `Listed`.
    List {
        /// Where.
        site: SiteName,
        /// The owner's label.
        owner: Arc<str>,
        /// To be given back.
        since: Time,
    },
}

impl Effect {
    /// The names of all kinds.
    pub const KINDS: [&str; 10] =
        ["reserve", "check", "release", "create", "restart", "await", "stop", "remove", "remove unknown", "list"];

    /// The name of its kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Reserve(_) => "reserve",
            Self::Check(_) => "check",
            Self::Release(_) => "release",
            Self::Create(_) => "create",
            Self::Restart(_) => "restart",
            Self::Await(_) => "await",
            Self::Stop(_) => "stop",
            Self::Remove(_) => "remove",
            Self::RemoveUnknown { .. } => "remove unknown",
            Self::List { .. } => "list",
        }
    }

    /// The site that it is for. Workers listen on addresses that may be reached only from there.
    #[must_use]
    pub const fn site(&self) -> &SiteName {
        match self {
            Self::Reserve(ask) | Self::Check(ask) | Self::Release(ask) => &ask.site,
            Self::Create(make) | Self::Restart(make) => &make.site,
            Self::Await(order) | Self::Stop(order) | Self::Remove(order) => &order.site,
            Self::RemoveUnknown { site, .. } | Self::List { site, .. } => site,
        }
    }
}

/// Labels of what is started, besides the pool's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "WorkerLabels")]
pub struct Labels {
    /// The installation that started it: another one may use the same runtime, and the same names of pools.
    pub owner: Arc<str>,
    /// The pool's generation.
    pub generation: u64,
    /// The worker's number.
    pub worker: WorkerNo,
}

/// A question to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerAsk {
    /// The client.
    pub client: ClientName,
    /// The call that the check belongs to.
    pub caller: Option<Caller>,
    /// The worker.
    pub worker: WorkerNo,
    /// Its name, as it has it in its environment.
    pub name: Arc<str>,
    /// The runtime that has it.
    pub site: SiteName,
    /// Where it is.
    pub address: Arc<str>,
    /// Where the report came from that named the address, which may be called only there; none if the runtime named it.
    pub reported_from: Option<IpAddr>,
    /// The reservation.
    pub token: Token,
    /// How long the worker keeps it from then on without a confirmation.
    pub reservation: Millis,
    /// When it was sent: to be given back.
    pub sent_at: Time,
    /// The call is over by then. It must not arrive at the worker later. A Maker reports a missing answer before this
    /// time; if no report arrives by then, the order or its outcome was lost.
    pub until: Time,
}

/// Whose call has a worker checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "MatchCaller")]
pub struct Caller {
    /// Who speaks for the client, if callers are known by name.
    pub principal: Option<Arc<str>>,
    /// What it asked for.
    pub call: Call,
}

impl WorkerAsk {
    /// The outcome of [`Effect::Reserve`].
    #[must_use]
    pub fn reserved(&self, verdict: Verdict) -> Input {
        let Self { client, token, sent_at, .. } = self;
        Input::Reserved { client: client.clone(), token: *token, sent_at: *sent_at, verdict }
    }

    /// The outcome of [`Effect::Release`].
    #[must_use]
    pub fn released(&self, verdict: Verdict) -> Input {
        let Self { client, token, sent_at, .. } = self;
        Input::Released { client: client.clone(), token: *token, sent_at: *sent_at, verdict }
    }

    /// The outcome of [`Effect::Check`].
    #[must_use]
    pub fn checked(&self, verdict: Verdict) -> Input {
        let caller = self.caller.clone().unwrap_or(Caller { principal: None, call: Call::Look });
        let asker = Asker { client: self.client.clone(), principal: caller.principal };
        Input::Checked { asker, call: caller.call, token: self.token, sent_at: self.sent_at, verdict }
    }
}

/// An order to make a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "WorkerMake")]
pub struct Make {
    /// The step.
    pub step: StepId,
    /// The worker's name: of its container, and in its environment (`WAYLEAVE_WORKER`).
    pub name: Arc<str>,
    /// Where.
    pub site: SiteName,
    /// Labels, besides the pool's name.
    pub labels: Labels,
    /// Which of its runs, for its environment (`WAYLEAVE_RUN`). A container that is restarted keeps the environment of
    /// its creation, so it keeps this as well.
    pub run: u32,
    /// What it proves itself with when it reports, for its environment (`WAYLEAVE_SECRET`).
    pub secret: Secret,
    /// How.
    pub recipe: Recipe,
    /// Whether to pull the image.
    pub pull: PullPolicy,
    /// What the runtime had started the last time: a restart has happened if it runs and is not this.
    pub last: Option<Instance>,
    /// It is over by then, and has failed.
    pub until: Time,
}

/// An order about a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "WorkerOrder")]
pub struct Order {
    /// The step.
    pub step: StepId,
    /// The worker's name.
    pub name: Arc<str>,
    /// Where.
    pub site: SiteName,
    /// Labels, besides the pool's name.
    pub labels: Labels,
    /// What the runtime had started, if that is known.
    pub instance: Option<Instance>,
    /// It is over by then, and has failed.
    pub until: Time,
}
