//! Probes that verify "unavailable": each reservation is requested under a unique name, with a lease that outlives the
//! test's faults. One that was answered "unavailable" must never appear in the list of reservations.

use crate::load::clients::{self, pause, says_unchanged, within};
use crate::load::history::{History, Id, count};
use crate::prelude::*;
use crate::three_nodes::stage::PATIENCE;

/// Many hosts: one whose reservation was lost on the way is busy until its lease expires.
const HOSTS: usize = 600;
const LEASE_MS: u64 = 1_800_000;
const CRAWL: &str = "word";
const CALL: Duration = Duration::from_secs(20);

/// No delay: the probes ask as often as they can.
pub async fn set_up(client: &Client) {
    let no_delay = SetCrawlRequest { delay_ms: Patch::Set(0), ..SetCrawlRequest::default() };
    client.patch_crawl(CRAWL, &no_delay).await.unwrap();
}

/// Starts two at every node.
pub fn start(nodes: &[Client], history: &Arc<History>) -> Vec<JoinHandle<()>> {
    let probe = |n: usize| tokio::spawn(probe(nodes[n / 2].clone(), n, history.clone()));
    (0..2 * nodes.len()).map(probe).collect()
}

async fn probe(client: Client, n: usize, history: Arc<History>) {
    for round in 0.. {
        if history.is_draining() {
            return;
        }
        pause(15).await;
        let url = |i: usize| format!("http://w{}.example/{n}/{round}/{i}", (round * 7 + n * 100 + i) % HOSTS);
        let urls: Vec<String> = (0..2).map(url).collect();
        let to_add = |url: &String| UrlToAdd { url: url.clone(), ..UrlToAdd::default() };
        let request = AddUrlsRequest { crawl: Some(CRAWL.to_owned()), urls: urls.iter().map(to_add).collect() };
        clients::add(&client, &history, CALL, &request).await;
        let holder = format!("word-{n}-{round}");
        let request = ReserveGroupsRequest {
            crawl: Some(CRAWL.to_owned()),
            lease_ms: LEASE_MS,
            ..ReserveGroupsRequest::new(&holder)
        };
        let asked = Instant::now();
        match tokio::time::timeout(CALL, client.reserve(&request)).await {
            Ok(Ok(answer)) => {
                for reservation in answer.reservations {
                    finish(&client, &history, reservation, asked).await;
                }
            }
            Ok(Err(error)) if says_unchanged(&error) => history.refused_holder(holder, error.to_string()),
            _ => count(&history.counts.calls_failed, 1),
        }
    }
}

async fn finish(client: &Client, history: &History, reservation: Reservation, asked: Instant) {
    let ids: Vec<Id> = reservation.urls.iter().map(|url| (url.crawl.clone(), url.url.clone())).collect();
    history.served(&ids, asked);
    let request = clients::results(&ids);
    if within(history, CALL, client.release(&reservation.token, &request)).await.is_some() {
        history.finished(ids, |_| UrlState::Fetched);
    }
}

/// Checks whether a holder that was answered "unavailable" was granted a reservation anyway.
pub async fn check(client: &Client, history: &History) {
    let client = client.clone().with_retry(Retry::default());
    let start = Instant::now();
    let live = loop {
        let live: Vec<_> = client.all_reservations().collect().await;
        match live.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(live) => break live,
            Err(error) => assert!(start.elapsed() < PATIENCE, "reservations cannot be listed: {error}"),
        }
    };
    for reservation in live {
        if let Some(refusal) = history.was_refused(&reservation.holder) {
            let wrong = format!("{reservation:?} was granted, though the answer was '{refusal}'");
            history.untrue(wrong);
        }
    }
}
