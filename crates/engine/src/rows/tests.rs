//! Every row reads back, and key order is the order of what the keys name.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use wayleave_core::codec::Reader;
use wayleave_core::fleet::{Kind as MachineKind, Write as FleetWrite};
use wayleave_core::frontier::changes::ChangedHost;
use wayleave_core::frontier::row::{HotRow, QueuePosition, UrlStatus};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{ChunkId, HostId, NodeId, QueueId};
use wayleave_core::limits::SITES_MAX;
use wayleave_core::matches::{MatchState, PoolRow, WorkerNo, Write as PoolWrite};
use wayleave_core::names::{ClientName, MachineId, PoolName};
use wayleave_core::placement::{BuiltRow, LedgerRow, PlacementRow, ReturnRow, ServerRow, Write as PlacementWrite};
use wayleave_core::time::Time;

use super::field::Field;
use super::sample::{Sample, Source, sampled};
use super::*;

const SHARD: ShardId = ShardId(3);

/// A time as keys have it.
fn time() -> impl Strategy<Value = Time> {
    (0..1u64 << 48).prop_map(Time)
}

fn position() -> impl Strategy<Value = QueuePosition> {
    (0u8..10, time()).prop_map(|(lane, due)| QueuePosition { lane, due })
}

fn queue_id() -> impl Strategy<Value = QueueId> {
    (any::<u16>(), 0..1u64 << 48, 0..1u32 << 24)
        .prop_map(|(shard, host, no)| QueueId { host: HostId::new(ShardId(shard), host), no })
}

/// A row that these bytes draw is read as it was written, and refused if it is cut off or of an unknown version.
fn reads_back<T: Sample + PartialEq + Debug>(
    drawn: &[u8],
    encode: impl FnOnce(&T) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<T, Damaged>,
) -> TestCaseResult {
    same(T::sample(&mut Source::new(drawn, None)), encode, decode)
}

fn same<T: PartialEq + Debug>(
    row: T,
    encode: impl FnOnce(&T) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<T, Damaged>,
) -> TestCaseResult {
    let bytes = encode(&row);
    prop_assert_eq!(decode(&bytes), Ok(row));
    for cut in 0..bytes.len() {
        prop_assert!(decode(&bytes[..cut]).is_err(), "{} bytes", cut);
    }
    prop_assert!(decode(&[&[u8::MAX], &bytes[1..]].concat()).is_err(), "an unknown version");
    Ok(())
}

/// The same of a row whose key says a part of it.
fn placed<T: PartialEq + Debug>(
    row: T,
    write: &PlacementWrite,
    read: impl Fn(&[u8], &[u8]) -> Result<T, Damaged>,
) -> TestCaseResult {
    let Write { key, value } = placement::encode_write(SHARD, write);
    let value = value.unwrap();
    prop_assert!(read(&[0, 0], &value).is_err() || key.len() == key::PREFIX_BYTES, "a key that is cut off");
    same(row, |_| value, |value| read(&key, value))
}

proptest! {
    #[test]
    fn rows_read_back_and_what_is_cut_off_is_refused(drawn in vec(any::<u8>(), 0..500)) {
        reads_back(&drawn, url::encode, url::decode)?;
        reads_back(&drawn, due::encode, due::decode)?;
        reads_back(&drawn, lease::encode, lease::decode)?;
        reads_back(&drawn, bulk_job::encode, bulk_job::decode)?;
        reads_back(&drawn, role::encode, role::decode)?;
        reads_back(&drawn, role::encode_origin, role::decode_origin)?;
        reads_back(&drawn, standby::encode, standby::decode)?;
        reads_back(&drawn, node::encode, node::decode)?;
        reads_back(&drawn, page_ledger::encode, page_ledger::decode)?;
        reads_back(&drawn, machine::encode, machine::decode)?;
        reads_back(&drawn, worker::encode, worker::decode)?;
        reads_back(&drawn, match_row::encode, match_row::decode)?;
        reads_back::<std::sync::Arc<str>>(&drawn, |label| pool_owner::encode(label), pool_owner::decode)?;
    }

    #[test]
    fn rows_of_nodes_read_back(seat: Option<u64>, secret: u128, joins: (u64, u32)) {
        same(seat.map(NodeId), |node| seat::encode(*node), seat::decode)?;
        same(secret, |secret| cluster::encode(*secret), cluster::decode)?;
        same(joins, |joins| join::encode(joins.0, joins.1), join::decode)?;
    }

    #[test]
    fn rows_of_which_a_part_is_in_the_key_read_back(
        id: u64, name in "[a-z0-9][a-z0-9._-]{0,9}", mut pool in sampled::<PoolRow>(),
        built in sampled::<BuiltRow>(), left in sampled::<ReturnRow>(), mut copy in sampled::<PlacementRow>(),
        server in sampled::<ServerRow>(), ledger in sampled::<LedgerRow>(),
    ) {
        pool.name = name.as_str().into();
        pool.settings.recipe.slots |= 1;
        let key = pool::key(SHARD, &pool.name);
        same(pool, pool::encode, |bytes| pool::decode(&key, bytes))?;
        let (id, name) = (ChunkId(id), MachineId::from(name));
        copy.since = Time::from_secs(copy.since.as_secs() % (1 << 32));
        placed((id, built.clone()), &PlacementWrite::Chunk(id, Some(built)), placement::decode_chunk)?;
        placed((id, left.clone()), &PlacementWrite::Return(id, Some(left)), placement::decode_return)?;
        placed((id, name.clone(), copy), &PlacementWrite::Placement(id, name.clone(), Some(copy)), placement::decode_copy)?;
        placed((name.clone(), server.clone()), &PlacementWrite::Server(name, Some(server)), placement::decode_server)?;
        placed(ledger, &PlacementWrite::Ledger(ledger), |_, value| placement::decode_ledger(value))?;
    }

    #[test]
    fn keys_read_back(
        queue in queue_id(), url: Vec<u8>, until in time(), shard: u16, no: u64,
        name in "[a-z0-9][a-z0-9._-]{0,9}", client in "[a-zø/ %:]{1,20}",
    ) {
        let shard = ShardId(shard);
        let hold = hold::key(shard, until, queue, &url);
        prop_assert!(hold >= hold::from(shard, until));
        prop_assert_eq!(hold::parse_key(&hold), Ok((until, queue, UrlKey(url.clone().into()))));
        prop_assert_eq!(url::parse_key(&url::key(queue, &url)), Ok((queue, UrlKey(url.into()))));
        prop_assert_eq!(deleted_queue::parse_key(&deleted_queue::key(shard, queue)), Ok(queue));
        prop_assert_eq!(seat::parse_key(&seat::key(shard)), Ok(shard));
        prop_assert_eq!(role::parse_key(&role::key(&name)), Ok(name.as_str().into()));
        prop_assert!(role::origin_key() < role::key(&name));
        prop_assert_eq!(page_ledger::parse_key(&page_ledger::key(&client.as_str().into())), Ok(client.as_str().into()));
        prop_assert_eq!(machine::parse_key(&machine::key(shard, &client.as_str().into())), Ok(client.as_str().into()));
        let (pool, client) = (PoolName::from(name.as_str()), ClientName::from(client.as_str()));
        prop_assert_eq!(worker::parse_key(&worker::key(shard, &pool, WorkerNo(no))), Ok((pool.clone(), WorkerNo(no))));
        prop_assert_eq!(match_row::parse_key(&match_row::key(shard, &pool, &client)), Ok((pool, client)));
    }

    #[test]
    fn due_rows_sort_by_turn(queue in queue_id(), url: Vec<u8>, a in position(), b in position()) {
        let key = due::key(queue, a, &url);
        prop_assert_eq!(due::parse_key(&key), Ok((queue, a, UrlKey(url.clone().into()))));
        prop_assert_eq!(key.cmp(&due::key(queue, b, &url)), a.cmp(&b));
        prop_assert!(key < due::lane_end(queue, a.lane));
    }

    #[test]
    fn standbys_lie_with_their_role_alone(uuid in "[!-~]{1,12}", name in "[a-z.]{1,4}", other in "[a-z.]{1,4}") {
        let key = standby::key(&name, &uuid);
        prop_assert_eq!(standby::parse_key(&key), Ok((name.clone().into(), uuid.into())));
        let scan = standby::scan(&other, 1);
        prop_assert_eq!(key >= scan.from && key < scan.to, name == other);
    }

    #[test]
    fn hot_rows_read_back_alone_and_packed(rows in vec(sampled::<HotRow>(), 1..4)) {
        let writes: Vec<Write> = rows.iter().map(|row| hot::encode(SHARD, row)).collect();
        let mut pack = log::Pack::default();
        for (row, write) in rows.iter().zip(&writes) {
            match row {
                HotRow::Host(host) => {
                    pack.add_host(SHARD, ChangedHost::Whole(host.by_ref()));
                    pack.add_host(SHARD, ChangedHost::Part(host.by_ref()));
                }
                _ => pack.add(write),
            }
        }
        let written = rows.iter().flat_map(|row| {
            let part = if let HotRow::Host(host) = row { Some(host.by_ref().to_part()) } else { None };
            std::iter::once(log::Change::Row(row.clone())).chain(part.map(log::Change::Part))
        });
        prop_assert_eq!(log::decode(&pack.into_value()), Ok(written.collect()));
        let read: Result<Vec<HotRow>, _> = writes.iter().map(|w| hot::decode(&w.key, w.value.as_deref())).collect();
        prop_assert_eq!(read, Ok(rows));
    }

    #[test]
    fn the_row_that_says_where_the_log_begins_reads_back_and_changes_nothing(seq: u64) {
        let Write { key, value } = log::begin(SHARD, seq);
        let value = value.unwrap();
        prop_assert_eq!(log::parse_key(&key), Ok(0));
        prop_assert_eq!(log::decode_begin(&value), Ok(seq));
        prop_assert_eq!(log::decode(&value), Ok(Vec::new()));
    }

    #[test]
    fn damaged_rows_are_refused_or_read_but_never_panic(key: Vec<u8>, value: Vec<u8>) {
        _ = (log::decode_begin(&value), url::parse_place(&key), due::parse_place(&key));
        for kind in Kind::ALL {
            for version in [&[][..], &[1]] {
                for key in [key::of(SHARD, kind, &[&key]), key::of(SHARD, kind, &[b"p\0", &key])] {
                    _ = decode(&Row { key, value: [version, &value].concat() });
                }
            }
        }
    }
}

/// A scan that continues behind damage may begin at any key.
#[test]
fn a_position_without_a_row_sorts_before_all_later_rows() {
    let queue = QueueId { host: HostId::new(SHARD, 0x0102_0304), no: 5 };
    let position = QueuePosition { lane: 4, due: Time(0x0102_0304_0506) };
    let (key, row) = (url::key(queue, b"/path"), (queue, UrlKey((*b"/path").into())));
    for len in key::PREFIX_BYTES..=key.len() {
        let place = url::parse_place(&key[..len]).expect("a place");
        assert!(place <= row && url::key(place.0, &place.1.0).as_slice() >= &key[..len], "{place:?}");
    }
    let (key, row) = (due::key(queue, position, b"/path"), (queue, position, UrlKey((*b"/path").into())));
    for len in key::PREFIX_BYTES..=key.len() {
        let place = due::parse_place(&key[..len]).expect("a place");
        assert!(place <= row && due::key(place.0, place.1, &place.2.0).as_slice() >= &key[..len], "{place:?}");
    }
}

#[test]
fn keys_without_a_name_and_names_that_are_none_are_damage() {
    for name in [&b""[..], b"a/b", b"\xff", b"-a"] {
        assert!(pool::parse_key(&key::of(SHARD, Kind::Pool, &[name])).is_err(), "{name:?}");
    }
    for name in [&b""[..], b"\xff"] {
        assert!(machine::parse_key(&key::of(SHARD, Kind::Machine, &[name])).is_err(), "{name:?}");
        let copy = key::of(SHARD, Kind::Copy, &[&[0; 8], name]);
        assert!(placement::decode_copy(&copy, &[1, 0, 0, 0, 0]).is_err(), "a copy on no server");
        assert!(match_row::parse_key(&key::of(SHARD, Kind::Match, &[b"p\0", name])).is_err(), "{name:?}");
    }
    let worker = worker::key(SHARD, &"p".into(), WorkerNo(1));
    assert!(worker::parse_key(&worker[..worker.len() - 1]).is_err(), "a number that is cut off");
}

#[test]
fn rows_of_pools_and_chunks_lie_together() {
    let workers = [("a", 1), ("a", 256), ("a-b", 0), ("ab", 0)];
    assert!(workers.map(|(pool, no)| worker::key(SHARD, &pool.into(), WorkerNo(no))).is_sorted());
    let copies = [(1, "a"), (1, "b"), (2, "a"), (255, "z"), (256, "a")];
    let copy = |(chunk, server): (u64, &str)| PlacementWrite::Placement(ChunkId(chunk), server.into(), None);
    assert!(copies.map(|of| placement::encode_write(SHARD, &copy(of)).key).is_sorted());
}

#[test]
fn what_is_gone_has_no_row() {
    let machine = machine::encode_write(SHARD, &FleetWrite::Machine("m".into(), None));
    assert_eq!(machine, Write { key: machine::key(SHARD, &"m".into()), value: None });
    let (pool, id) = (PoolName::from("p"), ChunkId(1));
    let of_pool = [PoolWrite::Pool(None), PoolWrite::Worker(WorkerNo(1), None), PoolWrite::Match("c".into(), None)];
    let placed = [
        PlacementWrite::Chunk(id, None),
        PlacementWrite::Return(id, None),
        PlacementWrite::Placement(id, "s".into(), None),
        PlacementWrite::Server("s".into(), None),
    ];
    let of_pool = of_pool.iter().map(|gone| pool::encode_write(SHARD, &pool, gone));
    let writes: Vec<Write> = of_pool.chain(placed.iter().map(|gone| placement::encode_write(SHARD, gone))).collect();
    assert!(writes.iter().all(|write| write.value.is_none()), "{writes:?}");
}

#[test]
fn values_without_a_meaning_are_damage() {
    fn read<T: Field>(bytes: &[u8]) -> Result<T, Damaged> {
        T::read(&mut Reader::new(bytes))
    }
    assert!(read::<MatchState>(&[6, 0, 0]).is_err());
    assert!(read::<MachineKind>(&[3]).is_err());
    assert!(read::<UrlStatus>(&[6, 0, 0]).is_err());
    assert!(read::<std::net::IpAddr>(&[3, 1, 2, 3]).is_err(), "an address of three bytes");
}

/// A regression: its shard could not be opened.
#[test]
fn a_pool_that_has_noted_very_many_sites_is_read_as_it_was_written() {
    let mut row = PoolRow::sample(&mut Source::new(&[7; 99], Some(1)));
    let trouble = row.trouble.clone().unwrap();
    let sites = || (0..2 * SITES_MAX).map(|n| format!("site-{n}").as_str().into());
    row.site_trouble = sites().map(|site| (site, trouble.clone())).collect();
    row.owed = sites().map(|site| (site, Time(1))).collect();
    (row.name, row.settings.recipe.slots) = ("p".into(), 1);
    assert!(pool::decode(&pool::key(SHARD, &row.name), &pool::encode(&row)) == Ok(row));
}
