//! A shard with a pipeline for tests: both states, and rows in maps. Its calls do what the owner of a shard does.

use std::sync::Arc;

use wayleave_core::frontier::reserve::Grant as VisitGrant;
use wayleave_core::frontier::visit::{PlannedVisit, Visit, Want};
use wayleave_core::ids::ShardId;
use wayleave_core::pipeline::State;
use wayleave_core::pipeline::claim::Grant;
use wayleave_core::pipeline::request::{LeaseEnded, LinkToFetch, LinksReported, ReportLinks};
use wayleave_core::pipeline::row::{Artifact, PipelineRow, Write};
use wayleave_core::pipeline::state::Renewed;

use super::*;
use crate::support::Shard;

pub struct Works {
    pub shard: Shard,
    pub pipeline: State,
    pub rows: BTreeMap<ChunkId, ChunkRow>,
    pub row: PipelineRow,
}

pub fn artifact(n: u64) -> Artifact {
    Artifact { location: format!("http://store/{n}").into(), bytes: n, checksum: [7; 32], from: None }
}

pub fn claim_of(stage: Stage, worker: &str, chunks: usize, links: usize) -> Claim {
    Claim {
        stage,
        worker: worker.into(),
        crawl: None,
        chunks,
        links,
        links_min: 1,
        host: None,
        lease: Millis(10_000),
        request: None,
    }
}

impl Works {
    pub fn new(now: u64) -> Self {
        let shard = Shard::new(now);
        let row = PipelineRow::default();
        let pipeline = State::new(ShardId(0), row);
        Self { shard, pipeline, rows: BTreeMap::new(), row }
    }

    pub fn commit(&mut self, writes: Writes) {
        for write in writes.pipeline {
            match write {
                Write::Pipeline(row) => self.row = row,
                Write::Chunk { row, moved, .. } => {
                    let before = self.rows.insert(row.id, (*row).clone());
                    let rested = before.map(|before| before.is_at_rest());
                    assert_eq!(moved, rested.is_some_and(|rested| rested != row.is_at_rest()), "{row:?}");
                }
            }
        }
        self.shard.commit(writes.frontier);
    }

    /// The laws hold.
    pub fn check(&self) {
        let (audit, now) = (self.shard.state.audit(self.shard.now), self.shard.now);
        invariants::counts_agree(&audit).expect("counts");
        invariants::everything_ends(&audit, now, Millis(0)).expect("everything ends");
        invariants::scheduled(&audit).expect("scheduled");
    }

    /// Drops both states and loads the rows.
    pub fn reload(&mut self) {
        self.shard.reload();
        self.pipeline = State::new(ShardId(0), self.row);
        for row in self.rows.values().filter(|row| !row.is_at_rest()) {
            self.pipeline.load(row.clone(), &mut self.shard.state);
        }
        self.sweep();
    }

    fn token(&mut self) -> Token {
        self.shard.draws += 1;
        Token::new(ShardId(0), self.shard.draws)
    }

    pub fn claim(&mut self, claim: &Claim) -> Vec<Claimed> {
        self.sweep();
        let now = self.shard.now;
        let mut claimed = Vec::new();
        while claimed.len() < claim.chunks {
            let grant = Grant { token: self.token(), until: now.after(claim.lease) };
            let mut writes = Writes::default();
            if claim.stage == Stage::Build {
                let Some(id) = self.pipeline.plan_build(claim.crawl.as_ref(), 1).first().copied() else { break };
                let row = self.rows[&id].clone();
                claimed.extend(self.pipeline.grant_build(&row, (claim, &grant), now, &mut writes.pipeline));
                self.commit(writes);
                continue;
            }
            if let Some(id) = self.pipeline.plan_offered(claim, &self.shard.state, now) {
                let urls = self.pipeline.active(id).expect("offered").urls();
                let rows = self.shard.rows(&urls);
                let state = &mut self.shard.state;
                claimed.extend(self.pipeline.grant_offered(id, rows, (claim, &grant), now, state, &mut writes));
                self.commit(writes);
                continue;
            }
            let granted = self.reserve(claim, claim.links, &mut writes);
            let made = self.pipeline.make(granted, (claim, &grant), now, &mut self.shard.state, &mut writes);
            self.commit(writes);
            let Some(made) = made else { break };
            claimed.push(made);
        }
        claimed
    }

    /// Plans all groups before it reserves the first: a group that may be visited twice at once must not be found again.
    fn reserve(&mut self, claim: &Claim, links: usize, writes: &mut Writes) -> Vec<Reservation> {
        let now = self.shard.now;
        self.shard.state.wake(now);
        let crawl = claim.crawl.as_ref().and_then(|name| self.shard.state.crawl_no(name));
        let urls = if claim.host.is_some() { links } else { 1 };
        let want = |crawl| Want { crawl, urls, held_below: None, bare_hosts: false };
        let visits = match &claim.host {
            Some(host) => self.shard.state.plan_host(host, &want(crawl), now).into_iter().collect(),
            None => {
                let mut visits = self.shard.state.plan_visits(&want(crawl), 1, now);
                if let Some(crawl) = visits.first().map(Visit::crawl) {
                    visits.extend(self.shard.state.plan_visits(&want(Some(crawl)), links - 1, now));
                }
                visits
            }
        };
        let chunk = self.pipeline.peek_id();
        let visits = self.planned(visits, urls);
        self.grant(visits, (&claim.worker, chunk, urls), claim.lease, writes)
    }

    fn planned(&self, visits: Vec<Visit>, urls: usize) -> Vec<PlannedVisit> {
        visits.into_iter().map(|visit| (visit.clone(), self.shard.fronts(&visit, urls))).collect()
    }

    fn grant(
        &mut self,
        visits: Vec<PlannedVisit>,
        (holder, chunk, urls): (&Arc<str>, ChunkId, usize),
        lease: Millis,
        writes: &mut Writes,
    ) -> Vec<Reservation> {
        let mut granted = Vec::new();
        for (visit, found) in visits {
            self.shard.draws += 1;
            let (entropy, chunk) = (self.shard.draws, Some(chunk));
            let grant = VisitGrant { holder: holder.clone(), urls, lease, entropy, request: None, chunk };
            granted.extend(self.shard.state.reserve(&visit, found, &grant, self.shard.now, &mut writes.frontier));
        }
        granted
    }

    pub fn report(
        &mut self,
        claimed: &Claimed,
        results: Vec<UrlResult>,
        replace: bool,
    ) -> Result<LinksReported, ChunkRefusal> {
        self.sweep();
        let now = self.shard.now;
        let report = ReportLinks { chunk: claimed.id, token: claimed.token, results, replace };
        let chunk = self.pipeline.reported(report.chunk, report.token, now)?.clone();
        // Only the rows of the links that the report names are read.
        let mut rows = vec![None; chunk.links.len()];
        for at in self.pipeline.named(report.chunk, report.results.iter().map(|result| &*result.url), &self.shard.state)
        {
            rows[at] = self.shard.rows(&[chunk.links[at].url.clone()]).remove(0);
        }
        let mut writes = Writes::default();
        let reported = self.pipeline.report(&report, &rows, now, 0, &mut self.shard.state, &mut writes);
        // Before anything is taken from the queues: what has returned to them must be found there.
        self.commit(writes);
        let (mut answer, vacancies) = reported?;
        if !vacancies.is_empty() {
            answer.replacements = self.replace(&chunk, &vacancies);
        }
        let chunk = self.pipeline.active(report.chunk).expect("leased");
        answer.left = self.pipeline.links_left(report.chunk, &self.shard.rows(&chunk.urls()), &self.shard.state);
        Ok(answer)
    }

    fn replace(&mut self, chunk: &ChunkRow, vacancies: &[usize]) -> Vec<LinkToFetch> {
        let (now, most) = (self.shard.now, vacancies.len());
        let mut writes = Writes::default();
        self.shard.state.wake(now);
        let fetch = if let Some(token) = chunk.visit {
            let Some(visit) = self.shard.state.plan_link_more(token, most, now) else {
                return Vec::new();
            };
            let found = self.shard.fronts(&visit, most);
            let most = self.pipeline.fresh_in(chunk.id, &found, now).min(most);
            let (urls, delay) =
                self.shard.state.take_link_more(token, (&visit, found), (most, now), &mut writes.frontier);
            self.pipeline.replace_here(chunk.id, vacancies, (token, urls, delay), &self.shard.state, &mut writes)
        } else {
            let crawl = self.shard.state.crawl_no(&chunk.crawl);
            let want = Want { crawl, urls: 1, held_below: None, bare_hosts: false };
            let chunk = self.pipeline.active(chunk.id).expect("leased").clone();
            let plan_most = most + chunk.failed_links();
            let visits = self.shard.state.plan_replacements(chunk.leases(), &want, plan_most, now);
            let planned = self.planned(visits, 1);
            let planned = self.pipeline.fresh_visits(chunk.id, planned, (most, now), &mut self.shard.state);
            let granted = self.grant(planned, (&"w".into(), chunk.id, 1), Millis(1), &mut writes);
            self.pipeline.replace(chunk.id, vacancies, granted, &mut self.shard.state, &mut writes)
        };
        self.commit(writes);
        fetch
    }

    pub fn end(&mut self, claimed: &Claimed, end: &EndChunk) -> Result<Option<ChunkState>, ChunkRefusal> {
        let (first, ended) = self.ended(claimed, end)?;
        Ok(first.then_some(ended.state))
    }

    /// Ends a lease, or repeats the call that has ended it. Also returns whether it was the first one.
    pub fn ended(&mut self, claimed: &Claimed, end: &EndChunk) -> Result<(bool, LeaseEnded), ChunkRefusal> {
        self.sweep();
        let now = self.shard.now;
        let ids = (claimed.id, claimed.token);
        let Some(chunk) = self.pipeline.to_end(ids, end, self.rows.get(&claimed.id), now)? else {
            let row = &self.rows[&claimed.id];
            return Ok((false, row.lease_ended(claimed.token, end, &self.shard.rows(&row.urls()))));
        };
        let rows = self.shard.rows(&chunk.urls());
        let mut writes = Writes::default();
        let draws = std::cell::Cell::new(self.shard.draws);
        let entropy = || {
            draws.set(draws.get() + 1);
            draws.get()
        };
        let facts = Facts { rows: &rows, now, jitter: 0, entropy: &entropy, found_elsewhere: false };
        let ended = self.pipeline.end(ids, end, &facts, &mut self.shard.state, &mut writes);
        self.shard.draws = draws.get();
        self.commit(writes);
        ended.map(|ended| (true, ended))
    }

    pub fn decide(&mut self, id: ChunkId, decision: OperatorAction) -> Result<ChunkState, ChunkRefusal> {
        self.decide_about(id, decision, false)
    }

    /// A retry that is refused because nothing is left for the chunk, and changes nothing.
    pub fn retry_in_vain(&mut self, id: ChunkId) {
        let before = self.rows[&id].clone();
        let refused = self.decide(id, OperatorAction::Retry);
        let in_vain = |remedy: &str| remedy.starts_with("none of its URLs can be taken back");
        assert!(
            matches!(&refused, Err(ChunkRefusal::WrongState { remedy, .. }) if in_vain(remedy)),
            "it does not look like a success: {refused:?}"
        );
        assert_eq!(self.rows[&id], before);
    }

    /// Carries out a decision, where a departed link is known in the shard of its host or not.
    pub fn decide_about(
        &mut self,
        id: ChunkId,
        decision: OperatorAction,
        found_elsewhere: bool,
    ) -> Result<ChunkState, ChunkRefusal> {
        let now = self.shard.now;
        let before = self.rows[&id].clone();
        let rows = self.shard.rows(&before.urls());
        let mut writes = Writes::default();
        let draws = std::cell::Cell::new(self.shard.draws);
        let entropy = || {
            draws.set(draws.get() + 1);
            draws.get()
        };
        let facts = Facts { rows: &rows, now, jitter: 0, entropy: &entropy, found_elsewhere };
        let decided = self.pipeline.decide(&before, decision, &facts, &mut self.shard.state, &mut writes);
        self.shard.draws = draws.get();
        self.commit(writes);
        decided
    }

    /// Placement has answered an announcement; whether that was news.
    pub fn placed(&mut self, id: ChunkId, refused: Option<&str>) -> bool {
        let (before, mut writes) = (self.rows[&id].clone(), Writes::default());
        let news = self.pipeline.placed(&before, refused, self.shard.now, &mut writes.pipeline);
        assert_eq!(news, !writes.pipeline.is_empty());
        self.commit(writes);
        news
    }

    pub fn renew(&mut self, claimed: &Claimed, until: Time) -> Result<Time, ChunkRefusal> {
        self.renewed(claimed, until).map(|renewed| renewed.expires_at)
    }

    pub fn renewed(&mut self, claimed: &Claimed, until: Time) -> Result<Renewed, ChunkRefusal> {
        self.sweep();
        let (mut writes, now) = (Writes::default(), self.shard.now);
        let ids = (claimed.id, claimed.token);
        let mut rows = vec![None; self.rows[&claimed.id].links.len()];
        for at in self.pipeline.unclear(claimed.id, &self.shard.state) {
            rows[at] = self.shard.rows(&[self.rows[&claimed.id].links[at].url.clone()]).remove(0);
        }
        let renewed = self.pipeline.renew(ids, (until, now), &rows, &mut self.shard.state, &mut writes.pipeline);
        self.commit(writes);
        renewed
    }

    /// Ends what has expired.
    pub fn sweep(&mut self) {
        self.shard.sweep();
        let now = self.shard.now;
        for id in self.pipeline.expired(now, 1_000) {
            let rows = self.shard.rows(&self.pipeline.active(id).expect("leased").urls());
            let mut writes = Writes::default();
            let facts = Facts { rows: &rows, now, jitter: 0, entropy: &|| 0, found_elsewhere: false };
            self.pipeline.expire(id, &facts, &mut self.shard.state, &mut writes);
            self.commit(writes);
        }
    }
}

/// Whatever a test did, the laws hold at its end.
impl Drop for Works {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}
