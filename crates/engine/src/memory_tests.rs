//! Crashes and injected faults, which only the memory engine has.

use futures::FutureExt;
use wayleave_core::time::Millis;

use super::*;
use crate::Fence;
use crate::clock::ManualClock;
use crate::suite::harness::{Harness, batch, check, delete, key, put};

const SHARD: ShardId = ShardId(3);

struct Durable(Memory);
struct Stepped(Memory);

impl Harness for Durable {
    type Engine = Memory;
    async fn create() -> Self {
        Self(Memory::new(ManualClock::new(Time(1_000))))
    }
    fn engine(&self) -> &Memory {
        &self.0
    }
    async fn damage(self, row: &[u8]) -> Self {
        assert_eq!(self.0.damage(|key| key == row), 1);
        self
    }
    async fn reopen(self) -> Self {
        Self(self.0.crash())
    }
}

/// A harness in which batches become durable only when the suite is about to wait for them.
impl Harness for Stepped {
    type Engine = Memory;
    async fn create() -> Self {
        Self(Memory::stepped(ManualClock::new(Time(1_000))))
    }
    fn engine(&self) -> &Memory {
        &self.0
    }
    async fn damage(self, row: &[u8]) -> Self {
        assert_eq!(self.0.damage(|key| key == row), 1);
        self
    }
    async fn settle(&self) {
        self.0.make_durable(usize::MAX);
    }
    async fn reopen(self) -> Self {
        Self(self.0.crash())
    }
}

mod durable_at_once {
    crate::conformance!(super::Durable);
}

mod durable_in_steps {
    crate::conformance!(super::Stepped);
}

#[tokio::test]
async fn a_crash_keeps_the_durable_batches_and_drops_the_later_ones() {
    let engine = Memory::stepped(ManualClock::default());
    let first = engine.commit(batch([put(1, "a", "1"), put(1, "b", "1")]));
    let second = engine.commit(batch([put(1, "a", "2"), put(1, "a", "3"), put(1, "c", "2")]));
    let third = engine.commit(batch([delete(1, "b")]));
    check(&engine, 1, [("a", Some("3")), ("b", None), ("c", Some("2"))]).await;

    assert_eq!((engine.waiting(), engine.make_durable(1)), (3, 1));
    assert_eq!(first.now_or_never(), Some(Ok(())));
    let after = engine.crash();
    check(&after, 1, [("a", Some("1")), ("b", Some("1")), ("c", None)]).await;
    for lost in [second, third] {
        assert!(matches!(lost.await, Err(Error::OutcomeUnknown(_))));
    }
    assert!(matches!(engine.get_many(&[key(1, "a")]).await, Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn a_look_shows_what_a_crash_would_leave_and_nothing_else() {
    let engine = Memory::stepped(ManualClock::default());
    drop(engine.commit(batch([put(1, "a", "1"), put(1, "b", "1"), put(1, "d", "1")])));
    engine.make_durable(1);
    drop(engine.commit(batch([put(1, "a", "2"), delete(1, "b"), put(1, "c", "2")])));
    drop(engine.commit(batch([put(1, "a", "3"), put(1, "b", "3"), delete(1, "d")])));
    for limit in 0..5 {
        let scan = Scan { from: key(1, ""), to: key(2, ""), limit };
        let seen = engine.look(std::slice::from_ref(&scan)).await.unwrap().rows.remove(0);
        let left = ["a", "b", "d"].map(|name| Row { key: key(1, name), value: b"1".to_vec() });
        assert_eq!(seen, left[..limit.min(3)], "limit {limit}");
    }
    engine.make_durable(usize::MAX);
    let scan = Scan { from: key(1, ""), to: key(2, ""), limit: 9 };
    let look = engine.look(std::slice::from_ref(&scan)).await.unwrap();
    assert_eq!(look.rows, engine.scan_many(&[scan]).await.unwrap());
}

#[tokio::test]
async fn a_crash_puts_fences_back_to_the_durable_turn() {
    let engine = Memory::stepped(ManualClock::default());
    let owned = engine.own(SHARD, &[]);
    engine.make_durable(1);
    let (epoch, seq) = owned.await.unwrap();
    let fence = |seq| Batch { fences: vec![Fence { shard: SHARD, epoch, seq }], ..Batch::default() };
    let lost_commit = engine.commit(fence(seq + 1));
    let lost_owner = engine.own(SHARD, &[]);
    let after = engine.crash();
    assert!(matches!(lost_commit.await, Err(Error::OutcomeUnknown(_))));
    assert!(matches!(lost_owner.await, Err(Error::OutcomeUnknown(_))));

    let again = after.commit(fence(seq + 1));
    after.make_durable(1);
    assert_eq!(again.await, Ok(()));
}

#[tokio::test]
async fn an_outage_refuses_every_call_and_changes_nothing() {
    let engine = Memory::new(ManualClock::default());
    engine.begin_outage("the disk is away");
    let refused = Error::Unavailable("the disk is away".into());
    assert_eq!(engine.commit(batch([put(1, "a", "1")])).await, Err(refused.clone()));
    assert_eq!(engine.own(SHARD, &[]).await, Err(refused.clone()));
    assert_eq!(engine.get_many(&[key(1, "a")]).await, Err(refused.clone()));
    let scan = Scan { from: key(1, ""), to: key(2, ""), limit: 9 };
    assert_eq!(engine.scan_many(&[scan]).await, Err(refused));

    engine.end_outage();
    check(&engine, 1, [("a", None)]).await;
    assert_eq!(engine.own(SHARD, &[]).await, Ok((Epoch(1), 0)));
}

#[tokio::test]
async fn a_failure_on_order_hits_one_call_only() {
    let engine = Memory::new(ManualClock::default());
    engine.fail_next(Error::Corrupt("on order".into()));
    assert_eq!(engine.commit(batch([put(1, "a", "1")])).await, Err(Error::Corrupt("on order".into())));
    check(&engine, 1, [("a", None)]).await;
}

#[tokio::test]
async fn a_lost_answer_hides_whether_the_batch_was_applied() {
    for (truth, expected) in [(LostAnswer::Applied, Some("1")), (LostAnswer::Dropped, None)] {
        let engine = Memory::new(ManualClock::default());
        engine.lose_next_answer(truth);
        assert!(matches!(engine.commit(batch([put(1, "a", "1")])).await, Err(Error::OutcomeUnknown(_))));
        check(&engine, 1, [("a", expected)]).await;
    }
}

#[test]
fn time_follows_the_clock_but_never_back() {
    let clock = ManualClock::new(Time(500));
    let engine = Memory::new(clock.clone());
    assert_eq!(engine.now(), Time(500));
    clock.advance(Millis(250));
    assert_eq!(engine.now(), Time(750));
    clock.set(Time(100));
    assert_eq!(engine.now(), Time(750));
    assert_eq!(engine.crash().now(), Time(750));
}
