//! Opening a shard: hot rows, hot log, reservations and jobs. No queue is scanned.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::codec::Damaged;
use wayleave_core::frontier::State;
use wayleave_core::frontier::bulk_job::JobRow;
use wayleave_core::frontier::load::Loader;
use wayleave_core::frontier::row::{HostRow, HotRow};
use wayleave_core::ids::{Epoch, QueueId, ShardId, Token};
use wayleave_core::matches::{self, PoolRow};
use wayleave_core::names::PoolName;
use wayleave_engine::rows::{
    Kind, bulk_job, chunk, deleted_queue, hot, key, lease, log, machine, match_row, placement, pool,
};
use wayleave_engine::rows::{pool_owner, worker};
use wayleave_engine::{Engine, Error, Key, Row, Scan};

use crate::config::Config;
use crate::fleet::CONTROL_SHARD;
use crate::owner::control::Control;
use crate::owner::pipeline::chunk_rows;
use crate::owner::pools::Pools;
use crate::owner::port::hot_log::HotLog;
use crate::owner::port::term::Resume;
use crate::owner::run::OwnerContext;

/// Rows per read.
const PAGE_ROWS: usize = 10_000;
/// Chunks that are read with all their links at once.
const CHUNKS_AT_ONCE: usize = 64;

/// Reading fleet and placement for longer than this is logged.
const SLOW_CONTROL: Duration = Duration::from_secs(1);

/// A shard as read from the store.
pub(crate) struct Opened {
    pub frontier: OpenedFrontier,
    pub pipeline: wayleave_core::pipeline::State,
    /// Fleet and placement, in the one shard that keeps them.
    pub control: Option<Box<Control>>,
    pub pools: Pools,
    pub epoch: Epoch,
    pub seq: u64,
    pub log: HotLog,
}

/// The frontier of a shard as read from the store.
pub(crate) struct OpenedFrontier {
    pub state: State,
    pub deleted_queues: VecDeque<QueueId>,
    pub bulk_jobs: BTreeMap<Token, JobRow>,
}

/// Takes over a shard and reads it; with `resume`, rereads it under the epoch under which it is already owned.
pub(crate) async fn open(context: &OwnerContext, resume: Option<&Resume>) -> Result<Opened, Error> {
    let OwnerContext { shard, engine, config, .. } = context;
    let (shard, engine) = (*shard, &**engine);
    let (epoch, seq) = match resume {
        Some(Resume { epoch, seq, .. }) => (*epoch, *seq),
        None => engine.own(shard, &context.expects).await?,
    };
    let mut loader = Loader::new(config.clock_step);
    let mut pages = Pages::new(shard, Kind::Shard, Kind::Member);
    while let Some(page) = pages.next(engine).await? {
        for row in page {
            loader.take(hot::decode(&row.key, Some(&row.value)).map_err(damaged)?);
        }
    }
    let logged = read_log(engine, shard).await?;
    let log = replay(&mut loader, &logged, HotLog::new(shard, config.log_bytes_max)).map_err(damaged)?;
    let leases = scan_all(engine, shard, Kind::Lease, Kind::Lease).await?;
    let leases: Result<Vec<_>, _> = leases.iter().map(|row| lease::decode(&row.value)).collect();
    let deleted_queues = scan_all(engine, shard, Kind::DeletedQueue, Kind::DeletedQueue).await?;
    let deleted_queues: Result<VecDeque<_>, _> =
        deleted_queues.iter().map(|row| deleted_queue::parse_key(&row.key)).collect();
    let of_urls = scan_all(engine, shard, Kind::BulkJob, Kind::BulkJob).await?;
    let of_urls: Result<Vec<_>, _> = of_urls.iter().map(|row| bulk_job::decode(&row.value)).collect();
    let bulk_jobs = of_urls.map_err(damaged)?.into_iter().map(|job| (job.id, job)).collect();
    let mut state = loader.finish(shard, leases.map_err(damaged)?, engine.now());
    state.set_backoff_max(Some(config.backoff_max));
    let pipeline = open_pipeline(engine, shard, &mut state).await?;
    let control = match shard {
        CONTROL_SHARD => Some(Box::new(open_control(engine, config).await?)),
        _ => None,
    };
    let pools = open_pools(context, engine).await?;
    let frontier = OpenedFrontier { state, deleted_queues: deleted_queues.map_err(damaged)?, bulk_jobs };
    Ok(Opened { frontier, pipeline, control, pools, epoch, seq, log })
}

/// Reads the hot log from where it begins: before that are the tombstones of rows that were checkpointed.
async fn read_log(engine: &dyn Engine, shard: ShardId) -> Result<Vec<Row>, Error> {
    let begin = match engine.get_many(&[log::key(shard, 0)]).await {
        Ok(mut found) => found.pop().flatten(),
        Err(Error::Corrupt(_)) => None,
        Err(error) => return Err(error),
    };
    let begin = begin.map(|row| log::decode_begin(&row)).transpose().map_err(damaged)?;
    let (_, to) = key::range(shard, Kind::Log, Kind::Log);
    Pages { from: Some(log::key(shard, begin.unwrap_or(1))), to }.all(engine).await
}

/// Reads the chunks that are in progress.
async fn open_pipeline(
    engine: &dyn Engine,
    shard: ShardId,
    state: &mut State,
) -> Result<wayleave_core::pipeline::State, Error> {
    let own = engine.get_many(&[chunk::pipeline_key(shard)]).await?.pop().flatten();
    let own = own.map(|row| chunk::decode_pipeline(&row)).transpose().map_err(damaged)?.unwrap_or_default();
    let mut pipeline = wayleave_core::pipeline::State::new(shard, own);
    let mut pages = Pages::new(shard, Kind::Chunk, Kind::Chunk);
    // A few at a time: of chunks that wait for an index builder only the ids are kept.
    while let Some(page) = pages.next(engine).await? {
        let mut rows = page.into_iter().map(|row| row.value);
        loop {
            let some: Vec<Vec<u8>> = rows.by_ref().take(CHUNKS_AT_ONCE).collect();
            if some.is_empty() {
                break;
            }
            for chunk in chunk_rows::read(engine, shard, &some).await? {
                pipeline.load(chunk, state);
            }
        }
    }
    Ok(pipeline)
}

/// Reads fleet and placement.
async fn open_control(engine: &dyn Engine, config: &Config) -> Result<Control, Error> {
    let begun = Instant::now();
    let mut machines = Vec::new();
    for row in scan_all(engine, CONTROL_SHARD, Kind::Machine, Kind::Machine).await? {
        let id = machine::parse_key(&row.key).map_err(damaged)?;
        machines.push((id, machine::decode(&row.value).map_err(damaged)?));
    }
    let ledger = engine.get_many(&[placement::ledger_key(CONTROL_SHARD)]).await?.pop().flatten();
    let ledger = ledger.map(|row| placement::decode_ledger(&row)).transpose().map_err(damaged)?;
    let servers = decode_all(engine, Kind::IndexServer, placement::decode_server).await?;
    let chunks = decode_all(engine, Kind::BuiltChunk, placement::decode_chunk).await?;
    let copies = decode_all(engine, Kind::Copy, placement::decode_copy).await?;
    let returns = decode_all(engine, Kind::ReturnedChunk, placement::decode_return).await?;
    let placements = wayleave_core::placement::State::load(config.placement, ledger, servers, chunks, returns, copies);
    let placements = placements.map_err(|damage| Error::Corrupt(damage.to_string()))?;
    // After the reads: from now on reports are heard.
    let fleet = wayleave_core::fleet::State::load(config.fleet, machines, engine.now());
    if begun.elapsed() > SLOW_CONTROL {
        let took_ms = begun.elapsed().as_millis() as u64;
        tracing::warn!(shard = CONTROL_SHARD.0, took_ms, "all placements were read before shard 0 served again");
    }
    Ok(Control::new(fleet, placements))
}

/// Reads the pools. Their rows come before those of workers and matches.
async fn open_pools(context: &OwnerContext, engine: &dyn Engine) -> Result<Pools, Error> {
    let (shard, entropy, elsewhere) =
        (context.shard, context.config.entropy.clone(), context.readiness.matches.clone());
    let mut found: BTreeMap<PoolName, (PoolRow, Vec<_>, Vec<_>)> = BTreeMap::new();
    let of_no_pool = || Error::Corrupt("a worker or match belongs to no pool".to_owned());
    let mut pages = Pages::new(shard, Kind::Pool, Kind::Match);
    while let Some(page) = pages.next(engine).await? {
        for row in page {
            if row.key.get(2) == Some(&(Kind::Pool as u8)) {
                let row = pool::decode(&row.key, &row.value).map_err(damaged)?;
                found.insert(row.name.clone(), (row, Vec::new(), Vec::new()));
            } else if row.key.get(2) == Some(&(Kind::Worker as u8)) {
                let (pool, no) = worker::parse_key(&row.key).map_err(damaged)?;
                let row = worker::decode(&row.value).map_err(damaged)?;
                found.get_mut(&pool).ok_or_else(of_no_pool)?.1.push((no, row));
            } else {
                let (pool, client) = match_row::parse_key(&row.key).map_err(damaged)?;
                let row = match_row::decode(&row.value).map_err(damaged)?;
                found.get_mut(&pool).ok_or_else(of_no_pool)?.2.push((client, row));
            }
        }
    }
    let label = engine.get_many(&[pool_owner::key(shard)]).await?.pop().flatten();
    let label = label.map(|label| pool_owner::decode(&label)).transpose().map_err(damaged)?;
    // After the reads: from now on sites are heard.
    let now = engine.now();
    let load = |(name, (row, workers, matches))| (name, matches::State::load(shard, row, workers, matches, now));
    Ok(Pools::new(shard, label, entropy, elsewhere, found.into_iter().map(load)))
}

/// All rows of a kind of the control shard. Pages are decoded as they come: there may be millions.
async fn decode_all<T>(
    engine: &dyn Engine,
    kind: Kind,
    decode: impl Fn(&[u8], &[u8]) -> Result<T, Damaged>,
) -> Result<Vec<T>, Error> {
    let (mut pages, mut all) = (Pages::new(CONTROL_SHARD, kind, kind), Vec::new());
    while let Some(page) = pages.next(engine).await? {
        for row in page {
            all.push(decode(&row.key, &row.value).map_err(damaged)?);
        }
    }
    Ok(all)
}

/// Replays the log on top of the checkpointed rows.
fn replay(loader: &mut Loader, rows: &[Row], mut log: HotLog) -> Result<HotLog, Damaged> {
    // Hosts that the log changes before it has created or removed them: their row was checkpointed or removed while the
    // log rows that say so were not truncated yet.
    let mut unknown = BTreeSet::new();
    for row in rows {
        log.found(log::parse_key(&row.key)?, row.value.len());
        for change in log::decode(&row.value)? {
            log.found_change(&change);
            match change {
                log::Change::Part(part) => {
                    let id = part.id;
                    if !loader.take_part(part) {
                        unknown.insert(id);
                    }
                }
                log::Change::Row(row) => {
                    if let HotRow::Host(HostRow { id, .. }) | HotRow::HostGone(id) = &row {
                        unknown.remove(id);
                    }
                    loader.take(row);
                }
            }
        }
    }
    if unknown.is_empty() { Ok(log) } else { Err(Damaged("the log refers to a host that does not exist")) }
}

/// Rows of some kinds, page by page.
struct Pages {
    /// Start of the next page; `None` after the last page.
    from: Option<Key>,
    to: Key,
}

impl Pages {
    fn new(shard: ShardId, first: Kind, last: Kind) -> Self {
        let (from, to) = key::range(shard, first, last);
        Self { from: Some(from), to }
    }

    /// All rows of all pages.
    async fn all(mut self, engine: &dyn Engine) -> Result<Vec<Row>, Error> {
        let mut all = Vec::new();
        while let Some(page) = self.next(engine).await? {
            all.extend(page);
        }
        Ok(all)
    }

    async fn next(&mut self, engine: &dyn Engine) -> Result<Option<Vec<Row>>, Error> {
        let Some(from) = self.from.take() else { return Ok(None) };
        let scan = Scan { from, to: self.to.clone(), limit: PAGE_ROWS };
        let page = engine.scan_many(std::slice::from_ref(&scan)).await?.pop().unwrap_or_default();
        if let Some(last) = page.last().filter(|_| page.len() == PAGE_ROWS) {
            self.from = Some([last.key.as_slice(), &[0]].concat());
        }
        Ok(Some(page))
    }
}

async fn scan_all(engine: &dyn Engine, shard: ShardId, first: Kind, last: Kind) -> Result<Vec<Row>, Error> {
    Pages::new(shard, first, last).all(engine).await
}

/// Wraps an undecodable row as an engine error.
pub(crate) fn damaged(cause: Damaged) -> Error {
    Error::Corrupt(cause.to_string())
}

#[cfg(test)]
mod tests {
    use wayleave_core::frontier::request::{Put, PutKind};
    use wayleave_core::metadata::Metadata;
    use wayleave_core::time::Time;

    use super::*;

    const SHARD: ShardId = ShardId(2);

    /// A shard that commits to a log of its own.
    struct Commits {
        state: State,
        log: HotLog,
        rows: Vec<Row>,
    }

    impl Commits {
        fn new() -> Self {
            Self { state: State::new(SHARD), log: HotLog::new(SHARD, usize::MAX), rows: Vec::new() }
        }

        fn put(&mut self, crawl: &str, url: &str) {
            let kind = PutKind::Discovered { at: None, priority: 5, depth: 0 };
            let (host, crawl) = ("h.example".into(), crawl.into());
            let put =
                Put { url: format!("http://h.example{url}").into(), host, crawl, kind, metadata: Metadata::default() };
            let target = self.state.put_target(&put);
            self.state.put(put, target, None, Time(9), &mut Vec::new());
            self.commit();
        }

        fn commit(&mut self) {
            let changes = self.state.take_changes();
            let seq = self.rows.len() as u64 + 1;
            let write = self.log.add(seq, &changes, &self.state).expect("a change");
            self.rows.push(Row { key: write.key, value: write.value.expect("a log row") });
        }

        /// The host's row in the store.
        fn host(&self) -> Row {
            let id = self.state.host_id("h.example").expect("the host");
            let write = hot::encode_host(SHARD, self.state.host_by_id(id).expect("the host"));
            Row { key: write.key, value: write.value.expect("a row") }
        }
    }

    /// What opening yields if some rows were checkpointed and the log still contains `logged`: the URLs queued for each
    /// crawl.
    fn open(written: &[Row], logged: &[Row]) -> Result<Vec<(u32, u64)>, Damaged> {
        let mut loader = Loader::default();
        for row in written {
            loader.take(hot::decode(&row.key, Some(&row.value))?);
        }
        replay(&mut loader, logged, HotLog::new(SHARD, 1))?;
        let state = loader.finish(SHARD, Vec::new(), Time(10));
        let host = state.host_id("h.example").and_then(|id| state.host_by_id(id));
        Ok(host.into_iter().flat_map(|host| host.queues).map(|queue| (queue.no, queue.queued())).collect())
    }

    #[test]
    fn parts_of_a_host_are_read_over_its_row_wherever_the_log_was_cut() {
        let mut commits = Commits::new();
        let mut written = Vec::new();
        for (crawl, url) in [("a", "/1"), ("b", "/1"), ("a", "/2"), ("b", "/2"), ("a", "/3")] {
            commits.put(crawl, url);
            written.push(commits.host());
        }
        let sizes: Vec<usize> = commits.rows.iter().map(|row| row.value.len()).collect();
        assert!(sizes[2..].iter().all(|size| *size < sizes[1] / 2), "one queue alone is written: {sizes:?}");
        for (at, row) in written.iter().enumerate() {
            // The row was checkpointed in the commit after `at`, and the log up to there is truncated step by step.
            for cut in 0..=at + 1 {
                let found = open(std::slice::from_ref(row), &commits.rows[cut..]);
                assert_eq!(found, Ok(vec![(0, 3), (1, 2)]), "row as of {at}, log from {cut}");
            }
        }
        assert_eq!(open(&[], &commits.rows), Ok(vec![(0, 3), (1, 2)]), "nothing written out yet");
    }

    #[test]
    fn a_part_of_a_host_that_goes_later_is_passed_over() {
        let mut commits = Commits::new();
        commits.put("a", "/1");
        commits.put("a", "/2");
        commits.state.delete_queue(&"h.example".into(), &"a".into(), Time(9), &mut Vec::new());
        commits.commit();
        assert_eq!(open(&[], &commits.rows[1..]), Ok(vec![]));
    }

    #[test]
    fn a_part_of_a_host_that_is_nowhere_is_damage() {
        let mut commits = Commits::new();
        commits.put("a", "/1");
        commits.put("a", "/2");
        let found = open(&[], &commits.rows[1..]);
        assert_eq!(found, Err(Damaged("the log refers to a host that does not exist")));
    }
}
