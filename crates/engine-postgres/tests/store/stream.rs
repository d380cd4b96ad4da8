//! An owner that commits continuously, and records its answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use wayleave_core::ids::ShardId;
use wayleave_engine::suite::harness::{all, fenced, put};
use wayleave_engine::{Engine, Error};
use wayleave_engine_postgres::Postgres;

/// An owner's answers.
#[derive(Debug, Default)]
pub struct Stream {
    /// The value that was acknowledged under each sequence number.
    pub done: BTreeMap<u64, String>,
    /// The number of refused and of unknown answers.
    pub refused: u64,
    pub unknown: u64,
}

/// Commits one row after the other, each under its sequence number, a few in flight; takes the shard again after every
/// failure, as a real owner does, and then checks that nothing acknowledged is gone and nothing refused is there.
pub async fn commit_until(engine: Arc<Postgres>, stop: Arc<AtomicBool>, progress: watch::Sender<u64>) -> Stream {
    let mut stream = Stream::default();
    let mut attempt = 0_u64;
    while !stop.load(Ordering::SeqCst) {
        let Ok((epoch, seq)) = engine.own(ShardId(1), &[]).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        assert!(stream.done.keys().next_back().is_none_or(|last| *last <= seq), "an acknowledged commit is gone");
        let mut next = seq;
        let mut waiting = std::collections::VecDeque::new();
        let mut failed = false;
        while !(failed || stop.load(Ordering::SeqCst)) || !waiting.is_empty() {
            if !failed && waiting.len() < 3 && !stop.load(Ordering::SeqCst) {
                attempt += 1;
                next += 1;
                let value = format!("attempt {attempt}");
                let commit = engine.commit(fenced([(1, epoch, next)], [put(1, &format!("{next:09}"), &value)]));
                waiting.push_back((next, value, commit));
                continue;
            }
            let Some((number, value, commit)) = waiting.pop_front() else { break };
            match commit.await {
                Ok(()) => {
                    assert!(stream.done.insert(number, value).is_none(), "number {number} was acknowledged twice");
                    progress.send_modify(|count| *count += 1);
                }
                Err(Error::OutcomeUnknown(_)) => {
                    stream.unknown += 1;
                    failed = true;
                }
                Err(Error::Unavailable(_) | Error::Fenced { .. }) => {
                    stream.refused += 1;
                    failed = true;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    stream
}

/// Every acknowledged row is there with its value, and there is exactly one row per sequence number.
pub async fn check_stream(engine: &Postgres, stream: &Stream) {
    let (_, seq) = engine.own(ShardId(1), &[]).await.unwrap();
    let rows = engine.scan_many(&[all(1)]).await.unwrap().remove(0);
    assert_eq!(rows.len() as u64, seq, "as many rows as numbers");
    let rows: BTreeMap<u64, String> = rows
        .into_iter()
        .map(|row| {
            (String::from_utf8(row.key[3..].to_vec()).unwrap().parse().unwrap(), String::from_utf8(row.value).unwrap())
        })
        .collect();
    for (number, value) in &stream.done {
        assert_eq!(rows.get(number), Some(value), "commit {number} was acknowledged");
    }
}

/// Waits until this many more commits have been acknowledged.
pub async fn wait_for(progress: &mut watch::Receiver<u64>, more: u64) {
    let goal = *progress.borrow() + more;
    let waited = tokio::time::timeout(Duration::from_secs(60), progress.wait_for(|count| *count >= goal));
    _ = waited.await.expect("commits must go on").unwrap();
}
