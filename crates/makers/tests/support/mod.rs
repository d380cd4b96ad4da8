//! What the tests of both runtimes share: orders as a pool gives them, questions, and a real pool in memory.

#![allow(dead_code, reason = "each test binary uses a part")]

pub mod pool;

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use wayleave_core::ids::{ShardId, Token};
use wayleave_core::matches::row::Secret;
use wayleave_core::matches::{Instance, Labels, Make, PullPolicy, Recipe, RuntimeKind, StepId, WorkerAsk, WorkerNo};
use wayleave_core::time::{Millis, Time};
use wayleave_makers::Calls;
use wayleave_makers::runtime::WorkerKey;
use wayleave_outgoing::Policy;

pub const POOL: &str = "browsers";
pub const OWNER: &str = "test";

/// The worker of the examples.
pub fn program() -> &'static str {
    env!("CARGO_BIN_EXE_example-worker")
}

/// Long enough for a machine that is busy with other tests.
pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

pub fn labels(worker: u64) -> Labels {
    Labels { owner: OWNER.into(), generation: 0xabc, worker: WorkerNo(worker) }
}

pub fn key(worker: u64) -> WorkerKey {
    WorkerKey::new(&POOL.into(), &labels(worker))
}

pub fn recipe(command: &[&str], env: &[(&str, &str)]) -> Recipe {
    Recipe {
        runtime: RuntimeKind::Process,
        command: command.iter().map(ToString::to_string).collect(),
        image: None,
        env: env.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<BTreeMap<_, _>>(),
        port: None,
        advertise: None,
        memory_bytes: None,
        cpu_millis: None,
        slots: 2,
    }
}

pub fn make(worker: u64, recipe: Recipe) -> Make {
    Make {
        step: StepId { worker: WorkerNo(worker), step: 1 },
        name: key(worker).to_string().into(),
        site: "here".into(),
        labels: labels(worker),
        run: 1,
        secret: Secret(Token::new(ShardId(0), 77)),
        recipe,
        pull: PullPolicy::Never,
        last: None,
        until: Time::NEVER,
    }
}

/// An order to make the worker of the examples, with two slots.
pub fn worker(no: u64, env: &[(&str, &str)]) -> Make {
    let env: Vec<_> = [("SLOTS", "2")].into_iter().chain(env.iter().copied()).collect();
    make(no, recipe(&[program()], &env))
}

pub fn token(n: u128) -> Token {
    Token::new(ShardId(0), n)
}

/// Calls of a node that is alone, on which nothing is allowed.
pub fn calls() -> Calls {
    Calls::new(Policy::new(Vec::new(), true))
}

pub fn ask(client: &str, instance: &Instance, n: u128) -> WorkerAsk {
    WorkerAsk {
        client: client.into(),
        caller: None,
        worker: WorkerNo(1),
        name: "w".into(),
        site: "here".into(),
        address: instance.address.clone(),
        reported_from: None,
        token: token(n),
        reservation: Millis(60_000),
        sent_at: Time(1),
        until: Time::NEVER,
    }
}

/// Looks until there is an answer.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "timed out: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Whether a process runs; a zombie does not.
pub fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// What a worker says about itself.
pub fn about(address: &str) -> serde_json::Value {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    serde_json::from_str(text.split("\r\n\r\n").last().unwrap()).unwrap()
}
