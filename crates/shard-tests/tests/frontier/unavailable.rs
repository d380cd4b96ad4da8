//! "Unavailable" means that nothing was changed, whatever failed and wherever; and a store that refuses changes can
//! still be read.

use crate::faulty::{FULL, Fate, Faulty};
use crate::prelude::*;
use crate::support::*;

async fn add(frontier: &Frontier, urls: &[String]) {
    let outcomes = frontier.put(urls.iter().map(|url| disc(url)).collect()).await;
    assert_eq!(outcomes, vec![PutOutcome::Added; urls.len()]);
}

async fn state_of(frontier: &Frontier, url: &str) -> Option<UrlState> {
    let view = frontier.lookup("DEFAULT".into(), host_of(url), url).await.unwrap();
    view.map(|view| view.state)
}

/// Shard 0 grants and its answer is lost; shard 1 is refused. The caller must learn that the outcome is unknown.
#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_in_one_shard_is_not_hidden_by_anothers_refusal() {
    for fates in [[Fate::Lost, Fate::Refused], [Fate::Refused, Fate::Lost]] {
        let (engine, frontier) = Faulty::opened(2).await;
        let urls = [0, 1].map(|shard| format!("http://{}/", host_in(shard, 2, 0)));
        add(&frontier, &urls).await;
        pass(100).await;
        engine.set_fates(&fates);
        let refused = frontier.reserve(want(2, 1)).await;
        assert!(matches!(refused, Err(Refusal::OutcomeUnknown(_))), "{fates:?}: {refused:?}");
        pass(1_000).await;
        let mut reserved = 0;
        for url in &urls {
            reserved += usize::from(state_of(&frontier, url).await == Some(UrlState::Reserved));
        }
        assert_eq!(reserved, 1, "{fates:?}");
        engine.set_fates(&fates);
        pass(62_000).await;
        engine.set_fates(&fates);
        let refused = frontier.hand_out(paced(40, 1)).await;
        assert!(matches!(refused, Err(Refusal::OutcomeUnknown(_))), "{fates:?}: {refused:?}");
    }
}

/// One turn: a change is decided and committed, then a read of the same turn fails. The change must not be refused.
#[tokio::test(start_paused = true)]
async fn a_read_that_fails_does_not_refuse_what_the_same_turn_committed_before() {
    let (engine, frontier) = Faulty::opened(1).await;
    add(&frontier, &["http://a.example/1".to_owned()]).await;
    pass(100).await;
    engine.fail_read_after(0);
    let (set, looked) = tokio::join!(
        frontier.set_host("a.example".into(), delay(7), false, None),
        frontier.lookup("DEFAULT".into(), "a.example".into(), "http://a.example/1"),
    );
    assert!(matches!(looked, Err(Refusal::Unavailable(_))), "the read failed: {looked:?}");
    assert_eq!(set.map(|view| view.settings.delay), Ok(Some(Millis(7))));
    let view = frontier.host("a.example".into()).await.unwrap();
    assert_eq!(view.settings.delay, Some(Millis(7)), "it is there after the reload");
}

/// A hand-out in several steps, each with its own commit; a later step cannot read. What was committed is handed out.
#[tokio::test(start_paused = true)]
async fn a_hand_out_with_unreadable_later_steps_returns_what_it_committed() {
    let (engine, frontier) = Faulty::opened(1).await;
    frontier.set_host("a.example".into(), delay(0), false, None).await.unwrap();
    add(&frontier, &(0..40).map(|n| format!("http://a.example/{n:02}")).collect::<Vec<_>>()).await;
    pass(100).await;
    engine.fail_read_after(1);
    let request = HandOut { held_below: None, ..paced(40, 1) };
    let urls = frontier.hand_out(request).await.expect("what was committed is not refused");
    assert!(!urls.is_empty() && urls.len() < 40, "{}", urls.len());
    pass(1_000).await;
    let reserved = frontier.stats().await.unwrap().urls.reserved;
    assert_eq!(reserved, urls.len() as u64, "all that is on hold was handed out");
}

/// Two puts of one URL make two commits in one call; the second is refused.
#[tokio::test(start_paused = true)]
async fn each_put_hears_what_became_of_its_own_commit() {
    let (engine, frontier) = Faulty::opened(1).await;
    engine.set_fates(&[Fate::Done, Fate::Refused]);
    let url = "http://a.example/1";
    let outcomes = frontier.put(vec![disc(url), known(url, None)]).await;
    assert_eq!(outcomes[0], PutOutcome::Added);
    assert!(matches!(&outcomes[1], PutOutcome::Failed(why) if why.to_string().contains("unavailable")), "{outcomes:?}");
    assert_eq!(state_of(&frontier, url).await, Some(UrlState::Queued), "as the first one left it");
}

/// A change of all shards that some have made is not "nothing was changed".
#[tokio::test(start_paused = true)]
async fn a_setting_that_only_some_shards_took_is_not_refused_as_unavailable() {
    let (engine, frontier) = Faulty::opened(4).await;
    engine.set_fates(&[Fate::Done, Fate::Refused, Fate::Done, Fate::Done]);
    let refused = frontier.set_default_delay(Some(Millis(5))).await;
    assert!(matches!(refused, Err(Refusal::OutcomeUnknown(_))), "{refused:?}");
    engine.set_full(true);
    let refused = frontier.set_default_delay(Some(Millis(6))).await;
    assert!(matches!(refused, Err(Refusal::Unavailable(_))), "no shard has taken it: {refused:?}");
}

/// A full disk: changes are refused with the reason, reads are answered, no owner is fenced out, and the shard is not
/// read again for every refused call.
#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_changes_is_still_read() {
    let (engine, frontier) = Faulty::opened(2).await;
    let url = "http://a.example/1";
    add(&frontier, &[url.to_owned()]).await;
    pass(100).await;
    let owns = engine.owns.load(Ordering::Acquire);
    engine.set_full(true);
    let refuse = async || {
        let outcome = frontier.put(vec![disc("http://a.example/2")]).await.remove(0);
        assert!(matches!(&outcome, PutOutcome::Failed(why) if why.to_string().contains(FULL)), "{outcome:?}");
    };
    refuse().await;
    pass(1_000).await;
    let scans = engine.scans.load(Ordering::Acquire);
    for _ in 0..20 {
        refuse().await;
        let refused = frontier.reserve(want(1, 1)).await;
        assert!(matches!(&refused, Err(Refusal::Unavailable(why)) if why.contains(FULL)), "{refused:?}");
        assert_eq!(state_of(&frontier, url).await, Some(UrlState::Queued));
        assert_eq!(frontier.host("a.example".into()).await.unwrap().counts.queued, 1);
        pass(100).await;
    }
    assert!(frontier.readiness().unwrap_err().contains(FULL));
    assert_eq!(engine.scans.load(Ordering::Acquire), scans, "no call reads the shard again");
    assert_eq!(engine.owns.load(Ordering::Acquire), owns, "nor owns it again");
    engine.set_full(false);
    pass(1_000).await;
    assert_eq!(frontier.readiness(), Ok(()));
    assert_eq!(frontier.put(vec![disc("http://a.example/2")]).await, [PutOutcome::Added]);
    assert_eq!(engine.owns.load(Ordering::Acquire), owns);
    assert_eq!(frontier.reserve(want(1, 9)).await.unwrap()[0].urls.len(), 2);
}

/// Leases that expire while the store refuses changes are returned afterwards.
#[tokio::test(start_paused = true)]
async fn what_expires_while_changes_are_refused_returns_once_they_are_accepted() {
    let (engine, frontier) = Faulty::opened(1).await;
    add(&frontier, &["http://a.example/1".to_owned()]).await;
    assert_eq!(frontier.reserve(want(1, 1)).await.unwrap().len(), 1);
    engine.set_full(true);
    pass(90_000).await;
    assert_eq!(state_of(&frontier, "http://a.example/1").await, Some(UrlState::Reserved));
    engine.set_full(false);
    pass(3_000).await;
    assert_eq!(frontier.reserve(want(1, 1)).await.unwrap()[0].urls[0].attempts, 1);
}

/// Shard 1 (the taker) is delayed by a read; shard 0 (the giver) times out and owns its shard again; then the taker
/// finds the old request. It must not commit under the giver's old epoch: an engine that exposes in-flight batches
/// would show the host as gone to the giver's opening reads.
#[tokio::test(start_paused = true)]
async fn a_host_whose_giver_no_longer_waits_is_not_taken() {
    let (engine, frontier) = Faulty::opened(2).await;
    let (host, other, alias) = (host_in(1, 2, 0), host_in(1, 2, 1), alias_in(0, 2));
    let (url, busy_url) = (format!("http://{host}/1"), format!("http://{other}/1"));
    add(&frontier, &[url.clone(), busy_url.clone()]).await;
    let set = |hosts: Vec<&str>| {
        let (frontier, alias) = (frontier.clone(), alias.as_str().into());
        let hosts = Some(hosts.into_iter().map(Into::into).collect());
        async move { frontier.set_group(alias, hosts, PaceChanges::default(), false).await }
    };
    set(vec![&host]).await.unwrap();
    pass(100).await;
    engine.hold_gets(true);
    let busy = tokio::spawn({
        let frontier = frontier.clone();
        async move { frontier.lookup("DEFAULT".into(), host_of(&busy_url), &busy_url).await }
    });
    pass(10).await;
    let owns = engine.owns.load(Ordering::Acquire);
    let gave_up = set(vec![]).await;
    assert!(matches!(gave_up, Err(Refusal::OutcomeUnknown(_))), "{gave_up:?}");
    pass(100).await;
    assert_eq!(engine.owns.load(Ordering::Acquire), owns + 1, "the giver has owned its shard again");
    let before = engine.commits.lock().unwrap().len();
    engine.hold_gets(false);
    busy.await.unwrap().unwrap();
    pass(1_000).await;
    let later = engine.commits.lock().unwrap().split_off(before);
    assert!(later.iter().all(|fences| fences.len() < 2), "no commit for both shards: {later:?}");
    assert_eq!(state_of(&frontier, &url).await, Some(UrlState::Queued), "the host stays where it was");
    set(vec![]).await.unwrap();
    assert_eq!(state_of(&frontier, &url).await, Some(UrlState::Queued), "and can be moved again");
}
