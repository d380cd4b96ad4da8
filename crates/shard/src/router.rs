//! The router: which shard a name or a token belongs to, and how to ask one shard or all of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use hashbrown::HashMap;
use tokio::sync::oneshot;
use wayleave_core::frontier::State;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::row::Write;
use wayleave_core::ids::ShardId;
use wayleave_core::names::{Alias, HostName};
use wayleave_core::time::Time;

use crate::inbox::Inbox;
use crate::message::{Message, Reply, decide};

/// An answer or the reason why not.
pub type Answer<T> = Result<T, Refusal>;

/// The shard that a name hashes to. The hash is part of the format: it never changes.
#[must_use]
pub fn home(name: &str, shards: u16) -> ShardId {
    use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
    const SECRETS: RapidSecrets = RapidSecrets::seed(0x77a1_1eaf_e000_0001);
    let hash = rapidhash_v3_seeded(name.as_bytes(), &SECRETS);
    ShardId(((u128::from(hash) * u128::from(shards)) >> 64) as u16)
}

/// The sending ends of all owners, and hints where hosts live that have moved to an alias.
pub(crate) struct Router {
    pub inboxes: Vec<Inbox>,
    /// Which alias a host lives with. Only a hint: an owner refuses a host that is not its own.
    moved: RwLock<HashMap<HostName, Alias>>,
    /// Whether a move failed half-way or a shard refused a host: the hints are to be asked for again.
    stale: AtomicBool,
}

/// What callers hear of a host that is not where it was looked for.
pub(crate) const MOVING: &str = "the host is moving to another group; try again";

/// Whether a host lives in a shard: with an alias there, at home there, or among its hosts.
pub(crate) fn belongs(state: &State, host: &str, shards: u16) -> bool {
    match state.moved_to(host) {
        Some(alias) => home(alias, shards) == state.shard(),
        None => home(host, shards) == state.shard() || state.host_id(host).is_some(),
    }
}

impl Router {
    pub fn new(inboxes: Vec<Inbox>) -> Arc<Self> {
        Arc::new(Self { inboxes, moved: RwLock::default(), stale: AtomicBool::new(false) })
    }

    pub fn shards(&self) -> u16 {
        self.inboxes.len() as u16
    }

    /// The alias that a host lives with.
    pub fn alias_of(&self, host: &str) -> Option<Alias> {
        let moved = self.moved.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        moved.get(host).cloned()
    }

    pub fn set_alias_of(&self, host: &HostName, alias: Option<&Alias>) {
        let mut moved = self.moved.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        match alias {
            Some(alias) => moved.insert(host.clone(), alias.clone()),
            None => moved.remove(host),
        };
    }

    /// Notes that the hints may be wrong.
    pub fn doubt(&self) {
        self.stale.store(true, Ordering::Release);
    }

    pub fn is_doubted(&self) -> bool {
        self.stale.load(Ordering::Acquire)
    }

    /// Replaces all hints by what the shards say.
    pub fn set_aliases(&self, told: HashMap<HostName, Alias>) {
        *self.moved.write().unwrap_or_else(std::sync::PoisonError::into_inner) = told;
        self.stale.store(false, Ordering::Release);
    }

    /// The shard that a host lives in.
    pub fn shard_of(&self, host: &str) -> ShardId {
        let moved = self.moved.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let name: &str = if moved.is_empty() { host } else { moved.get(host).map_or(host, |alias| alias) };
        home(name, self.shards())
    }

    /// Sends a message to a shard; waits while its queue is full.
    pub async fn send(&self, shard: ShardId, message: Message) -> Answer<()> {
        let inbox = self.inboxes.get(usize::from(shard.0)).ok_or(Refusal::NotCurrent)?;
        inbox.send(message).await.map_err(|_| stopping())
    }

    /// Asks a shard and waits for its answer.
    pub async fn ask<T>(&self, shard: ShardId, message: impl FnOnce(Reply<T>) -> Message) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        self.send(shard, message(reply)).await?;
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Lets a shard decide something that needs no rows.
    pub async fn decide<T: Send + 'static>(
        &self,
        shard: ShardId,
        decision: impl FnOnce(&mut State, Time, &mut Vec<Write>) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        self.ask(shard, |reply| decide(reply, decision)).await
    }

    /// Lets every shard decide the same; all at once, answers in the order of shards.
    pub async fn decide_all<T: Send + 'static>(
        &self,
        decision: impl Fn(&mut State, Time, &mut Vec<Write>) -> T + Clone + Send + 'static,
    ) -> Answer<Vec<T>> {
        let ask = |shard| {
            let decision = decision.clone();
            self.decide(ShardId(shard), move |state, now, writes| Ok(decision(state, now, writes)))
        };
        futures::future::try_join_all((0..self.shards()).map(ask)).await
    }
}

/// The answer of a shard that a host does not live in.
pub(crate) fn moving() -> Refusal {
    Refusal::Unavailable(MOVING.to_owned())
}

/// What callers hear when the process is on its way out.
pub(crate) fn stopping() -> Refusal {
    Refusal::Unavailable("the server is stopping or a shard is reloading".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_homes_for_ever() {
        let homes = ["example.com", "a.example", "b.example", "kommune"].map(|name| home(name, 16).0);
        assert_eq!(homes, HOMES, "a changed hash would lose every host of every store");
        assert!((0..1_000).all(|n| home(&n.to_string(), 16).0 < 16));
    }

    const HOMES: [u16; 4] = [3, 7, 12, 7];
}
