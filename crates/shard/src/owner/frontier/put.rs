//! Batched puts: all rows they need are read at once, then they are decided in order and committed together.

use hashbrown::HashSet;
use wayleave_core::frontier::put::Target;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Put, PutKind, PutOutcome};
use wayleave_core::frontier::row::{UrlRow, UrlStatus};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::QueueId;
use wayleave_engine::rows::due;
use wayleave_engine::{Error, Key};

use crate::message::Outcomes;
use crate::owner::frontier::Frontier;
use crate::owner::frontier::put_replies::{Owed, Puts};
use crate::owner::port::{Port, cycle};
use crate::owner::read_facts::{self, Fact};
use crate::routing::router::belongs;

/// A put while it is being decided.
struct Item {
    caller: usize,
    tag: u64,
    put: Put,
    target: Target,
    /// `None` if the URL's queue does not exist yet.
    fingerprint: Option<u64>,
}

impl Frontier {
    /// Decides and commits puts. Two puts of the same URL are decided one after the other.
    pub async fn put_all(&mut self, puts: Puts, port: &mut Port) -> Result<(), Error> {
        if puts.is_empty() {
            return Ok(());
        }
        if let Some(why) = port.refusal() {
            puts.refuse(&why);
            return Ok(());
        }
        let callers = puts.take();
        let mut outcomes: Vec<Outcomes> = Vec::with_capacity(callers.len());
        let mut owed = Vec::with_capacity(callers.len());
        let mut all = Vec::with_capacity(callers.iter().map(|(_, puts)| puts.len()).sum());
        for (caller, (sink, puts)) in callers.into_iter().enumerate() {
            owed.push(Owed::new(sink, &puts));
            outcomes.push(Vec::with_capacity(puts.len()));
            all.extend(puts.into_iter().map(|(tag, put)| (caller, tag, put)));
        }
        let mut items = Vec::with_capacity(all.len());
        let mut under_way: HashSet<u64> = HashSet::with_capacity(all.len());
        // Callers must learn why it failed, so answers are queued in any case, each with the part of the batch that its
        // items were in.
        let mut failed: Option<Error> = None;
        let mut parts = 0;
        for (mut item, seen) in self.items(all) {
            if !self.belongs(&item.put.host, port) {
                // The sender used a stale routing hint.
                mark_hints_stale(port);
                outcomes_of(&mut outcomes, item.caller).push((item.tag, PutOutcome::Moved));
                continue;
            }
            // Only a put that leaves a known URL unchanged can be decided without its row.
            if seen
                && matches!(
                    item.put.kind,
                    PutKind::Discovered { .. }
                        | PutKind::Restored { .. }
                        | PutKind::Found { explicit: false, again: false, .. }
                )
            {
                outcomes_of(&mut outcomes, item.caller).push((item.tag, PutOutcome::Known));
                continue;
            }
            if parts > 0 && item.fingerprint.is_none() {
                // A decision made meanwhile may have created its queue.
                item = self.item(item);
            }
            if !under_way.insert(self.fingerprint_in_turn(&item)) {
                let part = self.put_part(std::mem::take(&mut items), &mut outcomes, &mut owed, port).await;
                failed = failed.or(part.err());
                under_way.clear();
                parts += 1;
                item = self.item(item);
                under_way.insert(self.fingerprint_in_turn(&item));
            }
            items.push(item);
        }
        failed = failed.or(self.put_part(items, &mut outcomes, &mut owed, port).await.err());
        failed.map_or(Ok(()), Err)
    }

    /// Decides and commits puts of distinct URLs, and queues the answers that wait for this commit.
    async fn put_part(
        &mut self,
        items: Vec<Item>,
        outcomes: &mut [Outcomes],
        owed: &mut [Owed],
        port: &mut Port,
    ) -> Result<(), Error> {
        let mark = port.cycle.mark();
        let done = self.put_some(items, outcomes, port).await;
        for (owed, outcomes) in owed.iter_mut().zip(outcomes).filter(|(_, outcomes)| !outcomes.is_empty()) {
            let answer = owed.decide(std::mem::take(outcomes));
            port.cycle.answer(mark, Box::new(move |durable| answer.send(durable)));
        }
        done
    }

    /// Looks up puts in stages, each stage for all puts, so that cache misses overlap. Returns each item and whether
    /// its URL is known.
    fn items(&self, puts: Vec<(usize, u64, Put)>) -> impl Iterator<Item = (Item, bool)> + use<> {
        let targets = self.state.put_targets(puts.iter().map(|(.., put)| put));
        let fingerprints: Vec<Option<u64>> = targets.iter().map(|target| self.fingerprint(target)).collect();
        // A truncated key may belong to another URL: only the row can tell.
        let is_known = |(fingerprint, target): (&Option<u64>, &Target)| {
            fingerprint.is_some_and(|fingerprint| self.caches.known.has(fingerprint)) && !target.key.is_cut()
        };
        let known: Vec<bool> = fingerprints.iter().zip(&targets).map(is_known).collect();
        let items = puts.into_iter().zip(targets).zip(fingerprints);
        let items =
            items.map(|(((caller, tag, put), target), fingerprint)| Item { caller, tag, put, target, fingerprint });
        items.zip(known)
    }

    /// Looks the put up again.
    fn item(&self, Item { caller, tag, put, .. }: Item) -> Item {
        let target = self.state.put_target(&put);
        let fingerprint = self.fingerprint(&target);
        Item { caller, tag, put, target, fingerprint }
    }

    /// `None` if the URL's queue does not exist yet.
    fn fingerprint(&self, target: &Target) -> Option<u64> {
        target.queue.map(|queue| self.caches.fingerprinter.fingerprint(queue, &target.key))
    }

    /// Identifies URLs within a batch; a queue that does not exist yet has only names.
    fn fingerprint_in_turn(&self, Item { put, target, fingerprint, .. }: &Item) -> u64 {
        let part = |bytes: &[u8]| self.caches.fingerprinter.of(bytes);
        let named = || part(&target.key.0) ^ part(put.host.as_bytes()).rotate_left(21) ^ part(put.crawl.as_bytes());
        fingerprint.unwrap_or_else(named)
    }

    async fn put_some(&mut self, items: Vec<Item>, outcomes: &mut [Outcomes], port: &mut Port) -> Result<(), Error> {
        let mut items = items;
        let facts = match self.facts_of(&mut items, port).await {
            Ok(facts) => facts,
            Err(error) => {
                let why = cycle::refusal(&error);
                for item in items {
                    let failed = PutOutcome::Failed(Box::new(why.clone()));
                    outcomes_of(outcomes, item.caller).push((item.tag, failed));
                }
                return Err(error);
            }
        };
        let (items, rows) = self.decidable(items, facts, outcomes, port);
        let (items, rows) = self.within_crawls(items, rows, outcomes, port);
        self.learn_limits_of(items.iter().map(|item| &item.put.crawl), port);
        let now = self.now(port);
        let mut writes = Vec::with_capacity(items.len() * 2);
        let new = items.iter().filter(|item| item.target.queue.is_none()).count();
        if new > 0 {
            self.claim_hosts(new, port);
        }
        for (item, row) in items.into_iter().zip(rows) {
            let Item { caller, tag, put, target, fingerprint } = item;
            // A queue created by this put has no number yet.
            let new = fingerprint.is_none().then(|| (put.host.clone(), put.crawl.clone(), target.key.clone()));
            let found = row.is_some();
            let outcome = self.state.put(put, target, row, now, &mut writes);
            let made = || {
                let (host, crawl, key) = new?;
                Some(self.caches.fingerprinter.fingerprint(self.state.queue_id(&host, &crawl)?, &key))
            };
            match outcome {
                PutOutcome::Added => {
                    if let Some(fingerprint) = fingerprint.or_else(made) {
                        self.caches.filter.add(fingerprint);
                        self.caches.known.add(fingerprint);
                    }
                }
                PutOutcome::Known if found => {
                    fingerprint.into_iter().for_each(|fingerprint| self.caches.known.add(fingerprint))
                }
                _ => {}
            }
            outcomes_of(outcomes, caller).push((tag, outcome));
        }
        if new > 0 {
            self.count_hosts(port);
        }
        self.commit(writes, port);
        Ok(())
    }

    /// Refuses the puts whose rows cannot be read, which may be known or new, and new URLs while the store takes none. Returns the
    /// others with their rows.
    fn decidable(
        &self,
        items: Vec<Item>,
        facts: Vec<Fact<UrlRow>>,
        outcomes: &mut [Outcomes],
        port: &Port,
    ) -> (Vec<Item>, Vec<Option<UrlRow>>) {
        let full = port.engine.refuses_growth();
        if full.is_none() && facts.iter().all(Result::is_ok) {
            return (items, facts.into_iter().map(Result::unwrap_or_default).collect());
        }
        let refuse = |(item, fact): (Item, Fact<UrlRow>)| {
            let refusal = match (fact, &full) {
                (Err(cause), _) => self.damaged(item.target.queue, &cause, port),
                (Ok(None), Some(why)) if item.put.may_add() => Refusal::StoreFull(why.clone()),
                (Ok(row), _) => return Some((item, row)),
            };
            outcomes_of(outcomes, item.caller).push((item.tag, PutOutcome::Failed(Box::new(refusal))));
            None
        };
        items.into_iter().zip(facts).filter_map(refuse).unzip()
    }

    /// Rejects the puts that would create a crawl for which the store has no room.
    fn within_crawls(
        &self,
        items: Vec<Item>,
        rows: Vec<Option<UrlRow>>,
        outcomes: &mut [Outcomes],
        port: &Port,
    ) -> (Vec<Item>, Vec<Option<UrlRow>>) {
        let may_create = |item: &Item| item.target.queue.is_none() && self.state.crawl_no(&item.put.crawl).is_none();
        if !items.iter().any(may_create) || !port.readiness.crawl_count.is_full() {
            return (items, rows);
        }
        let within = |(item, row): (Item, Option<UrlRow>)| {
            let Some(refusal) = self.refuse_crawl(&item.put.crawl, port).filter(|_| item.put.may_add()) else {
                return Some((item, row));
            };
            outcomes_of(outcomes, item.caller).push((item.tag, PutOutcome::Rejected(refusal.to_string().into())));
            None
        };
        items.into_iter().zip(rows).filter_map(within).unzip()
    }

    /// The rows of the known URLs, in item order. Items that may move a queued URL also get its due row.
    async fn facts_of(&mut self, items: &mut [Item], port: &mut Port) -> Result<Vec<Fact<UrlRow>>, Error> {
        let mut rows = self.rows_of(items, port).await?;
        let due_key =
            |(item, row): (&Item, &Fact<UrlRow>)| match (&row.as_ref().ok()?.as_ref()?.status, item.target.queue) {
                (UrlStatus::Queued(position), Some(queue)) if item.put.may_move() => {
                    Some(due::key(queue, *position, &item.target.key.0))
                }
                _ => None,
            };
        let due_keys: Vec<Option<Key>> = items.iter().zip(&rows).map(due_key).collect();
        let keys: Vec<Key> = due_keys.iter().flatten().cloned().collect();
        if !keys.is_empty() {
            let mut waiting = read_facts::due_rows(&*port.engine, &keys).await?.into_iter();
            for ((item, row), _) in items.iter_mut().zip(&mut rows).zip(&due_keys).filter(|(_, key)| key.is_some()) {
                match waiting.next().unwrap_or(Ok(None)) {
                    Ok(due) => item.target.waiting = due.map(|due| due.details),
                    Err(cause) => *row = Err(cause),
                }
            }
        }
        Ok(rows)
    }

    /// The rows of the known URLs, in item order.
    async fn rows_of(&mut self, items: &[Item], port: &mut Port) -> Result<Vec<Fact<UrlRow>>, Error> {
        let mut rows = vec![Ok(None); items.len()];
        let mut wanted: Vec<(QueueId, UrlKey)> = Vec::new();
        let mut places = Vec::new();
        for ((place, item), row) in items.iter().enumerate().zip(&mut rows) {
            let (Some(queue), key) = (item.target.queue, &item.target.key) else { continue };
            let foreign = queue.host.birth() != port.shard;
            if let Some(recent) = self.caches.held.get(queue, key) {
                *row = Ok(Some(recent.clone()));
            } else if foreign || item.fingerprint.is_none_or(|fingerprint| self.caches.filter.may_have(fingerprint)) {
                wanted.push((queue, key.clone()));
                places.push(place);
            }
        }
        let found = read_facts::url_rows(&*port.engine, &wanted).await?;
        for (place, row) in places.into_iter().zip(found) {
            if let Some(slot) = rows.get_mut(place) {
                *slot = row;
            }
        }
        Ok(rows)
    }

    /// Whether a host lives in this shard: it is present, or it is homed here and has not moved.
    pub fn belongs(&self, host: &str, port: &Port) -> bool {
        belongs(&self.state, host, port.config.shards)
    }
}

/// Makes this node reload its routing hints. In a single process the hints follow every move and are never stale.
fn mark_hints_stale(port: &Port) {
    if let Some(router) = port.router.upgrade().filter(|router| router.links.is_some()) {
        router.mark_hints_stale();
    }
}

fn outcomes_of(outcomes: &mut [Outcomes], caller: usize) -> &mut Outcomes {
    #[expect(clippy::indexing_slicing, reason = "there is one list for each caller")]
    &mut outcomes[caller]
}
