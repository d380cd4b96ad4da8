//! Repairs of real folders: what they keep, and that no number is assigned twice.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use wayleave_core::ids::ShardId;
use wayleave_core::pipeline::row::{PipelineRow, Write as PipelineWrite};
use wayleave_core::placement::{LedgerRow, Write as PlacementWrite};
use wayleave_engine::rows::{chunk, placement, role};
use wayleave_engine::suite::harness::{all, batch, names, put};
use wayleave_engine::{Engine, Write};

use crate::blocks::BLOCK_BYTES;
use crate::{Fjall, OpenError, Options, flusher, repaired};

const SHARDS: u16 = 3;

fn open(folder: &Path, repair: bool) -> Result<Fjall, OpenError> {
    Fjall::open(folder, Options { shards: SHARDS, repair, ..Options::default() })
}

/// What a shard and the map have counted.
fn counted(shard: u16, next_chunk: u64, version: u64) -> Vec<Write> {
    let mut writes = chunk::encode_write(ShardId(shard), &PipelineWrite::Pipeline(PipelineRow { next_chunk }));
    let ledger = LedgerRow { version, ..LedgerRow::default() };
    writes.push(placement::encode_write(ShardId(0), &PlacementWrite::Ledger(ledger)));
    writes
}

/// The next chunk of every shard, and the version of the map.
async fn counts(engine: &Fjall) -> (Vec<u64>, u64) {
    let mut keys: Vec<_> = (0..SHARDS).map(|shard| chunk::pipeline_key(ShardId(shard))).collect();
    keys.push(placement::ledger_key(ShardId(0)));
    let mut found: Vec<_> = engine.get_many(&keys).await.unwrap().into_iter().map(Option::unwrap).collect();
    let version = placement::decode_ledger(&found.pop().unwrap()).unwrap().version;
    (found.iter().map(|value| chunk::decode_pipeline(value).unwrap().next_chunk).collect(), version)
}

fn journal(folder: &Path, number: u64) -> PathBuf {
    crate::journal::path(&folder.join("journal"), number)
}

/// The offset of what was written last in a file.
fn end(file: &Path) -> usize {
    let bytes = fs::read(file).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).unwrap() / BLOCK_BYTES * BLOCK_BYTES
}

#[tokio::test]
async fn numbers_that_a_repair_drops_are_not_given_out_again() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    let engine = open(&folder, false).unwrap();
    engine.commit(batch(counted(1, 5, 3))).await.unwrap();
    // The block of the next batch begins where that of the last one has ended.
    let damaged = end(&journal(&folder, 1)) + BLOCK_BYTES;
    engine.commit(batch(counted(1, 900, 700))).await.unwrap();
    engine.commit(batch(counted(2, 800, 700))).await.unwrap();
    drop(engine);
    let file = OpenOptions::new().write(true).open(journal(&folder, 1)).unwrap();
    file.write_all_at(&[0xff; 8], damaged as u64 + 40).unwrap();
    let refused = open(&folder, false).err().unwrap();
    assert!(matches!(&refused, OpenError::JournalDamaged { .. }), "{refused}");
    let raised = counts(&open(&folder, true).unwrap()).await;
    assert!(raised.0[1] > 900 && raised.0[2] > 800 && raised.1 > 700, "{raised:?}");
    assert!(raised.0[0] > 1, "also where nothing is left that counts");
    assert_eq!(counts(&open(&folder, false).unwrap()).await, raised, "once");
    let beginning = open(&folder, false).unwrap().get_many(&[role::origin_key()]).await.unwrap().remove(0);
    let beginning = beginning.map(|value| role::decode_origin(&value).unwrap());
    assert!(beginning.is_some_and(|beginning| beginning.epoch.0 > 1_000), "also where the first role was dropped");
    println!("seen: a repair that drops 2 batches raises chunk ids and the version of the map to {raised:?}");
}

/// After the repair has dropped what follows the damage, the journal has none.
#[tokio::test]
async fn a_repair_that_was_killed_raises_numbers_at_the_next_start() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    let engine = open(&folder, false).unwrap();
    engine.commit(batch(counted(1, 5, 3))).await.unwrap();
    repaired::note(&engine.store.tables).unwrap();
    drop(engine);
    let raised = counts(&open(&folder, false).unwrap()).await;
    assert!(raised.0[1] > 1_000 && raised.1 > 1_000, "{raised:?}");
    assert_eq!(counts(&open(&folder, false).unwrap()).await, raised, "once");
    let engine = open(&folder, false).unwrap();
    drop(engine.snapshot().await.unwrap());
    drop(engine);
    assert_eq!(counts(&open(&folder, false).unwrap()).await, raised, "also from the tables");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_mark_of_zeros_costs_no_row() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    let engine = open(&folder, false).unwrap();
    for name in ["a", "b"] {
        engine.commit(batch([put(1, name, "1")])).await.unwrap();
    }
    // A flush that does not get to its table.
    drop(flusher::freeze(&engine.store));
    tokio::task::block_in_place(|| flusher::settle(&engine.store).unwrap());
    engine.commit(batch([put(1, "c", "1")])).await.unwrap();
    drop(engine);
    let first = journal(&folder, 1);
    let file = OpenOptions::new().write(true).open(&first).unwrap();
    file.write_all_at(&[0; BLOCK_BYTES], end(&first) as u64).unwrap();
    let refused = open(&folder, false).err().unwrap().to_string();
    assert!(refused.contains("1.journal") && refused.contains("--repair, which drops nothing"), "{refused}");
    for repair in [true, false] {
        let engine = open(&folder, repair).unwrap();
        assert_eq!(names(&engine, all(1)).await, ["a", "b", "c"]);
    }
    let left = fs::read_dir(folder.join("journal")).unwrap().flatten();
    assert!(left.into_iter().all(|entry| !entry.file_name().to_string_lossy().contains("dropped")));
    println!("seen: the end mark of a journal file is zeroed: Refused; --repair keeps all 3 rows of both files");
}
