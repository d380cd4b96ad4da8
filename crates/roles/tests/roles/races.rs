//! Many candidates through two nodes concurrently: one primary per epoch, and no epoch twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::join_all;
use tokio::sync::Barrier;
use wayleave_core::ids::{Epoch, Token};
use wayleave_core::limits;
use wayleave_core::roles::{Outcome, Refusal, RoleRow, RoleSettings, Term, Was};
use wayleave_core::time::{Millis, Time};
use wayleave_engine::memory::LostAnswer;
use wayleave_engine::rows::role as rows;
use wayleave_engine::{Batch, Commit, Engine, Memory, Write};
use wayleave_roles::Roles;

use crate::support::{ask, beat, database, role, two_nodes};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_race_for_a_free_role_through_two_nodes_has_one_winner_each_time() {
    let (_, _, here, there) = two_nodes();
    race(here, there, 50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_race_through_two_nodes_over_one_database_has_one_winner_each_time() {
    let [here, there] = database().await.map(Roles::new);
    race(here, there, 20).await;
}

async fn race(here: Roles, there: Roles, rounds: u64) {
    let mut holders: BTreeMap<Epoch, String> = BTreeMap::new();
    for round in 0..rounds {
        let start = Arc::new(Barrier::new(8));
        let racers = (0..8).map(|n| {
            let (roles, start) = (if n % 2 == 0 { here.clone() } else { there.clone() }, start.clone());
            tokio::spawn(async move {
                start.wait().await;
                (n, beat(&roles, &format!("c{n}"), None).await)
            })
        });
        let mut winners = Vec::new();
        for (n, reply) in join_all(racers).await.into_iter().map(Result::unwrap) {
            // Too many concurrent updates is a valid answer too, and changes nothing.
            let Ok(reply) = reply else { continue };
            if reply.outcome != Outcome::Standby {
                assert_eq!(reply.outcome, Outcome::Acquired, "{}", reply.reason);
                winners.push((n, reply.epoch, reply.token.unwrap()));
            }
        }
        let [(n, epoch, token)] = winners[..] else { panic!("round {round}: {winners:?}") };
        assert_eq!(epoch, Epoch(round + 1));
        assert_eq!(holders.insert(epoch, format!("c{n}")), None);
        let released = there.release(role(), format!("c{n}").into(), Some(token)).await.unwrap();
        assert_eq!(released.was, Was::Primary);
    }
    assert_eq!(here.counters().unlawful.load(Ordering::Relaxed) + there.counters().unlawful.load(Ordering::Relaxed), 0);
}

pub type Hook = (usize, fn(&Memory));

/// A store that injects a concurrent change between a decision and its write.
pub struct Meanwhile {
    pub inner: Arc<Memory>,
    /// How often, and what.
    pub hook: std::sync::Mutex<Hook>,
}

impl Engine for Meanwhile {
    wayleave_engine::pass_on! { inner: now own get_many scan_many look }

    fn commit(&self, batch: Batch) -> Commit {
        let mut hook = self.hook.lock().unwrap();
        if hook.0 > 0 {
            hook.0 -= 1;
            hook.1(&self.inner);
        }
        self.inner.commit(batch)
    }
}

/// Makes `b` the primary directly in the store.
fn take_over(engine: &Memory) {
    write(engine, 9);
}

/// Changes the role's row repeatedly.
fn overtake(engine: &Memory) {
    static VERSION: AtomicU64 = AtomicU64::new(100);
    write(engine, VERSION.fetch_add(1, Ordering::Relaxed));
}

fn write(engine: &Memory, version: u64) {
    let now = engine.now();
    let term = Term {
        holder: ask("b", None).candidate,
        token: Token([7; 16]),
        epoch: Epoch(9),
        granted_at: now,
        renewed_at: now,
        expires_at: now.after(Millis(15_000)),
        step_down: false,
        agreement: Default::default(),
    };
    let row = RoleRow {
        version,
        settings: RoleSettings::default(),
        epoch: Epoch(9),
        term: Some(term),
        vacant_since: now,
        released: None,
        avoided: None,
        incarnation: 0,
        quiet_until: Time::ZERO,
        quiet_for: Millis(0),
        runs: Default::default(),
    };
    let write = Write { key: rows::key(&role()), value: Some(rows::encode(&row)) };
    let batch = Batch { writes: vec![write], ..Batch::default() };
    engine.commit(batch).now_or_never().expect("at once").unwrap();
}

fn meanwhile() -> (Arc<Meanwhile>, Roles) {
    let (inner, ..) = two_nodes();
    let engine = Arc::new(Meanwhile { inner, hook: std::sync::Mutex::new((0, |_| {})) });
    let roles = Roles::new(engine.clone());
    (engine, roles)
}

#[tokio::test]
async fn a_late_heartbeat_is_decided_on_the_current_row_and_never_overwrites() {
    let (engine, roles) = meanwhile();
    *engine.hook.lock().unwrap() = (1, take_over);
    let reply = beat(&roles, "a", None).await.unwrap();
    assert_eq!((reply.outcome, reply.holder.as_deref(), reply.epoch), (Outcome::Standby, Some("b"), Epoch(9)));
    assert_eq!(roles.conflicts(), 1);
}

#[tokio::test]
async fn a_late_release_does_not_end_the_term_of_another() {
    let (engine, roles) = meanwhile();
    let reply = beat(&roles, "a", None).await.unwrap();
    *engine.hook.lock().unwrap() = (1, take_over);
    let released = roles.release(role(), "a".into(), reply.token).await;
    assert!(matches!(released, Err(Refusal::NotTheTerm { .. })), "{released:?}");
    assert_eq!(roles.now(&role()).await.unwrap().primary.unwrap().epoch, Epoch(9));
}

#[tokio::test(start_paused = true)]
async fn being_overtaken_again_and_again_ends_in_a_clear_refusal() {
    let (engine, roles) = meanwhile();
    *engine.hook.lock().unwrap() = (usize::MAX, overtake);
    let refusal = beat(&roles, "a", None).await.unwrap_err();
    assert!(matches!(&refusal, Refusal::Unavailable(why) if why.contains("too many concurrent updates")), "{refusal}");
    assert_eq!(roles.conflicts(), limits::UPDATE_TRIES_MAX as u64);
}

#[tokio::test]
async fn a_slot_is_not_called_recorded_after_a_takeover_before_its_release() {
    let (engine, roles) = meanwhile();
    let reply = beat(&roles, "a", None).await.unwrap();
    // Another candidate is primary before the write, whose response is lost: only the row shows whether it was
    // applied.
    *engine.hook.lock().unwrap() = (1, |engine| {
        take_over(engine);
        engine.lose_next_answer(LostAnswer::Dropped);
    });
    let released = roles.release_after(role(), "a".into(), reply.token, Some("mon".into())).await;
    assert!(matches!(released, Err(Refusal::NotTheTerm { .. })), "{released:?}");
    assert_eq!(roles.now(&role()).await.unwrap().last_run, None);
}
