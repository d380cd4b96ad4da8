//! Renewal: a holder that is still working extends its reservation.

use super::refusal::Refusal;
use super::row::Write;
use super::state::State;
use crate::ids::Token;
use crate::time::{Millis, Time};

impl State {
    /// Sets a new deadline. A token that is not current changes nothing.
    pub fn renew(&mut self, token: Token, lease: Millis, now: Time, writes: &mut Vec<Write>) -> Result<Time, Refusal> {
        let until = now.after(lease);
        self.set_deadline(token, until, now, writes)
    }

    /// Extends a reservation until `until` at least, so that it cannot expire in the middle of a release.
    pub fn keep(&mut self, token: Token, until: Time, now: Time, writes: &mut Vec<Write>) -> Result<Time, Refusal> {
        match self.leases.get(&token) {
            Some(row) if row.link.is_none() && row.expires_at > now && row.expires_at >= until => Ok(row.expires_at),
            _ => self.set_deadline(token, until, now, writes),
        }
    }

    fn set_deadline(&mut self, token: Token, until: Time, now: Time, writes: &mut Vec<Write>) -> Result<Time, Refusal> {
        let row = self.leases.get_mut(&token).filter(|row| row.link.is_none() && row.expires_at > now);
        let row = row.ok_or(Refusal::NotCurrent)?;
        self.lease_ends.remove(&(row.expires_at, token));
        row.expires_at = until;
        self.lease_ends.insert((until, token));
        writes.push(Write::Lease(token, Some(row.clone())));
        Ok(until)
    }
}
