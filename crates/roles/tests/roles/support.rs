//! Minimal candidates, and a store whose clock advances only on request.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::ids::{Epoch, Token};
use wayleave_core::metadata::Metadata;
use wayleave_core::names::RoleName;
use wayleave_core::roles::{Candidate, HeartbeatCall, HeartbeatReply, Refusal, RoleChanges};
use wayleave_core::settings::Change;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::Engine;
use wayleave_engine::clock::{Clock, ManualClock};
use wayleave_engine::memory::Memory;
use wayleave_engine_postgres::{Options, Postgres};
use wayleave_roles::{Roles, Wait, WaitFor};
use wayleave_testbed::Cluster;

pub fn role() -> RoleName {
    "indexer".into()
}

pub fn ask(uuid: &str, token: Option<Token>) -> HeartbeatCall {
    let candidate = Candidate {
        uuid: uuid.into(),
        address: Some(format!("http://{uuid}").into()),
        metadata: Metadata::default(),
        ready: true,
        priority: 5,
        interval: None,
        peer: None,
    };
    HeartbeatCall { candidate, token, heard: None, take_over: None, slot: None, from: None }
}

pub async fn beat(roles: &Roles, uuid: &str, token: Option<Token>) -> Result<HeartbeatReply, Refusal> {
    roles.heartbeat(role(), ask(uuid, token)).await
}

/// A heartbeat that must make its sender primary.
pub async fn acquire(roles: &Roles, uuid: &str) -> (Token, Epoch) {
    let reply = beat(roles, uuid, None).await.unwrap();
    (reply.token.unwrap_or_else(|| panic!("not primary: {}", reply.reason)), reply.epoch)
}

pub async fn holder(roles: &Roles) -> Option<String> {
    roles.now(&role()).await.unwrap().primary.map(|primary| primary.uuid.to_string())
}

pub fn ttl(ms: u64) -> RoleChanges {
    RoleChanges { ttl: Change::Set(Millis(ms)), ..RoleChanges::default() }
}

pub const fn primary(ms: u64) -> Wait {
    Wait { what: WaitFor::Primary(Epoch(0)), time: Millis(ms) }
}

pub const fn vacancy(ms: u64) -> Wait {
    Wait { what: WaitFor::Vacancy(None), time: Millis(ms) }
}

/// A separate database, opened by two nodes.
pub async fn database() -> [Arc<dyn Engine>; 2] {
    let url = Cluster::shared().await.fresh_database().await;
    let first = Postgres::open(&url, Options::default()).await.unwrap();
    let second = Postgres::open(&url, Options::default()).await.unwrap();
    [Arc::new(first), Arc::new(second)]
}

/// A store in memory, its clock, and two nodes over it.
pub fn two_nodes() -> (Arc<Memory>, ManualClock, Roles, Roles) {
    let clock = ManualClock::new(Time(1_000_000));
    let engine = Arc::new(Memory::new(clock.clone()));
    let (a, b) = (Roles::new(engine.clone()), Roles::new(engine.clone()));
    (engine, clock, a, b)
}

/// A store's clock that follows the test's paused one.
pub struct Running(pub Instant);

impl Clock for Running {
    fn read(&self) -> Time {
        Time(1_000_000).after(Millis(self.0.elapsed().as_millis() as u64))
    }
}

/// Lets time pass on the test's paused clock, without waiting.
pub async fn pass(span: Duration) {
    tokio::time::sleep(span).await;
}
