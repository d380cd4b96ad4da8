//! Calls of several steps: once a step is done, the answer never claims that nothing was changed; before that, it never
//! claims that something may have been.

use wayleave_core::limits::SLICE_ROWS;

use crate::faulty::{Fate, Faulty};
use crate::prelude::*;
use crate::support::*;

async fn add(frontier: &Frontier, urls: impl Iterator<Item = String>) {
    let puts: Vec<_> = urls.map(|url| disc(&url)).collect();
    let added = vec![PutOutcome::Added; puts.len()];
    assert_eq!(frontier.put(puts).await, added);
    pass(100).await;
}

async fn reservations(frontier: &Frontier) -> u64 {
    frontier.stats().await.unwrap().reservations
}

/// More than one slice of reservations; the commit of the second is refused.
#[tokio::test(start_paused = true)]
async fn a_holder_of_whom_a_slice_was_revoked_is_not_called_untouched() {
    let (engine, frontier) = Faulty::opened(1).await;
    let groups = SLICE_ROWS + 5;
    add(&frontier, (0..groups).map(|n| format!("http://h{n}.example/"))).await;
    assert_eq!(frontier.reserve(want(groups, 1)).await.unwrap().len(), groups);
    let worker = || Revoke::Holder("worker".into());
    engine.set_fates(&[Fate::Refused]);
    let refused = frontier.revoke(worker()).await;
    assert!(matches!(refused, Err(Refusal::Unavailable(_))), "nothing was revoked: {refused:?}");
    pass(2_000).await;
    assert_eq!(reservations(&frontier).await, groups as u64);
    engine.set_fates(&[Fate::Done, Fate::Refused]);
    let refused = frontier.revoke(worker()).await;
    assert!(matches!(&refused, Err(Refusal::OutcomeUnknown(why)) if why.contains("1000 reservations")), "{refused:?}");
    pass(2_000).await;
    assert_eq!(reservations(&frontier).await, 5);
    assert_eq!(frontier.revoke(worker()).await, Ok((5, 0)));
}

/// A host has a reservation and a hold; one commit ends the first, another the second.
#[tokio::test(start_paused = true)]
async fn a_host_of_which_a_reservation_was_revoked_is_not_called_untouched() {
    let (engine, frontier) = Faulty::opened(2).await;
    let host = host_in(1, 2, 0);
    frontier.set_host(host.as_str().into(), delay(0), false, None).await.unwrap();
    add(&frontier, (0..3).map(|n| format!("http://{host}/{n}"))).await;
    let only = HandOut { host: Some(host.as_str().into()), ..paced(1, 1) };
    assert_eq!(frontier.hand_out(only).await.unwrap().len(), 1);
    let revoke = async || frontier.revoke(Revoke::Host(host.as_str().into())).await;
    engine.set_fates(&[Fate::Refused]);
    let refused = revoke().await;
    assert!(matches!(refused, Err(Refusal::Unavailable(_))), "nothing was revoked: {refused:?}");
    pass(2_000).await;
    assert_eq!(frontier.reserve(want(1, 1)).await.unwrap().len(), 1);
    engine.set_fates(&[Fate::Done, Fate::Refused]);
    let refused = revoke().await;
    assert!(
        matches!(&refused, Err(Refusal::OutcomeUnknown(why)) if why.contains("1 reservations and 0 holds")),
        "{refused:?}"
    );
    pass(2_000).await;
    let stats = frontier.stats().await.unwrap();
    assert_eq!((stats.reservations, stats.holds), (0, 1));
    assert_eq!(revoke().await, Ok((0, 1)));
}

/// Each shard commits independently.
#[tokio::test(start_paused = true)]
async fn urls_of_which_some_were_deleted_are_not_called_untouched() {
    for fates in [[Fate::Done, Fate::Refused], [Fate::Refused, Fate::Done]] {
        let (engine, frontier) = Faulty::opened(2).await;
        let urls = [0, 1].map(|shard| format!("http://{}/", host_in(shard, 2, 0)));
        add(&frontier, urls.iter().cloned()).await;
        let named: Vec<_> = urls.iter().map(|url| (host_of(url), url.as_str().into())).collect();
        engine.set_fates(&[Fate::Refused, Fate::Refused]);
        let refused = frontier.rework(BulkAction::Delete, "DEFAULT".into(), named.clone()).await;
        assert!(matches!(refused, Err(Refusal::Unavailable(_))), "nothing was deleted: {refused:?}");
        pass(2_000).await;
        engine.set_fates(&fates);
        let refused = frontier.rework(BulkAction::Delete, "DEFAULT".into(), named).await;
        assert!(matches!(refused, Err(Refusal::OutcomeUnknown(_))), "{fates:?}: {refused:?}");
        pass(2_000).await;
        assert_eq!(frontier.stats().await.unwrap().urls.total(), 1, "{fates:?}");
    }
}

/// The first commit is the home shard's: without it there is no job, after it there is one, whatever happens to the
/// others.
#[tokio::test(start_paused = true)]
async fn a_job_is_accepted_once_its_home_has_it() {
    let (engine, frontier) = Faulty::opened(2).await;
    add(&frontier, (0..2).map(|shard| format!("http://{}/", host_in(shard, 2, 0)))).await;
    let start = async || frontier.start_job(BulkAction::Delete, UrlFilter::default(), None).await;
    engine.set_fates(&[Fate::Refused]);
    let refused = start().await;
    assert!(matches!(refused, Err(Refusal::Unavailable(_))), "{refused:?}");
    pass(5_000).await;
    assert_eq!(frontier.jobs().await, Ok(Vec::new()));
    engine.set_fates(&[Fate::Lost]);
    let unknown = start().await;
    assert!(matches!(unknown, Err(Refusal::OutcomeUnknown(_))), "{unknown:?}");
    pass(5_000).await;
    let jobs = frontier.jobs().await.unwrap();
    assert_eq!(jobs.iter().map(|job| (job.state, job.outcome.done)).collect::<Vec<_>>(), [(JobState::Done, 2)]);

    add(&frontier, (0..2).map(|shard| format!("http://{}/", host_in(shard, 2, 1)))).await;
    engine.set_fates(&[Fate::Done, Fate::Refused]);
    let job = start().await.unwrap().id;
    pass(5_000).await;
    let job = frontier.job(job).await.unwrap().unwrap();
    assert_eq!((job.state, job.outcome.done), (JobState::Done, 2), "the other shard hears of it again");
}

/// One shard has cancelled the job, the other has not.
#[tokio::test(start_paused = true)]
async fn a_job_that_was_cancelled_in_some_shards_is_not_called_untouched() {
    for fates in [[Fate::Done, Fate::Refused], [Fate::Refused, Fate::Done]] {
        let (engine, frontier) = Faulty::opened(2).await;
        let hosts = (0..20_000).map(|n| format!("http://h{n}.example/"));
        add(&frontier, hosts).await;
        let filter = UrlFilter { contains: Some("/nowhere/".into()), ..UrlFilter::default() };
        let id = frontier.start_job(BulkAction::Delete, filter, None).await.unwrap().id;
        while frontier.job(id).await.unwrap().unwrap().looked_at == 0 {}
        engine.set_fates(&fates);
        let refused = frontier.cancel_job(id).await;
        assert!(matches!(refused, Err(Refusal::OutcomeUnknown(_))), "{fates:?}: {refused:?}");
        pass(5_000).await;
        let job = frontier.job(id).await.unwrap().unwrap();
        assert_eq!((job.state, job.shards_done), (JobState::Cancelled, 2), "one has come to its end: {job:?}");
        assert!(job.looked_at < 20_000, "{fates:?}: {job:?}");
    }
}
