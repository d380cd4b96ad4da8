//! The router: which shard a name or token belongs to, where that shard's owner is, and how to ask one shard or all of
//! them. An owner may be in this process or on another node; callers see no difference.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use wayleave_core::frontier::State;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::limits::{FORWARDED_PUTS_MAX, HAND_OVER_WAIT};

use crate::ask::{Ask, Response};
use crate::config::Config;
use crate::owner::inbox::InboxSender;
use crate::routing::admission::Admission;
use crate::routing::links::{Links, NodeCall};
use crate::routing::move_hints::MoveHints;
use crate::routing::service_call::ServiceCall;
use crate::shared::broadcast::{Broadcast, Subscriber};
use crate::shared::owned_epochs::OwnedEpochs;

/// An answer, or the refusal.
pub type CallResult<T> = Result<T, Refusal>;

/// The shard that a name hashes to. The hash is part of the storage format and never changes.
#[must_use]
pub fn home(name: &str, shards: u16) -> ShardId {
    ShardId(((u128::from(digest(name)) * u128::from(shards)) >> 64) as u16)
}

/// A digest of a name, the same on all nodes.
pub(crate) fn digest(name: &str) -> u64 {
    use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
    const SECRETS: RapidSecrets = RapidSecrets::seed(0x77a1_1eaf_e000_0001);
    rapidhash_v3_seeded(name.as_bytes(), &SECRETS)
}

/// Where the owner of a shard is.
#[derive(Clone)]
pub(crate) enum OwnerLocation {
    Local(InboxSender),
    Remote(NodeId),
    Unowned,
}

/// The locations of all owners, and hints where moved hosts live.
pub(crate) struct Router {
    locations: RwLock<Vec<OwnerLocation>>,
    /// Notified whenever an owner comes or goes.
    changed: Broadcast,
    /// Connection to other nodes; `None` where one process owns everything.
    pub links: Option<Arc<dyn Links>>,
    /// Admission control: visits before puts.
    pub admission: Arc<Admission>,
    /// The epochs under which this process holds its shards.
    pub epochs: OwnedEpochs,
    /// Notified when an owner was not where it was expected.
    misrouted: Arc<Notify>,
    /// Permits for put batches on their way to other nodes.
    pub forwarded_puts: Arc<Semaphore>,
    /// Permits for slices of listings that local owners run concurrently, for all callers: most of a store's read
    /// connections stay free.
    pub slices: Semaphore,
    /// Where moved hosts live.
    pub moved: MoveHints,
    /// Whether this node has lost the store.
    cut_off: AtomicBool,
    /// How often the hints were marked stale: a move failed half-way, or a shard refused a host.
    stale_marks: AtomicU64,
    /// How many of these marks the hints in use have answered.
    settled: AtomicU64,
}

/// Whether a host lives in a shard: with an alias there, homed there, or among its hosts.
pub(crate) fn belongs(state: &State, host: &str, shards: u16) -> bool {
    match state.moved_to(host) {
        Some(alias) => home(alias, shards) == state.shard(),
        None => home(host, shards) == state.shard() || state.host_id(host).is_some(),
    }
}

impl Router {
    pub fn new(config: &Config, links: Option<Arc<dyn Links>>, misrouted: Arc<Notify>) -> Arc<Self> {
        let locations = (0..config.shards).map(|_| OwnerLocation::Unowned).collect();
        let stale_marks = AtomicU64::new(u64::from(links.is_some()));
        Arc::new(Self {
            locations: RwLock::new(locations),
            changed: Broadcast::default(),
            links,
            admission: Arc::new(Admission::new(config.put_pause_max)),
            epochs: OwnedEpochs::new(config.shards),
            misrouted,
            forwarded_puts: Arc::new(Semaphore::new(FORWARDED_PUTS_MAX)),
            slices: Semaphore::new(config.listings_max),
            moved: MoveHints::default(),
            cut_off: AtomicBool::new(false),
            stale_marks,
            settled: AtomicU64::new(0),
        })
    }

    pub fn shards(&self) -> u16 {
        self.locations.read().unwrap_or_else(PoisonError::into_inner).len() as u16
    }

    pub fn location(&self, shard: ShardId) -> OwnerLocation {
        let locations = self.locations.read().unwrap_or_else(PoisonError::into_inner);
        locations.get(usize::from(shard.0)).cloned().unwrap_or(OwnerLocation::Unowned)
    }

    /// Tells the owner of a shard from another one: its node, or its term here.
    pub fn owner_id(&self, shard: ShardId) -> (Option<NodeId>, Option<u64>) {
        match self.location(shard) {
            OwnerLocation::Local(inbox) => (None, Some(inbox.term)),
            OwnerLocation::Remote(node) => (Some(node), None),
            OwnerLocation::Unowned => (None, None),
        }
    }

    pub fn set_location(&self, shard: ShardId, location: OwnerLocation) {
        if let Some(slot) = self.locations.write().unwrap_or_else(PoisonError::into_inner).get_mut(usize::from(shard.0))
        {
            *slot = location;
        }
        self.changed.notify();
    }

    pub fn set_cut_off(&self, cut_off: bool) {
        self.cut_off.store(cut_off, Ordering::Release);
    }

    /// Why a shard has no reachable owner.
    pub fn why_no_owner(&self) -> &'static str {
        if self.cut_off.load(Ordering::Acquire) {
            "this node cannot reach the store, and others may own its shards by now"
        } else {
            "it has no reachable owner at the moment: it is being handed over, or its node is lost"
        }
    }

    /// Records that an owner was not where it was expected.
    pub fn note_misroute(&self) {
        self.misrouted.notify_one();
    }

    /// An owner of this process has ended: the shard has none, unless a new one has started meanwhile.
    pub fn end_term(&self, shard: ShardId, term: u64) {
        let ended = matches!(self.location(shard), OwnerLocation::Local(inbox) if inbox.term == term);
        if ended {
            self.set_location(shard, OwnerLocation::Unowned);
        }
    }

    /// Subscribes to owners coming and going.
    pub fn changes(&self) -> Subscriber {
        self.changed.subscribe()
    }

    /// Marks the hints as possibly stale.
    pub fn mark_hints_stale(&self) {
        self.stale_marks.fetch_add(1, Ordering::AcqRel);
    }

    pub fn hints_may_be_stale(&self) -> bool {
        self.settled.load(Ordering::Acquire) < self.stale_marks()
    }

    /// How often the hints were marked stale until now.
    pub fn stale_marks(&self) -> u64 {
        self.stale_marks.load(Ordering::Acquire)
    }

    /// Whether some hosts live away from home, or may.
    pub fn knows_moves(&self) -> bool {
        self.hints_may_be_stale() || !self.moved.is_empty()
    }

    /// The hints are as good as the answers of shards that were asked after this many marks. A later mark stays: a learner
    /// asks shard A; a move into A fails half-way and leaves a mark; the learner has the other answers and settles what it
    /// asked for, of which A's is older than the move.
    pub fn settle(&self, stale_marks: u64) {
        self.settled.fetch_max(stale_marks, Ordering::AcqRel);
    }

    /// The shard that a host lives in.
    pub fn shard_of(&self, host: &str) -> ShardId {
        self.moved.with_place(host, |name| home(name, self.shards()))
    }

    /// Asks a shard and waits for its answer; during a hand-over, for its next owner.
    pub async fn ask<T: TryFrom<Response, Error = Refusal>>(
        &self,
        shard: ShardId,
        ask: impl Into<Ask>,
    ) -> CallResult<T> {
        self.ask_within(shard, ask, Duration::from_millis(HAND_OVER_WAIT.0)).await
    }

    /// Asks a shard; waits up to `patience` for an owner.
    pub async fn ask_within<T: TryFrom<Response, Error = Refusal>>(
        &self,
        shard: ShardId,
        ask: impl Into<Ask>,
        patience: Duration,
    ) -> CallResult<T> {
        self.answer_of(shard, ask.into(), patience).await.and_then(T::try_from)
    }

    /// Asks several shards concurrently; answers in shard order. Waits for all of them, so that the result is true of
    /// each: if some applied the call and others did not, the outcome is not "nothing was changed".
    pub async fn ask_all<T: TryFrom<Response, Error = Refusal>>(
        &self,
        shards: &[ShardId],
        ask: impl Into<Ask>,
    ) -> CallResult<Vec<T>> {
        let ask = ask.into();
        let (mut told, mut trouble) = (Vec::with_capacity(shards.len()), None::<Refusal>);
        for answer in self.answers_of(shards, &ask).await {
            match answer.and_then(T::try_from) {
                Ok(answer) => told.push(answer),
                Err(refusal) => trouble = Some(worse(trouble, refusal)),
            }
        }
        match trouble {
            None => Ok(told),
            Some(refusal) if told.is_empty() || ask.is_read_only() => Err(refusal),
            Some(refusal) => {
                Err(refusal.after_partial_change(&format!("{} of {} shards have done it", told.len(), shards.len())))
            }
        }
    }
}

impl Router {
    /// The answers of several shards, in their order: those of this process at once, those of other nodes in one message per
    /// node. Shards that are not where they were expected are asked again, each by itself.
    async fn answers_of(&self, shards: &[ShardId], ask: &Ask) -> Vec<CallResult<Response>> {
        let mut away: BTreeMap<NodeId, Vec<ShardId>> = BTreeMap::new();
        let mut here: Vec<ShardId> = Vec::new();
        for shard in shards {
            match self.location(*shard) {
                OwnerLocation::Remote(node) if self.links.is_some() => away.entry(node).or_default().push(*shard),
                _ => here.push(*shard),
            }
        }
        let by_themselves = |shards: Vec<ShardId>| async {
            let patience = Duration::from_millis(HAND_OVER_WAIT.0);
            let asks = shards.iter().map(|shard| self.answer_of(*shard, ask.clone(), patience));
            let answers = futures::future::join_all(asks).await;
            shards.into_iter().zip(answers).collect::<Vec<_>>()
        };
        let of_nodes = away.into_iter().map(|(node, shards)| async move {
            let (lost, mut answers): (Vec<_>, Vec<_>) = self
                .ask_node(node, shards, ask)
                .await
                .into_iter()
                .partition(|(_, answer)| matches!(answer, Err(Refusal::Elsewhere)));
            answers.extend(by_themselves(lost.into_iter().map(|(shard, _)| shard).collect()).await);
            answers
        });
        let (here, of_nodes) = futures::future::join(by_themselves(here), futures::future::join_all(of_nodes)).await;
        let mut answers: BTreeMap<ShardId, CallResult<Response>> = of_nodes.into_iter().flatten().chain(here).collect();
        shards.iter().map(|shard| answers.remove(shard).unwrap_or_else(|| Err(never_answered()))).collect()
    }

    /// Asks several shards of another node in one message.
    async fn ask_node(&self, node: NodeId, shards: Vec<ShardId>, ask: &Ask) -> Vec<(ShardId, CallResult<Response>)> {
        let all = |refusal: Refusal| vec![Err(refusal); shards.len()];
        let Some(links) = &self.links else { return Vec::new() };
        let call = NodeCall::AskAll { shards: shards.clone(), ask: ask.clone() };
        let answers: Vec<CallResult<Response>> = match links.say(node, &call).await {
            Ok(answers) => answers,
            Err(error) => all(error.refusal(ask.is_read_only())),
        };
        // A shard that is missing among them counts as one that was never answered.
        shards.into_iter().zip(answers).collect()
    }
}

/// Combines the refusals of several shards into the one the caller gets.
pub(crate) fn worse(before: Option<Refusal>, refusal: Refusal) -> Refusal {
    match before {
        Some(before) => before.or_worse(refusal),
        None => refusal,
    }
}

/// Waits for an owner to come or go; false if the deadline passed. An owner may refuse before everyone has heard of its
/// successor, so after a short pause it returns as well.
pub(crate) async fn changed_before(changes: &mut Subscriber, deadline: Instant) -> bool {
    const LOOK_AGAIN: Duration = Duration::from_millis(50);
    let now = Instant::now();
    if now >= deadline {
        return false;
    }
    _ = tokio::time::timeout_at(deadline.min(now + LOOK_AGAIN), changes.changed()).await;
    true
}

/// The refusal while the process is shutting down.
pub(crate) fn stopping() -> Refusal {
    Refusal::Unavailable("the server is shutting down or the shard is reloading".to_owned())
}

/// The refusal when an owner ended without answering.
pub(crate) fn never_answered() -> Refusal {
    Refusal::OutcomeUnknown("the shard's owner ended before it answered".to_owned())
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
