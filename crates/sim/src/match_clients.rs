//! Clients of a pool: they want a worker, confirm it for a while, and give it back. More of them than there are slots.

use std::rc::Rc;

use wayleave_core::ids::Token;
use wayleave_core::invariants::Broken;
use wayleave_core::matches::{Asker, MatchStage, MatchView, PoolSpec};
use wayleave_core::names::PoolName;
use wayleave_core::time::Millis;
use wayleave_shard::matches::Matches;

use crate::chance::Chance;
use crate::run::{fail, verdict};
use crate::world::{Kind, World, pass};

/// The pool of a run.
pub fn pool() -> PoolName {
    "pool".into()
}

/// Creates the pool, however often it takes.
pub async fn create_pool(world: &World) {
    let spec = PoolSpec {
        command: vec!["worker".into()],
        slots: Some(2),
        max: Some(3),
        idle_ms: Some(2_000),
        reservation_ms: Some(20_000),
        start_ms_max: Some(10_000),
        match_ms_max: Some(120_000),
        ..PoolSpec::default()
    };
    let Ok(settings) = spec.check() else { fail(world, "the settings of the pool are wrong") };
    let set = async || {
        let settings = settings.clone();
        world.ask(async |frontier| Matches::new(frontier).set_pool(pool(), settings).await).await
    };
    while let Err(refusal) = set().await {
        world.log("no pool yet", &refusal.to_string());
        pass(200).await;
    }
}

/// Wants a worker, uses it, and gives it back. In the calm every client gets one once more.
pub async fn client(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    let asker = Asker { client: format!("client {name}").as_str().into(), principal: None };
    let mut last: Option<Token> = None;
    while !world.calm.get() || !world.matched.borrow().contains(&name) {
        pass(1 + chance.below(2_000)).await;
        let calm = world.calm.get();
        let Some(token) = want(&world, &chance, &asker).await else { continue };
        if last == Some(token) {
            let what = format!("'{}' got a reservation again that it had given back", asker.client);
            return verdict(&world, Err(Broken { law: 4, name: "nothing twice", what }));
        }
        if calm {
            world.matched.borrow_mut().insert(name);
        }
        use_it(&world, &chance, &asker, token).await;
        last = give_back(&world, &asker, token).await.then_some(token);
    }
}

/// Asks until it has a worker; none if it gives up.
async fn want(world: &World, chance: &Chance, asker: &Asker) -> Option<Token> {
    loop {
        // A client waits 6 s for a node, and the word of a worker may come after the wait.
        let wait = Millis(if chance.once_in(2) { chance.below(3_000) } else { 0 });
        let (asked, call) = (asker.clone(), world.calm.get());
        let answer = world.ask(async |frontier| Matches::new(frontier).put(pool(), asked, wait).await).await;
        match answer {
            Ok(Some(view)) => {
                judge(world, asker, &view);
                if let Some(token) = view.matched.as_ref().and_then(|matched| matched.token) {
                    return Some(token);
                }
                pass(view.retry_after.map_or(500, |after| after.0.clamp(100, 3_000))).await;
            }
            // An earlier cancellation whose answer was lost between nodes may arrive late.
            Ok(None) if world.kind == Kind::Nodes => {}
            Ok(None) => fail(world, &format!("'{}' was cancelled without a cancellation", asker.client)),
            Err(refusal) => {
                world.log("match", &format!("{} {refusal}", asker.client));
                world.check::<()>("a match", &Err(refusal));
                pass(200).await;
            }
        }
        if !call && chance.once_in(8) {
            // It has lost interest, and says so or not.
            if chance.once_in(2) {
                cancel(world, asker, None).await;
            }
            return None;
        }
    }
}

fn judge(world: &World, asker: &Asker, view: &MatchView) {
    world.log("match", &format!("{} {:?} {}", asker.client, view.stage, view.why));
    if view.why.to_string().is_empty() {
        fail(world, &format!("law 10: '{}' is {:?} without a reason", asker.client, view.stage));
    }
    match (&view.matched, view.stage) {
        (Some(matched), MatchStage::Matched) => {
            let Some(token) = matched.token else { fail(world, "a client did not get its token") };
            let judged = world.site.judge_grant(&asker.client, token, &matched.address, matched.expires_at);
            verdict(world, judged);
        }
        (None, MatchStage::Matched) | (Some(_), _) => fail(world, &format!("stage and worker disagree: {view:?}")),
        (None, _) => {}
    }
}

/// Confirms its match for a while.
async fn use_it(world: &World, chance: &Chance, asker: &Asker, token: Token) {
    for _ in 0..chance.below(4) {
        pass(500 + chance.below(3_000)).await;
        let asked = asker.clone();
        let answer = world.ask(async |frontier| Matches::new(frontier).look(pool(), asked, Millis(0)).await).await;
        let Ok(view) = answer else { continue };
        match view {
            Some(view) if view.matched.as_ref().is_some_and(|matched| matched.token == Some(token)) => {
                judge(world, asker, &view);
            }
            // Its worker is gone, or it was too late.
            _ => return,
        }
    }
    if !world.calm.get() && chance.once_in(6) {
        // It dies: the reservation is no longer confirmed.
        pass(25_000).await;
    }
}

async fn give_back(world: &World, asker: &Asker, token: Token) -> bool {
    world.site.given_back(&asker.client);
    cancel(world, asker, Some(token)).await
}

/// Whether the request has certainly ended.
async fn cancel(world: &World, asker: &Asker, token: Option<Token>) -> bool {
    for _ in 0..50 {
        let asked = asker.clone();
        let answer = world.ask(async |frontier| Matches::new(frontier).cancel(pool(), asked, token).await).await;
        world.log("cancel", &format!("{} {answer:?}", asker.client));
        match answer {
            Ok(_) => return true,
            Err(wayleave_core::frontier::refusal::Refusal::Match(_)) => return true,
            Err(_) => pass(200).await,
        }
    }
    false
}

/// What keeps the pool from rest; none if it is.
pub async fn unsettled(world: &World, clients: usize) -> Option<String> {
    let matched = world.matched.borrow().len();
    if matched < clients {
        return Some(format!("{matched} of {clients} clients have been matched"));
    }
    let left = world.site.left();
    if !left.is_empty() {
        return Some(format!("workers are left over: {left:?}"));
    }
    match world.ask(async |frontier| Matches::new(frontier).pool(pool()).await).await {
        Ok(view) if view.workers == 0 && view.matched == 0 && view.waiting == 0 => None,
        Ok(view) => Some(format!("{view:?}")),
        Err(refusal) => Some(refusal.to_string()),
    }
}
