//! Rows of every kind as this format writes and reads them. The data folder and the database among the fixtures have them too.
//!
//! They are drawn like those of the properties: first with everything that may be absent, then with nothing, then at random, so that each
//! variant of every enum occurs. The match is exhaustive: a new kind does not compile without its rows.

use std::path::PathBuf;

use wayleave_core::fleet::Write as FleetWrite;
use wayleave_core::frontier::changes::ChangedHost;
use wayleave_core::frontier::row::{AliasRow, CrawlRow, HostRow, HotRow, QueuePosition};
use wayleave_core::ids::{ChunkId, CrawlNo, GroupId, HostId, NodeId, QueueId, Token};
use wayleave_core::matches::{PoolRow, WorkerNo};
use wayleave_core::pipeline::row::{ChunkRow, LinkRow, PipelineRow, Write as PipelineWrite};
use wayleave_core::placement::Write as PlacementWrite;
use wayleave_core::time::Time;

use super::sample::{Sample, Source};
use super::*;
use crate::format::VERSION;

/// The shard of all rows that lie in one: the one after those of the store that the other fixtures have.
const SHARD: ShardId = ShardId(2);
const QUEUE: QueueId = QueueId { host: HostId::new(SHARD, 7), no: 3 };

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../sim/tests/fixtures").join(name)
}

/// How many rows of a kind it takes to have all variants.
const fn turns(kind: Kind) -> usize {
    match kind {
        Kind::Fence => 0,
        Kind::Url => 12,
        Kind::Worker => 8,
        Kind::Chunk | Kind::RestingChunk | Kind::Match => 6,
        Kind::ChunkLinks | Kind::BulkJob | Kind::Machine => 5,
        Kind::Copy | Kind::IndexServer => 4,
        Kind::Crawl | Kind::ReturnedChunk | Kind::Role => 3,
        _ => 2,
    }
}

/// The rows of a kind; of those with the same key the first.
fn rows(kind: Kind) -> Vec<Row> {
    let order = [1, 0].into_iter().chain(2..);
    let mut rows: Vec<Row> = order.take(turns(kind)).map(|turn| row(kind, turn)).collect();
    rows.dedup_by(|row, first| row.key == first.key);
    rows
}

fn written(write: Write) -> Row {
    Row { key: write.key, value: write.value.expect("a row, not a deletion") }
}

fn row(kind: Kind, turn: usize) -> Row {
    let mut state = u32::from(kind as u8) << 8 | turn as u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    // Nothing but zeros where nothing is there.
    let bytes: Vec<u8> = (0..if turn == 0 { 0 } else { 9_999 }).map(|_| random()).collect();
    let from = &mut Source::new(&bytes, Some(turn));
    let (no, path, name) = (turn as u64, format!("/{turn}"), format!("n{turn}"));
    let (id, name) = (ChunkId::new(SHARD, no), name.as_str());
    let (key, value) = match kind {
        Kind::Fence => unreachable!("the engine's own: the whole folder and the database have them"),
        Kind::Shard | Kind::Crawl | Kind::Alias | Kind::Host | Kind::Member => return hot_row(kind, turn, from),
        Kind::Url => (url::key(QUEUE, path.as_bytes()), url::encode(&Sample::sample(from))),
        Kind::Due => {
            let position = QueuePosition { lane: 4, due: Time(70) };
            (due::key(QUEUE, position, path.as_bytes()), due::encode(&Sample::sample(from)))
        }
        Kind::Hold => (hold::key(SHARD, Time(90), QUEUE, path.as_bytes()), Vec::new()),
        Kind::Lease => (lease::key(SHARD, Token([turn as u8; 16])), lease::encode(&Sample::sample(from))),
        Kind::Log => {
            let (host, mut pack) = (HostRow::sample(from), log::Pack::default());
            pack.add(&hot::encode(SHARD, &HotRow::Shard(Sample::sample(from))));
            pack.add(&hot::encode(SHARD, &HotRow::CrawlGone(CrawlNo(4))));
            pack.add_host(SHARD, ChangedHost::Whole(host.by_ref()));
            pack.add_host(SHARD, ChangedHost::Part(host.by_ref()));
            (log::key(SHARD, 1 + no), pack.into_value())
        }
        Kind::DeletedQueue => (deleted_queue::key(SHARD, QueueId { no: turn as u32, ..QUEUE }), Vec::new()),
        Kind::Role if turn == 2 => (role::origin_key(), role::encode_origin(&Sample::sample(from))),
        Kind::Role => (role::key(name), role::encode(&Sample::sample(from))),
        Kind::Standby => (standby::key("n1", name), standby::encode(&Sample::sample(from))),
        Kind::Node => (node::key(NodeId(no)), node::encode(&Sample::sample(from))),
        Kind::Seat => (seat::key(ShardId(turn as u16)), seat::encode(Sample::sample(from))),
        Kind::Cluster => (cluster::key(), cluster::encode(0x1234)),
        Kind::BulkJob => (bulk_job::key(SHARD, Token([turn as u8; 16])), bulk_job::encode(&Sample::sample(from))),
        Kind::PageLedger => (page_ledger::key(&name.into()), page_ledger::encode(&Sample::sample(from))),
        Kind::Join => (join::key(), join::encode(3, 1)),
        Kind::Chunk | Kind::RestingChunk => {
            let row = ChunkRow::sample(from);
            // More links than the row of a chunk in progress has.
            let links = Vec::<LinkRow>::sample(from).into_iter().cycle().take(chunk_links::SLICE_LINKS + 2).collect();
            (chunk::key(SHARD, id, kind == Kind::RestingChunk), chunk::encode(&ChunkRow { links, ..row }))
        }
        Kind::Pipeline => {
            let write = PipelineWrite::Pipeline(PipelineRow::sample(from));
            return written(chunk::encode_write(SHARD, &write).remove(0));
        }
        Kind::Machine => {
            return written(machine::encode_write(
                SHARD,
                &FleetWrite::Machine(name.into(), Some(Sample::sample(from))),
            ));
        }
        Kind::BuiltChunk | Kind::Copy | Kind::IndexServer | Kind::MapLedger | Kind::ReturnedChunk => {
            return placement_row(kind, id, name, from);
        }
        Kind::Pool => {
            let mut row = PoolRow::sample(from);
            row.settings.recipe.slots |= 1;
            (pool::key(SHARD, &name.into()), pool::encode(&row))
        }
        Kind::Worker => (worker::key(SHARD, &"n1".into(), WorkerNo(no)), worker::encode(&Sample::sample(from))),
        Kind::Match => (match_row::key(SHARD, &"n1".into(), &name.into()), match_row::encode(&Sample::sample(from))),
        Kind::PoolOwner => (pool_owner::key(SHARD), pool_owner::encode("0a1b")),
        Kind::ChunkLinks => {
            let key = chunk_links::key(SHARD, id, 1);
            (key, chunk_links::encode(&Vec::<LinkRow>::sample(from)))
        }
    };
    Row { key, value }
}

fn hot_row(kind: Kind, turn: usize, from: &mut Source<'_>) -> Row {
    let (no, name) = (turn as u64, format!("n{turn}"));
    let row = match kind {
        Kind::Shard => HotRow::Shard(Sample::sample(from)),
        Kind::Crawl => HotRow::Crawl(CrawlRow { no: CrawlNo(turn as u32), ..Sample::sample(from) }),
        Kind::Alias => HotRow::Alias(AliasRow { id: GroupId(no), ..Sample::sample(from) }),
        Kind::Host => HotRow::Host(HostRow { id: HostId::new(SHARD, no), ..Sample::sample(from) }),
        Kind::Member => HotRow::HostAlias { host: name.as_str().into(), alias: Some(Sample::sample(from)) },
        _ => unreachable!("not a hot row"),
    };
    written(hot::encode(SHARD, &row))
}

fn placement_row(kind: Kind, id: ChunkId, name: &str, from: &mut Source<'_>) -> Row {
    let write = match kind {
        Kind::BuiltChunk => PlacementWrite::Chunk(id, Some(Sample::sample(from))),
        Kind::Copy => PlacementWrite::Placement(id, name.into(), Some(Sample::sample(from))),
        Kind::IndexServer => PlacementWrite::Server(name.into(), Some(Sample::sample(from))),
        Kind::MapLedger => PlacementWrite::Ledger(Sample::sample(from)),
        Kind::ReturnedChunk => PlacementWrite::Return(id, Some(Sample::sample(from))),
        _ => unreachable!("not a row of placement"),
    };
    written(placement::encode_write(SHARD, &write))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// The text of `rows.txt`, as it is written now: two lines a row.
fn text() -> String {
    let one = |row: Row| {
        let read = decode(&row).unwrap();
        format!("{:?} {} {}\n  {read:?}\n", key::kind(&row.key).unwrap(), hex(&row.key), hex(&row.value))
    };
    let rows = Kind::ALL.into_iter().flat_map(rows).map(one);
    format!("# format {VERSION}\n{}", rows.collect::<String>())
}

#[test]
fn rows_of_every_kind_are_written_and_read_as_ever() {
    let saved = std::fs::read_to_string(path("rows.txt")).expect("the fixture; make it with `cargo xtask fixtures`");
    let remedy = "a layout has changed: raise wayleave_engine::format::VERSION if a format with this number was released, then \
                  run `cargo xtask fixtures`";
    let lines: Vec<&str> = saved.lines().filter(|line| !line.starts_with('#')).collect();
    for pair in lines.chunks(2) {
        let words: Vec<&str> = pair[0].split(' ').collect();
        let read = decode(&Row { key: unhex(words[1]), value: unhex(words[2]) }).map(|read| format!("  {read:?}"));
        assert_eq!(read.as_deref(), Ok(pair[1]), "{remedy}");
    }
    assert!(text() == saved, "{remedy}");
}

#[test]
fn the_rows_of_the_saved_store_are_read() {
    for line in std::fs::read_to_string(path("store.rows")).unwrap().lines() {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        assert!(decode(&Row { key: unhex(key), value: unhex(value) }).is_ok(), "{line}");
    }
}

#[test]
#[ignore = "it writes a fixture: `cargo xtask fixtures` runs it"]
fn make() {
    std::fs::write(path("rows.txt"), text()).unwrap();
}
