//! Opening a shard: its hot rows, its log, its reservations and its jobs. No queue is scanned.

use std::collections::{BTreeMap, VecDeque};

use wayleave_core::frontier::State;
use wayleave_core::frontier::load::Loader;
use wayleave_core::frontier::row::HotRow;
use wayleave_core::ids::{Epoch, QueueId, ShardId};
use wayleave_core::wire::Damaged;
use wayleave_engine::rows::{Kind, hot, job, key, lease, log};
use wayleave_engine::{Engine, Error, Expect, Key, Row, Scan, Value};

use crate::config::Config;
use crate::hot_log::HotLog;

/// Rows that are read at once.
const PAGE_ROWS: usize = 10_000;

/// A shard as it was found.
pub(crate) struct Opened {
    pub state: State,
    pub epoch: Epoch,
    pub seq: u64,
    pub log: HotLog,
    pub jobs: VecDeque<QueueId>,
}

/// Takes a shard over and reads what it holds.
pub(crate) async fn open(
    engine: &dyn Engine,
    shard: ShardId,
    expects: &[Expect],
    config: &Config,
) -> Result<Opened, Error> {
    let (epoch, seq) = engine.own(shard, expects).await?;
    let mut loader = Loader::default();
    for row in scan_all(engine, shard, Kind::Shard, Kind::Member).await? {
        loader.take(hot::decode(&row.key, Some(&row.value)).map_err(damaged)?);
    }
    let mut span = None;
    let mut logged: BTreeMap<Key, Option<Value>> = BTreeMap::new();
    for row in scan_all(engine, shard, Kind::Log, Kind::Log).await? {
        let number = log::parse_key(&row.key).map_err(damaged)?;
        span = Some((span.map_or(number, |(first, _)| first), number));
        for (key, value) in log::decode(&row.value).map_err(damaged)? {
            logged.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        }
    }
    let mut hosts = Vec::new();
    for (key, value) in &logged {
        let row = hot::decode(key, value.as_deref()).map_err(damaged)?;
        if let HotRow::Host(host) = &row {
            hosts.push(host.id);
        }
        loader.take(row);
    }
    // Rows of hosts are written out as the state has them; only that some are gone must be remembered.
    logged.retain(|key, value| !(hot::is_host_key(key) && value.is_some()));
    let leases = scan_all(engine, shard, Kind::Lease, Kind::Lease).await?;
    let leases: Result<Vec<_>, _> = leases.iter().map(|row| lease::decode(&row.value)).collect();
    let jobs = scan_all(engine, shard, Kind::Job, Kind::Job).await?;
    let jobs: Result<VecDeque<_>, _> = jobs.iter().map(|row| job::parse_key(&row.key)).collect();
    let state = loader.finish(shard, leases.map_err(damaged)?, engine.now());
    let log = HotLog::new(shard, config.log_bytes_max, span, (hosts, logged));
    Ok(Opened { state, epoch, seq, log, jobs: jobs.map_err(damaged)? })
}

async fn scan_all(engine: &dyn Engine, shard: ShardId, first: Kind, last: Kind) -> Result<Vec<Row>, Error> {
    let (mut from, to) = key::range(shard, first, last);
    let mut all = Vec::new();
    loop {
        let scan = Scan { from, to: to.clone(), limit: PAGE_ROWS };
        let mut pages = engine.scan_many(std::slice::from_ref(&scan)).await?;
        let page = pages.pop().unwrap_or_default();
        let full = page.len() == PAGE_ROWS;
        all.extend(page);
        match all.last() {
            Some(row) if full => {
                from = row.key.clone();
                from.push(0);
            }
            _ => return Ok(all),
        }
    }
}

/// A row that cannot be read.
pub(crate) fn damaged(cause: Damaged) -> Error {
    Error::Corrupt(cause.to_string())
}
