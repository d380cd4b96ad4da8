//! Bursts: many concurrent clients, and an end of the server right after the last response. The last acknowledged batch
//! is then at the very end of the journal, often of a new file, and no later write has made it durable as a side
//! effect.

use futures::future::join_all;
use wayleave_api::urls::ListUrlsQuery;

use crate::prelude::*;

/// Clients of a burst.
pub const CLIENTS: usize = 24;
/// Calls of each client in a burst.
const CALLS: usize = 3;
/// URLs per call. A burst then fills the smallest memtable about once.
const URLS: usize = 32;
/// Hosts of a burst, enough for every shard to have some.
const HOSTS: usize = 8;
const LEASE_MS: u64 = 3_600_000;
const ROLE_TTL_MS: u64 = 3_600_000;

/// What one burst was promised.
#[derive(Default)]
pub struct Promised {
    round: usize,
    /// URLs that were acknowledged.
    added: BTreeSet<String>,
    /// Tokens of reservations, each with its host.
    reserved: Vec<(String, String)>,
    primaries: Vec<Term>,
}

/// A term that was granted.
struct Term {
    role: String,
    epoch: u64,
    holder: String,
    token: Option<String>,
}

/// Descriptions of what was missing after the restart.
pub type Lost = Vec<String>;

/// Totals of all bursts, and every epoch that was ever granted.
#[derive(Default)]
pub struct Ledger {
    pub acknowledged: usize,
    pub reservations: usize,
    epochs: BTreeMap<(String, u64), String>,
}

impl Ledger {
    /// Records what a burst was promised; returns the epochs that had been granted to another holder before.
    pub fn enter(&mut self, promised: &Promised) -> Lost {
        self.acknowledged += promised.added.len();
        self.reservations += promised.reserved.len();
        let mut twice = Lost::new();
        for Term { role, epoch, holder, .. } in &promised.primaries {
            let before = self.epochs.insert((role.clone(), *epoch), holder.clone());
            if let Some(before) = before.filter(|before| before != holder) {
                twice.push(format!("epoch {epoch} of role {role} was granted to {before} and to {holder}"));
            }
        }
        twice
    }

    pub fn epochs(&self) -> usize {
        self.epochs.len()
    }
}

fn host(round: usize, n: usize) -> String {
    format!("b{round}-{}.example", n % HOSTS)
}

/// Runs all clients concurrently, and returns with the last response.
pub async fn burst(base: &str, round: usize) -> Promised {
    // Each has its own connection.
    let clients: Vec<Client> = (0..CLIENTS).map(|_| Client::new(base).unwrap().with_retry(Retry::NEVER)).collect();
    let promised = join_all(clients.iter().enumerate().map(|(n, client)| one(client, n, round))).await;
    promised.into_iter().fold(Promised { round, ..Promised::default() }, |mut all, one| {
        all.added.extend(one.added);
        all.reserved.extend(one.reserved);
        all.primaries.extend(one.primaries);
        all
    })
}

async fn one(client: &Client, n: usize, round: usize) -> Promised {
    let mut promised = Promised::default();
    for call in 0..CALLS {
        put(client, (n, round, call), &mut promised).await;
    }
    // Some end with another kind of call.
    match n % 4 {
        0 => stand(client, n, round, &mut promised).await,
        1 => reserve(client, n, &mut promised).await,
        _ => {}
    }
    promised
}

async fn put(client: &Client, (n, round, call): (usize, usize, usize), promised: &mut Promised) {
    let text = |i: usize| format!("http://{}/{n}/{call}/{i}", host(round, n + i));
    let urls: Vec<UrlToAdd> = (0..URLS).map(|i| UrlToAdd { url: text(i), ..UrlToAdd::default() }).collect();
    let request = AddUrlsRequest { crawl: None, urls };
    let answer = client.add_urls(&request).await.unwrap();
    let results = answer.results.unwrap_or_default();
    let stored = request.urls.into_iter().zip(results).filter(|(_, result)| result.status == AddStatus::Added);
    promised.added.extend(stored.map(|(url, _)| url.url));
}

async fn stand(client: &Client, n: usize, round: usize, promised: &mut Promised) {
    let (role, uuid) = (format!("role-{n}"), format!("candidate-{n}-{round}"));
    let settings = SetRoleRequest { ttl_ms: Patch::Set(ROLE_TTL_MS), ..SetRoleRequest::default() };
    client.put_role(&role, &settings).await.unwrap();
    let answer = client.heartbeat(&role, &HeartbeatRequest::new(&uuid), Duration::from_secs(60)).await.unwrap();
    if answer.primary {
        promised.primaries.push(Term { role, epoch: answer.epoch, holder: uuid, token: answer.token });
    }
}

async fn reserve(client: &Client, n: usize, promised: &mut Promised) {
    let request =
        ReserveGroupsRequest { lease_ms: LEASE_MS, urls: 2, ..ReserveGroupsRequest::new(format!("worker {n}")) };
    let answer = client.reserve(&request).await.unwrap();
    promised.reserved.extend(answer.reservations.into_iter().map(|reservation| (reservation.token, reservation.host)));
}

/// Looks for everything that a burst was promised, once the server is back. Roles and reservations are released for
/// the next burst.
pub async fn missing(client: &Client, promised: &Promised) -> Lost {
    let mut lost = Lost::new();
    let mut found = BTreeSet::new();
    for n in 0..HOSTS {
        let query =
            ListUrlsQuery { host: Some(host(promised.round, n)), limit: Some(1_000), ..ListUrlsQuery::default() };
        let mut urls = std::pin::pin!(client.all_urls(query));
        while let Some(url) = urls.next().await {
            found.insert(url.unwrap().url);
        }
    }
    lost.extend(promised.added.difference(&found).map(|url| format!("{url} was acknowledged and is gone")));
    for (token, host) in &promised.reserved {
        if let Err(error) = client.renew(token, &RenewReservationRequest { lease_ms: LEASE_MS }).await {
            lost.push(format!("the reservation of {host} is gone: {error}"));
            continue;
        }
        let nothing = ReleaseReservationRequest { results: Vec::new(), ready_at: None };
        client.release(token, &nothing).await.unwrap();
    }
    for Term { role, epoch, holder, token } in &promised.primaries {
        let now = client.role(role, &GetRoleQuery::default()).await.unwrap();
        let primary = now.primary.as_ref().map(|primary| primary.uuid.as_str());
        if (now.epoch, primary) != (*epoch, Some(holder.as_str())) {
            let now = format!("{primary:?} under epoch {}", now.epoch);
            lost.push(format!("{holder} was primary of {role} under epoch {epoch}; after the start it is {now}"));
        }
        _ = client.release_role(role, holder, token.as_deref()).await;
    }
    lost
}
