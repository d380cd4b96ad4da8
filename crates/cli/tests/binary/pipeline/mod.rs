//! The whole pipeline with real processes, each of which is killed with SIGKILL and started again, in an order and at
//! moments that a seed gives: crawlers, index builders, index servers of two rows, and the servers themselves. In the end
//! every link is settled, every chunk is built and ready once in every row, no host had two visitors or one too early, and
//! every word of every page is found in every row.
//!
//! Interleavings that happen here, many at once: a crawler dies with chunks in every state of their links, and with files
//! that a builder is about to fetch; a builder dies with indexes that index servers are about to fetch; an index server
//! dies before, during and after its reports; the server dies with calls of all of them in flight, and its leases, delays
//! and placements must hold when it is back. In a long run one machine of each kind never comes back, and its files are
//! gone: what it had is crawled, built or placed again.
//!
//! `WAYLEAVE_PIPELINE_HOSTS` and `WAYLEAVE_PIPELINE_PAGES` set the size of the site, `WAYLEAVE_PIPELINE_SEED` another order of
//! kills, `WAYLEAVE_BIN` the binary; `cargo xtask prove pipeline` sends 10,000 links through. `WAYLEAVE_KEEP=1` keeps the
//! folder with the logs of a run that failed.

mod judge;
mod killer;
mod stage;
mod words;

use killer::{Kind, Plan};
use stage::{Size, Stage};

use crate::prelude::*;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// A site of a few hosts, or as large as the environment says.
fn size() -> Size {
    let small = Size {
        hosts: 4,
        pages: 6,
        delay: Duration::from_millis(150),
        lease: "2s",
        links: "5",
        crawlers: 2,
        builders: 1,
        servers_of_row: 2,
    };
    match std::env::var_os("WAYLEAVE_PIPELINE_HOSTS") {
        None => small,
        Some(_) => Size {
            hosts: usize::try_from(number("WAYLEAVE_PIPELINE_HOSTS", 4)).unwrap(),
            pages: usize::try_from(number("WAYLEAVE_PIPELINE_PAGES", 6)).unwrap(),
            // Before its first report a host's Crawl-delay is unknown. If the crawler is killed then, only the part of its lease
            // in which it begins nothing, a tenth, keeps the next one away.
            delay: Duration::from_millis(400),
            lease: "5s",
            links: "10",
            crawlers: 3,
            builders: 2,
            ..small
        },
    }
}

/// Every process once, or in a long run all of them again and again while work is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_word_of_every_page_is_found_although_all_processes_are_killed_at_random() {
    let long = std::env::var_os("WAYLEAVE_PIPELINE_HOSTS").is_some();
    let mut stage = Stage::embedded(size()).await;
    let plan = Plan {
        rounds_min: if long { 5 } else { 1 },
        while_work_is_left: long,
        machines_are_lost: long,
        pauses_ms: if long { 300..1_700 } else { 100..600 },
        nodes_down_ms: 0..400,
    };
    let kills = killer::run(&mut stage, number("WAYLEAVE_PIPELINE_SEED", 7), &plan, |_| true).await;
    judge::check(&mut stage, &kills).await;
}

/// Three nodes over a PostgreSQL. Every worker knows all three, each another one first, so when a node dies its workers
/// turn to the next. Its shards, with chunks in all stages, go to the others; and it comes back. One worker of each kind
/// dies too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_word_of_every_page_is_found_although_a_node_of_three_is_killed() {
    let engine = Cluster::shared().await.fresh_database().await;
    let small = Size { hosts: 4, pages: 6, crawlers: 3, servers_of_row: 1, ..size() };
    let small = Size { delay: Duration::from_millis(150), lease: "2s", links: "5", builders: 2, ..small };
    let mut stage = Stage::of_nodes(small, &engine).await;
    let plan = Plan {
        rounds_min: 1,
        while_work_is_left: false,
        machines_are_lost: false,
        pauses_ms: 300..900,
        // Longer than its lease of 2 s: its shards are taken over.
        nodes_down_ms: 3_000..4_000,
    };
    let chosen = ["node-2", "crawler-1", "builder-1", "index-1"];
    let kills = killer::run(&mut stage, 7, &plan, |name| chosen.contains(&name)).await;
    assert_eq!(kills.of(Kind::Node), 1);
    judge::check(&mut stage, &kills).await;
}
