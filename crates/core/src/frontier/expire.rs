//! Expiry: reservations and holds that were not completed in time return and are offered again.
//!
//! Expired means `deadline <= now`: a sweep never frees a later deadline, and frees every earlier one.

use super::damage::Hold;
use super::row::{UrlRow, UrlStatus, Write};
use super::state::State;
use super::url_key::UrlKey;
use crate::ids::{QueueId, Token};
use crate::time::{Millis, Time};

impl State {
    /// Expired reservations, oldest first, at most `most`, each with the URL rows to read.
    #[must_use]
    pub fn expired_leases(&self, now: Time, most: usize) -> Vec<(Token, Vec<(QueueId, UrlKey)>)> {
        let ended = self.lease_ends.iter().take_while(|(at, _)| *at <= now).take(most);
        ended.filter_map(|(_, token)| self.leases.get(token).map(|lease| (*token, lease.urls.clone()))).collect()
    }

    /// Ends an expired reservation. The visit ended at its deadline.
    pub fn expire_lease(&mut self, token: Token, rows: Vec<Option<UrlRow>>, now: Time, writes: &mut Vec<Write>) {
        if self.leases.get(&token).is_none_or(|lease| lease.expires_at > now) {
            return;
        }
        let Some((lease, place)) = self.remove_lease(token) else { return };
        self.end_lease_row(&lease, now, writes);
        for ((queue, key), row) in lease.urls.iter().zip(rows) {
            let mine = |row: &UrlRow| matches!(&row.status, UrlStatus::Reserved { token: t, .. } if *t == token);
            if let Some(row) = row.filter(mine) {
                self.give_back(*queue, key, row, now, writes);
            }
        }
        let Some((host, group)) = place else { return };
        if let Some(at) = lease.queued_at {
            self.hosts[host].queued_at = self.hosts[host].queued_at.min(at);
            // A shard that was opened, or took the host in, during the visit has no entry for it yet.
            self.ensure_entry(group, crate::ids::CrawlNo::NONE);
            self.touch_host(host);
        }
        self.end_visit(group, lease.crawl, lease.expires_at, lease.expires_at.since(lease.granted_at));
        self.reschedule(group, now);
    }

    /// Lower bound of the deadlines of all holds.
    #[must_use]
    pub const fn next_hold(&self) -> Time {
        self.next_hold
    }

    /// Ends one expired hold found in the engine. `row` is its URL's row. If that cannot be read, the hold is tried again after
    /// `pause`.
    pub fn expire_hold(
        &mut self,
        hold: Hold,
        row: Option<UrlRow>,
        (pause, now): (Millis, Time),
        writes: &mut Vec<Write>,
    ) {
        if self.strand_hold(&hold, pause, now) {
            return;
        }
        let (until, queue, key) = hold;
        writes.push(Write::Hold(until, queue, key.clone(), false));
        let held = |row: &UrlRow| matches!(row.status, UrlStatus::Held { until: u, .. } if u == until);
        let Some(row) = row.filter(held) else { return };
        let Some((host, at)) = self.find_queue(queue) else { return };
        self.holds = self.holds.saturating_sub(1);
        self.give_back(queue, &key, row, now, writes);
        let (group, crawl) = (self.hosts[host].group, self.queue(host, at).crawl);
        let entry = self.ensure_entry(group, crawl);
        self.reschedule_entry(group, entry, now);
    }

    /// Records a sweep: no hold expires before `next`.
    pub fn set_next_hold(&mut self, next: Time) {
        self.next_hold = next;
    }

    /// When this shard has work of its own next.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        let lease = self.lease_ends.first().map(|(at, _)| *at);
        let hold = (self.next_hold != Time::NEVER).then_some(self.next_hold);
        let vacant = self.vacant.first().map(|(at, _)| *at).filter(|at| *at != Time::NEVER);
        [self.schedule.next_due(), lease, hold, self.damage.next_try(), vacant].into_iter().flatten().min()
    }
}
