//! Long polls for a group to visit or a chunk to claim: what becomes ready wakes as many waiters that can take it.
//!
//! A waiter takes either any crawl or one. Those of each crawl wait in a line of their own. A group of a crawl that becomes
//! ready wakes the waiter that came first of those for any crawl and those for this one. A wake-up says "look", not "this
//! group is yours", so it may reach a waiter that does not need it:
//!
//! 1. It takes another group than the one it was woken for, while a different waiter looked too early to see that one.
//! 2. It is about to leave, with a group that it took before, or because of a timeout or a disconnected caller.
//! 3. It takes any crawl, and leaves with a group of another crawl than the one it was woken for. Those who are next in line
//!    for its own crawl may not be those who can take what is left.
//!
//! So a wake-up names its crawl, and its waiter owes it until it has looked. A waiter that leaves before that passes on what
//! it owes: to the first that can take that crawl. One that leaves with a group passes on what it owes while a group of
//! that crawl is ready. One that looks and finds nothing owes nothing: whatever is ready of the crawl by then became ready
//! after the look, with a wake-up of its own. Hence no wake-up is lost: while a group is ready and a waiter that can take it
//! sleeps, some waiter owes a wake-up for its crawl and will look.
//!
//! A waiter lines up before it looks, and a group is published before its wake-up. So a wake-up that finds no one in line
//! is not kept: everyone who joins later sees the group. A waiter keeps its place in line until it leaves.
//!
//! Some waiters watch: they want more than one group, or groups of one shard. What they might take wakes them, and they use
//! no wake-up up, because they may have to leave it to others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

use hashbrown::HashMap;
use tokio::sync::Notify;
use wayleave_core::ids::ShardId;
use wayleave_core::names::CrawlName;

use crate::shared::readiness::lock;

/// The crawl that a wake-up is for. `None` for a group that only waiters for any crawl can take.
type Topic = Option<CrawlName>;

/// What a waiter can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    Any,
    Crawl(CrawlName),
    /// Watches what becomes ready of a crawl, or of any.
    Watch(Option<CrawlName>, Watch),
}

/// What a waiter that watches needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Watch {
    /// This many groups in one shard.
    Groups(usize),
    /// Something in this shard.
    Shard(ShardId),
}

impl Wants {
    /// A group of this crawl, or of any.
    pub fn one_of(crawl: Option<&CrawlName>) -> Self {
        crawl.map_or(Self::Any, |crawl| Self::Crawl(crawl.clone()))
    }

    /// The crawl, if it can take only one.
    pub const fn crawl(&self) -> Option<&CrawlName> {
        match self {
            Self::Any => None,
            Self::Crawl(crawl) => Some(crawl),
            Self::Watch(crawl, _) => crawl.as_ref(),
        }
    }
}

/// All waiters.
#[derive(Default)]
pub(crate) struct Waiters {
    /// The number of waiters, in line or awake. A waiter is counted before it looks, and what is ready is published before
    /// it is read, so a waiter that is not counted yet will see that.
    count: AtomicUsize,
    tickets: AtomicU64,
    lines: Mutex<Lines>,
}

/// Waiters by ticket, which is the order in which they came.
type Line<T> = VecDeque<(u64, T)>;

#[derive(Default)]
struct Lines {
    any: Line<Arc<Notify>>,
    /// Ordered, so that the simulator repeats a run.
    crawls: BTreeMap<CrawlName, Line<Arc<Notify>>>,
    /// By crawl, or any, and by what they need: a wake-up looks only at those that it may be for.
    watch: BTreeMap<(Option<CrawlName>, Watch), Line<Arc<Notify>>>,
    /// Waiters that were woken, are not in line, and have not noticed yet.
    woken: HashMap<u64, Topic>,
}

/// One waiter.
pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    wants: Wants,
    ticket: u64,
    wake: Arc<Notify>,
    /// Is in line or was woken.
    queued: bool,
    /// Was woken for this and has not looked since.
    owes: Option<Topic>,
}

fn insert<T>(line: &mut Line<T>, ticket: u64, waiter: T) {
    let at = line.partition_point(|(other, _)| *other < ticket);
    line.insert(at, (ticket, waiter));
}

fn remove<T>(line: &mut Line<T>, ticket: u64) {
    if let Ok(at) = line.binary_search_by_key(&ticket, |(other, _)| *other) {
        line.remove(at);
    }
}

fn first<T>(line: Option<&Line<T>>) -> Option<u64> {
    line.and_then(VecDeque::front).map(|(ticket, _)| *ticket)
}

impl Lines {
    fn enqueue(&mut self, wants: &Wants, ticket: u64, wake: &Arc<Notify>) {
        let wake = wake.clone();
        match wants {
            Wants::Any => insert(&mut self.any, ticket, wake),
            Wants::Crawl(crawl) => insert(self.crawls.entry(crawl.clone()).or_default(), ticket, wake),
            Wants::Watch(crawl, watch) => {
                insert(self.watch.entry((crawl.clone(), *watch)).or_default(), ticket, wake);
            }
        }
    }

    /// Takes a waiter out of its line. Returns the wake-up that it has not noticed.
    fn leave(&mut self, wants: &Wants, ticket: u64) -> Option<Topic> {
        if let Some(topic) = self.woken.remove(&ticket) {
            return Some(topic);
        }
        match wants {
            Wants::Any => remove(&mut self.any, ticket),
            Wants::Watch(crawl, watch) => {
                let of = (crawl.clone(), *watch);
                self.watch.get_mut(&of).into_iter().for_each(|line| remove(line, ticket));
                if self.watch.get(&of).is_some_and(VecDeque::is_empty) {
                    self.watch.remove(&of);
                }
            }
            Wants::Crawl(crawl) => {
                let line = self.crawls.get_mut(crawl);
                line.into_iter().for_each(|line| remove(line, ticket));
                self.forget_empty(crawl);
            }
        }
        None
    }

    fn forget_empty(&mut self, crawl: &CrawlName) {
        if self.crawls.get(crawl).is_some_and(VecDeque::is_empty) {
            self.crawls.remove(crawl);
        }
    }

    /// Wakes the first waiter in line that can take a group of a crawl.
    fn wake_one(&mut self, topic: &Topic) -> bool {
        let of_crawl = topic.as_ref().filter(|crawl| {
            let came = first(self.crawls.get(*crawl));
            came.is_some_and(|came| first(Some(&self.any)).is_none_or(|any| came < any))
        });
        let line = match of_crawl {
            Some(crawl) => self.crawls.get_mut(crawl),
            None => Some(&mut self.any),
        };
        let Some((ticket, wake)) = line.and_then(VecDeque::pop_front) else { return false };
        of_crawl.into_iter().for_each(|crawl| self.forget_empty(crawl));
        self.woken.insert(ticket, topic.clone());
        wake.notify_one();
        true
    }

    /// Wakes the first waiter of those for a crawl.
    fn wake_first_of(&mut self, crawl: &CrawlName) {
        let first = self.crawls.get_mut(crawl).and_then(VecDeque::pop_front);
        if let Some((ticket, wake)) = first {
            self.forget_empty(crawl);
            self.woken.insert(ticket, Some(crawl.clone()));
            wake.notify_one();
        }
    }

    /// Wakes those that watch a crawl: all of the shard, and of those that need several groups, in the order in which they
    /// came, whom the rest of `left` serves.
    fn wake_watchers(&mut self, topic: &Topic, shard: Option<ShardId>, mut left: usize, cost: impl Fn(usize) -> usize) {
        let crawls: Vec<Option<CrawlName>> = topic.clone().map(Some).into_iter().chain([None]).collect();
        for crawl in &crawls {
            let here = shard.and_then(|shard| self.watch.remove(&(crawl.clone(), Watch::Shard(shard))));
            for (ticket, wake) in here.into_iter().flatten() {
                self.woken.insert(ticket, topic.clone());
                wake.notify_one();
            }
        }
        loop {
            let range = |crawl: &Option<CrawlName>| {
                (crawl.clone(), Watch::Groups(0))..=(crawl.clone(), Watch::Groups(usize::MAX))
            };
            let lines = crawls.iter().flat_map(|crawl| self.watch.range(range(crawl)));
            let served = lines.filter_map(|(of, line)| match of.1 {
                Watch::Groups(groups) if cost(groups) <= left => Some((first(Some(line))?, cost(groups), of.clone())),
                _ => None,
            });
            let Some((_, used, of)) = served.min_by_key(|(came, ..)| *came) else { return };
            left -= used;
            let Some(line) = self.watch.get_mut(&of) else { return };
            if let Some((ticket, wake)) = line.pop_front() {
                self.woken.insert(ticket, topic.clone());
                wake.notify_one();
            }
            if line.is_empty() {
                self.watch.remove(&of);
            }
        }
    }

    /// Passes on a wake-up that a waiter owes.
    fn pass_on(&mut self, wants: &Wants, topic: &Topic) {
        match wants {
            Wants::Any | Wants::Crawl(_) => _ = self.wake_one(topic),
            Wants::Watch(_, Watch::Groups(_)) => self.wake_watchers(topic, None, 1, |_| 1),
            // All others that watch the shard were woken, too.
            Wants::Watch(_, Watch::Shard(_)) => {}
        }
    }
}

impl Waiters {
    /// Adds a waiter; it is queued by [`Waiter::enqueue`].
    pub fn join(&self, wants: Wants) -> Waiter<'_> {
        self.count.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        Waiter { waiters: self, wants, ticket, wake: Arc::default(), queued: false, owes: None }
    }

    /// The lines, if anyone waits.
    fn lines(&self) -> Option<std::sync::MutexGuard<'_, Lines>> {
        fence(Ordering::SeqCst);
        (self.count.load(Ordering::SeqCst) > 0).then(|| lock(&self.lines))
    }

    /// Wakes waiters for this many groups of a crawl that became ready.
    pub fn wake(&self, crawl: Option<&CrawlName>, groups: usize) {
        let Some(mut lines) = self.lines() else { return };
        let topic = crawl.cloned();
        for _ in 0..groups {
            if !lines.wake_one(&topic) {
                break;
            }
        }
    }

    /// Wakes those that watch a shard, of which this many groups of a crawl are ready now.
    pub fn wake_watchers(&self, crawl: Option<&CrawlName>, shard: ShardId, groups: usize) {
        let Some(mut lines) = self.lines() else { return };
        lines.wake_watchers(&crawl.cloned(), Some(shard), groups, |groups| groups);
    }

    /// Wakes those that watch a shard, in which this many chunks of a crawl became claimable.
    pub fn wake_watchers_for_chunks(&self, crawl: Option<&CrawlName>, shard: ShardId, chunks: usize) {
        let Some(mut lines) = self.lines() else { return };
        lines.wake_watchers(&crawl.cloned(), Some(shard), chunks, |_| 1);
    }

    /// Wakes waiters for this many groups of crawls that are not known, except those that are `known` not to be meant: the
    /// first in line of each crawl looks, and wakes the next one if it finds something.
    pub fn wake_unknown(&self, groups: usize, known: impl Fn(&CrawlName) -> bool) {
        let Some(mut lines) = self.lines().filter(|_| groups > 0) else { return };
        for _ in 0..groups {
            if !lines.wake_one(&None) {
                break;
            }
        }
        let crawls: Vec<CrawlName> = lines.crawls.keys().filter(|crawl| !known(crawl)).cloned().collect();
        for crawl in crawls {
            lines.wake_first_of(&crawl);
        }
    }
}

impl Waiter<'_> {
    /// What it can take.
    pub const fn wants(&self) -> &Wants {
        &self.wants
    }

    /// From now on it can take this. It keeps its place.
    pub fn change(&mut self, wants: Wants) {
        if self.wants != wants {
            self.pass_on(|_| true);
            self.wants = wants;
        }
    }

    /// Queues the waiter. Must be called before looking: whatever becomes ready from then on wakes it.
    pub fn enqueue(&mut self) {
        let mut lines = lock(&self.waiters.lines);
        let woken = lines.woken.remove(&self.ticket);
        if woken.is_some() || !self.queued {
            lines.enqueue(&self.wants, self.ticket, &self.wake);
            self.queued = true;
        }
        if let Some(topic) = woken
            && let Some(owed) = self.owes.replace(topic)
        {
            lines.pass_on(&self.wants, &owed);
        }
    }

    /// The waiter looks although nobody woke it. What it leaves is passed on as if it had been woken for it.
    pub fn looks_unwoken(&mut self) {
        if self.owes.is_none() && !matches!(self.wants, Wants::Watch(_, Watch::Shard(_))) {
            self.owes = Some(self.wants.crawl().cloned());
        }
    }

    /// The waiter has looked and found nothing.
    pub fn found_nothing(&mut self) {
        self.owes = None;
    }

    /// The waiter leaves with something; `more` tells whether more of a crawl is ready, or of any.
    pub fn leave(mut self, more: impl Fn(Option<&CrawlName>) -> bool) {
        self.pass_on(more);
    }

    /// Leaves the line, and passes on what it owes while there is more.
    fn pass_on(&mut self, more: impl Fn(Option<&CrawlName>) -> bool) {
        let unnoticed = if self.queued { lock(&self.waiters.lines).leave(&self.wants, self.ticket) } else { None };
        self.queued = false;
        for topic in self.owes.take().into_iter().chain(unnoticed) {
            if more(topic.as_ref()) {
                lock(&self.waiters.lines).pass_on(&self.wants, &topic);
            }
        }
    }

    /// Waits to be woken.
    pub async fn woken(&mut self) {
        while self.queued && !lock(&self.waiters.lines).woken.contains_key(&self.ticket) {
            self.wake.notified().await;
        }
    }

    /// Whether it is the first in line.
    pub fn is_first(&self) -> bool {
        let lines = lock(&self.waiters.lines);
        let line = match &self.wants {
            Wants::Any => Some(&lines.any),
            Wants::Crawl(crawl) => lines.crawls.get(crawl),
            Wants::Watch(_, Watch::Shard(_)) => None,
            Wants::Watch(crawl, watch) => lines.watch.get(&(crawl.clone(), *watch)),
        };
        first(line) == Some(self.ticket)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.pass_on(|_| true);
        self.waiters.count.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn crawl(name: &str) -> CrawlName {
        name.into()
    }

    fn queued<'a>(waiters: &'a Waiters, of: Option<&str>) -> Waiter<'a> {
        lined_up(waiters, Wants::one_of(of.map(crawl).as_ref()))
    }

    fn lined_up(waiters: &Waiters, wants: Wants) -> Waiter<'_> {
        let mut waiter = waiters.join(wants);
        waiter.enqueue();
        waiter
    }

    fn is_woken(waiter: &mut Waiter<'_>) -> bool {
        waiter.woken().now_or_never().is_some()
    }

    fn wake(waiters: &Waiters, of: &str, groups: usize) {
        waiters.wake(Some(&crawl(of)), groups);
    }

    #[test]
    fn each_group_wakes_the_first_who_can_take_it() {
        let waiters = Waiters::default();
        let [mut b1, mut any1, mut a1, mut a2, mut any2, mut b2] =
            [Some("b"), None, Some("a"), Some("a"), None, Some("b")].map(|of| queued(&waiters, of));
        wake(&waiters, "a", 3);
        assert!(is_woken(&mut any1) && is_woken(&mut a1) && is_woken(&mut a2), "in the order in which they came");
        assert!(!is_woken(&mut any2) && !is_woken(&mut b1) && !is_woken(&mut b2));
        // Those that found nothing keep their places.
        for waiter in [&mut a2, &mut any1, &mut a1] {
            waiter.enqueue();
            waiter.found_nothing();
        }
        wake(&waiters, "a", 1);
        assert!(is_woken(&mut any1) && !is_woken(&mut a1));
        waiters.wake(None, 5);
        assert!(is_woken(&mut any2) && !is_woken(&mut a1) && !is_woken(&mut b1), "no crawl has it");
        wake(&waiters, "b", usize::MAX);
        assert!(is_woken(&mut b1) && is_woken(&mut b2) && !is_woken(&mut a1));
    }

    #[test]
    fn who_leaves_before_it_heard_or_looked_leaves_the_wake_up_to_the_next() {
        let waiters = Waiters::default();
        let (first, mut second) = (queued(&waiters, None), queued(&waiters, Some("a")));
        let mut other = queued(&waiters, Some("b"));
        wake(&waiters, "a", 1);
        drop(first);
        assert!(is_woken(&mut second), "the first never heard it");
        let mut third = queued(&waiters, None);
        second.enqueue();
        drop(second);
        assert!(is_woken(&mut third), "the second had not looked");
        third.enqueue();
        third.found_nothing();
        let mut fourth = queued(&waiters, Some("a"));
        drop(third);
        assert!(!is_woken(&mut fourth), "the third had");
        assert!(!is_woken(&mut other));
    }

    #[test]
    fn who_leaves_with_a_group_passes_on_what_it_owes_while_there_is_more() {
        let waiters = Waiters::default();
        let mut first = queued(&waiters, None);
        let [mut a, mut b, mut c] = ["a", "b", "c"].map(|of| queued(&waiters, Some(of)));
        wake(&waiters, "a", 1);
        assert!(is_woken(&mut first));
        first.enqueue();
        // Woken once more while it looks.
        wake(&waiters, "b", 1);
        wake(&waiters, "c", 1);
        assert!(is_woken(&mut c) && !is_woken(&mut a) && !is_woken(&mut b));
        first.leave(|of| of.is_some_and(|of| &**of == "a"));
        assert!(is_woken(&mut a), "it has taken another group than the one of a");
        assert!(!is_woken(&mut b), "the group of b is gone");
    }

    #[test]
    fn a_wake_up_that_finds_all_awake_is_not_kept() {
        let waiters = Waiters::default();
        let (mut first, mut second) = (queued(&waiters, None), queued(&waiters, None));
        wake(&waiters, "a", 2);
        assert!(is_woken(&mut first) && is_woken(&mut second));
        wake(&waiters, "a", 3);
        first.enqueue();
        second.enqueue();
        first.found_nothing();
        second.found_nothing();
        let mut third = queued(&waiters, None);
        assert!(!is_woken(&mut first) && !is_woken(&mut second) && !is_woken(&mut third), "they look anyway");
        drop(first);
        wake(&waiters, "a", usize::MAX);
        assert!(is_woken(&mut second) && is_woken(&mut third));
    }

    #[test]
    fn those_who_watch_are_woken_by_what_they_might_take_and_use_nothing_up() {
        let waiters = Waiters::default();
        let [few, many] = [3, 5].map(Watch::Groups);
        let [mut few_a, mut few_any, mut many_any] = [(Some("a"), few), (None, few), (None, many)]
            .map(|(of, watch)| lined_up(&waiters, Wants::Watch(of.map(crawl), watch)));
        let [mut here, mut there] =
            [0, 1].map(|shard| lined_up(&waiters, Wants::Watch(Some(crawl("a")), Watch::Shard(ShardId(shard)))));
        let mut plain = queued(&waiters, Some("a"));
        let ready = |of, groups| waiters.wake_watchers(Some(&crawl(of)), ShardId(0), groups);
        ready("a", 2);
        assert!(is_woken(&mut here) && !is_woken(&mut there) && !is_woken(&mut few_a) && !is_woken(&mut plain));
        ready("b", 3);
        assert!(is_woken(&mut few_any) && !is_woken(&mut few_a));
        few_any.enqueue();
        few_any.found_nothing();
        ready("a", 5);
        assert!(is_woken(&mut few_a) && !is_woken(&mut few_any) && !is_woken(&mut many_any), "five are not enough");
        drop(few_a);
        assert!(is_woken(&mut few_any), "the first has left before it looked");
        wake(&waiters, "a", 1);
        assert!(is_woken(&mut plain));
        waiters.wake_watchers_for_chunks(Some(&crawl("a")), ShardId(1), 1);
        assert!(is_woken(&mut there) && is_woken(&mut many_any));
    }
}
