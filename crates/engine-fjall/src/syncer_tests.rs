//! Who syncs, who shares a sync, in which order batches are answered, and what a failure leaves behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;

fn append(syncer: &Syncer) -> Commit {
    syncer.append(b"body").unwrap()
}

/// What was written is durable at once.
fn at_once() -> Result<Writing, String> {
    Ok(Box::new(|| Ok(())))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn batches_that_wait_share_one_sync_and_syncs_overlap() {
    let (begun, syncs) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let write = move |segments: &[Segment]| -> Result<Writing, String> {
        let bytes: usize = segments.iter().map(|segment| segment.bytes.len()).sum();
        let (begun, gate) = (begun.clone(), Arc::clone(&gate));
        Ok(Box::new(move || {
            begun.send(bytes).unwrap();
            gate.lock().unwrap().recv().unwrap();
            Ok(())
        }))
    };
    let syncer = Syncer::start(1, write).unwrap();
    let first = tokio::spawn(append(&syncer));
    let one = syncs.recv().unwrap();
    let rest = tokio::spawn(futures::future::join_all((0..100).map(|_| append(&syncer)).collect::<Vec<_>>()));
    assert_eq!(syncs.recv().unwrap(), 100 * one, "in one sync, and while the first is under way");
    assert!(!first.is_finished() && !rest.is_finished(), "nothing is durable before its sync has ended");
    go.send(()).unwrap();
    go.send(()).unwrap();
    first.await.unwrap().unwrap();
    assert!(rest.await.unwrap().iter().all(Result::is_ok));
    assert!(syncs.try_recv().is_err());
}

/// Waits until so many have taken what waits.
async fn until_taken(syncer: &Syncer, count: u64) {
    while syncer.shared.lock().taken < count {
        tokio::task::yield_now().await;
    }
}

/// Waits until so many write or sync by themselves.
async fn until_leads(syncer: &Syncer, count: usize) {
    while syncer.shared.lock().leads < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nothing_is_written_after_a_write_that_failed() {
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    let (go, gate) = mpsc::channel::<()>();
    let write = move |_: &[Segment]| -> Result<Writing, String> {
        counted.fetch_add(1, Ordering::SeqCst);
        // The first waits to be let go; another would not wait.
        let _ = gate.recv();
        Err("no room".into())
    };
    let syncer = Syncer::start(1, write).unwrap();
    let first = tokio::spawn(append(&syncer));
    while writes.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let second = tokio::spawn(append(&syncer));
    until_leads(&syncer, 2).await;
    drop(go);
    assert_eq!(first.await.unwrap(), Err(Error::OutcomeUnknown("no room".into())));
    assert_eq!(second.await.unwrap(), Err(Error::OutcomeUnknown("no room".into())));
    assert_eq!(syncer.append(b"more").err(), Some(Error::Unavailable("no room".into())));
    assert_eq!(writes.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_sync_that_ends_after_another_failed_answers_nobody_that_it_is_done() {
    let (to_first, first_gate) = mpsc::channel::<Result<(), String>>();
    let (to_second, second_gate) = mpsc::channel();
    let mut gates = vec![second_gate, first_gate];
    let write = move |_: &[Segment]| -> Result<Writing, String> {
        let gate = gates.pop().unwrap();
        Ok(Box::new(move || gate.recv().unwrap()))
    };
    let syncer = Syncer::start(1, write).unwrap();
    let first = tokio::spawn(append(&syncer));
    until_taken(&syncer, 1).await;
    let second = tokio::spawn(append(&syncer));
    until_taken(&syncer, 2).await;
    to_first.send(Err("the disk is gone".into())).unwrap();
    let failed = Err(Error::OutcomeUnknown("the disk is gone".into()));
    assert_eq!(first.await.unwrap(), failed);
    to_second.send(Ok(())).unwrap();
    assert_eq!(second.await.unwrap(), failed, "its record stands behind one that may be missing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn batches_are_answered_in_their_order_and_a_file_goes_on_when_all_before_are_durable() {
    let (to_first, first_gate) = mpsc::channel::<()>();
    let mut gates = vec![first_gate];
    let (placed, files) = mpsc::channel();
    let place = move |segments: &[Segment]| -> Result<Writing, String> {
        placed.send(segments.len()).unwrap();
        let gate = gates.pop();
        Ok(Box::new(move || {
            gate.into_iter().for_each(|gate| gate.recv().unwrap());
            Ok(())
        }))
    };
    let syncer = Arc::new(Syncer::start(1, place).unwrap());
    let first = tokio::spawn(append(&syncer));
    assert_eq!(files.recv().unwrap(), 1);
    let mut second = append(&syncer);
    assert_eq!(futures::poll!(&mut second), Poll::Pending, "it is durable, but not what stands before it");
    assert_eq!(files.recv().unwrap(), 1);
    syncer.rotate();
    let third = tokio::spawn(append(&syncer));
    until_leads(&syncer, 2).await;
    assert!(files.try_recv().is_err() && !first.is_finished(), "the next file waits for the first");
    to_first.send(()).unwrap();
    assert_eq!((first.await.unwrap(), second.await, third.await.unwrap()), (Ok(()), Ok(()), Ok(())));
    assert_eq!(files.recv().unwrap(), 2);
}

#[tokio::test]
async fn a_batch_is_synced_though_nobody_waits_for_it() {
    let (synced, seen) = mpsc::channel();
    let sync = move |_: &[Segment]| {
        synced.send(std::thread::current().name().map(str::to_owned)).unwrap();
        at_once()
    };
    let syncer = Syncer::start(1, sync).unwrap();
    append(&syncer).await.unwrap();
    assert_ne!(seen.recv().unwrap().as_deref(), Some("wayleave-sync"), "whoever waits syncs what is small");
    syncer.append(&vec![0; LEAD_BYTES]).unwrap().await.unwrap();
    assert_eq!(seen.recv().unwrap().as_deref(), Some("wayleave-sync"), "what is large is left to the thread");
    drop(append(&syncer));
    assert_eq!(seen.recv().unwrap().as_deref(), Some("wayleave-sync"));
}

#[tokio::test]
async fn a_record_after_a_rotation_goes_to_the_next_file() {
    let (written, files) = mpsc::channel();
    let sync = move |segments: &[Segment]| {
        segments.iter().for_each(|segment| written.send((segment.file, segment.bytes.len())).unwrap());
        at_once()
    };
    let syncer = Syncer::start(4, sync).unwrap();
    assert_eq!(syncer.rotate(), 4);
    append(&syncer).await.unwrap();
    let mark = record::FRAME_BYTES + record::encode_goes_on().len();
    assert_eq!(files.try_iter().collect::<Vec<_>>(), [(4, mark), (5, record::FRAME_BYTES + 4)]);
}

#[tokio::test]
async fn a_failed_sync_leaves_outcomes_unknown_and_the_store_closed() {
    let syncer = Syncer::start(1, |_| Ok(Box::new(|| Err("the disk is gone".into())))).unwrap();
    assert_eq!(syncer.check(), Ok(()));
    assert_eq!(append(&syncer).await, Err(Error::OutcomeUnknown("the disk is gone".into())));
    assert_eq!(syncer.check(), Err(Error::Unavailable("the disk is gone".into())));
    assert_eq!(syncer.append(b"more").err(), Some(Error::Unavailable("the disk is gone".into())));
}

#[tokio::test]
async fn the_first_failure_is_the_one_that_is_told() {
    let syncer = Syncer::start(1, |_| at_once()).unwrap();
    syncer.fail("first".into());
    syncer.fail("second".into());
    assert_eq!(syncer.check(), Err(Error::Unavailable("first".into())));
}

#[tokio::test]
async fn closing_syncs_what_is_left() {
    let syncer = Syncer::start(1, |_| at_once()).unwrap();
    let answers: Vec<_> = (0..10).map(|_| append(&syncer)).collect();
    drop(syncer);
    for answer in answers {
        assert_eq!(answer.await, Ok(()));
    }
}
