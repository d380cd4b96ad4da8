//! Random commands against the core and a naive model: same outcomes, same counts, and every law holds after every
//! step, also after the state was dropped and reloaded.

use crate::support::Shard;
use crate::support::model::{ATTEMPTS_MAX, At, Model, Url};
use proptest::prelude::*;
use wayleave_core::frontier::listing::Room;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Outcome, Put, PutKind, PutOutcome, Release, Reservation, UrlResult};
use wayleave_core::frontier::requeue::{BulkAction, BulkOutcome};
use wayleave_core::frontier::view::UrlState;
use wayleave_core::invariants;
use wayleave_core::metadata::Metadata;
use wayleave_core::names::{CrawlName, HostName};
use wayleave_core::settings::{Change, CrawlChanges, PaceChanges};
use wayleave_core::time::{Millis, Time};

const HOSTS: usize = 4;
const CRAWLS: [&str; 2] = ["x", "y"];
const START: u64 = 1_000_000;

#[derive(Clone, Debug)]
struct OnePut {
    host: usize,
    crawl: usize,
    path: u8,
    kind: OneKind,
}

#[derive(Clone, Debug)]
enum OneKind {
    Discover { priority: u8, later: u64 },
    Update { due: Option<u64> },
    Want { priority: Option<u8>, later: u64, again: bool },
}

/// Mostly new URLs, mostly of one host, so that puts of a batch collide.
fn puts() -> impl Strategy<Value = Command> {
    let later = prop_oneof![3 => Just(0u64), 1 => 0..5_000u64];
    let due = prop_oneof![Just(None), (0..3_000u64).prop_map(Some)];
    let kind = prop_oneof![
        3 => (3..7u8, later).prop_map(|(priority, later)| OneKind::Discover { priority, later }),
        1 => due.prop_map(|due| OneKind::Update { due }),
        1 => (prop::option::of(3..7u8), prop_oneof![Just(0u64), 0..5_000u64], any::<bool>())
            .prop_map(|(priority, later, again)| OneKind::Want { priority, later, again }),
    ];
    let host = prop_oneof![2 => Just(0), 1 => 0..HOSTS];
    let put = (host, 0..2usize, 0..6u8, kind).prop_map(|(host, crawl, path, kind)| OnePut { host, crawl, path, kind });
    prop::collection::vec(put, 1..6).prop_map(|mut puts: Vec<OnePut>| {
        let mut seen = std::collections::BTreeSet::new();
        puts.retain(|put| seen.insert((put.host, put.crawl, put.path)));
        Command::Put(puts)
    })
}

#[derive(Clone, Debug)]
enum Command {
    /// URLs put in one batch.
    Put(Vec<OnePut>),
    Reserve {
        groups: usize,
        urls: usize,
        crawl: Option<usize>,
        lease: u64,
    },
    HandOut {
        queues: usize,
        urls: usize,
        crawl: Option<usize>,
        hold: u64,
    },
    Renew {
        which: usize,
        lease: u64,
    },
    Release {
        which: usize,
        outcomes: Vec<u8>,
        retry_after: Option<u64>,
    },
    Stale {
        which: usize,
    },
    Pass {
        span: u64,
    },
    Delay {
        host: usize,
        delay: Option<u64>,
    },
    Pause {
        host: usize,
        paused: bool,
    },
    Block {
        host: usize,
        span: u64,
    },
    Join {
        host: usize,
        delay: Option<u64>,
    },
    Leave {
        host: usize,
    },
    DeleteQueue {
        host: usize,
        crawl: usize,
    },
    /// An operator requeues or deletes all URLs of a queue.
    Again {
        host: usize,
        crawl: usize,
        what: BulkAction,
    },
    Revoke {
        which: usize,
    },
    Reload,
}

fn command() -> impl Strategy<Value = Command> {
    use Command::*;
    let (host, crawl) = (0..HOSTS, 0..2usize);
    let wanted = prop_oneof![2 => Just(None), 1 => (0..2usize).prop_map(Some)];
    let delay = prop_oneof![Just(None), Just(Some(0)), (0..4_000u64).prop_map(Some)];
    prop_oneof![
        9 => puts(),
        6 => (1..4usize, 1..4usize, wanted.clone(), 100..5_000u64)
            .prop_map(|(groups, urls, crawl, lease)| Reserve { groups, urls, crawl, lease }),
        3 => (1..4usize, 1..4usize, wanted, 100..5_000u64)
            .prop_map(|(queues, urls, crawl, hold)| HandOut { queues, urls, crawl, hold }),
        2 => (0..4usize, 100..5_000u64).prop_map(|(which, lease)| Renew { which, lease }),
        5 => (0..4usize, prop::collection::vec(0..5u8, 3), prop_oneof![4 => Just(None), 1 => (0..3_000u64).prop_map(Some)])
            .prop_map(|(which, outcomes, retry_after)| Release { which, outcomes, retry_after }),
        1 => (0..4usize).prop_map(|which| Stale { which }),
        8 => prop_oneof![0..50u64, 500..1_500u64, 1_000..90_000u64].prop_map(|span| Pass { span }),
        1 => (host.clone(), delay.clone()).prop_map(|(host, delay)| Delay { host, delay }),
        1 => (host.clone(), any::<bool>()).prop_map(|(host, paused)| Pause { host, paused }),
        1 => (host.clone(), 0..5_000u64).prop_map(|(host, span)| Block { host, span }),
        2 => (host.clone(), delay).prop_map(|(host, delay)| Join { host, delay }),
        1 => host.clone().prop_map(|host| Leave { host }),
        1 => (host, crawl).prop_map(|(host, crawl)| DeleteQueue { host, crawl }),
        1 => (0..HOSTS, 0..2usize, prop_oneof![2 => Just(BulkAction::Requeue), 1 => Just(BulkAction::Delete)])
            .prop_map(|(host, crawl, what)| Again { host, crawl, what }),
        1 => (0..4usize).prop_map(|which| Revoke { which }),
        1 => Just(Reload),
    ]
}

struct Pair {
    shard: Shard,
    model: Model,
    live: Vec<Reservation>,
    over: Vec<Reservation>,
}

fn host_name(host: usize) -> HostName {
    format!("h{host}.example").into()
}

fn host_no(name: &str) -> usize {
    name[1..2].parse().unwrap()
}

fn crawl_no(name: &str) -> usize {
    CRAWLS.iter().position(|crawl| *crawl == name).unwrap()
}

fn text(host: usize, path: u8) -> String {
    format!("http://h{host}.example/{path}")
}

impl Pair {
    fn new() -> Self {
        let mut shard = Shard::new(START);
        let changes = CrawlChanges { attempts: Change::Set(ATTEMPTS_MAX), ..CrawlChanges::default() };
        for crawl in CRAWLS {
            shard.state.set_crawl(&crawl.into(), &changes, false, Time(START));
        }
        shard.commit(Vec::new());
        Self { shard, model: Model::new(START, HOSTS), live: Vec::new(), over: Vec::new() }
    }

    fn put(&mut self, puts: Vec<OnePut>) {
        let now = self.model.now;
        let put = |put: &OnePut| Put {
            url: text(put.host, put.path).into(),
            host: host_name(put.host),
            crawl: CRAWLS[put.crawl].into(),
            kind: match put.kind {
                OneKind::Discover { priority, later } => {
                    PutKind::Discovered { at: Some(Time(now + later)), priority, depth: 0 }
                }
                OneKind::Update { due } => PutKind::Known { due: due.map(|later| Time(now + later)) },
                OneKind::Want { priority, later, again } => {
                    let (at, explicit) = (Some(Time(now + later)), priority.is_some());
                    PutKind::Wanted { at, priority: priority.unwrap_or(5), explicit, depth: 0, again }
                }
            },
            metadata: Metadata::default(),
        };
        let outcomes = self.shard.put_all(puts.iter().map(put).collect());
        for (OnePut { host, crawl, path, kind }, outcome) in puts.into_iter().zip(outcomes) {
            self.model.hosts[host].known = true;
            match kind {
                OneKind::Discover { priority, later } => self.discovered(host, crawl, path, (priority, later), outcome),
                OneKind::Update { due } => self.updated(host, crawl, path, due, outcome),
                OneKind::Want { priority, later, again } => {
                    self.wanted((host, crawl, path), priority, now + later, again, outcome);
                }
            }
        }
    }

    fn run(&mut self, command: Command) {
        match command {
            Command::Put(puts) => self.put(puts),
            Command::Reserve { groups, urls, crawl, lease } => self.reserve(groups, urls, crawl, lease),
            Command::HandOut { queues, urls, crawl, hold } => self.hand_out(queues, urls, crawl, hold),
            Command::Renew { which, lease } => self.renew(which, lease),
            Command::Release { which, outcomes, retry_after } => self.release(which, &outcomes, retry_after),
            Command::Stale { which } => self.stale(which),
            Command::Pass { span } => self.pass(span),
            Command::Reload => self.reload(),
            Command::DeleteQueue { host, crawl } => self.delete_queue(host, crawl),
            Command::Again { host, crawl, what } => self.rework(host, crawl, what),
            Command::Revoke { which } => self.revoke(which),
            other => self.set(other),
        }
    }

    fn discovered(&mut self, host: usize, crawl: usize, path: u8, (priority, later): (u8, u64), outcome: PutOutcome) {
        let due = self.model.now + later;
        let known = self.model.find(crawl, &text(host, path)).is_some();
        assert_eq!(outcome, if known { PutOutcome::Known } else { PutOutcome::Added });
        if !known {
            let (lane, text, at) = (9 - priority, text(host, path), At::Queued);
            self.model.urls.push(Url { host, crawl, text, lane, due, attempts: 0, at });
        }
    }

    fn updated(&mut self, host: usize, crawl: usize, path: u8, due: Option<u64>, outcome: PutOutcome) {
        let due = due.map(|later| self.model.now + later);
        let known = self.model.find(crawl, &text(host, path)).is_some();
        assert_eq!(outcome, if known { PutOutcome::Updated } else { PutOutcome::Added });
        if !known {
            let (lane, text, at) = (4, text(host, path), At::Queued);
            self.model.urls.push(Url { host, crawl, text, lane, due: 0, attempts: 0, at });
        }
        self.model.rough |= known;
        let url = self.model.find(crawl, &text(host, path)).unwrap();
        url.attempts = 0;
        match due {
            Some(due) => (url.due, url.at) = (due, At::Queued),
            None => url.at = At::Done(UrlState::Fetched),
        }
    }

    fn wanted(
        &mut self,
        (host, crawl, path): (usize, usize, u8),
        priority: Option<u8>,
        due: u64,
        again: bool,
        outcome: PutOutcome,
    ) {
        let lane = priority.map(|priority| 9 - priority);
        let Some(url) = self.model.find(crawl, &text(host, path)) else {
            assert_eq!(outcome, PutOutcome::Added);
            let (lane, text, at) = (lane.unwrap_or(4), text(host, path), At::Queued);
            self.model.urls.push(Url { host, crawl, text, lane, due, attempts: 0, at });
            return;
        };
        let rests = matches!(url.at, At::Queued | At::Done(_));
        let raised = matches!(url.at, At::Queued) && lane.is_some_and(|lane| lane < url.lane);
        let want = match (rests && again, raised) {
            (true, _) => {
                (url.due, url.at, url.attempts, url.lane) = (due, At::Queued, 0, lane.unwrap_or(url.lane));
                PutOutcome::Requeued
            }
            (false, true) => {
                url.lane = lane.unwrap();
                PutOutcome::Updated
            }
            (false, false) => PutOutcome::Known,
        };
        self.model.rough |= want != PutOutcome::Known;
        assert_eq!(outcome, want);
    }

    fn rework(&mut self, host: usize, crawl: usize, what: BulkAction) {
        let outcome = self.shard.rework(&host_name(host), CRAWLS[crawl], what);
        let now = self.model.now;
        let (mut done, mut reserved) = (0, 0);
        for url in self.model.urls.iter_mut().filter(|url| (url.host, url.crawl) == (host, crawl)) {
            if matches!(url.at, At::Queued | At::Done(_)) {
                done += 1;
                (url.due, url.at, url.attempts) = (now, At::Queued, 0);
            } else {
                reserved += 1;
            }
        }
        if what == BulkAction::Delete {
            let rests = |url: &Url| (url.host, url.crawl) == (host, crawl) && matches!(url.at, At::Queued);
            self.model.urls.retain(|url| !rests(url));
        }
        self.model.rough |= done > 0;
        assert_eq!(outcome, BulkOutcome { done, reserved, unknown: 0, unreadable: 0 });
    }

    /// Equivalent to a release without results.
    fn revoke(&mut self, which: usize) {
        if which >= self.live.len() {
            return;
        }
        let reservation = self.live.remove(which);
        assert!(self.shard.revoke(reservation.token));
        self.model.released(reservation.token, &[]);
        self.over.push(reservation);
    }

    fn reserve(&mut self, groups: usize, urls: usize, crawl: Option<usize>, lease: u64) {
        let granted = self.shard.reserve(groups, urls, crawl.map(|crawl| CRAWLS[crawl]), lease);
        invariants::bounded(&granted, groups, urls, Millis(lease)).unwrap();
        for reservation in &granted {
            self.model.granted(reservation, (host_no(&reservation.host), crawl), crawl_no, urls);
        }
        let ready = (0..HOSTS).find(|host| self.model.ready_since(*host, crawl).is_some());
        assert!(granted.len() == groups || ready.is_none(), "host {ready:?} is ready and was passed over");
        self.live.extend(granted);
    }

    fn hand_out(&mut self, queues: usize, urls: usize, crawl: Option<usize>, hold: u64) {
        let out = self.shard.hand_out(queues, urls, crawl.map(|crawl| CRAWLS[crawl]), hold);
        let same = |a: &wayleave_core::frontier::request::UrlToFetch,
                    b: &wayleave_core::frontier::request::UrlToFetch| {
            (&a.host, &a.crawl) == (&b.host, &b.crawl)
        };
        // Without a delay one call may visit a queue more than once.
        for part in out.chunk_by(same).flat_map(|visits| visits.chunks(urls)) {
            assert!(crawl.is_none_or(|crawl| crawl == crawl_no(&part[0].crawl)));
            self.model.handed_out(part, host_no(&part[0].host), crawl_no, hold);
        }
    }

    fn renew(&mut self, which: usize, lease: u64) {
        let Some(reservation) = self.live.get(which) else { return };
        let until = self.shard.renew(reservation.token, lease).unwrap();
        assert_eq!(until.0, self.model.now + lease);
        let place = self.model.leases.iter_mut().find(|l| l.token == reservation.token).unwrap();
        place.expires = until.0;
    }

    fn release(&mut self, which: usize, outcomes: &[u8], retry_after: Option<u64>) {
        if which >= self.live.len() {
            return;
        }
        let reservation = self.live.remove(which);
        let outcome =
            |n: u8| [Outcome::Fetched, Outcome::Retry, Outcome::Gone, Outcome::Failed].get(usize::from(n)).copied();
        let pairs = reservation.urls.iter().zip(outcomes);
        let results: Vec<(String, Outcome, Option<u64>)> =
            pairs.filter_map(|(url, n)| Some((url.url.to_string(), outcome(*n)?, retry_after))).collect();
        let result = |(url, outcome, after): &(String, Outcome, Option<u64>)| UrlResult {
            retry_after: after.map(Millis),
            ..UrlResult::new(url.as_str(), *outcome)
        };
        let release =
            Release { token: reservation.token, results: results.iter().map(result).collect(), ready_at: None };
        let released = self.shard.release(&release).unwrap();
        self.model.released(reservation.token, &results);
        let host = host_no(&reservation.host);
        assert_eq!(released.ready_at.0, self.model.gate(host).max(self.model.now));
        self.over.push(reservation);
    }

    /// A token that is not current changes nothing.
    fn stale(&mut self, which: usize) {
        let Some(reservation) = self.over.get(which) else { return };
        let token = reservation.token;
        assert_eq!(self.shard.renew(token, 1_000), Err(Refusal::NotCurrent));
        let release = Release { token, results: Vec::new(), ready_at: None };
        assert_eq!(self.shard.release(&release), Err(Refusal::NotCurrent));
    }

    fn pass(&mut self, span: u64) {
        self.model.pass(span);
        self.shard.now = Time(self.model.now);
        self.shard.sweep();
        let (live, over) = std::mem::take(&mut self.live)
            .into_iter()
            .partition(|r| self.model.leases.iter().any(|l| l.token == r.token));
        self.live = live;
        self.over.extend::<Vec<Reservation>>(over);
    }

    fn set(&mut self, command: Command) {
        let now = self.shard.now;
        let change = |host: usize, changes: PaceChanges, pair: &mut Self| {
            pair.model.hosts[host].known = true;
            pair.shard.state.set_host(&host_name(host), &changes, false, None, now).unwrap();
            pair.shard.commit(Vec::new());
        };
        let optional = |delay: Option<u64>| delay.map_or(Change::Clear, |ms| Change::Set(Millis(ms)));
        match command {
            Command::Delay { host, delay } => {
                self.model.hosts[host].delay = delay;
                change(host, PaceChanges { delay: optional(delay), ..PaceChanges::default() }, self);
            }
            Command::Pause { host, paused } => {
                self.model.hosts[host].paused = paused;
                change(host, PaceChanges { paused: Change::Set(paused), ..PaceChanges::default() }, self);
            }
            Command::Block { host, span } => {
                self.model.hosts[host].blocked = now.0 + span;
                let until = Change::Set(Time(now.0 + span));
                change(host, PaceChanges { blocked_until: until, ..PaceChanges::default() }, self);
            }
            Command::Join { host, delay } if !self.model.hosts[host].alias => {
                let changes = PaceChanges { delay: optional(delay), ..PaceChanges::default() };
                self.shard.state.set_group(&"alias".into(), &changes, false, now).unwrap();
                self.shard.move_hosts(&[host_name(host)], Some(&"alias".into()));
                self.model.alias_delay = delay;
                self.model.join(host);
            }
            Command::Leave { host } if self.model.hosts[host].alias => {
                self.shard.move_hosts(&[host_name(host)], None);
                self.model.leave(host);
            }
            _ => {}
        }
    }

    fn delete_queue(&mut self, host: usize, crawl: usize) {
        let (name, crawl_name): (HostName, CrawlName) = (host_name(host), CRAWLS[crawl].into());
        let count = self.shard.delete_queue(&name, &crawl_name);
        assert_eq!(count, self.model.delete(crawl, host));
        let still_there = self.shard.state.host_id(&name).is_some();
        if !still_there && self.model.hosts[host].known {
            let alone = !self.model.hosts[host].alias;
            let empty = self.model.urls.iter().all(|url| url.host != host) && !self.model.is_busy(host);
            assert!(alone && empty, "a host with work, or of an alias, is not forgotten");
            self.model.hosts[host] = crate::support::model::Host::default();
        }
        self.shard.run_jobs();
    }

    fn portrait(&self) -> String {
        let now = self.shard.now;
        let hosts: Vec<_> = (0..HOSTS)
            .map(|host| {
                self.shard.state.host_view(&host_name(host), now).map(|mut view| {
                    view.queues.sort_by(|a, b| a.crawl.cmp(&b.crawl));
                    view
                })
            })
            .collect();
        let stats = self.shard.state.stats();
        let state = &self.shard.state;
        let room = Room { items: usize::MAX, bytes: usize::MAX };
        let (reservations, crawls) = (state.list_reservations(None, room), state.list_crawls(None, usize::MAX));
        format!("{hosts:#?}{reservations:#?}{crawls:#?}{stats:#?}")
    }

    fn reload(&mut self) {
        let before = self.portrait();
        self.shard.reload();
        assert_eq!(self.portrait(), before, "reading the rows again changed what can be seen");
    }

    fn check(&self) {
        let now = self.shard.now;
        let mut total = 0;
        for host in 0..HOSTS {
            let counts = self.model.counts(host);
            total += counts.total();
            let view = self.shard.state.host_view(&host_name(host), now);
            assert_eq!(view.map(|view| view.counts).unwrap_or_default(), counts, "host {host}");
        }
        assert_eq!(self.shard.state.stats().urls.total(), total);
        assert_eq!(self.shard.state.stats().reservations, self.model.leases.len() as u64);
        for url in &self.model.urls {
            let view = self.shard.lookup(CRAWLS[url.crawl], &host_name(url.host), &url.text).expect("a known URL");
            let want = match &url.at {
                At::Queued => UrlState::Queued,
                At::Held(_) | At::Reserved(_) => UrlState::Reserved,
                At::Done(state) => *state,
            };
            assert_eq!((view.state, view.attempts), (want, url.attempts), "{}", url.text);
            if url.at == At::Queued {
                assert_eq!(view.due_at, Some(Time(url.due)), "{}", url.text);
            }
        }
        let audit = self.shard.state.audit(now);
        invariants::counts_agree(&audit).unwrap();
        invariants::everything_ends(&audit, now, Millis(0)).unwrap();
        invariants::scheduled(&audit).unwrap();
        invariants::explained(&audit, now).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn the_core_and_a_naive_model_agree_on_every_step(commands in prop::collection::vec(command(), 1..80)) {
        let mut pair = Pair::new();
        for command in commands {
            pair.run(command);
            pair.shard.state.wake(pair.shard.now);
            pair.check();
        }
    }
}
