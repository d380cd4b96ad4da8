use wayleave_core::frontier::row::{AliasRow, CrawlRow, Pace, QueuePosition};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{CrawlNo, GroupId, QueueId};
use wayleave_core::settings::{CrawlSettings, PaceSettings};
use wayleave_core::time::Time;

use super::*;
use crate::copier::blocks::Blocks;
use crate::copier::source::END;

/// A regression: of lost commits that had changed nothing else, nothing was listed.
#[test]
fn crawls_and_aliases_that_lost_commits_have_changed_are_named() {
    let crawl = |name: &str| CrawlRow {
        no: CrawlNo(3),
        name: name.into(),
        settings: CrawlSettings::default(),
        kept: true,
        version: 1,
    };
    let alias =
        AliasRow { id: GroupId(4), name: "shops".into(), settings: PaceSettings::default(), pace: Pace::default() };
    let mut pack = log::Pack::default();
    let member = HotRow::HostAlias { host: "a.example".into(), alias: None };
    for row in [HotRow::Crawl(crawl("news")), HotRow::Alias(alias), HotRow::CrawlGone(CrawlNo(5)), member] {
        pack.add(&hot::encode(ShardId(1), &row));
    }
    let mut losses = Losses::default();
    losses.note_lost_writes(&[Write { key: log::key(ShardId(1), 7), value: Some(pack.into_value()) }]);
    let loss = losses.older.loss(&BTreeMap::new()).unwrap();
    assert_eq!(loss.hosts, ["a.example"]);
    assert!(loss.what.contains("and of a deleted crawl, alias 'shops', crawl 'news':"), "{}", loss.what);
}

/// A regression: a salvage read on in every shard that there can be, behind the last one that there was.
#[test]
fn a_gap_of_unknown_end_is_rebuilt_from_the_shards_that_there_are() {
    let queue = QueueId { host: HostId::new(ShardId(1), 7), no: 0 };
    let position = QueuePosition { lane: 4, due: Time(5) };
    let entry = |name: &str| {
        let row = DueRow { created: Time(1), whole: None, details: Details::default() };
        (due::key(queue, position, &UrlKey::new("h", name).0), due::encode(&row))
    };
    let rows: BTreeMap<Key, Vec<u8>> = [entry("a"), entry("b")].into();
    let from = url::key(queue, &UrlKey::new("h", "a").0);
    let mut source = Blocks::new(rows, vec![(from.clone(), END.into())]);
    rebuild(&mut source, &Homes::default(), &from, &END).unwrap();
    assert!(source.reads < 1_000, "{} reads", source.reads);
    let gap = Gap { from, to: END.into(), why: "cut off".into(), rebuilt: 0 };
    let hosts: Vec<_> = gap.hosts(2).collect();
    assert_eq!(hosts, [(ShardId(1), 7, (1 << 48) - 2), (ShardId(1), 0, (1 << 48) - 2)]);
}
