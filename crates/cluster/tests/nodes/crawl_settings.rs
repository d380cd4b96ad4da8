//! Settings of a crawl that several nodes change at once.

use wayleave_core::names::CrawlName;
use wayleave_core::settings::{Change, CrawlChanges};
use wayleave_sim::Fate;

use crate::prelude::*;

fn pages(pages: u64) -> CrawlChanges {
    CrawlChanges { pages: Change::Set(pages), ..CrawlChanges::default() }
}

/// A's change is decided, and is slow to reach a third node; meanwhile B's is decided, spread and answered.
#[tokio::test(start_paused = true)]
async fn a_change_that_is_slow_to_spread_does_not_overwrite_a_later_one() {
    for replace in [false, true] {
        let (world, [a, b, c]) = World::with().await;
        let names = (0..).map(|n| CrawlName::from(format!("c{n}")));
        let crawl = names.skip(1).find(|crawl| b.frontier.owns(home(crawl, SHARDS))).unwrap();
        let (from, to) = (a.id, c.id);
        let late = move |one: NodeId, other: NodeId| {
            if (one, other) == (from, to) { Fate::Late(Duration::from_secs(2)) } else { Fate::Arrives }
        };
        world.board.set_fates(Some(Arc::new(late)));
        let (frontier, name) = (a.frontier.clone(), crawl.clone());
        let slow = tokio::spawn(async move { frontier.set_crawl(name, pages(10), replace).await });
        pass(Duration::from_millis(200)).await;
        let changes = CrawlChanges { weight: Change::Set(7), ..pages(20) };
        b.frontier.set_crawl(crawl.clone(), changes, false).await.unwrap();
        pass(Duration::from_secs(1)).await;
        assert!(!slow.is_finished(), "it is spread before the other one is answered");
        world.board.set_fates(None);
        slow.await.unwrap().unwrap();
        for node in [&a, &b, &c] {
            let settings = node.frontier.crawl(crawl.clone()).await.unwrap().settings;
            assert_eq!((settings.limits.pages, settings.weight), (Some(20), 7), "what was answered last");
        }
    }
}
