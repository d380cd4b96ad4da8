//! Page limit of a whole crawl, with other shards that use part of it: after each random command no more pages are
//! handed out or fetched than the limit allows, and what it allows can be obtained.

use crate::support::Shard;
use proptest::prelude::*;
use wayleave_core::frontier::request::{Outcome, Put, PutKind, Release, Reservation, UrlResult};
use wayleave_core::frontier::view::Counts;
use wayleave_core::invariants;
use wayleave_core::metadata::Metadata;
use wayleave_core::settings::{Change, CrawlChanges, PaceChanges, Revisit};
use wayleave_core::time::{Millis, Time};

const HOSTS: usize = 4;

#[derive(Clone, Debug)]
enum Command {
    Put { host: usize, path: u8 },
    Reserve { groups: usize, urls: usize },
    HandOut { queues: usize, urls: usize },
    Release { which: usize, outcome: u8 },
    Limit { pages: u64 },
    Elsewhere { pages: u64 },
    Pass { span: u64 },
    DeleteQueue { host: usize },
    Reload,
}

fn command() -> impl Strategy<Value = Command> {
    use Command::*;
    prop_oneof![
        6 => (0..HOSTS, 0..9u8).prop_map(|(host, path)| Put { host, path }),
        4 => (1..4usize, 1..4usize).prop_map(|(groups, urls)| Reserve { groups, urls }),
        3 => (1..4usize, 1..4usize).prop_map(|(queues, urls)| HandOut { queues, urls }),
        4 => (0..3usize, 0..5u8).prop_map(|(which, outcome)| Release { which, outcome }),
        1 => (0..12u64).prop_map(|pages| Limit { pages }),
        2 => (0..12u64).prop_map(|pages| Elsewhere { pages }),
        4 => (0..40_000u64).prop_map(|span| Pass { span }),
        1 => (0..HOSTS).prop_map(|host| DeleteQueue { host }),
        1 => Just(Reload),
    ]
}

struct World {
    shard: Shard,
    live: Vec<Reservation>,
    limit: u64,
    elsewhere: u64,
    /// What other shards would know if only changed crawls were published.
    published: Option<(Counts, u64)>,
}

impl World {
    fn new() -> Self {
        let mut shard = Shard::new(1_000_000);
        let revisit = Change::Set(Revisit::Fixed(Millis(100)));
        let changes = CrawlChanges { pages: Change::Set(5), revisit, ..CrawlChanges::default() };
        shard.state.set_crawl(&"c".into(), &changes, false, shard.now);
        let delay = PaceChanges { delay: Change::Set(Millis(10)), ..PaceChanges::default() };
        for host in 0..HOSTS {
            shard.state.set_host(&format!("h{host}").as_str().into(), &delay, false, None, shard.now).unwrap();
        }
        shard.commit(Vec::new());
        Self { shard, live: Vec::new(), limit: 5, elsewhere: 0, published: None }
    }

    fn used(&self) -> u64 {
        self.shard.state.page_limits().next().map_or(0, |limit| limit.used)
    }

    fn room(&self) -> u64 {
        self.limit.saturating_sub(self.used() + self.elsewhere)
    }

    fn run(&mut self, command: Command) {
        let room = self.room();
        let given = match command {
            Command::Put { host, path } => {
                let kind = PutKind::Discovered { at: None, priority: 5, depth: 0 };
                let (url, host) = (format!("http://h{host}/{path}").into(), format!("h{host}").as_str().into());
                self.shard.put(Put { url, host, crawl: "c".into(), kind, metadata: Metadata::default() });
                0
            }
            Command::Reserve { groups, urls } => {
                let granted = self.shard.reserve(groups, urls, None, 5_000);
                let given = granted.iter().map(|visit| visit.urls.len()).sum();
                self.live.extend(granted);
                given
            }
            Command::HandOut { queues, urls } => self.shard.hand_out(queues, urls, Some("c"), 5_000).len(),
            command => return self.change(command),
        };
        assert!(given as u64 <= room, "{given} pages were given out and {room} were left");
    }

    fn change(&mut self, command: Command) {
        match command {
            Command::Release { which, outcome } if which < self.live.len() => {
                let visit = self.live.remove(which);
                let outcomes = [Outcome::Fetched, Outcome::Retry, Outcome::Gone, Outcome::Failed];
                let outcome = outcomes.get(usize::from(outcome)).copied();
                let result = |outcome| UrlResult::new(visit.urls[0].url.clone(), outcome);
                let results = outcome.map(result).into_iter().collect();
                self.shard.release(&Release { token: visit.token, results, ready_at: None }).unwrap();
            }
            Command::Limit { pages } => {
                self.limit = pages;
                let changes = CrawlChanges { pages: Change::Set(pages), ..CrawlChanges::default() };
                self.shard.state.set_crawl(&"c".into(), &changes, false, self.shard.now);
                self.shard.commit(Vec::new());
            }
            Command::Elsewhere { pages } => {
                self.elsewhere = pages;
                self.publish();
            }
            Command::Pass { span } => {
                self.shard.now = Time(self.shard.now.0 + span);
                self.shard.sweep();
                let now = self.shard.now;
                self.live.retain(|visit| visit.expires_at > now);
            }
            Command::DeleteQueue { host } => {
                self.shard.delete_queue(&format!("h{host}").as_str().into(), &"c".into());
                self.shard.run_jobs();
            }
            Command::Reload => {
                self.shard.reload();
                self.publish();
            }
            _ => {}
        }
    }

    fn publish(&mut self) {
        let crawl = self.shard.state.crawl_no("c").unwrap();
        self.shard.state.set_used_elsewhere(crawl, self.elsewhere);
    }

    fn check(&mut self) {
        self.shard.state.wake(self.shard.now);
        let now = self.shard.now;
        let crawl = self.shard.state.crawl_no("c").unwrap();
        let counts = self.shard.state.limited_counts(crawl).map(|(_, urls, hosts)| (urls, hosts));
        if self.shard.state.take_limits_changed().contains(&crawl) {
            self.published = counts;
        }
        assert_eq!(self.published, counts, "every change of a limited crawl is published");
        assert_eq!(self.shard.state.readiness().0, self.shard.state.crawl_ready("c"), "there is no other crawl");
        let audit = self.shard.state.audit(now);
        invariants::counts_agree(&audit).unwrap();
        invariants::scheduled(&audit).unwrap();
        invariants::explained(&audit, now).unwrap();
        let ready = audit.standings.iter().filter(|(_, standing)| standing.state.as_str() == "ready").count();
        assert_eq!(
            self.shard.state.crawl_ready("c").is_some(),
            ready > 0,
            "what is ready can be found, and nothing else"
        );
        assert!(ready == 0 || self.room() > 0, "nothing is ready where the limit leaves nothing");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn no_more_pages_are_given_out_than_a_limit_leaves_and_no_less(commands in prop::collection::vec(command(), 1..80)) {
        let mut world = World::new();
        for command in commands {
            world.run(command);
            world.check();
        }
    }
}
