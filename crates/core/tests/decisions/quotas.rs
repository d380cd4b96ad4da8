//! Crawls and aliases per shard are limited: beyond the limit new ones are refused with the reason, existing ones
//! continue to work.

use crate::support::Shard;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Put, PutKind, PutOutcome};
use wayleave_core::limits;
use wayleave_core::metadata::Metadata;
use wayleave_core::settings::{Change, CrawlChanges, PaceChanges};
use wayleave_core::time::{Millis, Time};

const START: Time = Time(1_000_000);

fn put(crawl: &str, page: &str) -> Put {
    Put {
        url: format!("http://a.example/{page}").into(),
        host: "a.example".into(),
        crawl: crawl.into(),
        kind: PutKind::Discovered { at: None, priority: 5, depth: 0 },
        metadata: Metadata::default(),
    }
}

#[test]
fn a_new_crawl_is_refused_past_the_limit_and_one_that_exists_is_not() {
    let mut shard = Shard::new(START.0);
    let set = |shard: &mut Shard, crawl: &str| {
        let changes = CrawlChanges { weight: Change::Set(2), ..CrawlChanges::default() };
        if let Some(why) = shard.state.crawls_full(&crawl.into()) {
            return Err(why);
        }
        shard.state.set_crawl(&crawl.into(), &changes, false, START);
        Ok(())
    };
    assert_eq!(shard.put_all(vec![put("first", "1")]), [PutOutcome::Added]);
    for crawl in 1..limits::CRAWLS_MAX {
        set(&mut shard, &format!("c{crawl}")).unwrap();
    }

    let refused = set(&mut shard, "late");
    assert!(matches!(&refused, Err(why) if why.contains("'late'") && why.contains("delete crawls")), "{refused:?}");
    let outcomes = shard.put_all(vec![put("late", "1"), put("c1", "1"), put("first", "2"), put("first", "1")]);
    assert!(matches!(&outcomes[0], PutOutcome::Rejected(why) if why.contains("'late'")), "{outcomes:?}");
    assert_eq!(outcomes[1..], [PutOutcome::Added, PutOutcome::Added, PutOutcome::Known]);
    set(&mut shard, "c1").unwrap();

    let mut writes = Vec::new();
    shard.state.delete_crawl(&"c2".into(), START, START, &mut writes);
    set(&mut shard, "late").unwrap();
    assert!(set(&mut shard, "later").is_err());
}

#[test]
fn a_new_alias_is_refused_past_the_limit_and_one_that_exists_is_not() {
    let mut shard = Shard::new(START.0);
    let set = |shard: &mut Shard, alias: &str| {
        let changes = PaceChanges { delay: Change::Set(Millis(5)), ..PaceChanges::default() };
        shard.state.set_group(&alias.into(), &changes, false, START)
    };
    for alias in 0..limits::ALIASES_MAX {
        set(&mut shard, &format!("a{alias}")).unwrap();
    }
    let refused = set(&mut shard, "late");
    assert!(
        matches!(&refused, Err(Refusal::OverLimit(why)) if why.contains("'late'") && why.contains("delete")),
        "{refused:?}"
    );
    set(&mut shard, "a7").unwrap();
    shard.state.delete_group(&"a8".into()).unwrap();
    set(&mut shard, "late").unwrap();
}
