//! Every row round-trips, and key order is the order of what the keys name.

use proptest::prelude::*;
use wayleave_core::frontier::changes::ChangedHost;
use wayleave_core::frontier::request::RequestId;
use wayleave_core::frontier::row::{
    AliasRow, CrawlRow, Details, DueRow, End, HostRow, HotRow, Lane, LeaseRow, Link, Pace, QueuePosition, QueueRow,
    ShardRow, UrlRow, UrlStatus,
};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::view::LastVisit;
use wayleave_core::ids::{ChunkId, CrawlNo, GroupId, HostId, QueueId, ShardId, Token};
use wayleave_core::metadata::Metadata;
use wayleave_core::settings::{CrawlLimits, CrawlSettings, PaceSettings, RetryWaits, Revisit};
use wayleave_core::time::{Millis, Time};

use super::*;

fn time() -> impl Strategy<Value = Time> {
    (0..1u64 << 48).prop_map(Time)
}

fn millis() -> impl Strategy<Value = Millis> {
    any::<u32>().prop_map(|n| Millis(n.into()))
}

fn position() -> impl Strategy<Value = QueuePosition> {
    (0u8..10, time()).prop_map(|(lane, due)| QueuePosition { lane, due })
}

fn last() -> impl Strategy<Value = Option<LastVisit>> {
    let one = (time(), any::<Option<u16>>(), any::<bool>());
    prop::option::of(one.prop_map(|(at, status, exhausted)| LastVisit { at, status, exhausted }))
}

fn details() -> impl Strategy<Value = Details> {
    let metadata = prop::collection::vec(any::<u8>(), 0..20).prop_map(|b| Metadata::from_bytes(b).unwrap_or_default());
    let digest = prop::option::of("[a-z0-9]{1,9}".prop_map(Into::into));
    (any::<u32>(), any::<u32>(), last(), prop::option::of(millis()), digest, metadata).prop_map(
        |(attempts, depth, last, interval, digest, metadata)| Details {
            attempts,
            depth,
            last,
            interval,
            digest,
            metadata,
        },
    )
}

fn status() -> impl Strategy<Value = UrlStatus> {
    let end = prop_oneof![Just(End::Fetched), Just(End::Gone), Just(End::Failed)];
    prop_oneof![
        position().prop_map(UrlStatus::Queued),
        (time(), position(), details()).prop_map(|(until, position, details)| UrlStatus::Held {
            until,
            position,
            details
        }),
        (any::<[u8; 16]>(), position(), details()).prop_map(|(token, position, details)| UrlStatus::Reserved {
            token: Token(token),
            position,
            details
        }),
        (end, any::<u8>(), details()).prop_map(|(end, lane, details)| UrlStatus::Done { end, lane, details }),
    ]
}

fn queue_id() -> impl Strategy<Value = QueueId> {
    (any::<u16>(), 0..1u64 << 48, 0..1u32 << 24)
        .prop_map(|(shard, host, no)| QueueId { host: HostId::new(ShardId(shard), host), no })
}

fn whole() -> impl Strategy<Value = Option<Box<str>>> {
    prop::option::of("[a-z]{1,9}".prop_map(Into::into))
}

fn pace_settings() -> impl Strategy<Value = PaceSettings> {
    let m = || prop::option::of(millis());
    (
        m(),
        any::<Option<u32>>(),
        m(),
        m(),
        prop::option::of(time()),
        any::<Option<bool>>(),
        any::<Option<u32>>(),
        any::<Option<u32>>(),
    )
        .prop_map(|(delay, factor_milli, delay_min, delay_max, blocked_until, paused, limit, parallel)| {
            PaceSettings {
                delay,
                factor_milli,
                delay_min,
                delay_max,
                blocked_until,
                paused,
                limit: limit.map(u64::from),
                parallel,
            }
        })
}

fn pace() -> impl Strategy<Value = Pace> {
    (time(), millis(), any::<u32>(), time(), any::<u32>(), any::<u16>(), time(), "[a-z/]{0,9}").prop_map(
        |(last_end, last_duration, crawl, backoff_until, backoff_count, backoff_status, not_before, url)| Pace {
            last_end,
            last_duration,
            last_crawl: CrawlNo(crawl),
            backoff_until,
            backoff_count,
            backoff_status,
            not_before,
            asked_by: (!url.is_empty()).then(|| url.into()),
        },
    )
}

fn queue_row() -> impl Strategy<Value = QueueRow> {
    let lane = (0u8..10, any::<u32>(), time(), time(), prop::collection::vec(any::<u8>(), 0..9))
        .prop_map(|(lane, count, head, due, key)| Lane { lane, count, head, from: (due, key.into()) });
    let counts = any::<[u32; 4]>();
    (
        0..1u32 << 24,
        any::<u32>(),
        prop::collection::vec(lane, 0..3),
        counts,
        any::<Option<u32>>(),
        0u8..10,
        any::<Option<u32>>(),
    )
        .prop_map(|(no, crawl, lanes, [reserved, fetched, gone, failed], limit, visits_mod_ten, pages)| QueueRow {
            no,
            crawl: CrawlNo(crawl),
            lanes,
            reserved,
            fetched,
            gone,
            failed,
            limit: limit.map(u64::from),
            visits_mod_ten,
            pages: pages.unwrap_or_else(|| fetched.saturating_add(gone).saturating_add(failed)),
        })
}

fn hot_row() -> impl Strategy<Value = HotRow> {
    let revisit = prop_oneof![
        Just(Revisit::Never),
        millis().prop_map(Revisit::Fixed),
        (millis(), millis()).prop_map(|(min, max)| Revisit::Adaptive { min, max })
    ];
    let crawl = (any::<u32>(), "[a-zA-Z_]{1,9}", any::<u32>(), any::<[bool; 2]>(), any::<[Option<u32>; 10]>(), revisit)
        .prop_map(
            |(no, name, weight, [paused, kept], [a, b, c, d, depth, attempts, delay, hosts, first, most], revisit)| {
                let wide = |n: Option<u32>| n.map(u64::from);
                let (urls_per_host, pages_per_host, urls, pages) = (wide(a), wide(b), wide(c), wide(d));
                let limits =
                    CrawlLimits { urls_per_host, pages_per_host, urls, pages, depth, attempts, hosts: wide(hosts) };
                let retry = RetryWaits { first: wide(first).map(Millis), most: wide(most).map(Millis) };
                let settings = CrawlSettings { weight, paused, delay: wide(delay).map(Millis), limits, revisit, retry };
                HotRow::Crawl(CrawlRow { no: CrawlNo(no), name: name.into(), settings, kept })
            },
        );
    let host = (
        any::<u64>(),
        "[a-z.]{1,9}",
        any::<Option<u32>>(),
        pace_settings(),
        prop::option::of(time()),
        pace(),
        prop::collection::vec(queue_row(), 0..3),
    )
        .prop_map(|(id, name, group, settings, queued_at, pace, queues)| {
            let (id, group) = (HostId(id), group.map(|g| GroupId(g.into())));
            let row = HostRow {
                id,
                name: name.into(),
                group,
                settings,
                robots_delay: Millis(7),
                queued_at,
                next_queue: 3,
                pace,
                queues,
            };
            HotRow::Host(row)
        });
    prop_oneof![
        crawl,
        host,
        any::<u32>().prop_map(|no| HotRow::CrawlGone(CrawlNo(no))),
        any::<u64>().prop_map(|id| HotRow::HostGone(HostId(id))),
        any::<u64>().prop_map(|id| HotRow::AliasGone(GroupId(id))),
        (any::<u64>(), "[a-z]{1,9}", pace_settings(), pace()).prop_map(|(id, name, settings, pace)| {
            HotRow::Alias(AliasRow { id: GroupId(id), name: name.into(), settings, pace })
        }),
        ("[a-z.]{1,9}", prop::option::of("[a-z]{1,9}"))
            .prop_map(|(host, alias)| HotRow::HostAlias { host: host.into(), alias: alias.map(Into::into) }),
        (any::<u32>(), any::<Option<u32>>(), any::<bool>()).prop_map(|(n, delay, active)| HotRow::Shard(ShardRow {
            next_host: n.into(),
            next_group: 5,
            next_crawl: n,
            default_delay: delay.map(|d| Millis(d.into())),
            active,
        })),
    ]
}

proptest! {
    #[test]
    fn url_rows_read_back(queue in queue_id(), url: Vec<u8>, created in time(), whole in whole(), status in status()) {
        let row = UrlRow { created, whole, status };
        prop_assert_eq!(url::decode(&url::encode(&row)), Ok(row));
        prop_assert_eq!(url::parse_key(&url::key(queue, &url)), Ok((queue, UrlKey(url.into()))));
    }

    #[test]
    fn due_rows_read_back_and_sort_by_turn(
        queue in queue_id(), url: Vec<u8>, a in position(), b in position(), created in time(), whole in whole(), details in details(),
    ) {
        let row = DueRow { created, whole, details };
        prop_assert_eq!(due::decode(&due::encode(&row)), Ok(row));
        let key = due::key(queue, a, &url);
        prop_assert_eq!(due::parse_key(&key), Ok((queue, a, UrlKey(url.clone().into()))));
        prop_assert_eq!(key.cmp(&due::key(queue, b, &url)), a.cmp(&b));
        prop_assert!(key < due::lane_end(queue, a.lane));
    }

    #[test]
    fn holds_and_jobs_read_back(queue in queue_id(), url: Vec<u8>, until in time(), shard: u16) {
        let key = hold::key(ShardId(shard), until, queue, &url);
        prop_assert_eq!(hold::parse_key(&key), Ok((until, queue, UrlKey(url.into()))));
        prop_assert!(key >= hold::from(ShardId(shard), until));
        prop_assert_eq!(job::parse_key(&job::key(ShardId(shard), queue)), Ok(queue));
    }

    #[test]
    fn leases_read_back(
        token: [u8; 16], host: u64, times in (time(), time()), crawl: u32, queued_at in prop::option::of(time()),
        urls in prop::collection::vec((queue_id(), prop::collection::vec(any::<u8>(), 0..9)), 0..4),
        request in prop::option::of(("[a-z]{1,9}", any::<u64>())), taken_away in 0..3u32,
        link in prop::option::of((any::<u64>(), any::<bool>())), ended in prop::option::of(any::<u64>()),
    ) {
        let request = request.map(|(id, asks)| Box::new(RequestId { id: id.into(), asks }));
        let urls = urls.into_iter().map(|(q, k)| (q, UrlKey(k.into()))).collect();
        let (granted_at, expires_at) = times;
        let (token, host, crawl) = (Token(token), HostId(host), CrawlNo(crawl));
        let holder = "w1".into();
        let link = link.map(|(chunk, visiting)| Link { chunk: ChunkId(chunk), visiting });
        // A link of a chunk is no link of an ended one.
        let ended_chunk = ended.filter(|_| link.is_none()).map(ChunkId);
        let row = LeaseRow {
            token, host, holder, granted_at, expires_at, crawl, queued_at, urls, taken_away, request, link, ended_chunk,
        };
        prop_assert_eq!(lease::decode(&lease::encode(&row)), Ok(row));
    }

    #[test]
    fn hot_rows_read_back_alone_and_packed(rows in prop::collection::vec(hot_row(), 1..4)) {
        let writes: Vec<Write> = rows.iter().map(|row| hot::encode(ShardId(3), row)).collect();
        let mut pack = log::Pack::default();
        for (row, write) in rows.iter().zip(&writes) {
            match row {
                HotRow::Host(host) => {
                    pack.add_host(ShardId(3), ChangedHost::Whole(host.by_ref()));
                    pack.add_host(ShardId(3), ChangedHost::Part(host.by_ref()));
                }
                _ => pack.add(write),
            }
        }
        let said = rows.iter().flat_map(|row| {
            let part = if let HotRow::Host(host) = row { Some(host.by_ref().to_part()) } else { None };
            std::iter::once(log::Change::Row(row.clone())).chain(part.map(log::Change::Part))
        });
        prop_assert_eq!(log::decode(&pack.into_value()), Ok(said.collect()));
        let read: Result<Vec<HotRow>, _> = writes.iter().map(|w| hot::decode(&w.key, w.value.as_deref())).collect();
        prop_assert_eq!(read, Ok(rows));
    }

    #[test]
    fn the_row_that_says_where_the_log_begins_reads_back_and_changes_nothing(seq: u64) {
        let Write { key, value } = log::begin(ShardId(3), seq);
        let value = value.unwrap();
        prop_assert_eq!(log::parse_key(&key), Ok(0));
        prop_assert_eq!(log::decode_begin(&value), Ok(seq));
        prop_assert_eq!(log::decode(&value), Ok(Vec::new()));
    }

    #[test]
    fn damaged_rows_are_refused_without_a_panic(bytes: Vec<u8>) {
        let _ = log::decode_begin(&bytes);
        let _ = url::decode(&bytes);
        let _ = due::decode(&bytes);
        let _ = lease::decode(&bytes);
        let _ = host::decode(HostId(1), &bytes);
        let _ = log::decode(&bytes);
        let _ = hot::decode(&bytes, Some(&bytes));
        let _ = hold::parse_key(&bytes);
        let _ = chunk::decode(&bytes);
        let _ = chunk::decode_pipeline(&bytes);
    }
}

proptest! {
    #[test]
    fn rows_of_nodes_and_seats_read_back(
        id in any::<u64>(), words in prop::array::uniform3("[a-z:/.]{0,20}"), times in prop::array::uniform3(time()),
        protocol in any::<u32>(), leaving in any::<bool>(), seat in prop::option::of(any::<u64>()), secret in any::<u128>(),
    ) {
        use wayleave_core::cluster::NodeRow;
        use wayleave_core::ids::NodeId;
        let [address, name, version] = words.map(Box::from);
        let [started_at, alive_since, expires_at] = times;
        let id = NodeId(id);
        let row = NodeRow { id, address, name, version, protocol, started_at, alive_since, expires_at, leaving };
        prop_assert_eq!(node::decode(&node::encode(&row)), Ok(row));
        let seat = seat.map(NodeId);
        prop_assert_eq!(seat::decode(&seat::encode(seat)), Ok(seat));
        prop_assert_eq!(seat::parse_key(&seat::key(ShardId(id.0 as u16))), Ok(ShardId(id.0 as u16)));
        prop_assert_eq!(cluster::decode(&cluster::encode(secret)), Ok(secret));
        prop_assert_eq!(join::decode(&join::encode(id.0)), Ok(id.0));
    }
}
