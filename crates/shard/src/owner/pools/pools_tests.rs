//! Interleavings that the handle cannot be made to meet at will, on pools without an owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::ShardId;
use wayleave_core::limits::{ASK_TIME, MATCH_DEFAULT};
use wayleave_core::matches::{Asker, Effect, Input, Instance, MatchStage, PoolSpec, RuntimeKind, Verdict, WorkerAsk};
use wayleave_core::names::PoolName;
use wayleave_core::time::{Millis, Time};

use super::decide::Pools;
use super::turn::Turn;
use crate::matches::Orders;
use crate::matches::call::{MatchCall, MatchResponse, QueuedBefore, Waited};
use crate::matches::news::{MatchBeat, MatchNews};
use crate::matches::readiness::LiveSite;
use crate::routing::router::CallResult;
use crate::shared::broadcast::Broadcast;

type Answer = oneshot::Receiver<CallResult<MatchResponse>>;

struct Desk {
    pools: Pools,
    now: Time,
    /// Random values that were drawn: every decision draws some.
    drawn: Arc<AtomicU64>,
}

fn pool() -> PoolName {
    "p".into()
}

fn live(site: &str, runtime: RuntimeKind) -> LiveSite {
    LiveSite { site: site.into(), runtime, lack: None }
}

fn asker() -> Asker {
    Asker { client: "a".into(), principal: None }
}

impl Desk {
    fn new() -> Self {
        let drawn = Arc::new(AtomicU64::new(1));
        let draw = drawn.clone();
        let entropy = Arc::new(move || u128::from(draw.fetch_add(1, Ordering::Relaxed)) << 64);
        let news = Arc::new(MatchNews::new(1, Broadcast::default()));
        let mut desk = Self { pools: Pools::new(ShardId(0), None, entropy, news, []), now: Time(1_000_000), drawn };
        desk.set_pool(pool());
        desk
    }

    fn set_pool(&mut self, pool: PoolName) {
        let spec = PoolSpec { command: vec!["worker".into()], ..PoolSpec::default() };
        let settings = Box::new(spec.check().expect("valid settings"));
        self.ask(MatchCall::SetPool { pool, settings, paused: None });
    }

    /// One turn with one call, whose commit succeeds.
    fn ask(&mut self, call: MatchCall) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.pools.decide(call, reply, self.now);
        self.turn();
        answer
    }

    /// The same, and the commit fails.
    fn ask_in_vain(&mut self, call: MatchCall) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.pools.decide(call, reply, self.now);
        self.end_turn(Err(Refusal::Unavailable("no room".to_owned())));
        answer
    }

    /// Ends a turn. Returns how many rows it wrote.
    fn turn(&mut self) -> usize {
        self.end_turn(Ok(()))
    }

    fn end_turn(&mut self, durable: CallResult<()>) -> usize {
        self.pools.tick(self.now);
        let Turn { writes, answers } = std::mem::take(&mut self.pools.turn);
        answers.into_iter().for_each(|send| send(durable.clone()));
        writes.len()
    }

    fn poll(&mut self) -> Orders {
        let mut answer = self.ask(MatchCall::Orders(live("s", RuntimeKind::Process)));
        match answer.try_recv() {
            Ok(Ok(MatchResponse::Orders(orders))) => orders,
            other => panic!("{other:?}"),
        }
    }

    fn tell(&mut self, input: Input) {
        self.ask(MatchCall::Tell(vec![(pool(), input)]));
    }

    /// Carries out what is ordered, but for checks, which are returned.
    fn work(&mut self) -> Vec<WorkerAsk> {
        let mut checks = Vec::new();
        loop {
            let orders = self.poll();
            if orders.is_empty() {
                return checks;
            }
            for (_, effect) in orders {
                let instance = Instance { id: "1".into(), started: 1, address: "127.0.0.1:9".into() };
                match effect {
                    Effect::List { site, since, .. } => self.tell(Input::Listed { site, since, found: Vec::new() }),
                    Effect::Create(make) => self.tell(Input::Made { step: make.step, result: Ok(instance) }),
                    Effect::Await(order) => self.tell(Input::Listening { step: order.step, result: Ok(()) }),
                    Effect::Reserve(ask) => self.tell(ask.reserved(Verdict::Yes)),
                    Effect::Check(ask) => checks.push(ask),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn put(&mut self, wait: u64, again: bool) -> Answer {
        let before = if again { QueuedBefore::Yes } else { QueuedBefore::No };
        self.ask(MatchCall::Put { pool: pool(), asker: asker(), wait: Millis(wait), before })
    }

    fn look(&mut self) -> Answer {
        self.ask(MatchCall::Look { pool: pool(), asker: asker(), wait: Millis(0) })
    }
}

/// Stage, and whether the worker confirmed it; none if the call is still parked.
fn told(answer: &mut Answer) -> Option<Option<(MatchStage, bool)>> {
    match answer.try_recv() {
        Ok(Ok(MatchResponse::Waited(Waited::Now(view)))) => Some(view.map(|view| (view.stage, view.verified))),
        Err(oneshot::error::TryRecvError::Empty) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_put_that_goes_on_waiting_queues_nobody_who_was_cancelled_between_its_parts() {
    let mut desk = Desk::new();
    assert_eq!(told(&mut desk.put(0, false)), Some(Some((MatchStage::Queued, false))));
    assert_eq!(told(&mut desk.put(0, true)), Some(Some((MatchStage::Queued, false))), "it goes on");
    desk.ask(MatchCall::Cancel { pool: pool(), asker: asker(), token: None });
    assert_eq!(told(&mut desk.put(4_000, true)), Some(None));
    assert_eq!(told(&mut desk.look()), Some(None), "it is not queued again");
    assert_eq!(told(&mut desk.put(0, false)), Some(Some((MatchStage::Queued, false))), "a new call queues it");
}

/// Two puts of one client wait on another node, and a third one was dropped when its answer was on its way.
#[test]
fn all_puts_that_wait_while_their_match_fails_are_told_so_and_none_queues_it_again() {
    let mut desk = Desk::new();
    let (queued, failed) = (Some(Some((MatchStage::Queued, false))), Some(Some((MatchStage::Failed, false))));
    assert_eq!(told(&mut desk.put(0, false)), queued);
    desk.now = desk.now.after(MATCH_DEFAULT);
    desk.turn();
    assert_eq!(told(&mut desk.put(0, true)), failed);
    assert_eq!(told(&mut desk.put(0, true)), failed);
    let before = QueuedBefore::Perhaps;
    let mut end = desk.ask(MatchCall::Put { pool: pool(), asker: asker(), wait: Millis(0), before });
    assert_eq!(told(&mut end), failed);
    assert_eq!(told(&mut desk.put(0, false)), queued, "a new call queues it");
}

#[test]
fn a_check_answers_the_calls_that_came_before_it_was_sent_and_no_later_one() {
    let mut desk = Desk::new();
    let mut put = desk.put(4_000, false);
    assert!(desk.work().is_empty());
    assert_eq!(told(&mut put), Some(Some((MatchStage::Matched, true))));
    desk.now = desk.now.after(Millis(2_000));
    let (mut first, early) = (desk.look(), desk.work());
    desk.now = desk.now.after(Millis(100));
    let (mut second, late) = (desk.look(), desk.work());
    let ([early], [late]) = (early.as_slice(), late.as_slice()) else { panic!("one check each") };
    assert_eq!((told(&mut first), told(&mut second)), (None, None), "both are parked");
    desk.tell(early.checked(Verdict::Yes));
    assert_eq!(told(&mut first), Some(Some((MatchStage::Matched, true))));
    assert_eq!(told(&mut second), None, "that answer may be older than the call");
    desk.tell(late.checked(Verdict::Unknown("500".into())));
    assert!(matches!(told(&mut second), Some(Some((MatchStage::Matched, _)))));
}

#[test]
fn a_check_that_is_answered_too_late_changes_nothing() {
    let mut desk = Desk::new();
    desk.put(4_000, false);
    desk.work();
    desk.now = desk.now.after(Millis(2_000));
    let (mut look, checks) = (desk.look(), desk.work());
    desk.now = desk.now.after(ASK_TIME);
    desk.turn();
    assert_eq!(told(&mut look), Some(Some((MatchStage::Matched, false))), "nobody has confirmed it");
    let [check] = checks.as_slice() else { panic!("one check") };
    let (reply, _answer) = oneshot::channel();
    desk.pools.decide(MatchCall::Tell(vec![(pool(), check.checked(Verdict::No))]), reply, desk.now);
    assert_eq!(desk.turn(), 0, "a plain no, and no row changes");
    assert!(matches!(told(&mut desk.look()), None | Some(Some((MatchStage::Matched, _)))));
}

#[test]
fn calls_of_an_owner_that_ends_are_told_here_and_on_other_nodes() {
    let mut desk = Desk::new();
    desk.work();
    let mut put = desk.put(4_000, false);
    assert_eq!(told(&mut put), None);
    let b = Asker { client: "b".into(), principal: None };
    let mut failed =
        desk.ask_in_vain(MatchCall::Put { pool: pool(), asker: b, wait: Millis(4_000), before: QueuedBefore::No });
    let (news, mut seen) = (desk.pools.elsewhere.clone(), Some(0));
    assert_eq!(news.since(&mut seen), MatchBeat::default(), "no call waits elsewhere");
    drop(desk);
    for (answer, queued) in [(&mut put, QueuedBefore::Yes), (&mut failed, QueuedBefore::Perhaps)] {
        let told = answer.try_recv();
        assert!(
            matches!(&told, Ok(Ok(MatchResponse::Waited(Waited::Interrupted(told)))) if *told == queued),
            "{told:?}"
        );
    }
    assert_eq!(news.since(&mut seen).news, [(ShardId(0), None)]);
}

#[test]
fn news_of_a_client_are_published_while_calls_wait_on_other_nodes() {
    let mut desk = Desk::new();
    desk.put(0, false);
    let (news, mut seen) = (desk.pools.elsewhere.clone(), Some(0));
    news.watch(ShardId(0), desk.now.after(Millis(1)));
    assert!(desk.work().is_empty());
    let matched = news.since(&mut seen).news;
    assert!(matches!(matched.as_slice(), [(ShardId(0), Some(_))]), "only that it is matched: {matched:?}");
    assert!(matches!(told(&mut desk.put(0, true)), Some(Some((MatchStage::Matched, true)))));
    desk.ask(MatchCall::Cancel { pool: pool(), asker: asker(), token: None });
    assert_eq!(news.since(&mut seen).news, matched, "it is gone");
    // Nobody waits any more.
    desk.now = desk.now.after(Millis(1));
    desk.put(0, false);
    desk.ask(MatchCall::Cancel { pool: pool(), asker: asker(), token: None });
    assert_eq!(news.since(&mut seen), MatchBeat::default());
}

fn refusal(answer: &mut Answer) -> String {
    match answer.try_recv() {
        Ok(Err(refusal)) => refusal.to_string(),
        other => panic!("{other:?}"),
    }
}

/// What went wrong once: the call was told that the pool is not known, or that it was cancelled.
#[test]
fn a_put_that_waits_while_its_pool_is_removed_is_told_so_and_so_is_who_asks_later() {
    let told = "pool 'p' was removed; set it up again to use it";
    let mut desk = Desk::new();
    let mut put = desk.put(4_000, false);
    desk.ask(MatchCall::DeletePool(pool()));
    assert_eq!(refusal(&mut put), told);
    let why = MatchCall::Why { pool: pool(), client: "a".into() };
    assert_eq!(refusal(&mut desk.ask(why)), told);
    desk.set_pool(pool());
    desk.ask(MatchCall::DeletePool("q".into()));
    assert!(refusal(&mut desk.ask(MatchCall::Pool("q".into()))).contains("not known"), "it never was");
    // With a worker the pool stays for a while; its clients are told at once.
    desk.put(0, false);
    desk.work();
    let asker = Asker { client: "b".into(), principal: None };
    let mut waits = desk.ask(MatchCall::Put { pool: pool(), asker, wait: Millis(4_000), before: QueuedBefore::No });
    desk.ask(MatchCall::DeletePool(pool()));
    match waits.try_recv() {
        Ok(Ok(MatchResponse::Waited(Waited::Now(Some(view))))) => {
            assert_eq!(view.why.to_string(), "the pool was removed")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sign_of_life_costs_no_decision_of_pools_that_know_the_site() {
    let mut desk = Desk::new();
    (0..1_000).for_each(|n| desk.set_pool(format!("pool-{n}").as_str().into()));
    desk.work();
    for _ in 0..10 {
        desk.now = desk.now.after(Millis(2_000));
        let before = desk.drawn.load(Ordering::Relaxed);
        desk.pools.look_for_sites(vec![live("s", RuntimeKind::Process)], desk.now);
        assert_eq!(desk.drawn.load(Ordering::Relaxed), before, "nothing was decided");
    }
    // And yet the site is alive to all of them.
    let asker = Asker { client: "a".into(), principal: None };
    desk.ask(MatchCall::Put { pool: "pool-7".into(), asker, wait: Millis(0), before: QueuedBefore::No });
    assert!(desk.poll().iter().any(|(_, effect)| effect.kind() == "create"));
}
