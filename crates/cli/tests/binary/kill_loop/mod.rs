//! The real binary, repeatedly killed with SIGKILL and stopped with SIGTERM while many clients use it over HTTP and
//! gRPC. Nothing acknowledged is lost or done twice, no epoch is granted twice; delays, blocks, pauses, aliases and
//! live reservations are as before.
//!
//! One test ends the server in the middle of work, the other right after the last response of a burst. Each does so a
//! few times in an ordinary run; `WAYLEAVE_KILLS=1000` sets how often, `WAYLEAVE_BIN=path` the binary.

mod burst;
mod candidates;
mod clients;
mod history;
mod server;

use std::sync::Arc;

use burst::{Ledger, burst, missing};
use history::History;
use server::{End, Server};
use wayleave_api::Patch;
use wayleave_api::groups::SetGroupRequest;
use wayleave_api::hosts::{SetHostRequest, State};
use wayleave_api::reservations::{RenewReservationRequest, Reservation, ReserveGroupsRequest};
use wayleave_api::urls::{AddUrlsRequest, UrlToAdd};
use wayleave_client::{Client, Retry};
use wayleave_core::time::{Millis, Time};

/// Delay of every host.
pub const DELAY_MS: u64 = 40;
const LONG_LEASE_MS: u64 = 3_600_000;

fn kills(otherwise: usize) -> usize {
    let asked = std::env::var("WAYLEAVE_KILLS").ok();
    asked.map_or(otherwise, |text| text.parse().expect("WAYLEAVE_KILLS must be a number"))
}

/// Every third end is a clean stop.
const fn end(round: usize) -> End {
    if round % 3 == 2 { End::Stop } else { End::Kill }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_or_done_twice_whenever_the_server_ends() {
    let kills = kills(6);
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let base = format!("http://{}", server.address);
    let patient = Client::new(&base).unwrap();
    let leased = set_up(&patient).await;
    let history = Arc::new(History::new());
    let mut working = clients::start(&base, &history);
    working.extend(candidates::start(&base, &history).await);
    for round in 0..kills {
        // Any moment will do: other clients are in the middle of a call when a response arrives.
        history.answers(150 + round as u64 * 137 % 500).await;
        tokio::task::block_in_place(|| server.restart(end(round)));
        check_controls(&patient, &leased).await;
    }
    history.answers(200).await;
    history.stop();
    for client in working {
        client.await.unwrap();
    }
    let counts = history.judge(&clients::known(&patient).await);
    assert!(counts.acknowledged > 50 && counts.visits > 20 && counts.finished > 20, "it worked at all: {counts:?}");
    assert!(counts.terms > kills, "roles changed hands: {counts:?}");
    println!("{kills} ends, slowest start {:?}: {counts:?}; nothing lost, nothing twice", server.slowest);
}

/// A regression: with a rotation of the journal pending, the bytes of one batch were queued for the new file but its
/// waiter for the old file's write. So it was acknowledged before it was written; any later write would have written it
/// too. To show that it takes many concurrent batches, a rotation among the last of them, and an end right after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_kept_although_the_server_ends_right_after_it() {
    let kills = kills(12);
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let base = format!("http://{}", server.address);
    let patient = Client::new(&base).unwrap();
    let (mut ledger, mut lost, mut bad_rounds) = (Ledger::default(), Vec::new(), 0);
    for round in 0..kills {
        let told = burst(&base, round).await;
        tokio::task::block_in_place(|| server.restart(end(round)));
        let mut missing = missing(&patient, &told).await;
        missing.extend(ledger.enter(&told));
        if !missing.is_empty() {
            bad_rounds += 1;
            println!("round {round}, {:?}: {} lost, such as {}", end(round), missing.len(), missing[0]);
        }
        lost.extend(missing);
    }
    let Ledger { acknowledged, reservations, .. } = ledger;
    let sums = format!("{acknowledged} URLs, {reservations} reservations and {} epochs", ledger.epochs());
    println!("{kills} ends, slowest start {:?}, {sums}: {} lost in {bad_rounds} rounds", server.slowest, lost.len());
    assert!(lost.is_empty(), "{} of {sums} were lost in {bad_rounds} of {kills} rounds: {lost:#?}", lost.len());
    assert!(reservations >= kills && ledger.epochs() >= kills, "all kinds of answers came: {sums}");
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

/// The settings are as before.
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
