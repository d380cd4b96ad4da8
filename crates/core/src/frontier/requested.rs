//! Index of idempotent requests: which reservations were granted for each request id. A retry of a request whose answer
//! was lost gets the same reservations while they are live. Requests without an id leave no entry.

use std::sync::Arc;

use hashbrown::HashMap;

use super::refusal::Refusal;
use super::request::{RequestId, Reservation, UrlToFetch};
use super::row::{LeaseRow, UrlRow, UrlStatus};
use super::state::State;
use super::url_key::{UrlKey, hash};
use crate::ids::{QueueId, Token};
use crate::names::HostName;
use crate::time::Time;

/// A holder and its request id.
type Key = (Arc<str>, Arc<str>);

/// A reservation and its URLs.
pub type Granted = (Token, Vec<(QueueId, UrlKey)>);

/// Reservations by request. Grows only with live reservations that have a request id.
#[derive(Default)]
pub(super) struct Requests {
    granted: HashMap<Key, Vec<Token>>,
    /// Requests that gained or lost a reservation since the last call, by digest.
    changed: Vec<(u64, bool)>,
}

/// Digest of a holder and request id, used to skip shards that certainly have no grant for it.
#[must_use]
pub fn digest(holder: &str, id: &str) -> u64 {
    const SEED: u64 = 0x51_7c_c1_b7_27_22_0a_95;
    hash(holder, SEED) ^ hash(id, SEED).rotate_left(32)
}

impl State {
    pub(super) fn note_request(&mut self, lease: &LeaseRow) {
        if let Some(request) = &lease.request {
            let key = (lease.holder.clone(), request.id.clone());
            self.requests.granted.entry(key).or_default().push(lease.token);
            self.requests.changed.push((digest(&lease.holder, &request.id), true));
        }
    }

    pub(super) fn forget_request(&mut self, lease: &LeaseRow) {
        let Some(request) = &lease.request else { return };
        let key = (lease.holder.clone(), request.id.clone());
        if let Some(tokens) = self.requests.granted.get_mut(&key) {
            tokens.retain(|token| *token != lease.token);
            if tokens.is_empty() {
                self.requests.granted.remove(&key);
            }
            self.requests.changed.push((digest(&lease.holder, &request.id), false));
        }
    }

    /// The digests of requests that gained (true) or lost a reservation since the last call.
    pub fn take_request_changes(&mut self) -> Vec<(u64, bool)> {
        std::mem::take(&mut self.requests.changed)
    }

    /// The live reservations granted for a request, with the URL rows needed to return them. Fails if they were granted
    /// for a request of the same name that asked for something else.
    pub fn requested(&self, holder: &Arc<str>, request: &RequestId, now: Time) -> Result<Vec<Granted>, Refusal> {
        if self.requests.granted.is_empty() {
            return Ok(Vec::new());
        }
        let tokens = self.requests.granted.get(&(holder.clone(), request.id.clone()));
        let leases = tokens.into_iter().flatten().filter_map(|token| self.leases.get(token));
        let mut found = Vec::new();
        for lease in leases.filter(|lease| lease.expires_at > now) {
            if lease.request.as_ref().is_some_and(|granted| granted.asks != request.asks) {
                return Err(Refusal::RequestReused(request.id.to_string()));
            }
            found.push((lease.token, lease.urls.clone()));
        }
        Ok(found)
    }

    /// A reservation as it was granted. `rows` are those of its URLs, in its order.
    #[must_use]
    pub fn granted_again(&self, token: Token, rows: Vec<Option<UrlRow>>) -> Option<Reservation> {
        let lease = self.leases.get(&token)?;
        let host = self.hosts.by_id(lease.host)?;
        let (name, group) = (self.hosts[host].name.clone(), self.hosts[host].group);
        let urls = lease.urls.iter().zip(rows);
        let urls = urls.filter_map(|((queue, key), row)| self.reserved_url(&name, token, (*queue, key), row?));
        Some(Reservation {
            token,
            group: self.group_name(group),
            host: name.clone(),
            holder: lease.holder.clone(),
            granted_at: lease.granted_at,
            expires_at: lease.expires_at,
            delay: self.delay(group),
            urls: urls.collect(),
        })
    }

    pub(super) fn reserved_url(
        &self,
        host: &HostName,
        token: Token,
        (queue, key): (QueueId, &UrlKey),
        row: UrlRow,
    ) -> Option<UrlToFetch> {
        let UrlStatus::Reserved { token: holder, position, details } = row.status else { return None };
        let (_, crawl) = self.queue_names(queue).filter(|_| holder == token)?;
        Some(UrlToFetch {
            url: key.url(host, row.whole.as_deref()),
            host: host.clone(),
            crawl,
            priority: crate::limits::PRIORITY_MAX - position.lane.min(crate::limits::PRIORITY_MAX),
            depth: details.depth,
            attempts: details.attempts,
            metadata: details.metadata,
            held_until: None,
        })
    }
}
