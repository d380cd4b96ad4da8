//! Queues of orders per site.

use std::sync::Arc;

use wayleave_core::time::Millis;

use super::*;

const NOW: Time = Time(1_000_000);

fn list(site: &str, since: u64) -> Effect {
    Effect::List { site: site.into(), owner: "o".into(), since: Time(since) }
}

fn ask(client: &str, token: u8, until: Time) -> Effect {
    Effect::Reserve(wayleave_core::matches::WorkerAsk {
        client: client.into(),
        caller: None,
        worker: WorkerNo(1),
        name: "p-1".into(),
        site: "s".into(),
        address: Arc::from("127.0.0.1:1"),
        reported_from: None,
        token: Token([token; 16]),
        reservation: Millis(1),
        sent_at: NOW,
        until,
    })
}

fn sites() -> Sites {
    let mut sites = Sites::default();
    assert!(sites.heard(&"s".into(), RuntimeKind::Process, None, NOW), "the first time");
    sites
}

fn out(sites: &mut Sites, now: Time) -> Orders {
    sites.take(&"s".into(), now)
}

#[test]
fn a_repeated_order_replaces_its_earlier_copy_in_its_place() {
    let mut sites = sites();
    sites.order(&"p".into(), list("s", 1), NOW);
    sites.order(&"p".into(), ask("c", 1, Time::NEVER), NOW);
    sites.order(&"p".into(), list("s", 2), NOW);
    sites.order(&"q".into(), list("s", 3), NOW);
    let want = vec![("p".into(), list("s", 2)), ("p".into(), ask("c", 1, Time::NEVER)), ("q".into(), list("s", 3))];
    assert_eq!(out(&mut sites, NOW), want);
    sites.order(&"p".into(), list("s", 4), NOW);
    assert_eq!(out(&mut sites, NOW), [("p".into(), list("s", 4))], "what was handed out is ordered again");
}

#[test]
fn what_is_over_is_not_handed_out() {
    let mut sites = sites();
    sites.order(&"p".into(), ask("c", 1, NOW), NOW);
    assert!(out(&mut sites, NOW).is_empty());
    sites.order(&"p".into(), ask("c", 1, NOW.after(Millis(1))), NOW);
    assert_eq!(out(&mut sites, NOW).len(), 1);
}

#[test]
fn each_answer_has_a_bounded_part_and_what_is_left_stays_published() {
    let mut sites = sites();
    assert_eq!(sites.take_changed(), None);
    for n in 0..ORDERS_AT_ONCE_MAX + 1 {
        sites.order(&"p".into(), ask(&n.to_string(), 1, Time::NEVER), NOW);
    }
    assert_eq!(sites.take_changed(), Some(vec![digest("s")]));
    assert_eq!((out(&mut sites, NOW).len(), sites.take_changed()), (ORDERS_AT_ONCE_MAX, Some(vec![digest("s")])));
    sites.order(&"p".into(), list("other", 1), NOW);
    assert_eq!((out(&mut sites, NOW).len(), sites.take_changed()), (1, Some(vec![digest("other")])));
    assert_eq!((out(&mut sites, NOW).len(), sites.take_changed()), (0, None), "nothing was taken");
    sites.order(&"p".into(), list("other", 2), NOW);
    assert_eq!(sites.take_changed(), Some(vec![digest("other")]), "one more, or another, is told again");
}

#[test]
fn everything_is_bounded() {
    let mut sites = sites();
    for n in 0..ORDERS_WAITING_MAX + 5 {
        sites.order(&"p".into(), ask(&n.to_string(), 1, Time::NEVER), NOW);
    }
    assert_eq!(sites.sites.get(&SiteName::from("s")).map(|site| site.queue.waiting.len()), Some(ORDERS_WAITING_MAX));
    for n in 0..SITES_MAX + 5 {
        sites.order(&"p".into(), list(&format!("other{n}"), 1), NOW);
    }
    assert_eq!(sites.sites.len(), SITES_MAX);
    let later = NOW.after(SITE_LOST_AFTER);
    assert!(sites.heard(&"new".into(), RuntimeKind::Docker, None, later), "sites that are lost make room");
    assert_eq!(sites.sites.len(), 1);
}

#[test]
fn pools_are_told_of_a_site_now_and_then_and_at_once_when_it_changes() {
    let mut sites = sites();
    let site = SiteName::from("s");
    assert!(!sites.heard(&site, RuntimeKind::Process, None, NOW.after(Millis(1_999))));
    assert!(sites.heard(&site, RuntimeKind::Process, None, NOW.after(Millis(2_000))));
    assert!(sites.heard(&site, RuntimeKind::Docker, None, NOW.after(Millis(2_001))));
    let alive = |sites: &Sites, ms| sites.alive(NOW.after(Millis(ms)));
    assert_eq!(alive(&sites, 2_002), [(site.clone(), RuntimeKind::Docker, None)]);
    assert!(alive(&sites, 2_001 + SITE_SILENT_AFTER.0).is_empty());
    sites.order(&"p".into(), list("unheard", 1), NOW);
    assert_eq!(alive(&sites, 2_002).len(), 1, "an order alone is no sign of life");
}

#[test]
fn nodes_that_share_a_site_are_one_site_if_their_runtime_is_the_same() {
    let mut sites = sites();
    let (site, lack) = (SiteName::from("s"), Lack { runtime: RuntimeKind::Docker, why: "no engine".into() });
    // Both poll in turn, and only one of them lacks something.
    for turn in 0..10 {
        let lack = Some(&lack).filter(|_| turn % 2 == 0);
        assert!(!sites.heard(&site, RuntimeKind::Process, lack, NOW.after(Millis(turn))), "no news: {turn}");
    }
    assert!(!sites.is_other(&site, RuntimeKind::Process, NOW));
    assert!(sites.is_other(&site, RuntimeKind::Docker, NOW));
    assert!(!sites.is_other(&site, RuntimeKind::Docker, NOW.after(Millis(9 + SITE_SILENT_AFTER.0))), "it has gone");
    assert!(!sites.is_other(&"new".into(), RuntimeKind::Docker, NOW));
}
