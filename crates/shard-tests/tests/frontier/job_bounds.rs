//! How many bulk jobs run and how long they are remembered: the limit holds over all shards together, and a job is
//! remembered until it has ended on every one of them.
//!
//! What could break it, each with a test: many callers that start jobs at once; several shards, each counting on its
//! own; a job that has ended on one shard and continues on another while enough later ones end for the first to
//! forget it; a restart.

use futures::future::join_all;
use wayleave_core::frontier::view::JobView;
use wayleave_core::limits::{JOBS_KEPT, JOBS_RUNNING_MAX};

use crate::prelude::*;
use crate::support::*;

/// A job that matches nothing.
fn of_nothing() -> UrlFilter {
    UrlFilter { contains: Some("/nowhere/".into()), ..UrlFilter::default() }
}

async fn start(world: &World) -> Result<JobView, Refusal> {
    world.frontier.start_job(BulkAction::Delete, of_nothing(), None).await
}

async fn running(world: &World) -> usize {
    world.frontier.jobs().await.unwrap().iter().filter(|job| job.state == JobState::Running).count()
}

async fn all_ended(world: &World) {
    for _ in 0..10_000 {
        if running(world).await == 0 {
            return;
        }
        pass(1).await;
    }
    panic!("the jobs do not end");
}

/// Number of job rows in each shard.
async fn job_rows(world: &World) -> Vec<usize> {
    let mut counts = Vec::new();
    for shard in 0..world.frontier.shards() {
        let (from, to) = key::range(ShardId(shard), Kind::BulkJob, Kind::BulkJob);
        counts.push(world.engine.scan_many(&[Scan { from, to, limit: 10_000 }]).await.unwrap()[0].len());
    }
    counts
}

/// Hosts with one URL each: a slice of a job starts only a few queues, so a job over many hosts is long.
async fn many_hosts(world: &World, names: impl Iterator<Item = String>) {
    let puts: Vec<_> = names.map(|name| disc(&format!("http://{name}/"))).collect();
    for part in puts.chunks(5_000) {
        world.put(part.to_vec()).await;
    }
    pass(1_000).await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_callers_over_all_shards_run_exactly_the_limit_of_jobs() {
    let mut world = World::new(4).await;
    many_hosts(&world, (0..8_000).map(|n| format!("h{n}.example"))).await;
    let answers = join_all((0..40).map(|_| start(&world))).await;
    let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(running(&world).await, JOBS_RUNNING_MAX);
    assert_eq!(accepted, JOBS_RUNNING_MAX);
    let refused = answers.into_iter().filter_map(Result::err);
    refused.for_each(|refusal| assert!(matches!(refusal, Refusal::OverLimit(_)), "{refusal:?}"));
    world.reopen().await;
    let refused = start(&world).await;
    assert!(matches!(refused, Err(Refusal::OverLimit(_))), "also after a restart: {refused:?}");
    all_ended(&world).await;
    assert!(start(&world).await.is_ok(), "those that have ended make room");
}

#[tokio::test(start_paused = true)]
async fn jobs_that_ended_long_ago_are_forgotten_in_all_shards() {
    let mut world = World::new(3).await;
    many_hosts(&world, (0..9).map(|n| format!("h{n}.example"))).await;
    let mut started = Vec::new();
    for round in 0..9 {
        for job in join_all((0..JOBS_RUNNING_MAX).map(|_| start(&world))).await {
            started.push(job.unwrap().id);
        }
        all_ended(&world).await;
        if round % 2 == 0 {
            world.reopen().await;
        }
        let jobs = world.frontier.jobs().await.unwrap();
        assert!(jobs.len() <= JOBS_KEPT + JOBS_RUNNING_MAX, "{}", jobs.len());
        assert!(jobs.len() >= started.len().min(JOBS_KEPT), "{}", jobs.len());
        assert!(jobs.iter().all(|job| job.shards_done == 3 && job.looked_at == 9), "each is whole: {jobs:?}");
        assert_eq!(job_rows(&world).await, vec![jobs.len(); 3]);
    }
    assert_eq!(world.frontier.job(started[0]).await, Ok(None));
    assert_eq!(world.frontier.cancel_job(started[0]).await, Ok(None));
    let last = started.last().copied().unwrap();
    assert_eq!(world.frontier.job(last).await.unwrap().unwrap().state, JobState::Done);
}

#[tokio::test(start_paused = true)]
async fn a_job_still_running_in_one_shard_is_forgotten_in_none() {
    let world = World::new(2).await;
    let at_home = |what: &'static str| {
        (0..).map(move |no| format!("{what}{no}.example")).filter(|name| home(name, 2) == ShardId(0))
    };
    let (hosts, late, alias) = (30_000, at_home("late").next().unwrap(), alias_in(1, 2));
    many_hosts(&world, at_home("h").take(hosts)).await;
    // Its id is the highest, so the job reaches it last.
    world.add(&[&format!("http://{late}/")]).await;
    pass(1_000).await;
    let queued = UrlFilter { state: Some(UrlState::Queued), ..UrlFilter::default() };
    let id = world.frontier.start_job(BulkAction::Delete, queued, None).await.unwrap().id;
    let job = || async { world.frontier.job(id).await.unwrap().unwrap() };
    while job().await.shards_done == 0 {}
    // The others end later. A sleep would let the job finish: paused time advances when every task is idle.
    tokio::time::advance(Duration::from_millis(1)).await;
    let begin_and_cancel = async || {
        let later = start(&world).await.unwrap().id;
        let later = world.frontier.cancel_job(later).await.unwrap().unwrap();
        assert_eq!(later.state, JobState::Cancelled);
    };
    for _ in 0..=JOBS_KEPT / 5 {
        join_all((0..5).map(|_| begin_and_cancel())).await;
    }
    world.set_group(&alias, &[&late], PaceChanges::default()).await;
    let then = job().await;
    assert_eq!(then.state, JobState::Running);
    assert!((1..hosts as u64).contains(&then.outcome.done), "it is in the middle of the first shard: {then:?}");
    all_ended(&world).await;
    assert_eq!((job().await.outcome.done, world.frontier.stats().await.unwrap().urls.total()), (hosts as u64 + 1, 0));
}
