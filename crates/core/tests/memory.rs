//! Memory per host and per chunk: they are kept in memory, so the limit on their number is a limit on memory.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod resident;

use resident::resident_bytes;
use wayleave_core::frontier::State;
use wayleave_core::frontier::request::{Put, PutKind};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{ChunkId, HostId, QueueId, ShardId, Token};
use wayleave_core::metadata::Metadata;
use wayleave_core::pipeline;
use wayleave_core::pipeline::row::{ChunkLease, ChunkRow, ChunkState, LinkRow, LinkState, PipelineRow};
use wayleave_core::time::Time;

const HOSTS: u64 = 300_000;
/// Maximum bytes of a host with one queue and a name of 20 bytes in a shard's state; 495 were measured.
const BYTES_MAX: u64 = 560;

const CHUNKS: u64 = 300_000;
/// Maximum bytes of a chunk that waits for an index builder; 74 were measured.
const WAITING_BYTES_MAX: u64 = 130;
/// Maximum bytes of a chunk of five links that a crawler works on; 1,657 were measured.
const LEASED_BYTES_MAX: u64 = 1_850;

fn put(host: u64) -> Put {
    let host = format!("host-{host:07}.example");
    Put {
        url: format!("http://{host}/index.html").into(),
        host: host.into(),
        crawl: "DEFAULT".into(),
        kind: PutKind::Discovered { at: None, priority: 5, depth: 0 },
        metadata: Metadata::default(),
    }
}

fn chunk(no: u64, leased: bool) -> ChunkRow {
    let link = |link: u64| {
        let host = format!("host-{:07}.example", no * 5 + link);
        let queue = QueueId { host: HostId(no * 5 + link), no: 1 };
        LinkRow {
            lease: leased.then(|| Token::new(ShardId(0), u128::from(no * 5 + link))),
            url: (queue, UrlKey::new(&host, &format!("http://{host}/index.html"))),
            host: host.into(),
            state: LinkState::Crawling,
            replaced_by: None,
        }
    };
    let lease = ChunkLease {
        token: Token::new(ShardId(0), u128::from(no)),
        worker: "crawler-1".into(),
        granted_at: Time(1_000),
        expires_at: Time(61_000),
        request: None,
    };
    ChunkRow {
        id: ChunkId::new(ShardId(0), no),
        crawl: "DEFAULT".into(),
        host: None,
        visit: None,
        state: if leased { ChunkState::Crawling } else { ChunkState::Crawled },
        lease: leased.then_some(lease),
        attempts: 0,
        inputs_lost: 0,
        created_at: Time(1_000 + no),
        since: Time(1_000 + no),
        links: (0..5).map(link).collect(),
        crawled: None,
        built: None,
        placed: false,
        index: 0,
        indexes_lost: 0,
        last_error: None,
        ended: [None; 2],
    }
}

fn bytes_of_a_chunk(leased: bool) -> u64 {
    let before = resident_bytes();
    let mut frontier = State::new(ShardId(0));
    let mut chunks = pipeline::State::new(ShardId(0), PipelineRow::default());
    (0..CHUNKS).for_each(|no| chunks.load(chunk(no, leased), &mut frontier));
    let counts = chunks.counts();
    assert_eq!((counts.crawling, counts.crawled), if leased { (CHUNKS, 0) } else { (0, CHUNKS) });
    (resident_bytes() - before) / CHUNKS
}

/// Alone in its binary, because memory of other tests would be counted as well.
#[test]
fn hosts_and_chunks_cost_no_more_memory_than_they_may() {
    // Before the hosts, whose memory would be used again.
    let waiting = bytes_of_a_chunk(false);
    let leased = bytes_of_a_chunk(true);
    println!("{waiting} bytes a waiting chunk, {leased} a leased one");
    assert!(waiting <= WAITING_BYTES_MAX, "{waiting} bytes a waiting chunk; the limit is {WAITING_BYTES_MAX}");
    assert!(leased <= LEASED_BYTES_MAX, "{leased} bytes a leased chunk; the limit is {LEASED_BYTES_MAX}");
    let before = resident_bytes();
    let mut state = State::new(ShardId(0));
    let mut writes = Vec::new();
    for host in 0..HOSTS {
        let put = put(host);
        let target = state.put_target(&put);
        state.put(put, target, None, Time(1_000), &mut writes);
        writes.clear();
        if host % 1_000 == 0 {
            drop(state.take_changes());
        }
    }
    let each = (resident_bytes() - before) / HOSTS;
    println!("{each} bytes a host");
    assert_eq!(state.host_count() as u64, HOSTS);
    assert!(each <= BYTES_MAX, "{each} bytes a host; the limit is {BYTES_MAX}");
}
