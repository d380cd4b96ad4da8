//! Format fixtures: old data must still open. A store of every format is kept as its rows in text (an embedded store's
//! own files start at 64 MiB, far too much for a fixture), with the reading that every later version must produce from
//! it, on any engine. All fixtures come from the same scenario, so there is one reading.
//!
//! | rows | what is new |
//! |---|---|
//! | `format_1.rows` | |
//! | `format_2.rows` | the log holds parts of hosts |
//!
//! Rows are written once and never again: `WRITE_FIXTURE=1` creates those of the newest format if they are missing.
//! `UPDATE=1` rewrites the expected reading, for changes of its wording only.

mod reading;
mod story;

use std::path::PathBuf;
use std::sync::Arc;

use wayleave_core::ids::ShardId;
use wayleave_core::time::Time;
use wayleave_engine::clock::ManualClock;
use wayleave_engine::{Batch, Engine, Fence, Memory, Row, Scan, Write};
use wayleave_engine_fjall::{Fjall, Options};

/// Far ahead, so that neither engine's clock has passed the times in the rows.
const NOW: Time = Time(4_000_000_000_000);
const SHARDS: u16 = 2;

const FORMATS: [&str; 2] = ["format_1.rows", "format_2.rows"];
const NEWEST: &str = FORMATS[FORMATS.len() - 1];
const READING: &str = "reading.txt";

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/testdata").join(name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn read_rows(format: &str) -> Vec<Row> {
    let text = std::fs::read_to_string(path(format)).expect("the fixture; see WRITE_FIXTURE in this file");
    let row = |line: &str| {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        Row { key: unhex(key), value: unhex(value) }
    };
    text.lines().map(row).collect()
}

async fn load(engine: &dyn Engine, rows: Vec<Row>) {
    for shard in (0..SHARDS).map(ShardId) {
        let (epoch, seq) = engine.own(shard, &[]).await.unwrap();
        // The log rows carry their commit numbers; the store must continue from there.
        let last = rows.iter().filter(|r| r.key[..3] == [0, shard.0 as u8, 10]).map(|r| &r.key[3..]).max();
        let last = last.map_or(0, |number| number.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte)));
        for seq in seq + 1..=last.max(seq + 1) {
            let mine = rows.iter().filter(|r| r.key[..2] == shard.0.to_be_bytes());
            let write = |r: &Row| Write { key: r.key.clone(), value: Some(r.value.clone()) };
            let writes = if seq >= last { mine.map(write).collect() } else { Vec::new() };
            let fences = vec![Fence { shard, epoch, seq }];
            engine.commit(Batch { fences, expects: Vec::new(), writes }).await.unwrap();
        }
    }
}

fn check(format: &str, reading: &str) {
    let path = path(READING);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, reading).unwrap();
    }
    assert_eq!(reading, std::fs::read_to_string(&path).unwrap(), "{format} reads differently");
}

#[tokio::test(start_paused = true)]
async fn every_format_reads_as_ever_from_memory() {
    if std::env::var_os("WRITE_FIXTURE").is_some() && !path(NEWEST).exists() {
        let lines = story::rows().await.into_iter().map(|r| format!("{} {}\n", hex(&r.key), hex(&r.value)));
        std::fs::write(path(NEWEST), lines.collect::<String>()).unwrap();
    }
    for format in FORMATS {
        let engine = Arc::new(Memory::new(ManualClock::new(NOW)));
        load(&*engine, read_rows(format)).await;
        check(format, &reading::read(engine.clone()).await);
        let job = Scan { from: vec![0, 0, 11], to: vec![0, 0, 12], limit: 9 };
        let jobs = engine.scan_many(&[job]).await.unwrap();
        assert!(jobs[0].is_empty(), "{format}: the deletion that was under way is finished");
    }
}

#[tokio::test]
async fn every_format_reads_as_ever_from_the_embedded_store() {
    for format in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { shards: SHARDS, ..Options::default() };
        let engine = Fjall::open(folder.path().join("data"), options).unwrap();
        load(&engine, read_rows(format)).await;
        check(format, &reading::read(Arc::new(engine)).await);
    }
}
