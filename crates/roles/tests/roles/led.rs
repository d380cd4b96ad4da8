//! Work that one node at a time does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wayleave_core::limits::ROLE_TTL_DEFAULT;
use wayleave_core::names;
use wayleave_engine::memory::Memory;
use wayleave_engine::rows::role as rows;
use wayleave_engine::{Batch, Engine, Key, Look, Write};
use wayleave_registry::{Decision, News, Registry, Subject, value};
use wayleave_roles::{Lead, Roles, Totals, led};

use crate::races::Meanwhile;
use crate::support::{Running, database, pass, role, ttl};

const DUTY: &str = "sweeps";
const TERM: Duration = Duration::from_millis(ROLE_TTL_DEFAULT.0);

/// What all nodes of a test count together: those that work at the moment.
#[derive(Clone)]
struct Tally {
    working: Arc<AtomicUsize>,
    leads: mpsc::UnboundedSender<(&'static str, Lead)>,
}

/// Leaves the tally when the work is dropped.
struct Working(Arc<AtomicUsize>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn tally() -> (Tally, mpsc::UnboundedReceiver<(&'static str, Lead)>) {
    let (leads, led) = mpsc::unbounded_channel();
    (Tally { working: Arc::default(), leads }, led)
}

/// A node that works until it no longer leads.
fn node(name: &'static str, roles: Roles, tally: &Tally) -> JoinHandle<()> {
    let tally = tally.clone();
    tokio::spawn(async move {
        led(&roles, DUTY, name.into(), |lead| {
            let (working, leads) = (tally.working.clone(), tally.leads.clone());
            async move {
                assert_eq!(working.fetch_add(1, Ordering::SeqCst), 0, "two nodes work");
                let _working = Working(working);
                leads.send((name, lead)).unwrap();
                std::future::pending::<()>().await;
            }
        })
        .await;
    })
}

fn store() -> Arc<Memory> {
    Arc::new(Memory::new(Running(Instant::now())))
}

fn counter() -> Key {
    // Outside the shards, of an otherwise unused kind.
    vec![0xff, 0xff, 200]
}

/// Adds one under a lead.
async fn add(registry: &Registry, lead: &Lead) -> Option<u8> {
    let decide = |look: &Look, _: bool| {
        let sum = value(look, &counter()).map_or(0, |value| value[0]) + 1;
        Decision::write(vec![Write { key: counter(), value: Some(vec![sum]) }], News::NOBODY, sum)
    };
    lead.update(registry, Subject::row(counter(), "the counter"), decide).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_node_works_and_another_takes_over_when_it_dies() {
    let (engine, (tally, mut leads)) = (store(), tally());
    let registry = Registry::new(engine.clone());
    let a = node("a", Roles::new(engine.clone()), &tally);
    let (first, old) = leads.recv().await.unwrap();
    let _b = node("b", Roles::new(engine.clone()), &tally);
    pass(10 * TERM).await;
    assert!((first, leads.is_empty()) == ("a", true), "a term that is renewed lasts");
    assert_eq!(add(&registry, &old).await, Some(1));
    a.abort();
    let died = Instant::now();
    let (second, new) = leads.recv().await.unwrap();
    assert_eq!(second, "b");
    assert!(died.elapsed() <= TERM + Duration::from_secs(2), "{:?}", died.elapsed());
    assert!(new.epoch() > old.epoch());
    assert_eq!(add(&registry, &old).await, None, "a process that wakes up after its term changes nothing");
    assert_eq!(add(&registry, &new).await, Some(2));
}

/// (the node that leads looks) (its term is over and its row gone) (its write arrives).
#[tokio::test(start_paused = true)]
async fn a_write_that_was_decided_within_the_term_does_not_count_after_it() {
    let (engine, (tally, mut leads)) = (store(), tally());
    let late = Arc::new(Meanwhile { inner: engine.clone(), hook: Mutex::new((0, |_| {})) });
    let registry = Registry::new(late.clone());
    let a = node("a", Roles::new(engine.clone()), &tally);
    let (_, lead) = leads.recv().await.unwrap();
    assert_eq!(add(&registry, &lead).await, Some(1));
    a.abort();
    let forget = |engine: &Memory| {
        let write = Write { key: rows::key(&names::system_role(DUTY)), value: None };
        engine.commit(Batch { writes: vec![write], ..Batch::default() }).now_or_never().expect("at once").unwrap();
    };
    *late.hook.lock().unwrap() = (1, forget);
    assert_eq!((add(&registry, &lead).await, registry.conflicts()), (None, 1));
    let look = registry.look_at(&Subject::row(counter(), "the counter")).await.unwrap();
    assert_eq!(value(&look, &counter()), Some(&vec![1]));
}

/// The node that leads cannot reach the store, and another one can. Its work ends before the other one's begins: the
/// assertion is in the work itself.
#[tokio::test(start_paused = true)]
async fn work_is_dropped_before_the_term_ends_where_the_store_cannot_be_reached() {
    let (engine, (tally, mut leads)) = (store(), tally());
    let _a = node("a", Roles::new(engine.clone()), &tally);
    leads.recv().await.unwrap();
    engine.begin_outage("the cable is out");
    let cut = Instant::now();
    while tally.working.load(Ordering::SeqCst) > 0 {
        assert!(cut.elapsed() < TERM, "it works on without the store");
        pass(Duration::from_millis(10)).await;
    }
    assert!(cut.elapsed() > TERM / 2, "a short outage interrupts nothing: {:?}", cut.elapsed());
    engine.end_outage();
    let _b = node("b", Roles::new(engine.clone()), &tally);
    leads.recv().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_frees_the_duty_at_once() {
    let (engine, (tally, mut leads)) = (store(), tally());
    let done = Arc::new(tokio::sync::Notify::new());
    let first = tokio::spawn({
        let (roles, done) = (Roles::new(engine.clone()), done.clone());
        async move { led(&roles, DUTY, "a".into(), |_| async { done.notified().await }).await }
    });
    pass(Duration::from_millis(10)).await;
    let _b = node("b", Roles::new(engine), &tally);
    pass(Duration::from_millis(10)).await;
    done.notify_one();
    let start = Instant::now();
    leads.recv().await.unwrap();
    first.await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_system_role_is_neither_listed_nor_counted_nor_addressable() {
    let (engine, (tally, mut leads)) = (store(), tally());
    let roles = Roles::new(engine.clone());
    let _a = node("a", roles.clone(), &tally);
    leads.recv().await.unwrap();
    roles.set(role(), ttl(15_000)).await.unwrap();
    let listed: Vec<_> = roles.list(None, 100).await.unwrap().roles.into_iter().map(|view| view.role).collect();
    assert_eq!(listed, [role()]);
    assert_eq!(roles.totals().await.unwrap(), Totals { roles: 1, ..Totals::default() });
    assert!(names::role(&names::system_role(DUTY)).is_err());
}

/// Renewals change the row that every write of the lead expects: they are decided again, and none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lead_over_one_database_writes_through_any_node_until_a_takeover() {
    let (engines, (tally, mut leads)) = (database().await, tally());
    let [here, there] = engines.clone().map(Roles::new);
    let registry = Registry::new(engines[1].clone());
    here.set(names::system_role(DUTY), ttl(1_000)).await.unwrap();
    let a = node("a", here, &tally);
    let (_, old) = leads.recv().await.unwrap();
    for sum in 1..=50 {
        assert_eq!(add(&registry, &old).await, Some(sum));
    }
    a.abort();
    _ = a.await;
    let _b = node("b", there, &tally);
    let (_, new) = leads.recv().await.unwrap();
    assert_eq!((add(&registry, &old).await, add(&registry, &new).await), (None, Some(51)));
}
