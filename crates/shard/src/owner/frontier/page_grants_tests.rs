//! What a shard has registered of the pages that it uses.

use super::*;

const CRAWL: CrawlNo = CrawlNo(7);
const NOW: Time = Time(5_000);

fn limit(used: u64) -> PageLimit {
    PageLimit { crawl: CRAWL, name: "c".into(), limit: 100, used, queued: 0 }
}

/// When the ledger is asked, given the number of pages used.
fn due(grants: &mut PageGrants, used: u64) -> Option<Time> {
    grants.plan(&limit(used), false, NOW);
    grants.due_at.get(&CRAWL).copied()
}

const fn share(granted: u64) -> PageShare {
    PageShare { granted, others: 10, open: true }
}

#[test]
fn what_the_home_was_told_needs_no_registration_and_what_comes_later_does() {
    let mut grants = PageGrants::default();
    grants.answered(CRAWL, 3, true, 1);
    assert_eq!((due(&mut grants, 3), due(&mut grants, 4)), (None, Some(Time::ZERO)));
}

#[test]
fn pages_that_come_while_the_ledger_is_made_are_registered_when_it_is_open() {
    let mut grants = PageGrants::default();
    grants.answered(CRAWL, 0, true, 1);
    assert_eq!(due(&mut grants, 5), Some(Time::ZERO));
    for second in 1..4 {
        let now = Time(NOW.0 + 1_000 * second);
        grants.settled(&limit(5), None, now);
        assert_eq!(due(&mut grants, 5), Some(now.after(LOOK_AGAIN)), "it asks again");
    }
    grants.settled(&limit(5), Some(share(5)), NOW);
    assert_eq!(due(&mut grants, 5), None);
}

/// The ledger stays as it is when the limit is changed.
#[test]
fn pages_that_come_just_before_the_limit_is_changed_are_registered() {
    let mut grants = PageGrants::default();
    grants.answered(CRAWL, 0, true, 1);
    grants.settled(&limit(2), Some(share(4)), NOW);
    grants.answered(CRAWL, 9, false, 1);
    assert_eq!(due(&mut grants, 9), Some(Time::ZERO));
    grants.settled(&limit(9), Some(share(9)), NOW);
    grants.answered(CRAWL, 6, false, 1);
    assert_eq!(
        (due(&mut grants, 6), due(&mut grants, 7)),
        (None, Some(Time::ZERO)),
        "the ledger may have been made anew"
    );
}

#[test]
fn an_owner_that_knows_nothing_looks_at_what_the_ledger_has() {
    let mut grants = PageGrants::default();
    for told in [false, true] {
        grants.forget(CRAWL);
        if told {
            grants.answered(CRAWL, 5, false, 1);
        }
        assert_eq!((due(&mut grants, 0), due(&mut grants, 5)), (None, Some(Time::ZERO)));
        assert!(grants.must_look(&limit(5)));
        grants.looked(&limit(5), Some(5), NOW);
        assert_eq!((grants.must_look(&limit(5)), due(&mut grants, 5)), (false, None));
        assert_eq!(due(&mut grants, 6), Some(Time::ZERO));
        grants.forget(CRAWL);
        grants.looked(&limit(5), None, NOW);
        assert_eq!(due(&mut grants, 5), Some(NOW.after(LOOK_AGAIN)), "until it is open");
    }
}

/// What went wrong once: a shard without URLs had asked just before the ledger was open, or while others changed it. It asked no
/// more, and pages that came back to it later were returned to nobody.
#[test]
fn a_shard_that_had_no_answer_asks_again_while_others_lack_pages() {
    let mut grants = PageGrants::default();
    let lacking = |grants: &mut PageGrants, used| {
        grants.plan(&limit(used), true, NOW);
        grants.due_at.get(&CRAWL).copied()
    };
    grants.answered(CRAWL, 5, true, 1);
    assert_eq!(lacking(&mut grants, 5), Some(Time::ZERO));
    grants.settled(&limit(5), None, NOW);
    assert_eq!(lacking(&mut grants, 5), Some(NOW.after(LOOK_AGAIN)));
    assert_eq!(due(&mut grants, 5), None, "nobody lacks any");
    grants.settled(&limit(2), Some(share(5)), NOW);
    assert_eq!(lacking(&mut grants, 2), Some(Time::ZERO), "three are to be returned");
}

#[test]
fn a_shard_takes_what_it_is_told_only_while_nothing_has_happened_to_its_grant() {
    let meanwhile: [fn(&mut PageGrants); 4] = [
        |grants| grants.settled(&limit(0), Some(share(2)), NOW),
        |grants| grants.forget(CRAWL),
        |grants| grants.answered(CRAWL, 0, false, 2),
        |grants| *grants = PageGrants::default(),
    ];
    for (happens, what) in meanwhile.into_iter().map(Some).chain([None]).zip(0..) {
        let mut grants = PageGrants::default();
        grants.answered(CRAWL, 0, true, 1);
        happens.into_iter().for_each(|happens| happens(&mut grants));
        grants.told(&limit(0), 1, share(9), NOW);
        let known = grants.crawls.get(&CRAWL).map(|known| known.share.granted);
        assert_eq!(known, [Some(2), None, None, None, Some(9)][what]);
    }
}
