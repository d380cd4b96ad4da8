//! The order of steps, who is notified when, and the state after a failure.

use futures::FutureExt;

use super::*;

type Durable = oneshot::Receiver<Result<(), Error>>;

fn queue() -> GroupCommit {
    GroupCommit::new(4, 0)
}

/// The result that has arrived so far.
fn outcome(answer: &mut Durable) -> Option<Result<(), Error>> {
    answer.now_or_never().map(|outcome| outcome.unwrap_or(Err(Error::Conflict)))
}

fn lost(why: &str) -> Option<Result<(), Error>> {
    Some(Err(Error::OutcomeUnknown(why.into())))
}

/// The number and the records of the write that begins.
fn write(queue: &mut GroupCommit) -> (u64, Vec<u8>) {
    match queue.begin() {
        Some(Begun::Write { number, records, .. }) => (number, records),
        other => panic!("{other:?} is not a write"),
    }
}

fn rotation(queue: &mut GroupCommit) -> u64 {
    match queue.begin() {
        Some(Begun::Rotate { number }) => number,
        other => panic!("{other:?} is not a rotation"),
    }
}

fn framed(file: u64, body: &[u8]) -> Vec<u8> {
    [&record::frame(file, body)[..], body].concat()
}

/// The interleaving that once lost acknowledged batches: a write is in flight, a rotation is queued, a batch is added
/// before the rotation can begin. The batch must be acknowledged by the very write that carries its bytes, in the new
/// file.
#[test]
fn a_batch_added_during_a_rotation_is_answered_by_its_own_write() {
    let mut queue = queue();
    let mut first = queue.add(b"first");
    let (a, _) = write(&mut queue);
    let mut second = queue.add(b"second");
    assert_eq!(queue.rotate(), 4);
    let (b, records) = write(&mut queue);
    assert_eq!(records, framed(4, b"second"), "before the rotation, so in the old file");
    let mut third = queue.add(b"third");
    assert!(queue.begin().is_none(), "a rotation waits for what is in flight, and the rest for the rotation");
    let mut fourth = queue.add(b"fourth");
    queue.end(b, Ok(2)).send();
    queue.end(a, Ok(1)).send();
    assert_eq!((outcome(&mut first), outcome(&mut second)), (Some(Ok(())), Some(Ok(()))));
    assert!(outcome(&mut third).is_none() && outcome(&mut fourth).is_none(), "their bytes are nowhere yet");
    let rotate = rotation(&mut queue);
    assert!(queue.begin().is_none(), "nothing begins before the rotation has ended");
    queue.end(rotate, Ok(0)).send();
    assert!(outcome(&mut third).is_none() && outcome(&mut fourth).is_none());
    let (c, records) = write(&mut queue);
    assert_eq!(records, [framed(5, b"third"), framed(5, b"fourth")].concat());
    queue.end(c, Ok(3)).send();
    assert_eq!((outcome(&mut third), outcome(&mut fourth)), (Some(Ok(())), Some(Ok(()))));
}

#[test]
fn batches_are_answered_in_order() {
    let mut queue = queue();
    let mut first = queue.add(b"first");
    let (a, _) = write(&mut queue);
    let mut second = queue.add(b"second");
    let (b, _) = write(&mut queue);
    queue.end(b, Ok(8)).send();
    assert!(outcome(&mut second).is_none(), "it is durable, but not the batch before it");
    queue.end(a, Ok(4)).send();
    assert_eq!((outcome(&mut first), outcome(&mut second)), (Some(Ok(())), Some(Ok(()))));
}

#[test]
fn a_write_says_how_far_the_file_was_durable_when_it_began() {
    let durable = |queue: &mut GroupCommit| match queue.begin() {
        Some(Begun::Write { number, durable, .. }) => (number, durable),
        other => panic!("{other:?} is not a write"),
    };
    let mut queue = queue();
    let _first = queue.add(b"first");
    let (a, none) = durable(&mut queue);
    let _second = queue.add(b"second");
    let (b, still_none) = durable(&mut queue);
    queue.end(b, Ok(8)).send();
    let _third = queue.add(b"third");
    let (c, not_yet) = durable(&mut queue);
    queue.end(a, Ok(4)).send();
    let _fourth = queue.add(b"fourth");
    let (d, both) = durable(&mut queue);
    assert_eq!((none, still_none, not_yet, both), (0, 0, 0, 8));
    queue.end(c, Ok(12)).send();
    queue.end(d, Ok(16)).send();
    queue.rotate();
    let rotate = rotation(&mut queue);
    queue.end(rotate, Ok(0)).send();
    let _fifth = queue.add(b"fifth");
    assert_eq!(durable(&mut queue).1, 0, "offsets begin again in the next file");
}

#[test]
fn after_a_failure_nothing_starts_and_every_batch_fails() {
    let mut queue = queue();
    let mut first = queue.add(b"first");
    let (a, _) = write(&mut queue);
    let mut second = queue.add(b"second");
    let (b, _) = write(&mut queue);
    queue.rotate();
    let mut third = queue.add(b"third");
    queue.end(a, Err("the disk is gone".into())).send();
    assert!(queue.begin().is_none(), "a rotation would write its mark behind the hole");
    let gone = lost("the disk is gone");
    assert_eq!((outcome(&mut first), outcome(&mut second), outcome(&mut third)), (gone.clone(), gone.clone(), gone));
    queue.end(b, Ok(8)).send();
    assert!(queue.begin().is_none());
}

#[test]
fn waiting_for_all_is_over_when_the_rotation_is() {
    let mut queue = queue();
    assert_eq!(outcome(&mut queue.wait_for_all()), Some(Ok(())), "nothing is left to wait for");
    let _first = queue.add(b"first");
    queue.rotate();
    let mut all = queue.wait_for_all();
    let (a, _) = write(&mut queue);
    queue.end(a, Ok(4)).send();
    assert!(outcome(&mut all).is_none());
    let rotate = rotation(&mut queue);
    queue.end(rotate, Ok(0)).send();
    assert_eq!(outcome(&mut all), Some(Ok(())));
    let _second = queue.add(b"second");
    let (b, _) = write(&mut queue);
    let mut all = queue.wait_for_all();
    assert!(outcome(&mut all).is_none(), "it waits for what is in flight");
    queue.end(b, Ok(4)).send();
    assert_eq!(outcome(&mut all), Some(Ok(())));
}
