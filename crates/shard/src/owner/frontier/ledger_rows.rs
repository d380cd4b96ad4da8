//! The rows of the ledgers of page limits: reads them, and changes them by compare-and-swap. What is decided on them is not known
//! here: see `owner::frontier::page_grants` and `set_crawl`.
//!
//! The owner waits for the ledger in the middle of its turn, so between reading and writing it nothing is decided here.
//! What could go wrong meanwhile:
//!
//! 1. *Another node changes the ledger*: the write is refused as a conflict and decided again. After some tries the shard does
//!    without, and asks again later.
//! 2. *Another shard of this process does*: they take turns ([`LedgerLocks`]). An engine may show a row that is still in
//!    flight and then refused; a decision on such a row would take for granted what the store never had. So the ledger
//!    is read from the store itself (`Engine::look`), and within the process one change is durable before the next is
//!    decided.
//! 3. *A commit of this shard fails that the decision builds on*, such as one that gave pages up: the write carries the
//!    shard's fence with the next sequence number, so it can only follow all commits before it. The same fence stops an
//!    owner that was paused and has been replaced.
//! 4. *The outcome of the write is unknown*: the term ends, and the next one reads what is granted.
//! 5. *The store cannot read the row*: that is no failure of the shard, which learns the cause.
//! 6. *The store refuses the write*, for instance because another session has locked the row: nothing was applied, and the sequence
//!    number is used again. If the store refuses everything, the next commit of the shard shows that. Each try may take as long as
//!    the store waits for the lock, so all shards of this process together try ever more rarely; the others wait their turn for a
//!    limited time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::frontier::page_ledger::PageLedger;
use wayleave_core::ids::ShardId;
use wayleave_core::names::CrawlName;
use wayleave_engine::rows::page_ledger;
use wayleave_engine::{Engine, Error, Key, Row, Scan, Value, Write};

use crate::owner::port::Port;
use crate::shared::readiness::lock;

/// Attempts to change a ledger that other nodes change at the same time. One of them succeeds each time.
const TRIES: usize = 16;
/// Locks for the ledgers of all crawls; crawls that share one wait for each other.
const LOCKS: usize = 1_024;
/// How long a shard waits until the others of its process have changed a ledger.
const TURN_WAIT: Duration = Duration::from_secs(2);
/// Pause of all shards of a process before a ledger is written again that the store has refused to change; it doubles.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);
const REFUSED_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Changes to ledgers that are part of a move of hosts: what was read, and what is to be written.
#[derive(Default)]
pub(crate) struct LedgerMove {
    pub expects: Vec<wayleave_engine::Expect>,
    pub writes: Vec<Write>,
}

/// Changes a ledger by compare-and-swap, fenced by this shard.
pub(super) async fn update_ledger<T>(
    crawl: &CrawlName,
    mut decide: impl FnMut(&mut Option<PageLedger>) -> T,
    port: &mut Port,
) -> Result<Result<T, NoLedger>, Error> {
    let readiness = port.readiness.clone();
    let turn = readiness.pages.ledgers.lock(std::iter::once(crawl));
    let Ok(_one_at_a_time) = tokio::time::timeout(TURN_WAIT, turn).await else { return Ok(Err(NoLedger::held_up())) };
    let key = page_ledger::key(crawl);
    for _ in 0..TRIES {
        let found = match read_ledgers(&*port.engine, std::slice::from_ref(&key)).await?.pop() {
            Some(Err(cause)) => {
                log_ledger(crawl, &cause, port);
                return Ok(Err(NoLedger::Unreadable(cause)));
            }
            Some(Ok(found)) => found,
            None => None,
        };
        let (before, mut ledger) = found.unzip();
        let decided = decide(&mut ledger);
        let after = ledger.as_ref().map(page_ledger::encode);
        if after == before {
            return Ok(Ok(decided));
        }
        if readiness.pages.ledgers.is_refused(crawl) {
            return Ok(Err(NoLedger::held_up()));
        }
        match port.commit_now(vec![(key.clone(), before)], vec![Write { key: key.clone(), value: after }]).await {
            Ok(()) => {
                readiness.pages.ledgers.note(crawl, false);
                return Ok(Ok(decided));
            }
            Err(Error::Conflict) => {}
            Err(error) => return not_written(crawl, error, port).map(Err),
        }
    }
    Ok(Err(NoLedger::Busy))
}

/// Removes a ledger that cannot be read. Nothing can be drawn of it any more, and what was drawn is not used once the
/// shards have followed their home again.
pub(super) async fn remove_ledger(crawl: &CrawlName, port: &mut Port) -> Result<Result<(), NoLedger>, Error> {
    let readiness = port.readiness.clone();
    let turn = readiness.pages.ledgers.lock(std::iter::once(crawl));
    let Ok(_one_at_a_time) = tokio::time::timeout(TURN_WAIT, turn).await else { return Ok(Err(NoLedger::held_up())) };
    let removed = vec![Write { key: page_ledger::key(crawl), value: None }];
    match port.commit_now(Vec::new(), removed).await {
        Ok(()) => Ok(Ok(())),
        Err(error) => not_written(crawl, error, port).map(Err),
    }
}

/// Why a commit has changed nothing. Fails if it may have changed something, or can follow no other.
fn not_written(crawl: &CrawlName, error: Error, port: &mut Port) -> Result<NoLedger, Error> {
    let why = match error {
        Error::Corrupt(cause) => {
            log_ledger(crawl, &cause, port);
            NoLedger::Unreadable(cause)
        }
        Error::Unavailable(why) => {
            port.readiness.pages.ledgers.note(crawl, true);
            NoLedger::Refused(why)
        }
        error => return Err(error),
    };
    port.take_back_seq();
    Ok(why)
}

pub(super) fn log_ledger(crawl: &CrawlName, cause: &str, port: &Port) {
    port.log_damage(cause, &format!("the ledger of the page limit of crawl '{crawl}' cannot be read"));
}

/// How the owners of one process take turns at the ledgers.
pub(crate) struct LedgerLocks {
    locks: Vec<tokio::sync::Mutex<()>>,
    /// Ledgers that the store refuses to change: until when none is written, and the pause before that.
    refused: Mutex<HashMap<CrawlName, (Instant, Duration)>>,
}

impl Default for LedgerLocks {
    fn default() -> Self {
        Self { locks: (0..LOCKS).map(|_| tokio::sync::Mutex::default()).collect(), refused: Mutex::default() }
    }
}

impl LedgerLocks {
    /// Whether a ledger is not to be written now.
    fn is_refused(&self, crawl: &CrawlName) -> bool {
        lock(&self.refused).get(crawl).is_some_and(|(until, _)| Instant::now() < *until)
    }

    /// The store has refused to change a ledger, or has changed it.
    fn note(&self, crawl: &CrawlName, refused: bool) {
        let mut all = lock(&self.refused);
        if refused {
            let pause = all.get(crawl).map_or(REFUSED_PAUSE, |(_, pause)| (*pause * 2).min(REFUSED_PAUSE_MAX));
            all.insert(crawl.clone(), (Instant::now() + pause, pause));
        } else if !all.is_empty() {
            all.remove(crawl);
        }
    }

    /// Locks the ledgers of some crawls, in one order for all callers.
    pub async fn lock<'a>(&self, crawls: impl Iterator<Item = &'a CrawlName>) -> Vec<tokio::sync::MutexGuard<'_, ()>> {
        let mut at: Vec<usize> =
            crawls.map(|crawl| crawl.bytes().fold(0, |sum, byte| (sum * 31 + usize::from(byte)) % LOCKS)).collect();
        at.sort_unstable();
        at.dedup();
        let mut guards = Vec::with_capacity(at.len());
        for lock in at.into_iter().filter_map(|at| self.locks.get(at)) {
            guards.push(lock.lock().await);
        }
        guards
    }
}

/// Why a ledger was not changed.
pub(super) enum NoLedger {
    /// Others changed it all the time.
    Busy,
    /// The store cannot read it.
    Unreadable(String),
    /// The store refuses to change it.
    Refused(String),
}

impl NoLedger {
    /// Another shard of this process waits for the store.
    fn held_up() -> Self {
        Self::Refused("other shards wait for the store to change it".to_owned())
    }
}

/// A ledger with its row, or why it cannot be read.
type FoundLedger = Result<Option<(Value, PageLedger)>, String>;

/// Reads ledgers from the store itself: rows in flight are not in it.
pub(super) async fn read_ledgers(engine: &dyn Engine, keys: &[Key]) -> Result<Vec<FoundLedger>, Error> {
    let scan = |key: &Key| Scan { from: key.clone(), to: [key, &[0][..]].concat(), limit: 1 };
    let scans: Vec<Scan> = keys.iter().map(scan).collect();
    let parsed = |rows: Vec<Row>| {
        let row = rows.into_iter().next().map(|row| row.value);
        let ledger = row.as_deref().map(page_ledger::decode).transpose();
        ledger.map(|ledger| row.zip(ledger)).map_err(|why| why.to_string())
    };
    match engine.look(&scans).await {
        Ok(look) => return Ok(look.rows.into_iter().map(parsed).collect()),
        Err(Error::Corrupt(_)) => {}
        Err(error) => return Err(error),
    }
    let mut found = Vec::with_capacity(scans.len());
    for scan in scans {
        found.push(match engine.look(&[scan]).await {
            Ok(look) => parsed(look.rows.into_iter().flatten().collect()),
            Err(Error::Corrupt(cause)) => Err(cause),
            Err(error) => return Err(error),
        });
    }
    Ok(found)
}

/// What a move of used pages from one shard to another changes in the ledgers. A ledger that does not exist stays so if
/// neither shard knows of a limit: then neither has answered the home yet, and both are busy with the move. Otherwise one may
/// have answered without these pages, and they would be counted nowhere.
pub(crate) async fn move_grants(
    engine: &dyn Engine,
    (from, to): (ShardId, ShardId),
    pages: &[(CrawlName, u64)],
    has_limit: impl Fn(&CrawlName) -> bool,
) -> Result<LedgerMove, Error> {
    let mut change = LedgerMove::default();
    if pages.is_empty() {
        return Ok(change);
    }
    let mut moved: BTreeMap<&CrawlName, u64> = BTreeMap::new();
    pages.iter().for_each(|(crawl, n)| *moved.entry(crawl).or_default() += n);
    let keys: Vec<Key> = moved.keys().map(|crawl| page_ledger::key(crawl)).collect();
    let ledgers = read_ledgers(engine, &keys).await?;
    for (((crawl, pages), key), found) in moved.into_iter().zip(keys).zip(ledgers) {
        let unreadable = |cause| {
            Error::Unavailable(format!("the ledger of the page limit of crawl '{crawl}' cannot be read: {cause}"))
        };
        let Some((row, mut ledger)) = found.map_err(unreadable)? else {
            if has_limit(crawl) {
                let why = format!("the page limit of crawl '{crawl}' is not in force everywhere yet; try again");
                return Err(Error::Unavailable(why));
            }
            continue;
        };
        ledger.transfer(from, to, pages);
        let after = page_ledger::encode(&ledger);
        if after != row {
            change.expects.push((key.clone(), Some(row)));
            change.writes.push(Write { key, value: Some(after) });
        }
    }
    Ok(change)
}
