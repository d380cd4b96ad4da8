//! Memory per host: hosts are kept in memory, so the limit on their number is a limit on memory.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use wayleave_core::frontier::State;
use wayleave_core::frontier::request::{Put, PutKind};
use wayleave_core::ids::ShardId;
use wayleave_core::metadata::Metadata;
use wayleave_core::time::Time;

const HOSTS: u64 = 300_000;
/// Maximum bytes of a host with one queue and a name of 20 bytes in a shard's state; 495 were measured.
const BYTES_MAX: u64 = 560;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

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

/// Alone in its binary, because memory of other tests would be counted as well.
#[test]
fn a_host_costs_no_more_memory_than_it_may() {
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
