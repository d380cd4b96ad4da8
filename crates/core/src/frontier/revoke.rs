//! Revocation: an operator ends a reservation early. Its URLs return unchanged.

use super::request::Release;
use super::row::{LeaseRow, UrlRow, Write};
use super::state::State;
use super::url_key::UrlKey;
use crate::ids::{QueueId, Token};
use crate::time::Time;

/// A reservation and the URL rows needed to end it.
type Lease = (Token, Vec<(QueueId, UrlKey)>);

impl State {
    /// Reservations of a holder, at most `most`.
    #[must_use]
    pub fn leases_of_holder(&self, holder: &str, most: usize) -> Vec<Lease> {
        self.leases_where(|lease| *lease.holder == *holder, most)
    }

    /// Reservations of a host, at most `most`.
    #[must_use]
    pub fn leases_of_host(&self, host: &str, most: usize) -> Vec<Lease> {
        let Some(id) = self.host_id(host) else { return Vec::new() };
        self.leases_where(|lease| lease.host == id, most)
    }

    fn leases_where(&self, wanted: impl Fn(&LeaseRow) -> bool, most: usize) -> Vec<Lease> {
        let leases = self.leases.values().filter(|lease| !lease.is_idle_link() && wanted(lease)).take(most);
        let mut leases: Vec<Lease> = leases.map(|lease| (lease.token, lease.urls.clone())).collect();
        leases.sort_unstable_by_key(|(token, _)| *token);
        leases
    }

    /// Ends a reservation. `rows` are those of its URLs. Returns whether it existed.
    pub fn revoke(&mut self, token: Token, rows: Vec<Option<UrlRow>>, now: Time, writes: &mut Vec<Write>) -> bool {
        // A host that was reserved without URLs keeps its place in the queue.
        let Some(lease) = self.leases.get(&token) else { return false };
        if lease.link.is_some() {
            self.end_link(token, rows, &[], now, 0, writes);
            return true;
        }
        let ready_at = lease.queued_at;
        let release = Release { token, results: Vec::new(), ready_at };
        self.release(&release, rows, now, 0, writes).is_ok()
    }
}
