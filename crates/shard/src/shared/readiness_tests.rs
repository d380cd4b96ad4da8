//! Which source is asked first.

use wayleave_core::ids::ShardId;
use wayleave_core::time::Time;

use super::{CALLERS_TOGETHER, Readiness, STEP_MS, Source, VisitFilter};

const NOW: Time = Time(1_000_000);

/// Three shards; the first has been ready longest.
fn readiness() -> Readiness {
    let readiness = Readiness::new(3);
    for (shard, since) in [(0, 10), (1, 20), (2, 30)] {
        readiness.tell(shard, (Some(Time(since)), None));
    }
    readiness
}

fn order(readiness: &Readiness, crawl: Option<&str>, paced: bool) -> Vec<u16> {
    let crawl = crawl.map(Into::into);
    let sources = readiness.ready(VisitFilter { crawl: crawl.as_ref(), paced, now: NOW });
    sources.into_iter().map(|source| if let Source::Shard(shard) = source { shard.0 } else { u16::MAX }).collect()
}

#[test]
fn the_shard_that_has_been_ready_longest_is_asked_first() {
    let readiness = readiness();
    readiness.tell(1, (Some(Time(5)), None));
    assert_eq!(order(&readiness, None, false), [1, 0, 2]);
    readiness.tell(0, (None, Some(Time(NOW.0 + 1))));
    assert_eq!(order(&readiness, None, false), [1, 2], "what becomes ready later is not asked");
    readiness.tell(0, (None, Some(NOW)));
    assert_eq!(order(&readiness, None, false), [1, 2, 0], "what has become so by itself is");
}

#[test]
fn callers_of_the_paced_form_follow_each_other_to_one_shard_until_it_has_enough() {
    let readiness = readiness();
    readiness.tell(0, (Some(Time(40)), None));
    assert_eq!(order(&readiness, None, false), [1, 2, 0]);
    let mut callers = Vec::new();
    for _ in 0..CALLERS_TOGETHER {
        assert_eq!(order(&readiness, None, true), [0, 1, 2]);
        callers.push(readiness.call(ShardId(0)));
    }
    assert_eq!(order(&readiness, None, true), [1, 2, 0]);
    callers.pop();
    assert_eq!(order(&readiness, None, true), [0, 1, 2]);
    readiness.tell(0, (Some(Time(STEP_MS + 1)), None));
    assert_eq!(order(&readiness, None, true), [1, 2, 0], "nobody waits for more than a step because of it");
}

#[test]
fn who_asks_for_one_crawl_is_sent_where_it_has_something() {
    let readiness = readiness();
    let mine = &"mine".into();
    readiness.crawls.tell(mine, ShardId(0), None);
    assert_eq!(order(&readiness, Some("mine"), false), [0, 1, 2], "nobody listens yet");
    readiness.crawls.listen(mine);
    assert_eq!(order(&readiness, Some("mine"), false), [0, 1, 2], "no shard has said anything");
    readiness.crawls.tell(mine, ShardId(0), None);
    readiness.crawls.tell(mine, ShardId(1), Some(Time(50)));
    assert_eq!(order(&readiness, Some("mine"), false), [2, 1]);
    assert_eq!(order(&readiness, Some("other"), false), [0, 1, 2]);
    readiness.tell(0, (Some(Time(10)), Some(NOW)));
    assert_eq!(order(&readiness, Some("mine"), false), [2, 1, 0], "it may be what has become ready");
    readiness.forget(ShardId(1));
    assert_eq!(order(&readiness, Some("mine"), false), [2, 0], "its owner is gone");
    readiness.tell(1, (Some(Time(5)), None));
    assert_eq!(order(&readiness, Some("mine"), false), [1, 2, 0], "the next owner has not said anything");
}
