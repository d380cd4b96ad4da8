//! Requeuing and deleting known URLs: individually, and by bulk jobs that survive restarts and moves of hosts.

use wayleave_core::frontier::requeue::BulkOutcome;
use wayleave_core::frontier::view::JobView;

use crate::prelude::*;
use crate::support::*;

fn wanted(url: &str, priority: Option<u8>, again: bool) -> Put {
    let explicit = priority.is_some();
    let kind = PutKind::Wanted { at: None, priority: priority.unwrap_or(5), explicit, depth: 0, again };
    Put { kind, ..disc(url) }
}

fn of_state(state: UrlState) -> UrlFilter {
    UrlFilter { state: Some(state), ..UrlFilter::default() }
}

/// Reports the next URL of every group as `outcome`, until none is left.
async fn drain(world: &World, outcome: Outcome) -> usize {
    let mut count = 0;
    while let Some(visit) = world.next().await {
        count += visit.urls.len();
        world.release(&visit, |result| UrlResult { outcome, ..result }).await.unwrap();
    }
    count
}

async fn ended(world: &World, id: Token) -> JobView {
    for _ in 0..10_000 {
        let job = world.frontier.job(id).await.unwrap().unwrap();
        if job.state != JobState::Running {
            return job;
        }
        pass(1).await;
    }
    panic!("the job does not end");
}

async fn site(world: &World, hosts: usize, pages: usize) {
    for host in 0..hosts {
        let name = format!("h{host}.example");
        world.set_delay(&name, 0).await;
        let urls: Vec<String> = (0..pages).map(|page| format!("http://{name}/{page}")).collect();
        world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_put_with_again_queues_a_known_url_anew_and_one_without_does_not() {
    let world = World::new(2).await;
    let url = "http://a.example/";
    world.set_delay("a.example", 0).await;
    let seed =
        Put { kind: PutKind::Wanted { at: None, priority: 7, explicit: true, depth: 3, again: true }, ..disc(url) };
    assert_eq!(world.put(vec![seed]).await, [PutOutcome::Added]);
    let visit = world.next().await.unwrap();
    assert_eq!(world.put(vec![wanted(url, None, true)]).await, [PutOutcome::Known], "it is handed out");
    world.release(&visit, |result| UrlResult { outcome: Outcome::Failed, ..result }).await.unwrap();
    assert_eq!(world.put(vec![disc(url)]).await, [PutOutcome::Known]);
    assert_eq!(world.put(vec![wanted(url, Some(9), false)]).await, [PutOutcome::Known], "it is not queued");
    assert_eq!(world.lookup(url).await.unwrap().state, UrlState::Failed);
    assert_eq!(world.put(vec![wanted(url, None, true)]).await, [PutOutcome::Requeued]);
    let again = world.lookup(url).await.unwrap();
    assert_eq!((again.state, again.priority, again.depth, again.attempts), (UrlState::Queued, 7, 3, 0));
    assert_eq!(world.next().await.unwrap().urls[0].depth, 3, "it is handed out as it was");
}

#[tokio::test(start_paused = true)]
async fn a_put_with_a_priority_raises_a_queued_url_and_never_lowers_it() {
    let mut world = World::new(1).await;
    world.set_delay("a.example", 0).await;
    world.add(&["http://a.example/1", "http://a.example/2", "http://a.example/3"]).await;
    let raise = |priority| wanted("http://a.example/3", Some(priority), false);
    // In one batch: the second put sees what the first one did.
    assert_eq!(world.put(vec![raise(8), raise(2)]).await, [PutOutcome::Updated, PutOutcome::Known]);
    assert_eq!(world.lookup("http://a.example/3").await.unwrap().priority, 8);
    assert_eq!(&*world.next().await.unwrap().urls[0].url, "http://a.example/3");
    world.reopen().await;
    let urls = world.frontier.stats().await.unwrap().urls;
    assert_eq!((urls.queued, urls.reserved), (2, 1), "counted as they are");
}

#[tokio::test(start_paused = true)]
async fn urls_that_are_named_are_requeued_or_deleted_each_once() {
    let world = World::new(3).await;
    site(&world, 3, 2).await;
    assert_eq!(drain(&world, Outcome::Fetched).await, 6);
    let named = |urls: &[&str]| urls.iter().map(|url| (host_of(url), (*url).into())).collect::<Vec<_>>();
    let urls = named(&["http://h0.example/0", "http://h0.example/0", "http://h1.example/1", "http://h2.example/none"]);
    let outcome = world.frontier.rework(BulkAction::Requeue, "DEFAULT".into(), urls.clone()).await.unwrap();
    assert_eq!(
        outcome,
        BulkOutcome { done: 2, reserved: 0, unknown: 1, unreadable: 0 },
        "the same URL twice counts once"
    );
    let held = world.next().await.unwrap();
    let outcome = world.frontier.rework(BulkAction::Delete, "DEFAULT".into(), urls).await.unwrap();
    assert_eq!(outcome, BulkOutcome { done: 1, reserved: 1, unknown: 1, unreadable: 0 }, "what is reserved stays");
    world.fetched(&held).await;
    let stats = world.frontier.stats().await.unwrap();
    assert_eq!((stats.urls.fetched, stats.urls.queued, stats.urls.reserved), (5, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_job_requeues_what_its_filter_lets_through_and_says_how_many() {
    let world = World::new(4).await;
    site(&world, 40, 60).await;
    assert_eq!(drain(&world, Outcome::Failed).await, 2_400);
    pass(1_000).await;
    let filter = UrlFilter { contains: Some("/1".into()), ..of_state(UrlState::Failed) };
    let job = world.frontier.start_job(BulkAction::Requeue, filter, None).await.unwrap();
    let job = ended(&world, job.id).await;
    assert_eq!((job.state, job.outcome.done), (JobState::Done, 40 * 11), "pages 1 and 10 to 19");
    assert_eq!(job.looked_at, 2_400);
    let stats = world.frontier.stats().await.unwrap();
    assert_eq!((stats.urls.queued, stats.urls.failed), (440, 1_960));
    assert_eq!(drain(&world, Outcome::Fetched).await, 440, "all of them can be reserved");
}

#[tokio::test(start_paused = true)]
async fn a_job_continues_after_a_restart() {
    let mut world = World::new(2).await;
    site(&world, 4, 3_000).await;
    pass(1_000).await;
    let job = world.frontier.start_job(BulkAction::Delete, of_state(UrlState::Queued), None).await.unwrap();
    // The home has announced it to no shard, to some, or to all: each restart finds it at another stage.
    let mut seen = Vec::new();
    for _ in 0..200 {
        world.reopen().await;
        let job = world.frontier.job(job.id).await.unwrap().unwrap();
        seen.push(job.outcome.done);
        if job.state != JobState::Running {
            break;
        }
    }
    let job = ended(&world, job.id).await;
    assert_eq!(job.outcome.done, 12_000);
    assert!(seen.iter().any(|done| (1..12_000).contains(done)), "it was cut off in the middle: {seen:?}");
    assert_eq!(world.frontier.stats().await.unwrap().urls.total(), 0);
    assert!(world.next().await.is_none());
}

/// A name homed in a shard.
fn at_home_in(shard: u16, shards: u16, name: impl Fn(usize) -> String) -> String {
    (0..).map(name).find(|name| home(name, shards).0 == shard).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_host_that_moves_to_a_shard_that_did_its_part_is_visited_there() {
    let world = World::new(2).await;
    let name = |what: &'static str| at_home_in(0, 2, move |no| format!("{what}{no}.example"));
    let (first, late) = (name("first"), name("late"));
    let alias = at_home_in(1, 2, |no| format!("alias{no}"));
    // Its id is lower, so the job reaches it first.
    for part in 0..4 {
        let urls: Vec<String> = (0..10_000).map(|page| format!("http://{first}/{part}/{page}")).collect();
        world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    world.add(&[&format!("http://{late}/1"), &format!("http://{late}/2")]).await;
    pass(1_000).await;
    let id = world.frontier.start_job(BulkAction::Delete, of_state(UrlState::Queued), None).await.unwrap().id;
    let job = || async { world.frontier.job(id).await.unwrap().unwrap() };
    while job().await.shards_done == 0 {}
    let there = world.set_group(&alias, &[&late], PaceChanges::default()).await;
    assert_eq!(there.hosts.len(), 1);
    let then = job().await;
    assert!((1..40_000).contains(&then.outcome.done), "the job is in the middle of the first host: {then:?}");
    assert_eq!(ended(&world, id).await.outcome.done, 40_002);
    assert_eq!(world.frontier.stats().await.unwrap().urls.total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_finds_hosts_that_move_to_and_fro_while_it_runs() {
    for turn in 0..12 {
        let world = World::new(3).await;
        site(&world, 12, 150).await;
        pass(1_000).await;
        let job = world.frontier.start_job(BulkAction::Delete, of_state(UrlState::Queued), None).await.unwrap();
        for _ in 0..turn {
            tokio::task::yield_now().await;
        }
        let hosts: Vec<String> = (0..12).map(|host| format!("h{host}.example")).collect();
        let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
        world.set_group("a", &names[..6], PaceChanges::default()).await;
        world.set_group("b", &names[6..], PaceChanges::default()).await;
        world.set_group("a", &[], PaceChanges::default()).await;
        let job = ended(&world, job.id).await;
        assert_eq!((job.outcome.done, world.frontier.stats().await.unwrap().urls.total()), (1_800, 0), "turn {turn}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_leaves_alone_what_came_later_and_what_is_handed_out() {
    let world = World::new(1).await;
    site(&world, 2, 2).await;
    let visit = world.next().await.unwrap();
    pass(1_000).await;
    let begun = world.now();
    let job = world
        .frontier
        .start_job(BulkAction::Delete, of_state(UrlState::Queued), Some(Time(begun.0 + 9)))
        .await
        .unwrap();
    pass(1).await;
    world.put(vec![disc("http://h9.example/new")]).await;
    let job = ended(&world, job.id).await;
    assert_eq!((job.outcome.done, job.outcome.reserved), (3, 0));
    assert!(world.lookup("http://h9.example/new").await.is_some());
    world.fetched(&visit).await;
    assert_eq!(world.lookup(&visit.urls[0].url).await.unwrap().state, UrlState::Fetched);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_job_starts_nowhere_else_and_a_crawl_waits_for_its_jobs() {
    let world = World::new(8).await;
    // More than a slice for each host.
    site(&world, 16, 1_100).await;
    pass(1_000).await;
    let filter = UrlFilter { crawl: Some("DEFAULT".into()), ..UrlFilter::default() };
    let job = world.frontier.start_job(BulkAction::Delete, filter.clone(), None).await.unwrap();
    let cancelled = world.frontier.cancel_job(job.id).await.unwrap().unwrap();
    assert_eq!(cancelled.state, JobState::Cancelled);
    pass(5_000).await;
    let later = world.frontier.job(job.id).await.unwrap().unwrap();
    assert_eq!((later.state, later.outcome), (JobState::Cancelled, cancelled.outcome), "nothing more was done");
    assert!(cancelled.outcome.done < 17_600);
    assert_eq!(world.frontier.cancel_job(Token([9; 16])).await, Ok(None));

    let left = drain(&world, Outcome::Fetched).await as u64;
    assert_eq!(world.frontier.crawl("DEFAULT".into()).await.unwrap().waits_for, None);
    pass(1_000).await;
    let job = world.frontier.start_job(BulkAction::Requeue, filter, None).await.unwrap();
    let waits_for = world.frontier.crawl("DEFAULT".into()).await.unwrap().waits_for;
    assert!(waits_for.is_some(), "a crawl that is being requeued is not finished");
    assert_eq!(ended(&world, job.id).await.outcome.done, left);
}

#[tokio::test(start_paused = true)]
async fn reservations_and_holds_are_revoked_and_their_urls_return_untouched() {
    let world = World::new(2).await;
    site(&world, 3, 4).await;
    let visits = world.reserve(2, 2).await;
    let (first, second) = (&visits[0], &visits[1]);
    assert_eq!(world.frontier.revoke(Revoke::Token(first.token)).await, Ok((1, 0)));
    assert!(world.release(first, |result| result).await.is_err(), "its token is not current any more");
    let url = world.lookup(&first.urls[0].url).await.unwrap();
    assert_eq!((url.state, url.attempts), (UrlState::Queued, 0));
    assert_eq!(world.frontier.revoke(Revoke::Holder(second.holder.clone())).await, Ok((1, 0)));
    assert_eq!(world.frontier.stats().await.unwrap().reservations, 0);

    let out = world.hand_out(3, 2).await;
    assert_eq!(out.len(), 6);
    let host = out[0].host.clone();
    let in_hand = world.frontier.in_hand(&host).await.unwrap();
    assert_eq!(in_hand.len(), 2);
    assert!(in_hand.iter().all(|url| url.held_until.is_some() && url.host == host));
    assert_eq!(world.frontier.revoke(Revoke::Host(host.clone())).await, Ok((0, 2)));
    assert_eq!(world.frontier.in_hand(&host).await.unwrap(), []);
    let stats = world.frontier.stats().await.unwrap();
    assert_eq!((stats.holds, stats.urls.reserved, stats.urls.queued), (4, 4, 8));
}
