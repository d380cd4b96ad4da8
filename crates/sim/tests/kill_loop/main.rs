//! The real binary, killed again and again with SIGKILL while many clients work on it over HTTP and gRPC, and a checker
//! of what they were told: nothing acknowledged is lost or done twice; delays, blocks, pauses, aliases and live
//! reservations are as before.
//!
//! It needs the binary: `cargo build -p wayleave-cli` (or `WAYLEAVE_BIN=path`); without one it says so and passes.
//! `WAYLEAVE_KILLS=50` kills more often than the three times of a normal run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::indexing_slicing)]

mod clients;
mod history;
mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use history::History;
use server::{Server, binary, free_address};
use wayleave_api::Patch;
use wayleave_api::groups::SetGroupRequest;
use wayleave_api::hosts::{SetHostRequest, State};
use wayleave_api::reservations::{RenewReservationRequest, Reservation, ReserveGroupsRequest};
use wayleave_api::urls::{AddUrlsRequest, UrlToAdd};
use wayleave_client::{Client, Retry};
use wayleave_core::time::{Millis, Time};

/// Delay of every host.
pub const DELAY_MS: u64 = 40;
/// A start that takes longer is worth a line.
const SLOW_START: Duration = Duration::from_secs(1);
const LONG_LEASE_MS: u64 = 3_600_000;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_or_done_twice_whenever_the_server_is_killed() {
    let Some(binary) = binary() else {
        println!("skipped: there is no binary; build it with `cargo build -p wayleave-cli`");
        return;
    };
    let kills = number("WAYLEAVE_KILLS", 3);
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let mut server = Server::start(&binary, folder.path(), &address);
    let base = format!("http://{address}");
    let patient = Client::new(&base).unwrap();
    let leased = set_up(&patient).await;
    let history = Arc::new(History::default());
    let working = clients::start(&base, &history);
    let mut slowest = Duration::ZERO;
    for round in 0..kills {
        // Any moment will do: others are in the middle of theirs when an answer comes.
        history.answers(150 + round * 137 % 500).await;
        server.kill();
        let start = Instant::now();
        server = Server::start(&binary, folder.path(), &address);
        let took = start.elapsed();
        if took > SLOW_START {
            println!("start {round} took {took:?}");
        }
        slowest = slowest.max(took);
        check_controls(&patient, &leased).await;
    }
    history.answers(200).await;
    history.stop();
    for client in working {
        client.await.unwrap();
    }
    let known = clients::known(&patient).await;
    let counts = history.judge(&known);
    assert!(counts.acknowledged > 50 && counts.visits > 20 && counts.finished > 20, "it worked at all: {counts:?}");
    println!("{kills} kills, slowest start {slowest:?}: {counts:?}, nothing lost, nothing twice");
}

/// Sets up what must survive: delays, a block, a pause, an alias, a live reservation.
async fn set_up(client: &Client) -> Reservation {
    let set = |host: &'static str, change: SetHostRequest| async move {
        client.patch_host(host, &change).await.unwrap();
    };
    client.add_urls(&urls(&["http://leased.example/"])).await.unwrap();
    let request = ReserveGroupsRequest { lease_ms: LONG_LEASE_MS, ..ReserveGroupsRequest::new("long") };
    let leased = client.reserve(&request).await.unwrap().reservations.remove(0);
    assert_eq!(leased.host, "leased.example");
    let far = Patch::Set(Time(4_000_000_000_000).into());
    set("blocked.example", SetHostRequest { blocked_until: far, ..SetHostRequest::default() }).await;
    set("paused.example", SetHostRequest { paused: Patch::Set(true), ..SetHostRequest::default() }).await;
    set("slow.example", SetHostRequest { delay_ms: Patch::Set(7_777), ..SetHostRequest::default() }).await;
    for n in 0..clients::HOSTS {
        let delay = SetHostRequest { delay_ms: Patch::Set(DELAY_MS), ..SetHostRequest::default() };
        client.patch_host(&clients::host(n), &delay).await.unwrap();
    }
    let hosts = Some(vec![clients::host(0), clients::host(1), clients::host(2)]);
    client.put_group("trio", &SetGroupRequest { hosts, ..SetGroupRequest::default() }).await.unwrap();
    client.add_urls(&urls(&["http://blocked.example/", "http://paused.example/"])).await.unwrap();
    leased
}

fn urls(texts: &[&str]) -> AddUrlsRequest {
    let url = |text: &&str| UrlToAdd { url: (*text).to_owned(), ..UrlToAdd::default() };
    AddUrlsRequest { crawl: None, urls: texts.iter().map(url).collect() }
}

/// What was set up is as before.
async fn check_controls(client: &Client, leased: &Reservation) {
    let client = &client.clone().with_retry(Retry::default());
    let host = |name: &'static str| async move { client.host(name).await.unwrap() };
    assert_eq!(host("blocked.example").await.state, State::Blocked);
    assert_eq!(host("paused.example").await.state, State::Paused);
    assert_eq!(host("slow.example").await.delay_ms, Some(7_777));
    let busy = host("leased.example").await;
    assert_eq!(busy.state, State::Busy, "a live reservation outlives its server");
    let mut members = client.group("trio").await.unwrap().hosts;
    members.sort();
    assert_eq!(members, [clients::host(0), clients::host(1), clients::host(2)]);
    let before = busy.ready_at.unwrap();
    let renewed = client.renew(&leased.token, &RenewReservationRequest { lease_ms: LONG_LEASE_MS }).await.unwrap();
    assert!(renewed.expires_at.0 >= before.0.before(Millis(1)), "time did not go back");
}
