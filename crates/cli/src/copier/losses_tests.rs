use wayleave_core::frontier::row::{AliasRow, CrawlRow, Pace};
use wayleave_core::ids::{CrawlNo, GroupId};
use wayleave_core::settings::{CrawlSettings, PaceSettings};

use super::*;

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
