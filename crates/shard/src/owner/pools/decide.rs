//! The in-memory pools of a shard, and the consequences of each decision.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::ShardId;
use wayleave_core::limits::TICKS_AT_ONCE_MAX;
use wayleave_core::matches::{self, Answer, Decision, Input, State};
use wayleave_core::names::{ClientName, PoolName};
use wayleave_core::time::Time;
use wayleave_engine::{Entropy, Write, rows};

use super::orders::Sites;
use super::parked::Parked;
use super::turn::Turn;
use crate::matches::call::{QueuedBefore, Waited};
use crate::matches::news::MatchNews;

/// Random values for one input. If more clients can be assigned at once, a tick follows immediately.
const RANDOM_PER_INPUT: usize = 5;
/// Random values for a tick.
const RANDOM_PER_TICK: usize = 65;
/// Removed pools that are remembered by name.
const REMOVED_MAX: usize = 100;

/// The pools of a shard.
pub(crate) struct Pools {
    pub(super) shard: ShardId,
    /// What marks what pools of this shard have started; none before the first pool.
    pub(super) label: Option<Arc<str>>,
    pub(super) entropy: Entropy,
    pub(super) states: BTreeMap<PoolName, State>,
    wakes: Wakes,
    pub(super) sites: Sites,
    /// When to look which sites are alive.
    pub(super) sites_at: Time,
    pub(super) parked: Parked,
    /// Clients whose match has changed, and for whom calls are parked, or may wait on other nodes.
    pub(super) news: VecDeque<(PoolName, ClientName)>,
    /// Where calls on other nodes hear of it.
    pub(super) elsewhere: Arc<MatchNews>,
    pub(super) turn: Turn,
    /// Pools that were removed lately: whoever asked one of them is told so.
    pub(super) removed: VecDeque<PoolName>,
}

/// When to tick each pool.
#[derive(Default)]
struct Wakes {
    of: BTreeMap<PoolName, Time>,
    order: BTreeSet<(Time, PoolName)>,
}

impl Pools {
    /// The pools as they were loaded. They are ticked in the first turn: what was ordered before is ordered again.
    pub fn new(
        shard: ShardId,
        label: Option<Arc<str>>,
        entropy: Entropy,
        elsewhere: Arc<MatchNews>,
        loaded: impl IntoIterator<Item = (PoolName, State)>,
    ) -> Self {
        let states: BTreeMap<PoolName, State> = loaded.into_iter().collect();
        let mut wakes = Wakes::default();
        states.keys().for_each(|pool| wakes.set(pool, Some(Time::ZERO)));
        Self {
            shard,
            label,
            entropy,
            states,
            wakes,
            sites: Sites::default(),
            sites_at: Time::ZERO,
            parked: Parked::default(),
            news: VecDeque::new(),
            elsewhere,
            turn: Turn::default(),
            removed: VecDeque::new(),
        }
    }

    /// Decides an input; `None` if there is no such pool.
    pub(super) fn apply(&mut self, pool: &PoolName, input: Input, now: Time) -> Option<Answer> {
        let count = if matches!(input, Input::Tick) { RANDOM_PER_TICK } else { RANDOM_PER_INPUT };
        let random: Vec<u128> = std::iter::repeat_with(|| (self.entropy)()).take(count).collect();
        let decision = self.states.get_mut(pool)?.apply(input, now, &random);
        Some(self.follow(pool, decision, now))
    }

    /// Applies a decision: queues its writes, effects and news. Nothing leaves before the turn's commit.
    fn follow(&mut self, pool: &PoolName, decision: Decision, now: Time) -> Answer {
        let Decision { answer, writes, effects, news, wake_at } = decision;
        self.turn.writes.extend(writes.iter().map(|write| rows::pool::encode_write(self.shard, pool, write)));
        effects.into_iter().for_each(|effect| self.sites.order(pool, effect, now));
        let elsewhere = self.elsewhere.is_watched(self.shard, now);
        let waited_for = news.into_iter().filter(|client| elsewhere || self.parked.has(pool, client));
        self.news.extend(waited_for.map(|client| (pool.clone(), client)));
        let gone = self.states.get(pool).is_none_or(State::is_gone);
        self.wakes.set(pool, wake_at.filter(|_| !gone));
        if gone {
            self.states.remove(pool);
            self.note_removed(pool);
            for call in self.parked.take_pool(pool) {
                self.turn.answer(call.reply, Err::<Waited, _>(removed(pool)));
            }
            if elsewhere {
                self.elsewhere.tell(self.shard, None);
            }
        }
        answer
    }

    fn note_removed(&mut self, pool: &PoolName) {
        self.removed.push_back(pool.clone());
        let surplus = self.removed.len().saturating_sub(REMOVED_MAX);
        self.removed.drain(..surplus);
    }

    /// There is no such pool, or no longer.
    pub(super) fn unknown(&self, pool: &PoolName) -> Refusal {
        if self.removed.contains(pool) {
            return removed(pool);
        }
        matches::Refusal::UnknownPool(pool.to_string()).into()
    }

    /// The label of what is started. It is drawn for the first pool, and durable with it.
    pub(super) fn label(&mut self) -> Arc<str> {
        if let Some(label) = &self.label {
            return label.clone();
        }
        let label: Arc<str> = format!("{:032x}", (self.entropy)()).into();
        let (key, value) = (rows::pool_owner::key(self.shard), Some(rows::pool_owner::encode(&label)));
        self.turn.writes.push(Write { key, value });
        self.label.insert(label).clone()
    }

    /// Ticks the pools whose time has come, and ends what has waited long enough.
    pub fn tick(&mut self, now: Time) {
        self.calls_over(now);
        for _ in 0..TICKS_AT_ONCE_MAX {
            let Some(pool) = self.wakes.due(now) else { break };
            // A tick that leaves work asks for the next one at once: that comes with the next turn.
            self.wakes.set(&pool, None);
            self.apply(&pool, Input::Tick, now);
            self.take_news(now);
        }
    }

    /// When there is work that no message brings.
    pub fn wake_at(&self) -> Option<Time> {
        let wake = self.wakes.order.first().map(|(at, _)| *at);
        wake.into_iter().chain(self.parked.next_expiry()).chain(self.look_for_sites_at()).min()
    }

    /// Ends what waits, because the owner ends.
    pub(super) fn leave(&mut self) {
        for call in self.parked.take_all() {
            let queued = if call.is_durable() { QueuedBefore::Yes } else { QueuedBefore::Perhaps };
            _ = call.reply.send(Ok(Waited::Interrupted(queued).into()));
        }
        // Without a look at the clock whether any call waits: few owners end.
        self.elsewhere.tell(self.shard, None);
    }
}

impl Wakes {
    fn set(&mut self, pool: &PoolName, at: Option<Time>) {
        if let Some(before) = self.of.remove(pool) {
            self.order.remove(&(before, pool.clone()));
        }
        if let Some(at) = at {
            self.of.insert(pool.clone(), at);
            self.order.insert((at, pool.clone()));
        }
    }

    fn due(&self, now: Time) -> Option<PoolName> {
        self.order.first().filter(|(at, _)| *at <= now).map(|(_, pool)| pool.clone())
    }
}

/// There is no such pool any more.
pub(super) fn removed(pool: &PoolName) -> Refusal {
    matches::Refusal::RemovedPool(pool.to_string()).into()
}
