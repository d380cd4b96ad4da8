//! Random claims, reports, failures, deadlines, moves and reloads: one visitor per group, delays between visits, no URL in
//! two chunks or reservations, no content of a chunk counted twice, and in a calm phase everything ends.

use std::collections::BTreeSet;

use proptest::prelude::*;
use wayleave_core::frontier::request::Release;
use wayleave_core::frontier::row::UrlStatus;
use wayleave_core::frontier::url_key::UrlKey;

use super::support::{Works, artifact, claim_of};
use super::*;

const HOSTS: usize = 5;
const DELAY: u64 = 1_000;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Put { host: usize, path: u8 },
    Claim { chunks: usize, links: usize, host: Option<usize>, lease: u64 },
    Build { most: usize, lease: u64 },
    Report { which: usize, links: Vec<(usize, u8)>, replace: bool },
    Renew { which: usize },
    Complete { which: usize },
    Fail { which: usize, lost: bool },
    Decide { which: usize, skip: bool },
    Reserve { groups: usize },
    Release { which: usize },
    Revoke { which: usize },
    Rejoin { host: usize, alias: bool },
    DeleteQueue { host: usize },
    Parallel { most: u32 },
    PauseCrawl(bool),
    Place { which: usize },
    Wait(u64),
    Reload,
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lease = prop_oneof![Just(3_000u64), Just(20_000)];
    let step = prop_oneof![
        4 => (0..HOSTS, 0..6u8).prop_map(|(host, path)| Step::Put { host, path }),
        4 => (1..3usize, 1..5usize, prop::option::weighted(0.2, 0..HOSTS), lease.clone())
            .prop_map(|(chunks, links, host, lease)| Step::Claim { chunks, links, host, lease }),
        2 => (1..4usize, lease).prop_map(|(most, lease)| Step::Build { most, lease }),
        4 => (any::<usize>(), prop::collection::vec((0..5usize, 0..4u8), 1..4), any::<bool>())
            .prop_map(|(which, links, replace)| Step::Report { which, links, replace }),
        1 => any::<usize>().prop_map(|which| Step::Renew { which }),
        3 => any::<usize>().prop_map(|which| Step::Complete { which }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, lost)| Step::Fail { which, lost }),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(which, skip)| Step::Decide { which, skip }),
        2 => (1..3usize).prop_map(|groups| Step::Reserve { groups }),
        1 => any::<usize>().prop_map(|which| Step::Release { which }),
        1 => any::<usize>().prop_map(|which| Step::Revoke { which }),
        1 => (0..HOSTS, any::<bool>()).prop_map(|(host, alias)| Step::Rejoin { host, alias }),
        1 => any::<usize>().prop_map(|which| Step::Place { which }),
        4 => prop_oneof![Just(200u64), Just(1_001), Just(4_000), Just(31_000)].prop_map(Step::Wait),
        1 => (0..HOSTS).prop_map(|host| Step::DeleteQueue { host }),
        1 => (1..3u32).prop_map(|most| Step::Parallel { most }),
        1 => any::<bool>().prop_map(Step::PauseCrawl),
        2 => Just(Step::Reload),
    ];
    prop::collection::vec(step, 1..60)
}

fn name(host: usize) -> String {
    format!("h{host}.example")
}

/// What a worker knows: the chunks it was given, and its visits.
pub(super) struct World {
    pub works: Works,
    chunks: Vec<Claimed>,
    visits: Vec<Reservation>,
    /// The last end of a visit to a host, as far as workers know, and the deadline of the one in progress.
    ends: BTreeMap<String, Time>,
    published: BTreeMap<ChunkId, (u32, u32)>,
    /// Some group may be visited several times at once.
    parallel: bool,
}

impl World {
    pub fn new() -> Self {
        let works = Works::new(START);
        Self {
            works,
            chunks: Vec::new(),
            visits: Vec::new(),
            ends: BTreeMap::new(),
            published: BTreeMap::new(),
            parallel: false,
        }
    }

    /// A visit to a host begins: the one before ended at least a delay ago.
    fn begins(&mut self, host: &str) {
        let now = self.works.shard.now;
        let last = self.ends.get(host).copied().unwrap_or_default();
        let rested = now >= last.after(Millis(DELAY)) || last == Time::ZERO;
        assert!(rested || self.parallel, "{host} at {now:?}, last end {last:?}");
    }

    pub fn claimed(&mut self, claimed: &[Claimed]) {
        let now = self.works.shard.now;
        for chunk in claimed.iter().filter(|chunk| chunk.stage == Stage::Crawl) {
            let hosts: BTreeSet<String> = chunk.links.iter().map(|link| link.url.host.to_string()).collect();
            let one_host = self.works.rows[&chunk.id].host.is_some();
            assert!(one_host || hosts.len() == chunk.links.len(), "one link per group: {chunk:?}");
            hosts.iter().for_each(|host| self.begins(host));
            let state = &self.works.shard.state;
            let visited: BTreeSet<_> = state
                .links()
                .filter(|(_, link)| link.visiting && link.chunk == chunk.id)
                .flat_map(|(token, _)| state.link_urls(token).unwrap_or_default().iter().map(|(_, key)| key.clone()))
                .collect();
            for link in &chunk.links {
                let key = UrlKey::new(&link.url.host, &link.url.url);
                assert!(visited.contains(&key), "handed out without a visit: {}", link.url.url);
            }
        }
        assert!(claimed.iter().all(|chunk| chunk.expires_at > now));
        self.chunks.extend(claimed.iter().cloned());
    }

    /// Whether a chunk's token is current.
    fn is_current(&self, chunk: &Claimed) -> bool {
        let now = self.works.shard.now;
        let lease = self.works.rows.get(&chunk.id).and_then(|row| row.lease.as_ref());
        lease.is_some_and(|lease| lease.token == chunk.token && lease.expires_at > now)
    }

    pub fn run(&mut self, step: &Step) {
        match step.clone() {
            Step::Put { host, path } => put(&mut self.works, &name(host), &path.to_string()),
            Step::Claim { chunks, links, host, lease } => {
                let host = host.map(|host| name(host).as_str().into());
                let crawl = host.is_some().then(|| "c".into());
                let claim = Claim { host, crawl, lease: Millis(lease), ..claim_of(Stage::Crawl, "w", chunks, links) };
                let claimed = self.works.claim(&claim);
                self.claimed(&claimed);
            }
            Step::Build { most, lease } => {
                let claim = Claim { lease: Millis(lease), ..claim_of(Stage::Build, "b", most, 0) };
                let claimed = self.works.claim(&claim);
                self.claimed(&claimed);
            }
            Step::Report { which, links, replace } => self.report(which, &links, replace),
            Step::Renew { which } => {
                let Some(chunk) = self.pick(which) else { return };
                let (current, until) = (self.is_current(&chunk), self.works.shard.now.after(Millis(5_000)));
                assert_eq!(self.works.renew(&chunk, until).is_ok(), current);
            }
            Step::Complete { which } => self.complete(which),
            Step::Fail { which, lost } => {
                let Some(chunk) = self.pick(which) else { return };
                let current = self.is_current(&chunk) && !(lost && chunk.stage == Stage::Crawl);
                let fail = EndChunk::Fail { reason: "it broke".into(), input_lost: lost };
                let ended = self.works.end(&chunk, &fail);
                assert_eq!(matches!(ended, Ok(Some(_))), current, "{ended:?}");
            }
            Step::Decide { which, skip } => {
                let ids: Vec<ChunkId> = self.works.rows.keys().copied().collect();
                let Some(id) = ids.get(which % ids.len().max(1)).copied() else { return };
                _ = self.works.decide(id, if skip { OperatorAction::Skip } else { OperatorAction::Retry });
            }
            step => self.meanwhile(&step),
        }
    }

    /// What others do meanwhile.
    fn meanwhile(&mut self, step: &Step) {
        match step.clone() {
            Step::Reserve { groups } => {
                self.works.sweep();
                let granted = self.works.shard.reserve(groups, 1, None, 5_000);
                granted.iter().for_each(|visit| self.begins(&visit.host));
                self.visits.extend(granted);
            }
            Step::Release { which } => {
                let Some(visit) = self.visits.get(which % self.visits.len().max(1)).cloned() else { return };
                let results = visit.urls.iter().map(|url| fetched(&url.url)).collect();
                _ = self.works.shard.release(&Release { token: visit.token, results, ready_at: None });
            }
            Step::Revoke { which } => {
                let links: Vec<_> = self.works.shard.state.links().filter(|(_, link)| link.visiting).collect();
                let Some((token, _)) = links.get(which % links.len().max(1)) else { return };
                let urls = self.works.shard.state.link_urls(*token).expect("a link").to_vec();
                let rows = self.works.shard.rows(&urls);
                let mut writes = Vec::new();
                assert!(self.works.shard.state.revoke(*token, rows, self.works.shard.now, &mut writes));
                self.works.shard.commit(writes);
            }
            Step::Rejoin { host, alias } => {
                let alias = alias.then(|| "together".into());
                self.works.shard.move_hosts(&[name(host).as_str().into()], alias.as_ref());
            }
            Step::DeleteQueue { host } => {
                self.works.shard.delete_queue(&name(host).as_str().into(), &"c".into());
                self.works.shard.run_jobs();
                if self.works.shard.state.host_id(&name(host)).is_none() {
                    // The one way to make a shard forget a visit.
                    self.ends.remove(&name(host));
                }
            }
            Step::Parallel { most } => {
                // Of the hosts that share an alias; then several visits of it are in progress at once.
                let changes = PaceChanges { parallel: Change::Set(most), ..PaceChanges::default() };
                if self.works.shard.state.set_group(&"together".into(), &changes, false, self.works.shard.now).is_ok() {
                    self.parallel |= most > 1;
                }
                self.works.shard.commit(Vec::new());
            }
            Step::PauseCrawl(paused) => self.pause(paused),
            Step::Place { which } => {
                let ids: Vec<ChunkId> = self.works.rows.keys().copied().collect();
                if let Some(id) = ids.get(which % ids.len().max(1)) {
                    self.place(*id);
                }
            }
            Step::Wait(span) => self.works.shard.now = self.works.shard.now.after(Millis(span)),
            Step::Reload => self.works.reload(),
            step => unreachable!("{step:?} is a step of a chunk's worker"),
        }
    }

    /// Placement says that it knows a chunk, rightly or not.
    fn place(&mut self, id: ChunkId) {
        let row = &self.works.rows[&id];
        let first = row.state == ChunkState::Built && !row.placed;
        assert_eq!(self.works.placed(id, None), first, "each chunk is placed once");
    }

    fn pick(&self, which: usize) -> Option<Claimed> {
        self.chunks.get(which % self.chunks.len().max(1)).cloned()
    }

    fn report(&mut self, which: usize, links: &[(usize, u8)], replace: bool) {
        let Some(chunk) = self.pick(which).filter(|chunk| !chunk.links.is_empty()) else { return };
        let mut once = BTreeSet::new();
        let results: Vec<UrlResult> = links
            .iter()
            .filter(|(at, _)| once.insert(at % chunk.links.len()))
            .map(|(at, outcome)| {
                let url = &*chunk.links[at % chunk.links.len()].url.url;
                let outcome = match outcome {
                    0 => Outcome::Gone,
                    1 => Outcome::Retry,
                    _ => Outcome::Fetched,
                };
                UrlResult::new(url, outcome)
            })
            .collect();
        let current = self.is_current(&chunk);
        let answer = self.works.report(&chunk, results, replace);
        assert!(current || answer.is_err(), "{answer:?}");
        if let Ok(answer) = answer {
            if self.works.rows[&chunk.id].host.is_none() {
                answer.replacements.iter().for_each(|link| self.begins(&link.url.host));
            }
            if let Some(known) = self.chunks.iter_mut().find(|known| known.token == chunk.token) {
                known.links.extend(answer.replacements);
            }
        }
    }

    fn complete(&mut self, which: usize) {
        let Some(chunk) = self.pick(which) else { return };
        let made = Some(artifact(u64::from(chunk.attempts)));
        let attempts = [made.clone(), None];
        for artifact in attempts {
            match self.works.end(&chunk, &EndChunk::Complete(artifact)) {
                Ok(Some(ChunkState::Crawled)) => self.published.entry(chunk.id).or_default().0 += 1,
                Ok(Some(ChunkState::Built)) => self.published.entry(chunk.id).or_default().1 += 1,
                _ => {}
            }
        }
    }

    /// After every step: who visits what, as the rows say.
    pub fn laws(&mut self) {
        self.works.sweep();
        self.works.check();
        let now = self.works.shard.now;
        let leases = &self.works.shard.store.leases;
        let mut held = BTreeSet::new();
        for lease in leases.values() {
            for url in &lease.urls {
                let row = self.works.shard.store.urls.get(url);
                let mine = row
                    .is_some_and(|row| matches!(row.status, UrlStatus::Reserved { token, .. } if token == lease.token));
                assert!(!mine || held.insert(url.clone()), "{url:?} is held twice");
            }
        }
        // Every link belongs to a chunk that knows it, and the other way round.
        let links: BTreeMap<_, _> = self.works.shard.state.links().collect();
        for (token, link) in &links {
            let row = &self.works.rows[&link.chunk];
            assert!(row.leases().any(|known| known == *token), "{token:?} is a link that its chunk does not know");
            assert!(row.state == ChunkState::Crawling, "{:?} keeps a link", row.state);
            assert!(!link.visiting || row.lease.is_some(), "a visit without a lease");
        }
        // Ends of visits, for the delays: what is not visited any more has ended by now.
        let visiting: BTreeSet<String> = leases
            .values()
            .filter(|lease| lease.link.is_none_or(|link| link.visiting))
            .filter_map(|lease| self.works.shard.state.host_by_id(lease.host).map(|host| host.name.to_string()))
            .collect();
        let before: Vec<String> = self.ends.keys().cloned().collect();
        for host in visiting.iter().cloned().chain(before) {
            if visiting.contains(&host) {
                // Still going on: it ends no earlier than now. Expiry ends it at its deadline, which has not passed.
                self.ends.insert(host, now);
            }
        }
        // All built chunks that are not placed are known to be so, and nothing else is.
        let unplaced = self.works.rows.values().filter(|row| row.state == ChunkState::Built && !row.placed);
        let unplaced: Vec<ChunkId> = unplaced.map(|row| row.id).collect();
        assert_eq!(self.works.pipeline.unplaced(usize::MAX), unplaced);
        for (id, (crawled, built)) in &self.published {
            let row = &self.works.rows[id];
            assert!(*built <= 1, "{id} was built {built} times");
            assert!(*crawled <= 1 + row.inputs_lost.max(5), "{id} was crawled {crawled} times");
        }
    }

    fn pause(&mut self, paused: bool) {
        let changes = CrawlChanges { paused: Change::Set(paused), ..CrawlChanges::default() };
        let now = self.works.shard.now;
        self.works.shard.state.set_crawl(&"c".into(), &changes, false, now);
        self.works.shard.commit(Vec::new());
    }

    /// No faults any more: everything ends.
    pub fn calm(&mut self) {
        self.pause(false);
        for _ in 0..400 {
            // URLs that are tried again wait for minutes.
            self.works.shard.now = self.works.shard.now.after(Millis(60_001));
            self.laws();
            let claimed = self.works.claim(&claim_of(Stage::Crawl, "calm", 3, 4));
            self.claimed(&claimed);
            for chunk in &claimed {
                super::report_all(&mut self.works, chunk);
                self.works.end(chunk, &EndChunk::Complete(Some(artifact(1)))).expect("complete");
            }
            let built = self.works.claim(&claim_of(Stage::Build, "calm", 100, 0));
            for chunk in &built {
                self.works.end(chunk, &EndChunk::Complete(Some(artifact(2)))).expect("built");
            }
            self.works.pipeline.unplaced(3).into_iter().for_each(|id| self.place(id));
            let idle = claimed.is_empty() && built.is_empty();
            let open = self.works.rows.values().any(|row| !row.is_at_rest());
            let queued = self.works.shard.store.urls.values().any(|row| !row.status.is_at_rest())
                || !self.works.shard.store.dues.is_empty();
            if idle && !open && !queued {
                return;
            }
        }
        let open: Vec<_> = self.works.rows.values().filter(|row| !row.is_at_rest()).collect();
        panic!("something never ends: {open:#?} {:#?}", self.works.shard.store.dues);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn chunks_keep_every_law(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
            world.laws();
        }
        world.calm();
        let failed = |row: &wayleave_core::pipeline::row::ChunkRow| row.state == ChunkState::SetAside;
        let set_aside = world.works.rows.values().any(failed);
        for (queue, key) in world.works.shard.store.urls.keys().cloned().collect::<Vec<_>>() {
            let row = &world.works.shard.store.urls[&(queue, key)];
            prop_assert!(row.status.is_at_rest(), "{:?}, set aside: {}", row, set_aside);
        }
    }
}
