//! Kills processes and starts them again, in an order and at moments that a seed gives.
//!
//! In a round every process is killed once, so none is spared and none is killed so often that its work is given up by
//! rule: a chunk is set aside after five lost attempts.

use std::fmt;
use std::ops::Range;

use super::stage::{CRAWL, ROWS, Stage};
use crate::prelude::*;

/// How often progress is told.
const TOLD_EVERY: Duration = Duration::from_secs(15);
/// How long a killed worker stays away. One that is away for 15 s would be suspect.
const WORKERS_DOWN_MS: Range<u64> = 0..400;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Crawler,
    Builder,
    Index,
    Node,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crawler => "crawler",
            Self::Builder => "builder",
            Self::Index => "index",
            Self::Node => "server",
        }
    }
}

/// How long to go on, and how hard.
pub struct Plan {
    pub rounds_min: usize,
    pub while_work_is_left: bool,
    /// Whether one machine of each kind is lost for ever in the second round, with its files.
    pub machines_are_lost: bool,
    /// Time between two kills.
    pub pauses_ms: Range<u64>,
    /// How long a killed server stays away.
    pub nodes_down_ms: Range<u64>,
}

/// How often each kind was killed.
#[derive(Default)]
pub struct Kills {
    counts: BTreeMap<Kind, usize>,
    /// Those that were made while links or chunks were not settled.
    early: usize,
}

impl Kills {
    pub fn of(&self, kind: Kind) -> usize {
        self.counts.get(&kind).copied().unwrap_or_default()
    }

    pub fn all(&self) -> usize {
        self.counts.values().sum()
    }
}

impl fmt::Display for Kills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> = self.counts.iter().map(|(kind, n)| format!("{n} of {}", kind.name())).collect();
        write!(f, "{} kills ({}; {} while work was left)", self.all(), kinds.join(", "), self.early)
    }
}

/// SplitMix64: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn within(&mut self, range: &Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, usize::try_from(self.next() % (at as u64 + 1)).unwrap());
        }
    }
}

/// Kills those whose names are chosen, round after round.
pub async fn run(stage: &mut Stage, seed: u64, plan: &Plan, chosen: impl Fn(&str) -> bool) -> Kills {
    let (mut random, mut kills, mut told) = (Random(seed), Kills::default(), Instant::now());
    let mut round = 0;
    while round < plan.rounds_min || (plan.while_work_is_left && !stage.is_settled().await) {
        if round == 1 && plan.machines_are_lost {
            lose_machines(stage);
        }
        let nodes = stage.nodes.iter().map(|node| node.name.clone());
        let mut names: Vec<String> = nodes.chain(stage.workers.iter().map(|worker| worker.name.clone())).collect();
        names.retain(|name| chosen(name));
        random.shuffle(&mut names);
        for name in names {
            pause(random.within(&plan.pauses_ms)).await;
            let is_node = stage.nodes.iter().any(|node| node.name == name);
            let down = random.within(if is_node { &plan.nodes_down_ms } else { &WORKERS_DOWN_MS });
            kills.early += usize::from(!stage.is_settled().await);
            let kind = kill(stage, &name, down).await;
            *kills.counts.entry(kind).or_default() += 1;
            if told.elapsed() > TOLD_EVERY {
                told = Instant::now();
                tell(stage, &kills).await;
            }
        }
        round += 1;
    }
    kills
}

async fn kill(stage: &mut Stage, name: &str, down_ms: u64) -> Kind {
    if let Some(node) = stage.nodes.iter_mut().find(|node| node.name == name) {
        node.kill();
        pause(down_ms).await;
        node.run();
        return Kind::Node;
    }
    let worker = stage.workers.iter_mut().find(|worker| worker.name == name).unwrap();
    worker.process.kill();
    pause(down_ms).await;
    worker.process.start();
    worker.kind
}

/// The first machine of each kind never comes back, and others take its place.
fn lose_machines(stage: &mut Stage) {
    for kind in [Kind::Crawler, Kind::Builder, Kind::Index] {
        let at = stage.workers.iter().position(|worker| worker.kind == kind).unwrap();
        let mut lost = stage.workers.remove(at);
        lost.process.kill();
        std::fs::remove_dir_all(&lost.folder).unwrap();
        let count = match kind {
            Kind::Crawler => stage.size.crawlers,
            Kind::Builder => stage.size.builders,
            _ => ROWS * stage.size.servers_of_row,
        };
        stage.add(kind, count + 1, 0);
        stage.lost.push(lost.name.clone());
    }
}

async fn tell(stage: &Stage, kills: &Kills) {
    let counts = stage.client.crawl(CRAWL).await.unwrap().counts;
    let settled = counts.fetched + counts.gone + counts.failed;
    let chunks = stage.chunk_counts().await;
    let seconds = stage.begun.elapsed().as_secs();
    println!("  {seconds} s: {settled} of {} links settled, chunks: {chunks:?}; {kills}", stage.size.links_of_all());
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
