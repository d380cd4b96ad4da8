//! Matches on the wire: a client's request for a worker of a pool.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::Token;
use wayleave_core::matches::{MatchStage, MatchView};
use wayleave_core::names::{self, ClientName, PoolName};
use wayleave_core::time::Millis;

use crate::BadValue;
use crate::Timestamp;
use crate::bounds::WAIT;
use crate::problem::{Code, Problem};
use crate::words::words;

words! {
    /// The state of a match.
    MatchState = MatchStage {
        /// It waits for a slot of a worker.
        Queued,
        /// A worker is asked to reserve a slot.
        Making,
        /// It has a worker.
        Matched,
        /// Its worker is gone, or no longer held the reservation. The client's next PUT queues it again.
        Vacant,
        /// It failed. The client's next call queues it again, after the pool's back-off.
        Failed,
    }
}

impl MatchState {
    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Making => "making",
            Self::Matched => "matched",
            Self::Vacant => "vacant",
            Self::Failed => "failed",
        }
    }
}

/// The pool, and how long to wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PutMatchQuery {
    /// The pool.
    pub pool: String,
    /// How long to wait for a worker, in milliseconds, at most 60,000; 0 answers at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

impl PutMatchQuery {
    /// The pool.
    pub fn pool(&self) -> Result<PoolName, Box<Problem>> {
        pool(&self.pool)
    }

    /// How long to wait.
    pub fn wait(&self) -> Result<Millis, BadValue> {
        wait(self.wait_ms)
    }
}

fn pool(text: &str) -> Result<PoolName, Box<Problem>> {
    names::pool(text).map_err(|bad| Box::new(Problem::new(Code::BadPool, bad).with("field", "pool")))
}

fn wait(ms: Option<u64>) -> Result<Millis, BadValue> {
    WAIT.check_or_default("wait_ms", ms).map(Millis)
}

/// The pool, how long to wait, and whether the look confirms the match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetMatchQuery {
    /// The pool.
    pub pool: String,
    /// How long to wait for a worker, in milliseconds, at most 60,000; 0 answers at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// `false` for operators: the match is shown as it is, without its token, and nothing is confirmed. The answer is 200
    /// whatever its state, and does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(default = true)]
    pub confirm: Option<bool>,
}

impl GetMatchQuery {
    /// The pool.
    pub fn pool(&self) -> Result<PoolName, Box<Problem>> {
        pool(&self.pool)
    }

    /// How long to wait.
    pub fn wait(&self) -> Result<Millis, BadValue> {
        wait(self.wait_ms)
    }
}

/// The pool, and which reservation is meant.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteMatchQuery {
    /// The pool.
    pub pool: String,
    /// The token of the match: then a late call does not end a later match. Absent to end whatever there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

// The token stays out of logs.
impl fmt::Debug for DeleteMatchQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeleteMatchQuery").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl DeleteMatchQuery {
    /// The pool.
    pub fn pool(&self) -> Result<PoolName, Box<Problem>> {
        pool(&self.pool)
    }

    /// The token.
    pub fn token(&self) -> Result<Option<Token>, BadValue> {
        crate::roles::token(self.token.as_deref())
    }
}

/// A client's match.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Match {
    /// The client.
    pub client: String,
    /// The pool.
    pub pool: String,
    /// Its state.
    pub state: MatchState,
    /// Why it is in this state, and what changes that; never empty.
    pub reason: String,
    /// Its place in the queue, from 1; null if it does not queue.
    pub position: Option<u64>,
    /// When it may have a worker, if that can be told.
    pub estimate_ms: Option<u64>,
    /// When to ask again; null if it is matched.
    pub retry_after_ms: Option<u64>,
    /// Where its worker is reached; null if it has none.
    pub address: Option<String>,
    /// Its worker; null if it has none.
    pub worker: Option<String>,
    /// The reservation, which the worker knows too. Only the client's own calls have it, not lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The match ends then, unless the client confirms it by a PUT or GET; null if it has no worker.
    pub expires_at: Option<Timestamp>,
    /// Whether the worker said a moment ago that it holds the reservation. False also if it gave no clear answer.
    pub verified: bool,
    /// Grows with every change of this request.
    pub version: u64,
}

// The token stays out of logs.
impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Match");
        shown.field("client", &self.client).field("pool", &self.pool).field("state", &self.state);
        shown.field("reason", &self.reason).field("address", &self.address);
        shown.finish_non_exhaustive()
    }
}

impl Match {
    /// The match of a client in a pool.
    #[must_use]
    pub fn new(pool: &PoolName, client: &ClientName, view: MatchView) -> Self {
        let (reason, retry_after) = (view.why.to_string(), view.retry_after.map(|time| time.0));
        let (mut address, mut worker, mut token, mut expires_at) = (None, None, None, None);
        if let Some(matched) = view.matched {
            (address, worker) = (Some(matched.address.to_string()), Some(matched.worker));
            (token, expires_at) = (matched.token.map(|t| t.to_string()), Some(Timestamp(matched.expires_at)));
        }
        Self {
            client: client.to_string(),
            pool: pool.to_string(),
            state: view.stage.into(),
            reason,
            position: view.position.map(|position| position as u64),
            estimate_ms: view.estimate.map(|time| time.0),
            retry_after_ms: retry_after,
            address,
            worker,
            token,
            expires_at,
            verified: view.verified,
            version: view.version,
        }
    }

    /// The same without its token, for those who may look but not use the worker.
    #[must_use]
    pub fn without_token(mut self) -> Self {
        self.token = None;
        self
    }

    /// When to ask again, in whole seconds: rounded up, and at least one.
    #[must_use]
    pub fn retry_after_secs(&self) -> u64 {
        self.retry_after_ms.unwrap_or(0).div_ceil(1_000).max(1)
    }

    /// The match that the problem of a failure is about.
    #[must_use]
    pub fn of_failure(problem: &Problem) -> Self {
        let text =
            |name: &str| problem.fields.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        let reason = Some(text("reason")).filter(|reason| !reason.is_empty());
        Self {
            client: text("client"),
            pool: text("pool"),
            state: MatchState::Failed,
            reason: reason.unwrap_or_else(|| problem.detail.clone()),
            position: None,
            estimate_ms: None,
            retry_after_ms: problem.fields.get("retry_after_ms").and_then(serde_json::Value::as_u64),
            address: None,
            worker: None,
            token: None,
            expires_at: None,
            verified: false,
            version: 0,
        }
    }

    /// The problem of a match that failed.
    #[must_use]
    pub fn failure(&self) -> Problem {
        let (client, pool) = (&self.client, &self.pool);
        let detail = format!("client '{client}' got no worker of pool '{pool}': {}", self.reason);
        let problem = Problem::new(Code::MatchFailed, detail).with("state", self.state.name());
        let problem = problem.with("reason", self.reason.as_str()).with("client", client.as_str());
        problem.with("pool", pool.as_str()).with("retry_after_ms", self.retry_after_secs() * 1_000)
    }
}

/// Which matches to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListMatchesQuery {
    /// Only those of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Only those in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub state: Option<MatchState>,
    /// The `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Rows per page, 1 to 1,000; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl ListMatchesQuery {
    /// The pool, if one is named.
    pub fn pool(&self) -> Result<Option<PoolName>, Box<Problem>> {
        self.pool.as_deref().map(pool).transpose()
    }

    /// Where the page starts. Fails if `after` is no cursor of this listing.
    pub fn cursor(&self) -> Result<Option<MatchCursor>, Box<Problem>> {
        let Some(text) = &self.after else { return Ok(None) };
        let pool = self.pool()?;
        let cursor = MatchCursor::parse(text).filter(|cursor| pool.as_ref().is_none_or(|pool| *pool == cursor.pool));
        cursor.map(Some).ok_or_else(|| Box::new(Refusal::BadCursor.into()))
    }
}

/// A place in the listing of matches: a pool, and a client of it that was the last one; none for the pool's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchCursor {
    /// The pool.
    pub pool: PoolName,
    /// The client.
    pub client: Option<ClientName>,
}

impl MatchCursor {
    /// Reads a cursor. Names of pools have no slash, so the first one ends the pool.
    fn parse(text: &str) -> Option<Self> {
        let (pool, client) = text.split_once('/')?;
        let client = if client.is_empty() { None } else { Some(names::client(client).ok()?) };
        Some(Self { pool: names::pool(pool).ok()?, client })
    }
}

impl fmt::Display for MatchCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.client.as_deref().unwrap_or_default())
    }
}

/// One page of matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListMatchesResponse {
    /// The matches, by pool and client, without their tokens.
    pub matches: Vec<Match>,
    /// Pass it as `after` to get the next page; null at the end.
    pub next: Option<String>,
}

#[cfg(test)]
#[path = "matches_tests.rs"]
mod tests;
