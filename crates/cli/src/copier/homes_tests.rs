use wayleave_core::frontier::row::{AliasRow, Details, HostRow, HotRow, Pace, QueuePosition, UrlRow, UrlStatus};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{GroupId, QueueId, Token};
use wayleave_core::settings::PaceSettings;
use wayleave_core::time::Time;
use wayleave_engine::rows::{Kind, key as keys, log, url};
use wayleave_engine::{Key, Row};

use super::*;
use crate::copier::blocks::Blocks;
use crate::copier::hot::{damaged_shards, rebuild};
use crate::copier::losses;

const FIRST: ShardId = ShardId(0);
const SECOND: ShardId = ShardId(1);
const GROUP: GroupId = GroupId(1 << 48 | 4);

/// A name that hashes to a shard.
fn name_in(shard: ShardId, prefix: &str) -> String {
    let mut names = (0..).map(|n| format!("{prefix}{n}.example"));
    names.find(|name| home(name, 2) == shard).unwrap()
}

fn host(id: HostId, group: Option<GroupId>) -> HostRow {
    HostRow { group, ..HostRow::new(id, name_in(FIRST, "h").as_str().into()) }
}

/// A host that has moved from the first shard to the second, whose removal from the first is lost. The second is damaged too
/// if `both`, and the first knows the alias if `member`. In the second it has this id.
fn moved(second: HostId, both: bool, member: bool) -> Blocks {
    let alias: Alias = name_in(SECOND, "alias").as_str().into();
    let row = AliasRow { id: GROUP, name: alias.clone(), settings: PaceSettings::default(), pace: Pace::default() };
    let old = host(HostId::new(FIRST, 3), None);
    let mut writes = vec![
        hot::encode(FIRST, &HotRow::Host(old.clone())),
        hot::encode(SECOND, &HotRow::Alias(row)),
        hot::encode(SECOND, &HotRow::Host(host(second, Some(GROUP)))),
    ];
    if member {
        writes.push(hot::encode(FIRST, &HotRow::HostAlias { host: old.name, alias: Some(alias) }));
    }
    let mut rows: BTreeMap<Key, Vec<u8>> = writes.into_iter().map(|row| (row.key, row.value.unwrap())).collect();
    let logs: Vec<Key> = [Some(FIRST), both.then_some(SECOND)].into_iter().flatten().map(|s| log::key(s, 5)).collect();
    rows.extend(logs.iter().map(|log| (log.clone(), vec![1])));
    Blocks::new(rows, logs.into_iter().map(|log| (log.clone(), log)).collect())
}

/// The shards that have the host after salvage, whether its home knows that it has moved, and what was left out.
fn salvaged(mut source: Blocks) -> (Vec<ShardId>, bool, Vec<LeftOut>) {
    let damaged = damaged_shards(&mut source).unwrap();
    let homes = Homes::find(&mut source, &damaged).unwrap();
    let (mut lives, mut moved, mut left_out) = (Vec::new(), false, losses::Losses::default());
    for shard in [FIRST, SECOND] {
        let rows: Vec<Row> = if damaged.contains(&shard) {
            rebuild(&mut source, shard, &homes, &mut left_out).unwrap()
        } else {
            let rows = source.rows.iter().filter(|(key, _)| key.starts_with(&shard.0.to_be_bytes()));
            rows.map(|(key, value)| Row { key: key.clone(), value: value.clone() }).collect()
        };
        for row in rows {
            match hot::decode(&row.key, Some(&row.value)).unwrap() {
                HotRow::Host(_) => lives.push(shard),
                HotRow::HostAlias { alias, .. } => moved |= alias.is_some(),
                _ => {}
            }
        }
    }
    (lives, moved, left_out.left_out)
}

#[test]
fn a_moved_host_whose_removal_is_lost_stays_where_it_went() {
    let same = HostId::new(FIRST, 3);
    for (id, member) in [(same, true), (same, false), (HostId::new(SECOND, 8), true)] {
        let (lives, moved, left_out) = salvaged(moved(id, false, member));
        assert_eq!(lives, [SECOND], "two would visit it at once");
        assert!(moved, "its home would make it a second time");
        let [old] = &left_out[..] else { panic!("{left_out:?}") };
        assert_eq!(old.key, hot::host_key(FIRST, same));
    }
}

#[test]
fn a_host_in_two_damaged_shards_stays_with_its_alias_or_at_home() {
    let id = HostId::new(FIRST, 3);
    let (lives, moved_away, left_out) = salvaged(moved(id, true, true));
    assert_eq!((lives, moved_away, left_out.len()), (vec![SECOND], true, 1));
    let (lives, moved_away, left_out) = salvaged(moved(id, true, false));
    assert_eq!((lives, moved_away, left_out.len()), (vec![FIRST], false, 1));
}

#[test]
fn a_host_whose_new_shard_has_lost_it_is_at_home_again() {
    let mut source = moved(HostId::new(FIRST, 3), true, true);
    source.rows.remove(&hot::host_key(SECOND, HostId::new(FIRST, 3)));
    let (lives, moved_away, _) = salvaged(source);
    assert_eq!((lives, moved_away), (vec![FIRST], false), "its home would look for it elsewhere");
}

/// A regression: its reservation was rebuilt in the shard that it has left, and the host could be visited twice at once.
#[test]
fn a_lost_reservation_of_a_moved_host_is_rebuilt_where_the_host_lives() {
    let id = HostId::new(FIRST, 3);
    let mut source = moved(id, false, true);
    let (queue, position) = (QueueId { host: id, no: 0 }, QueuePosition { lane: 4, due: Time(5) });
    let status = UrlStatus::Reserved { token: Token::new(SECOND, 7), position, details: Details::default() };
    let row = UrlRow { created: Time(1), whole: None, status };
    source.rows.insert(url::key(queue, &UrlKey::new("h", "a").0), url::encode(&row));
    let damaged = damaged_shards(&mut source).unwrap();
    let homes = Homes::find(&mut source, &damaged).unwrap();
    let mut rebuilt = |homes: &Homes, shard| {
        let (from, to) = keys::range(shard, Kind::Lease, Kind::Lease);
        losses::rebuild(&mut source, homes, &from, &to).unwrap().len()
    };
    assert_eq!([rebuilt(&homes, FIRST), rebuilt(&homes, SECOND)], [0, 1]);
    assert_eq!(rebuilt(&Homes::default(), FIRST), 1, "its older row is there");
}
