//! Clients over HTTP: some put URLs, some visit hosts and report results. They continue through all faults of the
//! nodes; half of them are patient enough to get the response of a node that was paused for seconds.

use wayleave_api::Code;
use wayleave_api::reservations::{Outcome, UrlResult};
use wayleave_api::urls::ListUrlsQuery;
use wayleave_client::Error;

use crate::load::history::{History, Id, count};
use crate::prelude::*;

/// Hosts of these clients, and the delay of each.
pub const HOSTS: usize = 18;
pub const DELAY_MS: u64 = 40;
/// Those of them that move in and out of aliases.
pub const MOVING: Range<usize> = 10..HOSTS;
const LEASE_MS: u64 = 1_000;
/// After its lease a token is certainly not current, whatever a clock's drift.
const SURELY_OVER: Duration = Duration::from_millis(LEASE_MS + 200);
pub const CRAWL: &str = "http";

pub fn host(n: usize) -> String {
    format!("h{n}.example")
}

/// Starts three of each kind at every node.
pub fn start(nodes: &[Client], history: &Arc<History>) -> Vec<JoinHandle<()>> {
    let mut clients = Vec::new();
    for (n, _) in nodes.iter().enumerate() {
        clients.push(tokio::spawn(put(nodes.to_vec(), n, history.clone())));
        for half in 0..2 {
            clients.push(tokio::spawn(work(nodes.to_vec(), 2 * n + half, history.clone())));
        }
    }
    clients
}

pub async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// A client's timeout: those with an even number also get responses after a long pause.
fn patience(n: usize) -> Duration {
    if n.is_multiple_of(2) { Duration::from_secs(12) } else { Duration::from_millis(1_500) }
}

/// Waits for a response, with a timeout. `None` if it failed or is lost.
pub async fn within<T, E>(
    history: &History,
    patience: Duration,
    answer: impl Future<Output = Result<T, E>>,
) -> Option<T> {
    let answer = tokio::time::timeout(patience, answer).await.ok().and_then(Result::ok);
    if answer.is_none() {
        count(&history.counts.calls_failed, 1);
    }
    answer
}

async fn put(nodes: Vec<Client>, n: usize, history: Arc<History>) {
    for round in 0.. {
        if history.is_draining() {
            return;
        }
        pause(history.rest_ms).await;
        let text = |i: usize| format!("http://{}/{n}/{round}/{i}", host((round * 5 + i) % HOSTS));
        let url = |i| UrlToAdd { url: text(i), ..UrlToAdd::default() };
        let request = AddUrlsRequest { crawl: Some(CRAWL.to_owned()), urls: (0..5).map(url).collect() };
        // Mostly its own node, occasionally the others.
        let client = &nodes[(n + usize::from(round % 3 == 2)) % nodes.len()];
        add(client, &history, patience(round), &request).await;
    }
}

/// Puts URLs that no other client puts, and records whether each is stored, or whether the response says that it is
/// not.
pub async fn add(client: &Client, history: &History, patience: Duration, request: &AddUrlsRequest) {
    let crawl = request.crawl.clone().unwrap_or_default();
    let id = |url: &UrlToAdd| (crawl.clone(), url.url.clone());
    let answer = match tokio::time::timeout(patience, client.add_urls(request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) if says_unchanged(&error) => {
            return request.urls.iter().for_each(|url| history.refused(id(url), error.to_string()));
        }
        _ => return count(&history.counts.calls_failed, 1),
    };
    for (url, result) in request.urls.iter().zip(answer.results.unwrap_or_default()) {
        match (result.status, result.reason) {
            (AddStatus::Added | AddStatus::Known, _) => history.added([id(url)]),
            (AddStatus::Failed, Some(why)) if why.starts_with("unavailable") => history.refused(id(url), why),
            _ => {}
        }
    }
}

async fn work(nodes: Vec<Client>, n: usize, history: Arc<History>) {
    for round in 0.. {
        if history.is_over() {
            return;
        }
        let request = ReserveGroupsRequest {
            groups: 2,
            urls: 4,
            crawl: Some(CRAWL.to_owned()),
            lease_ms: LEASE_MS,
            wait_ms: 100,
            ..ReserveGroupsRequest::new(format!("worker {n}"))
        };
        let asked = Instant::now();
        let client = &nodes[n / 2];
        let Some(answer) = within(&history, patience(n), client.reserve(&request)).await else {
            pause(history.rest_ms).await;
            continue;
        };
        for (i, reservation) in answer.reservations.into_iter().enumerate() {
            // A reservation is valid at every node.
            let at = &nodes[(n / 2 + round + i) % nodes.len()];
            Visit { client, at, history: &history, asked, n }.make(round + i, reservation).await;
        }
    }
}

/// One visit by a worker that reserved at `client` and reports at `at`.
struct Visit<'a> {
    client: &'a Client,
    at: &'a Client,
    history: &'a History,
    asked: Instant,
    n: usize,
}

impl Visit<'_> {
    async fn make(&self, round: usize, reservation: Reservation) {
        let (history, patience) = (self.history, patience(self.n));
        let ids: Vec<Id> = reservation.urls.iter().map(|url| (url.crawl.clone(), url.url.clone())).collect();
        history.served(&ids, self.asked);
        let start = reservation.expires_at.0.before(Millis(LEASE_MS));
        let span = Span { start, end: reservation.expires_at.0 };
        // A host that moves is judged individually: its group changes from time to time.
        let moves = MOVING.map(host).any(|host| host == reservation.host);
        let place = if moves { &reservation.host } else { &reservation.group };
        let visit = history.granted(place, span, DELAY_MS, &ids);
        let note = |what: String| history.note(place, format!("{} of worker {}: {what}", reservation.token, self.n));
        let asked_ms = self.asked.elapsed().as_millis();
        note(format!("granted {}..{} in '{}', asked {asked_ms} ms ago", start.0, span.end.0, reservation.group));
        if round % 23 == 22 {
            return self.come_late(reservation).await;
        }
        if round % 4 == 3 {
            history.ends(visit, start);
            let renew = RenewReservationRequest { lease_ms: LEASE_MS };
            let renewed = within(history, patience, self.at.renew(&reservation.token, &renew)).await;
            note(format!("renewed: {renewed:?}"));
            let Some(renewed) = renewed else { return };
            history.ends(visit, renewed.expires_at.0);
        }
        pause(5).await;
        // From here on the visit may be over, without any client learning of it.
        history.ends(visit, start);
        let request = results(&ids);
        note(format!("releases at {}", self.at.server()));
        let released = within(history, patience, self.at.release(&reservation.token, &request)).await;
        note(format!("released: {released:?}"));
        if let Some(released) = released {
            history.ends(visit, released.ready_at.0.before(Millis(DELAY_MS)).max(start));
            history.finished(ids, |url| state(outcome(url)));
        }
    }

    /// The worker is paused until its lease is over: its report must then be refused, at every node.
    async fn come_late(&self, reservation: Reservation) {
        tokio::time::sleep(SURELY_OVER).await;
        let urls: Vec<Id> = reservation.urls.iter().map(|url| (url.crawl.clone(), url.url.clone())).collect();
        for client in [self.client, self.at] {
            let request = results(&urls);
            let late = client.release(&reservation.token, &request);
            match tokio::time::timeout(patience(self.n), late).await {
                Ok(Ok(done)) => {
                    let wrong = format!("the token of an expired reservation was good: {reservation:?} {done:?}");
                    self.history.broken(wrong);
                }
                Ok(Err(Error::Refused(problem))) if problem.code() == Some(Code::NotCurrent) => {
                    count(&self.history.counts.stale_tokens_refused, 1);
                }
                _ => count(&self.history.counts.calls_failed, 1),
            }
        }
    }
}

/// Whether the response says that nothing was changed.
pub fn says_unchanged(error: &Error) -> bool {
    matches!(error.code(), Some(Code::Unavailable | Code::NotReady))
}

pub fn results(ids: &[Id]) -> ReleaseReservationRequest {
    let result = |url: &str| UrlResult { status: Some(200), duration_ms: Some(2), ..UrlResult::new(url, outcome(url)) };
    ReleaseReservationRequest { results: ids.iter().map(|(_, url)| result(url)).collect(), ready_at: None }
}

/// The outcome of a URL: the same for every visitor.
fn outcome(url: &str) -> Outcome {
    if url.ends_with('3') { Outcome::Gone } else { Outcome::Fetched }
}

fn state(outcome: Outcome) -> UrlState {
    if outcome == Outcome::Gone { UrlState::Gone } else { UrlState::Fetched }
}

/// All URLs with their states, as one node lists them.
pub async fn known(client: &Client) -> BTreeMap<Id, UrlState> {
    let mut known = BTreeMap::new();
    let mut urls = std::pin::pin!(client.all_urls(ListUrlsQuery { limit: Some(1_000), ..ListUrlsQuery::default() }));
    while let Some(url) = urls.next().await {
        let url = url.unwrap();
        assert_eq!(known.insert((url.crawl, url.url.clone()), url.state), None, "{} is listed twice", url.url);
    }
    known
}
