//! The clients of a run: putters, workers with reservations, and clients of the paced form.

use std::rc::Rc;
use std::sync::Arc;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{
    HandOut, Outcome, Put, PutKind, PutOutcome, Release, Reservation, Reserve, UrlResult,
};
use wayleave_core::ids::Token;
use wayleave_core::metadata::Metadata;
use wayleave_core::time::{Millis, Time};
use wayleave_shard::Frontier;

use crate::chance::Chance;
use crate::damage;
use crate::oracle::Id;
use crate::run::verdict;
use crate::world::{World, pass};

/// Hosts of a run.
pub const HOSTS: u64 = 6;
/// Crawls of a run; the last one is deleted now and then.
pub const CRAWLS: [&str; 3] = ["DEFAULT", "news", "doomed"];
/// Paths of each host.
const PATHS: u64 = 12;

pub fn host_name(n: u64) -> String {
    format!("h{n}.example")
}

fn draw_put(chance: &Chance, now: Time) -> Put {
    let host = host_name(chance.below(HOSTS));
    let crawl = chance.pick(CRAWLS);
    let at = chance.once_in(4).then(|| now.after(Millis(chance.below(5_000))));
    Put {
        url: format!("http://{host}/{}", chance.below(PATHS)).into(),
        host: host.into(),
        crawl: crawl.into(),
        kind: PutKind::Discovered { at, priority: chance.below(10) as u8, depth: 0 },
        metadata: Metadata::default(),
    }
}

/// Puts URLs, repeatedly the same few, until the calm phase.
pub async fn putter(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    let mut round = 0;
    while !world.calm.get() {
        pass(chance.below(400)).await;
        let mut puts: Vec<Put> = (0..=chance.below(8)).map(|_| draw_put(&chance, world.now())).collect();
        if chance.once_in(6) {
            // A URL that is put only once: if this put is refused as unavailable, it must never appear.
            let mut once = draw_put(&chance, world.now());
            once.url = format!("http://{}/once/{name}/{round}", once.host).into();
            puts.push(once);
        }
        round += 1;
        let ids: Vec<_> = puts.iter().map(|put| (put.crawl.to_string(), put.url.to_string())).collect();
        // A put that races with a deletion may have either outcome, also where the deletion found nothing to delete.
        let deletions = world.oracle.borrow().deletions.len();
        // Those of a crawl that is deleted now and then may be new again.
        let is_known = |id: &Id| id.0 != "doomed" && world.oracle.borrow().added.contains(id);
        let known: Vec<bool> = ids.iter().map(is_known).collect();
        let outcomes = world.ask(async |frontier| Ok(frontier.put(puts).await)).await.unwrap_or_default();
        for (outcome, known) in outcomes.iter().zip(ids.iter().zip(known)) {
            damage::judge_put(&world, known, outcome);
        }
        let mut oracle = world.oracle.borrow_mut();
        let unanswered = ids.get(outcomes.len()..).unwrap_or_default();
        unanswered.iter().for_each(|id| oracle.perhaps_added(id.clone()));
        for (id, outcome) in ids.into_iter().zip(outcomes) {
            world.log("put", &format!("{name} {id:?} {outcome:?}"));
            check_put(&world, &outcome);
            let nothing_done = match &outcome {
                PutOutcome::Moved => true,
                PutOutcome::Failed(why) => why.is_unavailable(),
                _ => false,
            };
            if !nothing_done {
                oracle.perhaps_added(id.clone());
            }
            let settled = id.0 != "doomed" || oracle.deletions.len() == deletions;
            if matches!(outcome, PutOutcome::Added | PutOutcome::Known | PutOutcome::Updated) && settled {
                oracle.added(id);
            }
        }
    }
}

/// Without faults a put may only meet a host that is moving.
fn check_put(world: &World, outcome: &PutOutcome) {
    if let PutOutcome::Failed(why) = outcome {
        world.check::<()>("a put", &Err((**why).clone()));
    }
}

/// Reserves, works, renews and releases; sometimes it dies, sometimes it is too slow.
pub async fn worker(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    let mut round = 0;
    while !world.done.get() {
        pass(1 + chance.below(300)).await;
        let (groups, urls) = (1 + chance.below(3) as usize, 1 + chance.below(3) as usize);
        let lease = Millis(500 + chance.below(4_000));
        let wait = Millis(if chance.once_in(3) { chance.below(2_000) } else { 0 });
        round += 1;
        let holder: Arc<str> = format!("worker {name} {round}").into();
        let request = Reserve { holder: holder.clone(), groups, urls, crawl: None, lease, wait, request: None };
        match world.ask(async |frontier| frontier.reserve(request).await).await {
            Ok(granted) => {
                let shown: Vec<_> = granted.iter().map(|r| (&r.host, r.granted_at.0, r.urls.len())).collect();
                world.log("reserve", &format!("{name} {shown:?}"));
                verdict(&world, wayleave_core::invariants::bounded(&granted, groups, urls, lease));
                let judged = world.oracle.borrow_mut().granted(&granted, |_| 0);
                verdict(&world, judged);
                for reservation in granted {
                    visit(&world, &chance, name, reservation).await;
                }
            }
            Err(refusal) => {
                world.log("reserve", &format!("{name} {refusal}"));
                if refusal.is_unavailable() {
                    world.oracle.borrow_mut().refused_holder(holder);
                    check_holders(&world).await;
                }
                world.check::<()>("a reservation", &Err(refusal));
            }
        }
    }
}

/// No caller whose call was answered "unavailable" holds a reservation.
async fn check_holders(world: &World) {
    if let Ok(page) = world.ask(async |frontier| frontier.reservations(None, 1_000).await).await {
        let judged = world.oracle.borrow().judge_holders(page.items.iter().map(|view| &view.holder));
        verdict(world, judged);
    }
}

/// A token is refused only after its deadline.
fn check_token<T>(world: &World, token: Token, answer: &Result<T, Refusal>) {
    let judged = world.cluster.is_none() || !world.clock_steps();
    if judged && matches!(answer, Err(Refusal::NotCurrent)) {
        verdict(world, world.oracle.borrow().refused(token, world.now()));
    }
}

async fn visit(world: &Rc<World>, chance: &Chance, name: u64, reservation: Reservation) {
    let calm = world.calm.get();
    if !calm && chance.once_in(8) {
        return world.log("die", &format!("{name} {}", reservation.host));
    }
    pass(chance.below(if calm { 50 } else { 1_500 })).await;
    let token = reservation.token;
    if chance.once_in(3) {
        let mut earliest = world.now().after(Millis(3_000));
        let call = async |frontier: Frontier| {
            earliest = world.now().after(Millis(3_000));
            world.oracle.borrow_mut().ending(token, earliest);
            frontier.renew(token, Millis(3_000)).await
        };
        let answer = world.ask(call).await;
        world.log("renew", &format!("{name} {} {answer:?}", reservation.host));
        world.check("a renewal", &answer);
        check_token(world, token, &answer);
        match answer {
            Ok(until) => world.oracle.borrow_mut().renewed(token, until),
            Err(Refusal::NotCurrent) => return,
            Err(_) => world.oracle.borrow_mut().perhaps_renewed(token, earliest),
        }
        pass(chance.below(1_000)).await;
    }
    let draw = |_: &_| match chance.below(10) {
        0 if !calm => Outcome::Retry,
        1 => Outcome::Gone,
        _ => Outcome::Fetched,
    };
    let results: Vec<UrlResult> = reservation.urls.iter().map(|url| result(&url.url, draw(url), chance)).collect();
    let ids = |outcome: Outcome| outcome != Outcome::Retry;
    let finished: Vec<_> = reservation
        .urls
        .iter()
        .zip(&results)
        .filter(|(_, result)| ids(result.outcome))
        .map(|(url, _)| (url.crawl.to_string(), url.url.to_string()))
        .collect();
    let release = Release { token, results, ready_at: None };
    let call = async |frontier: Frontier| {
        world.oracle.borrow_mut().ending(token, world.now());
        frontier.release(release, Vec::new()).await
    };
    let answer = world.ask(call).await;
    world.log("release", &format!("{name} {} {:?}", reservation.host, answer.as_ref().map(|(r, _)| r.ready_at)));
    world.check("a release", &answer);
    check_token(world, token, &answer);
    if answer.is_ok() {
        world.oracle.borrow_mut().released(finished.into_iter(), world.now());
    }
}

pub fn result(url: &str, outcome: Outcome, chance: &Chance) -> UrlResult {
    let busy = outcome == Outcome::Retry;
    UrlResult {
        status: Some(if busy { 503 } else { 200 }),
        duration: Some(Millis(chance.below(200))),
        retry_after: busy.then(|| Millis(chance.below(2_000))),
        ..UrlResult::new(url, outcome)
    }
}

/// Takes URLs in the paced form and completes most of them.
pub async fn paced(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    while !world.done.get() {
        pass(1 + chance.below(700)).await;
        let (queues, urls) = (1 + chance.below(3) as usize, 1 + chance.below(3) as usize);
        let hold = Millis(200 + chance.below(3_000));
        let request = HandOut { host: None, crawl: None, queues, urls, held_below: Some(urls as u32), hold };
        let asked = world.now();
        let out = match world.ask(async |frontier| frontier.hand_out(request).await).await {
            Ok(out) => out,
            Err(refusal) => {
                world.log("hand out", &format!("{name} {refusal}"));
                world.check::<()>("a hand-out", &Err(refusal));
                continue;
            }
        };
        world.log("hand out", &format!("{name} {:?}", out.iter().map(|u| &u.url).collect::<Vec<_>>()));
        let judged = world.oracle.borrow_mut().handed_out(&out, asked, world.now());
        verdict(&world, judged);
        pass(chance.below(hold.0 / 2)).await;
        // A client of the paced form has no token: it may complete a URL only while its own hold certainly lasts, or it
        // would complete what was handed out to another client meanwhile.
        if world.now().since(asked) >= hold || out.is_empty() || (chance.once_in(5) && !world.calm.get()) {
            continue;
        }
        let done = |url: &wayleave_core::frontier::request::UrlToFetch| Put {
            url: url.url.clone(),
            host: url.host.clone(),
            crawl: url.crawl.clone(),
            kind: PutKind::Known { due: None },
            metadata: Metadata::default(),
        };
        let puts: Vec<Put> = out.iter().filter(|url| &*url.crawl != "doomed").map(done).collect();
        let ids: Vec<_> = puts.iter().map(|put| (put.crawl.to_string(), put.url.to_string())).collect();
        let outcomes = world.ask(async |frontier| Ok(frontier.put(puts).await)).await.unwrap_or_default();
        for (id, outcome) in ids.into_iter().zip(outcomes) {
            world.log("complete", &format!("{name} {id:?} {outcome:?}"));
            if matches!(outcome, PutOutcome::Added | PutOutcome::Updated) {
                world.oracle.borrow_mut().released([id].into_iter(), world.now());
            }
        }
    }
}
