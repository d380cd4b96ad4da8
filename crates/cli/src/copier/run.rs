//! Copying: from a source to a sink, row by row.

use std::collections::HashSet;
use std::io::Write;

use anyhow::Context;
use wayleave_core::ids::ShardId;
use wayleave_engine::rows::{Kind, key as keys};
use wayleave_engine::salvage::{LeftOut, Salvage};
use wayleave_engine::snapshot_file::{Loss, SnapshotCounts, SnapshotWriter};
use wayleave_engine::transplant::Transplant;
use wayleave_engine::{Key, Row};

use super::damage::{Step, read};
use super::homes::Homes;
use super::hot;
use super::losses::{Gap, Losses, rebuild};
use super::progress::Progress;
use super::sink::Sink;
use super::source::{END, Source, after};

/// Rows per read, at most.
const PAGE_ROWS: usize = 4_000;
/// A page of more bytes is followed by a smaller one.
const PAGE_BYTES: usize = 4 << 20;

/// What happens to rows that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The copy fails.
    Refused,
    /// They are left out and named.
    Skipped,
}

/// What was copied.
#[derive(Debug)]
pub struct Copied {
    /// Rows, without those that an interrupted copy had copied before.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Pools among them, which are paused.
    pub pools: u64,
    /// What is missing.
    pub losses: Vec<Loss>,
}

/// Makes another store of all rows of a source. `list` gets what is missing before the store is complete: after a kill in
/// between nobody would know. Fails if rows cannot be read, and damage is refused; or the sink or `list` fails.
pub fn copy(
    source: &mut dyn Source,
    mut sink: Box<dyn Sink>,
    damage: Damage,
    mut progress: Progress,
    list: impl FnOnce(&[Loss]) -> anyhow::Result<()>,
) -> anyhow::Result<Copied> {
    let begin = sink.after().cloned();
    let mut transplant = Transplant::new(source.header().shards, begin.clone());
    let mut pools = 0;
    let mut losses = each_page(source, begin.as_ref(), damage, |rows, losses| {
        pools += rows.iter().filter(|row| row.key.get(2) == Some(&(Kind::Pool as u8))).count() as u64;
        let mut out = Vec::with_capacity(rows.len());
        for row in rows {
            let key = row.key.clone();
            match transplant.take(row, |row| out.push(row)) {
                Ok(()) => {}
                Err(why) if damage == Damage::Skipped => {
                    losses.push(LeftOut { key, why: why.to_string() });
                }
                Err(why) => return Err(why).with_context(|| unreadable(&key)),
            }
        }
        let (count, bytes) = (out.len() as u64, out.iter().map(|row| (row.key.len() + row.value.len()) as u64).sum());
        if !out.is_empty() {
            sink.write(out)?;
        }
        progress.add(count, bytes);
        Ok(())
    })?;
    let mut rest = Vec::new();
    transplant.finish(|row| rest.push(row));
    if !rest.is_empty() {
        sink.write(rest)?;
    }
    losses.extend(source.losses().iter().cloned());
    list(&losses)?;
    sink.finish()?;
    let (rows, bytes) = progress.counts();
    Ok(Copied { rows, bytes, pools, losses })
}

/// Writes all rows of a source into a snapshot file. If that fails because of the source, the file says so.
pub fn write_snapshot(source: &mut dyn Source, out: impl Write, damage: Damage) -> std::io::Result<SnapshotCounts> {
    let mut writer = SnapshotWriter::begin(out, source.header())?;
    let mut broken = None;
    let read = each_page(source, None, damage, |rows, _| {
        let written = rows.iter().try_for_each(|row| writer.row(&row.key, &row.value));
        written.map_err(|error| {
            broken = Some(error);
            anyhow::anyhow!("the file cannot be written")
        })
    });
    match (read, broken) {
        (_, Some(error)) => Err(error),
        (Ok(losses), None) => writer.finish(&losses),
        (Err(error), None) => {
            let why = format!("{error:#}");
            tracing::warn!(%why, "a snapshot failed");
            writer.fail(&why)
        }
    }
}

fn unreadable(key: &[u8]) -> String {
    let kind = keys::kind(key).map_or_else(|_| "unknown".to_owned(), |kind| format!("{kind:?}"));
    format!("a row of kind {kind} cannot be read: `wayleave salvage` makes a store of all the others")
}

/// Reads all rows after one, page by page.
fn each_page(
    source: &mut dyn Source,
    begin: Option<&Key>,
    damage: Damage,
    mut take: impl FnMut(Vec<Row>, &mut Vec<LeftOut>) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Loss>> {
    if damage == Damage::Skipped {
        return salvage(source, take);
    }
    let mut from = begin.map(|last| after(last)).unwrap_or_default();
    let mut limit = PAGE_ROWS;
    loop {
        let rows = source.page(&from, limit)?;
        let Some(last) = rows.last() else { return Ok(Vec::new()) };
        from = after(&last.key);
        limit = next_limit(limit, &rows);
        take(rows, &mut Vec::new())?;
    }
}

/// Reads all that can be read. Gaps are filled as far as other rows tell what was there.
fn salvage(
    source: &mut dyn Source,
    mut take: impl FnMut(Vec<Row>, &mut Vec<LeftOut>) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Loss>> {
    let mut losses = Losses::default();
    let mut links = Vec::new();
    for shard in (0..source.header().shards).map(ShardId) {
        links.extend(readable(source, shard, Kind::ChunkLinks)?);
    }
    let mut salvage = Salvage::new(&readable(source, ShardId(0), Kind::IndexServer)?, links, source.header().at);
    for shard in (0..source.header().shards).map(ShardId) {
        hot::each(source, keys::range(shard, Kind::Chunk, Kind::Chunk), |row| salvage.note_chunk(row))?;
    }
    let damaged = hot::damaged_shards(source)?;
    let homes = Homes::find(source, &damaged)?;
    let mut to_rebuild = damaged.iter().copied().peekable();
    let (mut from, mut limit) = (Key::new(), PAGE_ROWS);
    loop {
        let Step { mut rows, next, damage } = read(source, &from, limit)?;
        limit = next_limit(limit, &rows);
        if let Some(why) = damage {
            let to = next.clone().unwrap_or_else(|| END.into());
            let sure: HashSet<Key> = rows.iter().map(|row| row.key.clone()).collect();
            let mut rebuilt = rebuild(source, &homes, &from, &to)?;
            rebuilt.retain(|row| !sure.contains(&row.key));
            losses.add_gap(Gap { from, to, why, rebuilt: rebuilt.len() });
            rows.extend(rebuilt);
            rows.sort_by(|a, b| a.key.cmp(&b.key));
        }
        let mut out = Vec::with_capacity(rows.len());
        for row in rows {
            // Hot rows come first in their shard.
            let is_next = |shard: &ShardId| keys::range(*shard, Kind::Shard, Kind::Member).1 <= row.key;
            while let Some(shard) = to_rebuild.next_if(is_next) {
                out.extend(hot::rebuild(source, shard, &homes, &mut losses)?);
            }
            let shard = keys::Parts(&row.key).prefix().map(|(shard, _)| shard);
            if !(shard.is_ok_and(|shard| damaged.contains(&shard)) && hot::is_hot(&row.key)) {
                out.extend(salvage.take(row, &mut losses.left_out));
            }
        }
        take(out, &mut losses.left_out)?;
        let Some(next) = next else { break };
        from = next;
    }
    for shard in to_rebuild {
        let rows = hot::rebuild(source, shard, &homes, &mut losses)?;
        take(rows, &mut losses.left_out)?;
    }
    hot::name_orphans(source, &damaged, &mut losses.left_out)?;
    losses.note_lost_writes(source.lost_writes());
    losses.named(source)
}

/// Large rows are read in smaller pages.
fn next_limit(limit: usize, rows: &[Row]) -> usize {
    let bytes: usize = rows.iter().map(|row| row.key.len() + row.value.len()).sum();
    if bytes > PAGE_BYTES { (limit / 2).max(16) } else { (limit * 2).min(PAGE_ROWS) }
}

/// The rows of a kind that can be read.
fn readable(source: &mut dyn Source, shard: ShardId, kind: Kind) -> anyhow::Result<Vec<Row>> {
    let mut found = Vec::new();
    hot::each(source, keys::range(shard, kind, kind), |row| found.push(row.clone()))?;
    Ok(found)
}
