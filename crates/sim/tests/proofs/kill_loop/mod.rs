//! The real binary, repeatedly killed with SIGKILL and stopped with SIGTERM while many clients use it over HTTP and
//! gRPC. Nothing acknowledged is lost or done twice, no epoch is granted twice; delays, blocks, pauses, aliases and
//! live reservations are as before.
//!
//! One test ends the server in the middle of work, the other right after the last response of a burst. Each does so a
//! few times in an ordinary run; `WAYLEAVE_KILLS=1000` sets how often, `WAYLEAVE_BIN=path` the binary.

mod burst;

use burst::{Ledger, burst, missing};
use wayleave_api::hosts::{SetHostRequest, State};

use crate::load::candidates::{self, Manner, Register};
use crate::load::history::History;
use crate::load::server::{End, Server};
use crate::load::{self, clients, crawlers};
use crate::prelude::*;

/// The shortest time to live that a role may have, and terms that end soon: epochs change all the time.
const MANNER: Manner = Manner { ttl_ms: 500, timeout_ms: 250, pause_ms: 25, renewals: 3 };
const LONG_LEASE_MS: u64 = 3_600_000;

fn kills(otherwise: usize) -> usize {
    let asked = std::env::var("WAYLEAVE_KILLS").ok();
    asked.map_or(otherwise, |text| text.parse().expect("WAYLEAVE_KILLS must be a number"))
}

/// Every third end is a clean stop.
const fn end(round: usize) -> End {
    if round % 3 == 2 { End::Stop } else { End::Kill }
}

fn restart(server: &mut Server, end: End) {
    tokio::task::block_in_place(|| {
        server.end(end);
        server.run();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_or_done_twice_whenever_the_server_ends() {
    let kills = kills(6);
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&folder.path().join("data"));
    let patient = Client::new(&server.base).unwrap();
    let leased = set_up(&patient).await;
    let (history, registers) = (Arc::new(History::new(5)), [Arc::<Register>::default(), Arc::default()]);
    let doors = [(); 3].map(|()| Client::new(&server.base).unwrap().with_retry(Retry::NEVER));
    let mut working = clients::start(&doors, &history);
    working.extend(crawlers::start(&doors, &history));
    working.extend(candidates::start(&doors, &history, &registers, MANNER));
    for round in 0..kills {
        // Any moment will do: other clients are in the middle of a call when a response arrives.
        history.answers(450 + round * 411 % 1_500).await;
        restart(&mut server, end(round));
        check_controls(&patient, &leased).await;
    }
    history.answers(600).await;
    history.next_phase();
    history.next_phase();
    for client in working {
        client.await.unwrap();
    }
    history.judge(&clients::known(&patient).await, (crawlers::DELAY_MS, crawlers::HOLD_MS));
    history.judge_words();
    assert!(registers.iter().all(|register| register.judge() > 1), "roles changed hands");
    let (counts, terms) = (&history.counts, history.terms());
    let [acknowledged, visits, finished] =
        [&counts.acknowledged, &counts.visits, &counts.finished].map(|counter| counter.load(Ordering::Relaxed));
    assert!(acknowledged > 50 && visits > 20 && finished > 20, "it worked at all: {counts:?}");
    // A server that has just started allows no takeover for one time to live, so not every end changes the holder.
    assert!(terms > kills / 2, "roles changed hands {terms} times");
    let slowest = server.slowest;
    println!("{kills} ends, slowest start {slowest:?}: {counts:?}, {terms} terms; nothing lost, nothing twice");
}

/// A regression: with a rotation of the journal pending, the bytes of one batch were queued for the new file but its
/// waiter for the old file's write. So it was acknowledged before it was written; any later write would have written it
/// too. To show that it takes many concurrent batches, a rotation among the last of them, and an end right after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_kept_although_the_server_ends_right_after_it() {
    let kills = kills(12);
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&folder.path().join("data"));
    let patient = Client::new(&server.base).unwrap();
    let (mut ledger, mut lost, mut bad_rounds) = (Ledger::default(), Vec::new(), 0);
    for round in 0..kills {
        let promised = burst(&server.base, round).await;
        restart(&mut server, end(round));
        let mut missing = missing(&patient, &promised).await;
        missing.extend(ledger.enter(&promised));
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
    load::set_up(client, MANNER).await;
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
