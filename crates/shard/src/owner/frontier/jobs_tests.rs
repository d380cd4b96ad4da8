//! Shards that hear of a job one after the other while hosts move between them, and announcements that arrive late.

use std::sync::Arc;

use wayleave_core::frontier::move_host::Way;
use wayleave_core::frontier::request::{Put, PutKind};
use wayleave_core::frontier::view::UrlFilter;
use wayleave_core::metadata::Metadata;
use wayleave_core::names::Alias;
use wayleave_engine::Memory;
use wayleave_engine::clock::ManualClock;

use super::*;
use crate::ask::HostMove;
use crate::routing::router::home;
use crate::{Config, Frontier};

fn named(pattern: &str, shard: u16) -> String {
    let names = (0..).map(|i| pattern.replace('?', &i.to_string()));
    names.into_iter().find(|name| home(name, 2).0 == shard).unwrap()
}

#[tokio::test]
async fn a_host_that_comes_from_a_shard_that_has_not_heard_of_the_job_is_visited() {
    let clock = ManualClock::new(Time(1_000_000));
    let engine = Arc::new(Memory::new(clock.clone()));
    let runtime = tokio::runtime::Handle::current();
    let frontier = Frontier::open(engine, Config::new(2), &runtime).await.unwrap();
    let (host, other) = (named("h?.example", 0), named("o?.example", 1));
    for host in [&host, &other] {
        let put = Put {
            url: format!("http://{host}/").into(),
            host: host.as_str().into(),
            crawl: "DEFAULT".into(),
            kind: PutKind::Discovered { at: None, priority: 5, depth: 0 },
            metadata: Metadata::default(),
        };
        frontier.put(vec![put]).await;
    }
    clock.advance(wayleave_core::time::Millis(10));
    // Its home is shard 0, which does not know it yet; shard 1 does, as if told by a home that crashed.
    let filter = UrlFilter { crawl: Some("DEFAULT".into()), ..UrlFilter::default() };
    let job = JobRow::new(Token::new(ShardId(0), 7), BulkAction::Delete, filter, None, frontier.now());
    frontier.router.ask::<()>(ShardId(1), JobChange::StartJob(Box::new(job.clone()))).await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let alias = Alias::from(named("alias?", 1).as_str());
    let way = Way::Into(alias);
    let give = HostMove::Give { hosts: vec![host.as_str().into()], way, to: ShardId(1) };
    frontier.router.ask::<()>(ShardId(0), give).await.unwrap();
    frontier.router.ask::<()>(ShardId(0), JobChange::StartJob(Box::new(job.clone()))).await.unwrap();
    loop {
        let view = frontier.job(job.id).await.unwrap().unwrap();
        if view.state == JobState::Done {
            assert_eq!(view.outcome.done, 2, "the host that moved is among them");
            break;
        }
        tokio::task::yield_now().await;
    }
}

async fn rows(frontier: &Frontier, shard: u16) -> Vec<JobRow> {
    frontier.router.ask(ShardId(shard), StateQuery::Jobs).await.unwrap()
}

#[tokio::test]
async fn what_is_heard_late_neither_counts_an_ended_job_again_nor_brings_a_forgotten_one_back() {
    let engine = Arc::new(Memory::new(ManualClock::new(Time(1_000_000))));
    let frontier = Frontier::open(engine, Config::new(2), &tokio::runtime::Handle::current()).await.unwrap();
    let id = frontier.start_job(BulkAction::Delete, UrlFilter::default(), None).await.unwrap().id;
    while rows(&frontier, 0).await[0].stage < JobPhase::Ended {
        frontier.conclude_jobs().await.unwrap();
    }
    let tell = async |shard: u16, ask: JobChange| frontier.router.ask::<()>(ShardId(shard), ask).await.unwrap();
    tell(0, JobChange::SetStage(id, JobPhase::Known)).await;
    assert_eq!(rows(&frontier, 0).await[0].stage, JobPhase::Ended, "one who told of it was slow");
    let job = rows(&frontier, 0).await.remove(0);
    for shard in [0, 1] {
        tell(shard, JobChange::ConcludeJobs { ended: vec![id], forgotten: vec![id] }).await;
    }
    for shard in [0, 1] {
        tell(shard, JobChange::CancelJob(Box::new(job.clone()))).await;
    }
    assert_eq!((rows(&frontier, 0).await.len(), rows(&frontier, 1).await.len()), (0, 1));
    assert_eq!(frontier.jobs().await, Ok(Vec::new()), "its home has forgotten it");
    frontier.conclude_jobs().await.unwrap();
    assert_eq!(rows(&frontier, 1).await, Vec::new(), "what was left goes with the next that are settled");
}
