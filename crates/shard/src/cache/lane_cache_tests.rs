//! Whatever is written, a cached prefix equals the first rows of its lane, or it is not cached.

use std::collections::BTreeMap;

use proptest::prelude::*;
use wayleave_core::frontier::row::{Details, DueRow, QueuePosition};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{HostId, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::rows;

use super::*;

const QUEUE: QueueId = QueueId { host: HostId(1), no: 0 };
const ROOM: usize = 64 * 1024;
/// Upper bound of what a prefix of a few rows occupies.
const PREFIX_BYTES: usize = OVERHEAD + 192;

fn write(due: u64, row: Option<DueRow>) -> Write {
    Write::Due(QUEUE, QueuePosition { lane: 4, due: Time(due) }, UrlKey((*b"k").into()), row)
}

fn row(whole: usize) -> DueRow {
    let whole = (whole > 0).then(|| "x".repeat(whole).into());
    DueRow { created: Time(1), whole, details: Details::default() }
}

fn put(due: u64) -> Write {
    write(due, Some(row(0)))
}

fn remove(due: u64) -> Write {
    write(due, None)
}

fn scan(limit: usize) -> LaneScan {
    LaneScan { queue: QUEUE, lane: 4, from: (Time(0), [].into()), limit, gap: None }
}

fn encode(writes: &[Write]) -> Vec<Encoded> {
    writes.iter().map(|write| rows::encode(ShardId(0), write)).collect()
}

fn follow(cache: &mut LaneCache, writes: &[Write]) {
    cache.follow(writes, &encode(writes));
}

/// The store's answer to a scan for this many rows.
fn stored(dues: &[u64]) -> Vec<Row> {
    let writes: Vec<Write> = dues.iter().map(|due| put(*due)).collect();
    encode(&writes).into_iter().map(|write| Row { key: write.key, value: write.value.unwrap() }).collect()
}

fn dues(cache: &mut LaneCache, limit: usize) -> Option<Vec<u64>> {
    cache.get(&scan(limit)).map(|rows| rows.iter().map(|found| found.position.due.0).collect())
}

#[test]
fn a_head_stays_the_first_rows_of_its_lane() {
    let mut cache = LaneCache::new(ROOM, 1);
    cache.fill(&scan(3), &stored(&[10, 20, 30]), 3);
    assert_eq!(dues(&mut cache, 4), None, "there may be more in the store");
    follow(&mut cache, &[put(15), put(40), remove(10)]);
    assert_eq!(dues(&mut cache, 3), Some(vec![15, 20, 30]), "a row past the prefix stays in the store");
    follow(&mut cache, &[remove(15), remove(20), remove(30)]);
    assert_eq!(dues(&mut cache, 1), None);
    assert_eq!(cache.bytes, 0);
}

#[test]
fn a_whole_lane_answers_every_scan() {
    let mut cache = LaneCache::new(ROOM, 1);
    cache.fill(&scan(9), &stored(&[10]), 9);
    follow(&mut cache, &[put(50)]);
    assert_eq!(dues(&mut cache, 9), Some(vec![10, 50]));
}

#[test]
fn a_lane_that_was_empty_has_a_head_from_its_first_row_on() {
    let mut cache = LaneCache::new(ROOM, 1);
    cache.begin(&[(QUEUE, 4)]);
    let rows: Vec<Write> = (1..=u64::from(ROWS_GROWN_MAX)).map(put).collect();
    follow(&mut cache, &rows);
    assert_eq!(dues(&mut cache, 99).map(|dues| dues.len()), Some(usize::from(ROWS_GROWN_MAX)), "these are all");
    follow(&mut cache, &[put(100)]);
    assert_eq!(dues(&mut cache, 99), None, "one is in the store alone");
    assert_eq!(dues(&mut cache, 2), Some(vec![1, 2]));
}

#[test]
fn with_many_hosts_prefixes_that_grow_by_puts_stay_short() {
    let mut cache = LaneCache::new(ROOM, ROOM / 128);
    cache.begin(&[(QUEUE, 4)]);
    let rows: Vec<Write> = (1..=u64::from(ROWS_GROWN_MIN) + 1).map(put).collect();
    follow(&mut cache, &rows);
    assert_eq!(dues(&mut cache, usize::from(ROWS_GROWN_MIN) + 1), None);
    assert_eq!(dues(&mut cache, usize::from(ROWS_GROWN_MIN)).map(|dues| dues.len()), Some(usize::from(ROWS_GROWN_MIN)));
}

#[test]
fn a_lane_that_became_empty_on_the_way_is_not_taken_for_whole() {
    let mut cache = LaneCache::new(ROOM, 1);
    // Row 5 existed but was not cached; one commit removes it and adds another row.
    cache.begin(&[(QUEUE, 4)]);
    follow(&mut cache, &[remove(5), put(9)]);
    assert_eq!(dues(&mut cache, 1), None);
}

#[test]
fn a_full_memory_lets_some_go_for_those_who_come() {
    let mut cache = LaneCache::new(10 * PREFIX_BYTES, 1);
    let lane = |no: u32| (QueueId { no, ..QUEUE }, 4);
    for no in 0..20 {
        cache.begin(&[lane(no)]);
        let write =
            [Write::Due(lane(no).0, QueuePosition { lane: 4, due: Time(1) }, UrlKey((*b"k").into()), Some(row(0)))];
        follow(&mut cache, &write);
    }
    for no in 20..40 {
        cache.fill(&LaneScan { queue: lane(no).0, ..scan(3) }, &stored(&[1, 2, 3]), 3);
        assert!(cache.lanes.contains_key(&Lane::new(lane(no).0, 4)), "who was visited last is remembered");
    }
    let bytes: usize = cache.lanes.values().map(LaneRows::size).sum();
    assert_eq!(cache.bytes, bytes);
    assert!(bytes <= 10 * PREFIX_BYTES && cache.lanes.len() >= 5, "{} prefixes", cache.lanes.len());
    cache.set_room(2 * PREFIX_BYTES, 1);
    cache.fill(&LaneScan { queue: lane(40).0, ..scan(3) }, &stored(&[1, 2, 3]), 3);
    assert!(
        cache.bytes <= 2 * PREFIX_BYTES && cache.lanes.contains_key(&Lane::new(lane(40).0, 4)),
        "less room, fewer prefixes"
    );
}

#[test]
fn those_that_are_of_use_stay_longest() {
    let mut cache = LaneCache::new(20 * PREFIX_BYTES, 1);
    let scan = |no: u32| LaneScan { queue: QueueId { no, ..QUEUE }, ..scan(2) };
    for no in 0..100 {
        cache.fill(&scan(no), &stored(&[1, 2]), 2);
        for used in 0..4 {
            cache.get(&scan(used));
        }
    }
    let kept = (0..4).filter(|no| cache.get(&scan(*no)).is_some()).count();
    assert_eq!(kept, 4, "those that were asked for all the time");
    let idle = (4..40).filter(|no| cache.get(&scan(*no)).is_some()).count();
    assert_eq!(idle, 0, "of those that nobody asked for");
}

#[test]
fn a_row_that_is_too_long_takes_no_room() {
    let mut cache = LaneCache::new(ROOM, 1);
    cache.begin(&[(QUEUE, 4)]);
    follow(&mut cache, &[put(10), put(20), write(15, Some(row(60_000)))]);
    assert_eq!(dues(&mut cache, 1), Some(vec![10]), "the prefix ends before it");
    assert!(cache.bytes <= PREFIX_BYTES, "{} bytes", cache.bytes);
}

#[test]
fn an_entry_takes_as_little_room_as_its_cost_says() {
    // A hash map is between half and seven eighths full.
    let entry = size_of::<(Lane, LaneRows)>() + 1;
    assert!((entry * 8 / 7..entry * 16 / 7).contains(&OVERHEAD), "{entry}");
}

proptest! {
    /// Compares the cache with a model that knows every row of the lane: a hit never differs from it.
    #[test]
    fn a_head_tells_what_the_store_would(
        steps in prop::collection::vec((0u8..4, 0u64..40, prop::sample::select(vec![0, 3, 900, 70_000]), 1usize..20), 1..120),
        hosts in prop::sample::select(vec![1, 300, 100_000]),
    ) {
        let (mut cache, mut lane) = (LaneCache::new(ROOM, hosts), BTreeMap::<(u64, UrlKey), DueRow>::new());
        let name = |no: u64| (no / 3, UrlKey(format!("{}/{}", "shop/item".repeat(no as usize % 5), no % 3).into_bytes().into()));
        let write = |(due, url): &(u64, UrlKey), row| Write::Due(QUEUE, QueuePosition { lane: 4, due: Time(*due) }, url.clone(), row);
        for (step, no, long, limit) in steps {
            let name = name(no);
            match step {
                0 | 1 => {
                    lane.insert(name.clone(), row(long));
                    if lane.len() == 1 {
                        cache.begin(&[(QUEUE, 4)]);
                    }
                    follow(&mut cache, &[write(&name, Some(row(long)))]);
                }
                2 if lane.remove(&name).is_some() => follow(&mut cache, &[write(&name, None)]),
                2 => {}
                _ => {
                    let writes: Vec<Write> = lane.iter().take(limit).map(|(name, row)| write(name, Some(row.clone()))).collect();
                    let told: Vec<Row> =
                        encode(&writes).into_iter().map(|w| Row { key: w.key, value: w.value.unwrap() }).collect();
                    cache.fill(&scan(limit), &told, limit);
                }
            }
            for limit in [1, 5, 30] {
                if let Some(found) = cache.get(&scan(limit)) {
                    let found: Vec<_> = found.into_iter().map(|f| ((f.position.due.0, f.key), f.row)).collect();
                    let wanted: Vec<_> = lane.iter().take(limit).map(|(name, row)| (name.clone(), row.clone())).collect();
                    prop_assert_eq!(found, wanted);
                }
            }
            let bytes: usize = cache.lanes.values().map(LaneRows::size).sum();
            prop_assert_eq!(cache.bytes, bytes);
        }
    }
}
