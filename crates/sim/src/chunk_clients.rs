//! Clients of the pipeline: crawlers that claim chunks and index builders. Some die, some are too slow, some lose what was
//! crawled.

use std::collections::BTreeMap;
use std::rc::Rc;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Outcome, Reservation};
use wayleave_core::ids::{ChunkId, ShardId, Token};
use wayleave_core::invariants::{Broken, Verdict};
use wayleave_core::pipeline::refusal::ChunkRefusal;
use wayleave_core::pipeline::request::{Claim, Claimed, EndChunk, LeaseEnded, LinkToFetch, ReportLinks, Stage};
use wayleave_core::pipeline::row::{Artifact, ChunkState};
use wayleave_core::time::{Millis, Time};
use wayleave_shard::Frontier;
use wayleave_shard::pipeline::Pipeline;

use crate::chance::Chance;
use crate::chunk_oracle::Sent;
use crate::clients::{HOSTS, host_name, result};
use crate::operator::move_host;
use crate::run::verdict;
use crate::world::{Kind, World, pass};

/// Links of a claim, at most.
const LINKS_MAX: usize = 4;

/// A link as its crawler knows it: a visit of its host, under a token that only the oracle knows.
struct Visited {
    link: LinkToFetch,
    token: Token,
    reported: bool,
    /// When it was asked for, in milliseconds of the run.
    asked: u64,
}

/// When a call with the token of a chunk was sent, and which store gave the time then.
struct SentAt(Sent, u64);

impl SentAt {
    fn new(world: &World) -> Self {
        Self(Sent { elapsed: world.clock.elapsed(), now: Some(world.now()) }, world.store_number())
    }

    /// As it is judged at the answer.
    fn judged(&self, world: &World) -> Sent {
        let same_store = self.1 == world.store_number();
        Sent { now: self.0.now.filter(|_| same_store), ..self.0 }
    }
}

fn claim(chance: &Chance, stage: Stage, name: u64) -> Claim {
    let host = (stage == Stage::Crawl && chance.once_in(6)).then(|| host_name(chance.below(HOSTS)).as_str().into());
    Claim {
        stage,
        worker: format!("{stage:?} {name}").into(),
        crawl: host.is_some().then(|| "news".into()),
        chunks: 1 + chance.below(2) as usize,
        links: 1 + chance.below(LINKS_MAX as u64) as usize,
        links_min: 1,
        host,
        lease: Millis(500 + chance.below(4_000)),
        request: None,
    }
}

fn artifact(chance: &Chance) -> Artifact {
    Artifact {
        location: format!("http://store/{}", chance.below(1 << 40)).into(),
        bytes: 1,
        checksum: [7; 32],
        from: None,
    }
}

/// Law 9: no more than was asked for.
fn bounded(claim: &Claim, claimed: &[Claimed]) -> Verdict {
    let links = claimed.iter().map(|chunk| chunk.links.len()).max().unwrap_or_default();
    // A chunk that is offered again has as many links as it was made with.
    let over = claimed.iter().any(|chunk| chunk.attempts == 0 && chunk.links.len() > LINKS_MAX);
    if claimed.len() > claim.chunks || over {
        let what = format!("{} chunks of up to {links} links for {claim:?}", claimed.len());
        return Err(Broken { law: 9, name: "bounded", what });
    }
    Ok(())
}

/// Claims, under an id now and then. Such a claim is repeated if its answer is lost, and sometimes without need: the
/// second answer must name the chunks of the first.
async fn claim_once_or_twice(
    world: &World,
    chance: &Chance,
    claim: Claim,
    wait: Millis,
) -> Result<Vec<Claimed>, Refusal> {
    let ask = async |claim: Claim| {
        world.ask(async |frontier| Pipeline::new(frontier).claim(claim, wait, Millis(0)).await).await
    };
    if !chance.once_in(3) {
        return ask(claim).await;
    }
    let claim = claim.named(&format!("request {}", chance.draw()));
    let (deletions, began) = (world.oracle.borrow().deletions.len(), world.clock.elapsed());
    let first = ask(claim.clone()).await;
    let again = match &first {
        Ok(claimed) => !claimed.is_empty() && chance.once_in(3),
        Err(_) => true,
    };
    if !again {
        return first;
    }
    pass(chance.below(100)).await;
    let second = ask(claim).await;
    let (Ok(before), Ok(after)) = (&first, &second) else { return second.or(first) };
    let now = world.now();
    // An operator may have skipped one since.
    let lasts =
        |chunk: &&Claimed| chunk.expires_at > now && world.oracle.borrow().chunks.is_undisturbed(chunk.id, began);
    let of = |chunks: &[Claimed]| -> BTreeMap<_, _> {
        chunks.iter().filter(lasts).map(|chunk| (chunk.id, chunk.token)).collect()
    };
    // A node that is cut off, or a shard that damage has closed, cannot say what it has granted. What has ended is claimed anew.
    let unsure = world.kind == Kind::Nodes || world.damage.has_been();
    let ended = world.oracle.borrow().deletions.len() != deletions || of(before).is_empty();
    let same = unsure || ended || of(before) == of(after);
    if !same {
        let what = format!("a repeated claim was answered with {after:?} after {before:?}");
        verdict(world, Err(Broken { law: 4, name: "nothing twice", what }));
    }
    first
}

/// Claims chunks, fetches their links and completes them.
pub async fn crawler(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    while !world.done.get() {
        pass(1 + chance.below(500)).await;
        let claim = claim(&chance, Stage::Crawl, name);
        let wait = Millis(if chance.once_in(3) { chance.below(2_000) } else { 0 });
        let one_host = claim.host.is_some();
        let (asked, began) = (world.now(), world.clock.elapsed());
        let answer = claim_once_or_twice(&world, &chance, claim.clone(), wait).await;
        match answer {
            Ok(claimed) => {
                verdict(&world, bounded(&claim, &claimed));
                let urls = |chunk: &Claimed| chunk.links.iter().map(|link| link.url.url.clone()).collect::<Vec<_>>();
                let shown: Vec<_> = claimed.iter().map(|c| (c.id.0, c.attempts, urls(c), c.expires_at.0)).collect();
                world.log("claim", &format!("{name} {shown:?}"));
                // All are judged at the answer, which hands out all of them, though the crawler takes one after the other.
                let visits = claimed.into_iter().filter_map(|chunk| {
                    let visited = begin(&world, name, (&chunk, one_host), (asked, began))?;
                    Some((chunk, visited))
                });
                for (chunk, visited) in visits.collect::<Vec<_>>() {
                    crawl(&world, &chance, name, (&chunk, one_host), visited).await;
                }
            }
            Err(refusal) => {
                world.log("claim", &format!("{name} {refusal}"));
                world.check::<()>("a claim", &Err(refusal));
            }
        }
    }
}

/// The visits of links, for the oracle. A chunk of one host is one visit.
fn visits(
    world: &World,
    (chunk, one_host): (&Claimed, bool),
    links: &[LinkToFetch],
    (asked, start, until): (Time, Time, Time),
    began: u64,
) -> Vec<Visited> {
    let mut visited: Vec<Visited> = Vec::new();
    for link in links {
        let first = visited.first().map(|first| first.token).filter(|_| one_host);
        let token = first.unwrap_or_else(|| {
            let number = world.oracle.borrow_mut().chunks.number();
            Token::new(ShardId(u16::MAX), number.into())
        });
        if first.is_none() {
            let reservation = Reservation {
                token,
                group: (*link.url.host).into(),
                host: link.url.host.clone(),
                holder: format!("chunk {}", chunk.id).into(),
                granted_at: start,
                expires_at: until,
                delay: link.delay,
                urls: if one_host { links.iter().map(|l| l.url.clone()).collect() } else { vec![link.url.clone()] },
            };
            let judged = world.oracle.borrow_mut().granted_since(asked, &[reservation], |_| 0);
            verdict(world, judged);
        }
        visited.push(Visited { link: link.clone(), token, reported: false, asked: began });
    }
    visited
}

/// Judges the answer to a call with the token of a chunk.
fn judge<T>(world: &World, chunk: (ChunkId, Token), sent: &SentAt, answer: &Result<T, Refusal>) {
    let sent = sent.judged(world);
    let judged = world.oracle.borrow_mut().chunks.answered(chunk, sent, answer.is_ok());
    verdict(world, judged);
    let not_current = matches!(answer, Err(Refusal::Chunk(ChunkRefusal::NotCurrent { .. } | ChunkRefusal::Unknown(_))));
    // Where the clock of several nodes steps, one that lost its shards may judge by an earlier time.
    let certain = world.cluster.is_none() || !world.clock_steps();
    if not_current && certain && sent.now.is_some() {
        verdict(world, world.oracle.borrow().chunks.refused(chunk, world.now()));
    }
}

/// Makes a call with the token of a chunk; once more if its answer is lost, because it may be repeated.
async fn ask_twice<T>(
    world: &World,
    chunk: (ChunkId, Token),
    call: &impl AsyncFn(Frontier) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let sent = SentAt::new(world);
    let answer = world.ask(async |frontier| call(frontier).await).await;
    judge(world, chunk, &sent, &answer);
    if !matches!(answer, Err(Refusal::OutcomeUnknown(_))) {
        return answer;
    }
    // Whether it is accepted depends on the first one, whose outcome is unknown.
    world.ask(async |frontier| call(frontier).await).await
}

/// Ends a lease, and with it these visits.
async fn end_lease(
    world: &World,
    (id, token): (ChunkId, Token),
    end: &EndChunk,
    visited: &[Visited],
) -> Result<LeaseEnded, Refusal> {
    let call = async |frontier: Frontier| {
        visited.iter().for_each(|link| world.oracle.borrow_mut().ending(link.token, world.now()));
        Pipeline::new(frontier).end_lease(id, token, end.clone()).await
    };
    ask_twice(world, (id, token), &call).await
}

/// Repeats a call that was accepted, sent at this time of the run, now and then: it is answered in the same way.
async fn repeat(
    world: &World,
    chance: &Chance,
    (id, token): (ChunkId, Token),
    (end, sent): (&EndChunk, u64),
    first: &LeaseEnded,
) {
    if !chance.once_in(4) {
        return;
    }
    pass(chance.below(200)).await;
    let again = world.ask(async |frontier| Pipeline::new(frontier).end_lease(id, token, end.clone()).await).await;
    world.log("again", &format!("{id} {again:?}"));
    let alike = match &again {
        Ok(again) => Some(again.ended == first.ended),
        Err(refusal) if is_stale(refusal) => Some(false),
        Err(_) => None,
    };
    let judged = world.oracle.borrow_mut().chunks.repeated((id, token), sent, alike);
    verdict(world, judged);
}

/// The visits of a chunk that was just claimed; `None` if its lease has ended.
fn begin(
    world: &World,
    name: u64,
    (claimed, one_host): (&Claimed, bool),
    (asked, began): (Time, u64),
) -> Option<Vec<Visited>> {
    let judged = world.oracle.borrow_mut().chunks.claimed(claimed, (began, world.clock.elapsed()));
    verdict(world, judged);
    if claimed.expires_at <= world.now() {
        // The answer came after the lease had ended: nothing may be visited under it.
        world.log("late", &format!("{name} {}", claimed.id));
        return None;
    }
    // The visits began at the decision, which is not known better than this; the laws are judged from the answer on. A store
    // that has failed continues counting, and the one that takes its place does not know how far: so the question may have been
    // asked at a later time than the answer was given.
    let start = world.now();
    Some(visits(world, (claimed, one_host), &claimed.links, (asked.min(start), start, claimed.expires_at), began))
}

async fn crawl(world: &Rc<World>, chance: &Chance, name: u64, chunk: (&Claimed, bool), mut visited: Vec<Visited>) {
    let calm = world.calm.get();
    let (claimed, one_host) = chunk;
    let mut deadline = claimed.expires_at;
    if !calm && chance.once_in(6) {
        return world.log("die", &format!("{name} {}", claimed.id));
    }
    let (id, token) = (claimed.id, claimed.token);
    if chance.once_in(3) {
        match renew(world, name, claimed, &visited).await {
            Renewed::Until(until) => deadline = until,
            Renewed::Perhaps => {}
            Renewed::TooLate => return,
        }
    }
    let mut at = 0;
    while at < visited.len() {
        pass(chance.below(if calm { 30 } else { 600 })).await;
        let Some(link) = visited.get_mut(at) else { break };
        at += 1;
        let outcome = match chance.below(8) {
            0 if !calm => Outcome::Retry,
            1 => Outcome::Gone,
            _ => Outcome::Fetched,
        };
        if chance.once_in(12) {
            // Left out: it returns when the chunk is complete.
            continue;
        }
        let url = link.link.url.clone();
        let results = vec![result(&url.url, outcome, chance)];
        let replace = chance.once_in(2);
        let report = ReportLinks { chunk: id, token, results, replace };
        let (sent, began) = (world.now(), world.clock.elapsed());
        let ended = (!one_host).then_some(link.token);
        let call = async |f: Frontier| {
            ended.iter().for_each(|token| world.oracle.borrow_mut().ending(*token, world.now()));
            Pipeline::new(f).report(report.clone(), Vec::new()).await
        };
        let answer = ask_twice(world, (id, token), &call).await;
        world.log("link", &format!("{name} {id} {} {outcome:?} {answer:?}", url.url));
        check(world, "a report", &answer);
        let (answer, _) = match answer {
            Ok(answer) => answer,
            Err(refusal) if is_stale(&refusal) => return,
            Err(_) => continue,
        };
        let taken = answer.ended.is_empty();
        link.reported = taken && outcome == Outcome::Fetched;
        if taken && outcome == Outcome::Gone {
            world.oracle.borrow_mut().released([(url.crawl.to_string(), url.url.to_string())].into_iter(), world.now());
        }
        let fresh = if world.now() < deadline { answer.replacements } else { Vec::new() };
        let more = if one_host {
            let token = link.token;
            fresh.into_iter().map(|link| Visited { link, token, reported: false, asked: began }).collect()
        } else {
            visits(world, chunk, &fresh, (sent, world.now(), deadline), began)
        };
        visited.extend(more);
    }
    complete(world, chance, name, claimed, &visited).await;
}

/// What became of a renewal.
enum Renewed {
    Until(Time),
    Perhaps,
    TooLate,
}

async fn renew(world: &World, name: u64, claimed: &Claimed, visited: &[Visited]) -> Renewed {
    let (id, token, mut until) = (claimed.id, claimed.token, world.now().after(Millis(3_000)));
    let call = async |frontier| {
        until = world.now().after(Millis(3_000));
        visited.iter().for_each(|link| world.oracle.borrow_mut().ending(link.token, until));
        Pipeline::new(frontier).renew(id, token, Millis(3_000)).await
    };
    let sent = SentAt::new(world);
    let answer = world.ask(call).await;
    judge(world, (id, token), &sent, &answer);
    let answered = answer.as_ref().map(|(until, _)| *until).ok();
    if !answer.as_ref().is_err_and(is_stale) {
        world.oracle.borrow_mut().chunks.renewed(id, token, answered);
    }
    world.log("renew chunk", &format!("{name} {id} {answer:?}"));
    check(world, "a renewal of a chunk", &answer);
    match answer {
        Ok((until, ended)) => {
            let kept = |link: &&Visited| !ended.contains(&link.link.url.url);
            visited.iter().filter(kept).for_each(|link| world.oracle.borrow_mut().renewed(link.token, until));
            Renewed::Until(until)
        }
        Err(refusal) if is_stale(&refusal) => Renewed::TooLate,
        Err(_) => {
            visited.iter().for_each(|link| world.oracle.borrow_mut().perhaps_renewed(link.token, until));
            Renewed::Perhaps
        }
    }
}

async fn complete(world: &Rc<World>, chance: &Chance, name: u64, claimed: &Claimed, visited: &[Visited]) {
    let (id, token) = (claimed.id, claimed.token);
    let often = if world.calm.get() { 8 } else { 3 };
    if let Some(link) = visited.iter().find(|link| link.reported).filter(|_| chance.once_in(often)) {
        // An operator moves its host before the chunk is complete.
        move_host(world, &link.link.host).await;
    }
    let content = visited.iter().any(|link| link.reported);
    let failed = !world.calm.get() && chance.once_in(8);
    let mut end = if failed {
        EndChunk::Fail { reason: "it broke".into(), input_lost: false }
    } else {
        EndChunk::Complete(content.then(|| artifact(chance)))
    };
    let (losses, mut sent) = (world.oracle.borrow().chunks.losses(id), world.clock.elapsed());
    let mut answer = end_lease(world, (id, token), &end, visited).await;
    if matches!(answer, Err(Refusal::Chunk(ChunkRefusal::NoContent { .. }))) {
        // All that it had fetched has left: it does what the refusal says.
        world.log("no content", &format!("{name} {id} {answer:?}"));
        (end, sent) = (EndChunk::Complete(None), world.clock.elapsed());
        answer = end_lease(world, (id, token), &end, visited).await;
    }
    world.log("complete chunk", &format!("{name} {id} {answer:?}"));
    check(world, "a completion", &answer);
    let Ok(ended) = answer else { return };
    if !failed {
        completed(world, (id, losses, sent), &ended, visited);
    }
    repeat(world, chance, (id, token), (&end, sent), &ended).await;
}

/// A crawler has completed a chunk, which may have moved on since: the links that it has reported count, but
/// for those that the answer names. A link leaves if its host moves, with its crawl, or if its row cannot be read.
fn completed(world: &World, (id, losses, sent): (ChunkId, u64, u64), ended: &LeaseEnded, visited: &[Visited]) {
    let (left, counts): (Vec<&Visited>, Vec<&Visited>) =
        visited.iter().filter(|link| link.reported).partition(|link| ended.ended.contains(&link.link.url.url));
    let mut oracle = world.oracle.borrow_mut();
    oracle.chunks.calls.left += u64::from(!left.is_empty());
    let moves = |of: &Visited| &*of.link.url.crawl == "doomed" || oracle.moves.may_have_moved(&of.link.host, of.asked);
    let stayed = |link: &&&Visited| !moves(link) && !world.damage.has_been_since(sent);
    if let Some(link) = left.iter().find(stayed) {
        let what = format!("{} has left chunk {id}, though its host did not move", link.link.url.url);
        verdict(world, Err(Broken { law: 12, name: "answers are true", what }));
    }
    let id_of = |link: &&Visited| (link.link.url.crawl.to_string(), link.link.url.url.to_string());
    let ids: Vec<_> = counts.iter().map(id_of).collect();
    let judged = oracle.chunks.crawled(id, losses, &ids);
    if oracle.chunks.losses(id) == losses {
        oracle.released(ids.into_iter(), world.now());
    }
    drop(oracle);
    verdict(world, judged);
}

/// Builds crawled chunks; now and then it dies, fails, or finds that the content is gone.
pub async fn builder(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    while !world.done.get() {
        pass(1 + chance.below(700)).await;
        let (claim, asked) = (claim(&chance, Stage::Build, name), world.clock.elapsed());
        let call = async |frontier| Pipeline::new(frontier).claim(claim, Millis(0), Millis(0)).await;
        let claimed = match world.ask(call).await {
            Ok(claimed) => claimed,
            Err(refusal) => {
                world.check::<()>("a claim", &Err(refusal));
                continue;
            }
        };
        for chunk in &claimed {
            let answered = (asked, world.clock.elapsed());
            let judged = world.oracle.borrow_mut().chunks.claimed(chunk, answered);
            verdict(&world, judged);
        }
        for chunk in claimed {
            let calm = world.calm.get();
            pass(chance.below(if calm { 50 } else { 1_500 })).await;
            let (id, token) = (chunk.id, chunk.token);
            let end = match chance.below(8) {
                0 | 1 if !calm => continue,
                2 if !calm => EndChunk::Fail { reason: "it broke".into(), input_lost: false },
                3 if !calm => EndChunk::Fail { reason: "404".into(), input_lost: true },
                _ => EndChunk::Complete(Some(artifact(&chance))),
            };
            if matches!(end, EndChunk::Fail { input_lost: true, .. }) {
                // Whatever the answer: from now on its links may be fetched again.
                world.oracle.borrow_mut().content_lost(id);
            }
            let sent = world.clock.elapsed();
            let answer = end_lease(&world, (id, token), &end, &[]).await;
            world.log("build", &format!("{name} {id} {answer:?}"));
            check(&world, "a build", &answer);
            let Ok(ended) = answer else { continue };
            if ended.state == ChunkState::Built && matches!(end, EndChunk::Complete(_)) {
                let judged = world.oracle.borrow_mut().chunks.built(id, token, (sent, world.clock.elapsed()));
                verdict(&world, judged);
            }
            repeat(&world, &chance, (id, token), (&end, sent), &ended).await;
        }
    }
}

/// Whether the lease has ended.
fn is_stale(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Chunk(_))
}

/// Without faults no call may be refused, but one that came too late.
fn check<T>(world: &World, what: &str, answer: &Result<T, Refusal>) {
    if !answer.as_ref().is_err_and(is_stale) {
        world.check(what, answer);
    }
}
