use wayleave_core::frontier::row::{Details, DueRow, QueueRow, UrlRow};
use wayleave_core::ids::QueueId;
use wayleave_core::time::Time;

use super::*;
use crate::copier::blocks::Blocks;

const SHARD: ShardId = ShardId(1);

fn queue(count: u32) -> QueueRow {
    // As of an earlier moment: its cursor is behind all of them.
    let lane = Lane { lane: 4, count, head: Time(900), from: (Time(900), Box::new([])) };
    QueueRow {
        no: 0,
        crawl: CrawlNo(3),
        lanes: vec![lane],
        reserved: 0,
        fetched: 0,
        gone: 0,
        failed: 0,
        limit: None,
        visits_mod_ten: 0,
        pages: 0,
    }
}

fn host(counter: u64) -> HostRow {
    let host = HostRow::new(HostId::new(SHARD, counter), format!("h{counter}.example").as_str().into());
    HostRow { next_queue: 1, queues: vec![queue(1)], ..host }
}

/// Three queued URLs and a fetched one of a host.
fn urls(host: HostId) -> Vec<Row> {
    let (id, details) = (QueueId { host, no: 0 }, Details::default);
    let mut rows = Vec::new();
    for (name, due) in [("a", 700), ("b", 500), ("c", 600)] {
        let (key, position) = (UrlKey::new("h", name), QueuePosition { lane: 4, due: Time(due) });
        let row = UrlRow { created: Time(1), whole: None, status: UrlStatus::Queued(position) };
        rows.push(Row { key: url::key(id, &key.0), value: url::encode(&row) });
        let row = DueRow { created: Time(1), whole: None, details: details() };
        rows.push(Row { key: due::key(id, position, &key.0), value: due::encode(&row) });
    }
    let done = UrlStatus::Done { end: UrlEnd::Fetched, lane: 4, details: details() };
    let row = UrlRow { created: Time(1), whole: None, status: done };
    rows.push(Row { key: url::key(id, &UrlKey::new("h", "d").0), value: url::encode(&row) });
    rows
}

/// A shard with one host whose row is old, one whose row is lost, and a log that cannot be read.
fn damaged() -> Blocks {
    let known = host(7);
    let write = hot::encode(SHARD, &HotRow::Host(known.clone()));
    let mut rows: BTreeMap<Key, Vec<u8>> = [(write.key, write.value.unwrap())].into();
    let log = log::key(SHARD, 5);
    rows.insert(log.clone(), vec![1]);
    let both = [known.id, HostId::new(SHARD, 9)].into_iter().flat_map(urls);
    rows.extend(both.map(|row| (row.key, row.value)));
    Blocks::new(rows, vec![(log.clone(), log)])
}

#[track_caller]
fn check_rebuilt(mut source: Blocks) {
    assert_eq!(damaged_shards(&mut source).unwrap(), [SHARD].into());
    let mut losses = Losses::default();
    let rows = rebuild(&mut source, SHARD, &Homes::default(), &mut losses).unwrap();
    assert!(rows.is_sorted_by(|a, b| a.key < b.key) && rows.iter().all(|row| is_hot(&row.key)));
    let rows: Vec<HotRow> = rows.iter().map(|row| hot::decode(&row.key, Some(&row.value)).unwrap()).collect();
    let [HotRow::Shard(shard), HotRow::Crawl(crawl), HotRow::Host(host)] = &rows[..] else { panic!("{rows:?}") };
    assert!(shard.next_host > 1 << 32, "numbers that were given out are not given out again");
    assert_eq!((crawl.no, crawl.name.as_ref()), (CrawlNo(3), "salvaged-1-3"));
    let lane = &host.queues[0].lanes[0];
    assert_eq!((lane.count, lane.head, lane.from.0), (3, Time(500), Time(500)), "a stale cursor would hide two");
    assert_eq!((host.queues[0].fetched, host.queues[0].pages), (1, 1));
    let [crawl] = &losses.named[..] else { panic!("{losses:?}") };
    assert!(crawl.what.contains("is called salvaged-1-3 now") && crawl.hosts == ["h7.example"], "{crawl:?}");
    let mut left_out = losses.left_out;
    name_orphans(&mut source, &[SHARD].into(), &mut left_out).unwrap();
    let orphan = hot::host_key(SHARD, HostId::new(SHARD, 9));
    assert!(left_out.len() == 1 && left_out[0].key == orphan, "{left_out:?}");
}

#[test]
fn hosts_of_a_shard_whose_log_is_lost_are_counted_anew_from_their_urls() {
    check_rebuilt(damaged());
}

#[test]
fn entries_of_a_queue_that_are_lost_too_are_counted_by_the_rows_of_their_urls() {
    let mut source = damaged();
    let first = source.rows.keys().find(|key| key[2] == Kind::Due as u8).unwrap().clone();
    source.bad.push((first.clone(), first));
    check_rebuilt(source);
}

#[test]
fn gaps_in_the_entries_and_the_urls_of_one_host_leave_every_queued_url_counted() {
    let mut source = damaged();
    let of_host = |kind: Kind| {
        let (from, to) = (host_key(SHARD, kind, 7), host_key(SHARD, kind, 8));
        source.rows.range(from..to).map(|(key, _)| key.clone()).collect::<Vec<_>>()
    };
    // The entries of c and a are lost, and the row of b.
    let (entries, urls) = (of_host(Kind::Due), of_host(Kind::Url));
    source.bad.extend([(entries[1].clone(), entries[2].clone()), (urls[1].clone(), urls[1].clone())]);
    check_rebuilt(source);
}

#[test]
fn a_shard_that_has_lost_nothing_stays_as_it_is() {
    let mut source = damaged();
    source.bad.clear();
    source.rows.retain(|key, _| key[2] != Kind::Log as u8);
    assert!(damaged_shards(&mut source).unwrap().is_empty());
}

/// What went wrong once: the home of a paused crawl had lost its row, and the next change of the crawl began with defaults, which
/// all other shards followed.
#[test]
fn a_shard_that_has_lost_the_settings_of_a_crawl_gets_those_of_the_others() {
    let mut source = damaged();
    source.header.shards = 4;
    let row = |shard: u16, version| {
        let settings = CrawlSettings { paused: true, weight: version as u32, ..CrawlSettings::default() };
        let row = CrawlRow { no: CrawlNo(shard.into()), name: "c".into(), settings, kept: true, version };
        let write = hot::encode(ShardId(shard), &HotRow::Crawl(row));
        (write.key, write.value.unwrap())
    };
    source.rows.extend([row(0, 7), row(2, 8), row(3, 7)]);
    let (homes, mut losses) = (Homes::find(&mut source, &[SHARD].into()).unwrap(), Losses::default());
    let rows = rebuild(&mut source, SHARD, &homes, &mut losses).unwrap();
    let rows = rows.iter().map(|row| hot::decode(&row.key, Some(&row.value)).unwrap());
    let found: Vec<CrawlRow> = rows
        .filter_map(|row| match row {
            HotRow::Crawl(row) if &*row.name == "c" => Some(row),
            _ => None,
        })
        .collect();
    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!((found.settings.paused, found.settings.weight, found.version), (true, 8, 8), "the newest");
}
