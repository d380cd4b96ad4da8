//! Memory per chunk and row: placement keeps all built chunks in memory.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod resident;

use resident::resident_bytes;
use wayleave_core::fleet::{Desired, Judged, RowNo};
use wayleave_core::ids::ChunkId;
use wayleave_core::names::MachineId;
use wayleave_core::pipeline::row::Artifact;
use wayleave_core::placement::{Config, CopyReport, ServerRow, State};
use wayleave_core::time::Time;

const CHUNKS: u64 = 200_000;
const ROWS: u64 = 2;
/// Maximum bytes of a chunk per row that it is placed in, with a location of 59 bytes; 179 were measured.
const BYTES_MAX: u64 = 200;

fn server(no: u64) -> (MachineId, ServerRow) {
    let facts = ServerRow {
        row: RowNo((no % ROWS) as u8),
        capacity: 1,
        address: format!("10.0.0.{no}:9000").into(),
        judged: Judged::Healthy,
        since: Time(0),
        desired: Desired::Online,
        accepts: true,
        unanswered: false,
        removed: false,
    };
    (format!("server-{no}").into(), facts)
}

/// Alone in its binary, because memory of other tests would be counted as well.
#[test]
fn a_chunk_costs_no_more_memory_than_it_may() {
    let mut state = State::new(Config::default());
    let mut writes = Vec::with_capacity(64);
    let servers: Vec<_> = (0..10).map(server).collect();
    state.servers(&servers, false, Time(0), &mut writes);
    let before = resident_bytes();
    for chunk in 0..CHUNKS {
        writes.clear();
        // Copied to its size: a text that is cut to it leaves a hole, which would count as the chunk's.
        let text = format!("https://store.example/crawl-2026/build/{chunk:010}/index.tar");
        let location = text.as_str().into();
        let bytes = 1_000_000 + chunk * 7_919 % 1_000_000;
        let artifact = Artifact { location, bytes, checksum: [chunk as u8; 32], from: None };
        state.chunk_built(ChunkId(chunk), &artifact, 0, Time(0), &mut writes).unwrap();
    }
    // Apart, because what listings allocate for a moment leaves holes between what stays.
    for chunk in (0..CHUNKS).map(ChunkId) {
        writes.clear();
        for view in state.copies_of(chunk, Time(0)).unwrap() {
            state.report(chunk, &view.server, CopyReport::Ready, Time(0), &mut writes).unwrap();
        }
    }
    let each = (resident_bytes() - before) / CHUNKS / ROWS;
    println!("{each} bytes a chunk and row");
    assert!(state.tick(Time(0), &mut writes) == wayleave_core::placement::Ticked::default());
    assert!(each <= BYTES_MAX, "{each} bytes a chunk and row; the limit is {BYTES_MAX}");
}
