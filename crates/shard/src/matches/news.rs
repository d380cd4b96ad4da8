//! News of clients for calls that wait on other nodes.
//!
//! A call that waits for a worker of a pool whose owner is elsewhere is not parked there: it asks, waits here, and asks
//! again when its client has news, or at the end of its time. The owner's node sends the news with its next beat, to all
//! nodes, while any of them has said that calls of its own wait for clients of the shard. So a thousand calls that wait
//! leave the connection between nodes free, and cost one message each once there is something to tell.
//!
//! News say "ask again", never what there is. The answer waits for the commits before it, as all answers do. What could
//! lose news, or make them a herd:
//!
//! 1. (the call asks) (news) (its answer comes, older than the news): it waits from before it asks, so it asks once more.
//! 2. (the call is on its way) (news): its node says first, then the owner is asked. What the owner decides after it has
//!    the call, it publishes.
//! 3. The owner ends, reloads or gives its shard away: all calls that wait for its shard ask again, and find the next one.
//! 4. The connection breaks, or a subscriber is too slow for what is kept: the next beat says that some were lost. A node
//!    that is heard for the first time, or no longer, counts as that. All calls that wait here ask again.
//! 5. A caller leaves between news and question: nothing was taken out for it. The match is the client's, whichever call
//!    asks next, and ends unconfirmed if none does.
//! 6. Two clients have the same digest: both ask, and one finds nothing new.
//! 7. News come when the call has ended: nothing waits for them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use wayleave_core::ids::ShardId;
use wayleave_core::limits::MATCH_NEWS_MAX;
use wayleave_core::names::{ClientName, PoolName};
use wayleave_core::time::Time;

use crate::routing::router::digest;
use crate::shared::broadcast::Broadcast;
use crate::shared::readiness::lock;

/// A shard, and the digest of the client with news; none if any client of the shard may have some.
pub(crate) type ClientNews = (ShardId, Option<u64>);

/// News for one subscriber.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MatchBeat {
    /// Some news are no longer kept.
    pub lost: bool,
    pub news: Vec<ClientNews>,
}

/// What the owners here publish, and what waits here for owners on other nodes.
pub(crate) struct MatchNews {
    /// Until when calls on other nodes wait for clients of a shard.
    watched: Vec<AtomicU64>,
    log: Mutex<Log>,
    /// Notified when there is something for the next beat.
    beat: Broadcast,
    waiting: Mutex<Waiting>,
}

/// Calls by the shard and the digest of their client.
type Waiting = BTreeMap<(ShardId, u64), Vec<Arc<Notify>>>;

#[derive(Default)]
struct Log {
    /// The number of the first one that is kept.
    first: u64,
    kept: VecDeque<ClientNews>,
}

/// A call that waits for news of a client. It misses none while it does something else.
pub(crate) struct ClientWait<'a> {
    all: &'a MatchNews,
    of: (ShardId, u64),
    wake: Arc<Notify>,
}

impl MatchNews {
    pub fn new(shards: u16, beat: Broadcast) -> Self {
        let watched = (0..shards).map(|_| AtomicU64::new(0)).collect();
        Self { watched, log: Mutex::default(), beat, waiting: Mutex::default() }
    }

    /// A call on another node waits for a client of a shard.
    pub fn watch(&self, shard: ShardId, until: Time) {
        if let Some(watched) = self.watched.get(usize::from(shard.0)) {
            watched.fetch_max(until.0, Ordering::AcqRel);
        }
    }

    /// Whether calls on other nodes wait for clients of a shard.
    pub fn is_watched(&self, shard: ShardId, now: Time) -> bool {
        self.watched.get(usize::from(shard.0)).is_some_and(|until| now.0 < until.load(Ordering::Acquire))
    }

    /// There is news of a client, or perhaps of any of a shard.
    pub fn tell(&self, shard: ShardId, client: Option<(&PoolName, &ClientName)>) {
        let news = (shard, client.map(|(pool, client)| digest_of(pool, client)));
        let mut log = lock(&self.log);
        log.kept.push_back(news);
        if log.kept.len() > MATCH_NEWS_MAX {
            log.kept.pop_front();
            log.first += 1;
        }
        drop(log);
        self.beat.notify();
    }

    /// The news since a number, which is moved on; none for a subscriber that begins, and has missed all before.
    pub fn since(&self, seen: &mut Option<u64>) -> MatchBeat {
        let log = lock(&self.log);
        let end = log.first + log.kept.len() as u64;
        let from = seen.replace(end);
        let lost = from.is_none_or(|from| from < log.first);
        let skip = from.unwrap_or(end).saturating_sub(log.first);
        MatchBeat { lost, news: log.kept.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)).copied().collect() }
    }

    /// Waits for news of a client from now on.
    pub fn wait(&self, shard: ShardId, pool: &PoolName, client: &ClientName) -> ClientWait<'_> {
        let (of, wake) = ((shard, digest_of(pool, client)), Arc::new(Notify::new()));
        lock(&self.waiting).entry(of).or_default().push(wake.clone());
        ClientWait { all: self, of, wake }
    }

    /// News from another node.
    pub fn hear(&self, MatchBeat { lost, news }: &MatchBeat) {
        if *lost {
            return self.wake_all();
        }
        if news.is_empty() {
            return;
        }
        let waiting = lock(&self.waiting);
        for (shard, client) in news {
            let range = client.map_or((*shard, 0)..=(*shard, u64::MAX), |client| (*shard, client)..=(*shard, client));
            waiting.range(range).flat_map(|(_, calls)| calls).for_each(|call| call.notify_one());
        }
    }

    /// Every call here may have news.
    pub fn wake_all(&self) {
        lock(&self.waiting).values().flatten().for_each(|call| call.notify_one());
    }
}

impl ClientWait<'_> {
    /// Waits for news, or takes those that came since the last wait.
    pub async fn news(&self) {
        self.wake.notified().await;
    }
}

impl Drop for ClientWait<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.all.waiting);
        if let Some(calls) = waiting.get_mut(&self.of) {
            calls.retain(|call| !Arc::ptr_eq(call, &self.wake));
            if calls.is_empty() {
                waiting.remove(&self.of);
            }
        }
    }
}

fn digest_of(pool: &PoolName, client: &ClientName) -> u64 {
    digest(&format!("{pool}\0{client}"))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const HERE: ShardId = ShardId(1);

    fn news() -> MatchNews {
        MatchNews::new(2, Broadcast::default())
    }

    fn told(from: &MatchNews, seen: &mut Option<u64>, to: &MatchNews) -> MatchBeat {
        let beat = from.since(seen);
        to.hear(&beat);
        beat
    }

    fn has_news(call: &ClientWait<'_>) -> bool {
        call.news().now_or_never().is_some()
    }

    #[test]
    fn news_wake_the_calls_of_their_client_on_another_node_once() {
        let (there, here, mut seen) = (news(), news(), Some(0));
        let (p, [a, b]) = (PoolName::from("p"), ["a", "b"].map(ClientName::from));
        let (one, same, other) = (here.wait(HERE, &p, &a), here.wait(HERE, &p, &a), here.wait(HERE, &p, &b));
        there.tell(HERE, Some((&p, &a)));
        assert_eq!(told(&there, &mut seen, &here).news.len(), 1);
        assert_eq!([&one, &same, &other].map(has_news), [true, true, false]);
        assert_eq!(told(&there, &mut seen, &here), MatchBeat::default());
        assert_eq!([&one, &same, &other].map(has_news), [false; 3]);
        // It came while the call was on its way, and the call that left needs none.
        there.tell(HERE, Some((&p, &b)));
        drop(one);
        told(&there, &mut seen, &here);
        assert!(has_news(&other) && !has_news(&same));
        there.tell(ShardId(0), None);
        told(&there, &mut seen, &here);
        assert_eq!([&same, &other].map(has_news), [false; 2], "another shard");
        there.tell(HERE, None);
        told(&there, &mut seen, &here);
        assert_eq!([&same, &other].map(has_news), [true; 2], "its owner has ended");
        drop((same, other));
        assert!(lock(&here.waiting).is_empty());
    }

    #[test]
    fn a_subscriber_that_begins_or_is_too_slow_is_told_that_it_missed_some() {
        let (there, here, mut seen) = (news(), news(), None);
        let (pool, client) = (PoolName::from("p"), ClientName::from("a"));
        let call = here.wait(HERE, &pool, &client);
        there.tell(HERE, Some((&pool, &client)));
        assert!(told(&there, &mut seen, &here).lost && has_news(&call));
        (0..MATCH_NEWS_MAX).for_each(|_| there.tell(ShardId(0), None));
        assert!(!told(&there, &mut seen, &here).lost && !has_news(&call));
        (0..=MATCH_NEWS_MAX).for_each(|_| there.tell(ShardId(0), None));
        assert!(told(&there, &mut seen, &here).lost && has_news(&call));
    }

    #[test]
    fn a_shard_is_watched_as_long_as_the_longest_call_said() {
        let news = news();
        news.watch(HERE, Time(9));
        news.watch(HERE, Time(5));
        assert!(
            news.is_watched(HERE, Time(8)) && !news.is_watched(HERE, Time(9)) && !news.is_watched(ShardId(0), Time(1))
        );
    }
}
