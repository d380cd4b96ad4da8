//! Continue mode: a primary that no store answers may act beyond its term with the agreement of its standbys. This
//! module decides which members the primary must ask, which lists of them it has got, and who may take over a term
//! that expired while its primary may still continue.
//!
//! The rule: such a primary acts beyond its term only while *every* member of the last list it was given has just
//! promised not to take over. So only a standby that is certainly on that list may take over before the continue time
//! has passed. A member is a standby whose row records the version with which it joined. Joining changes the role's
//! row, and a member's row is removed only by a write that expects it: so every list issued from that version on
//! contains the member while its row exists. What the primary has certainly received ([`Agreement::heard`]) is what it
//! acknowledges with its next heartbeat.
//!
//! The answer that grants a term carries no continue time: if it is lost, no primary acts. The first list is sent
//! with the first renewal. Every standby that joined by then is on it; if that answer is lost, the primary behaves
//! strictly. So that list counts as received at once.

use std::net::IpAddr;

use super::facts::Facts;
use super::row::{Candidate, Peer, RoleRow, StandbyRow, Term};
use crate::ids::Epoch;
use crate::names::Uuid;
use crate::time::{Millis, Time};

/// What a primary may rely on after its term, by the answers that it got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// How long it may continue at most: the longest time it may still rely on.
    pub goes_on: Millis,
    /// The continue time announced last.
    pub announced: Millis,
    /// The version that first announced it.
    pub announced_at: u64,
    /// The version of the latest list that it certainly has; zero if none.
    pub heard: u64,
    /// Acknowledgements count from this version on.
    pub counts_from: u64,
}

/// A standby that the primary must ask before it continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its uuid.
    pub uuid: Uuid,
    /// Where it accepts questions; a member without a peer address cannot promise anything.
    pub peer: Option<Peer>,
    /// The address that its last heartbeat came from, if that is known: the peer address may be private if it is this one.
    pub from: Option<IpAddr>,
}

/// What a primary learns about continuing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoingOn {
    /// The version of the role's row this was sent with; returned with the next heartbeat.
    pub version: u64,
    /// How long it may continue after its term; zero: not at all.
    pub goes_on: Millis,
    /// The members whose promises it needs.
    pub members: Vec<Member>,
}

/// A request to take over one specific expired term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bid {
    /// The term's epoch.
    pub epoch: Epoch,
    /// Its end as the requester saw it.
    pub expires_at: Time,
}

/// The last term as reported to a standby, where its primary may continue after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastTerm {
    /// The term and its end.
    pub term: Bid,
    /// How long it remains valid by the store's time; zero if it has expired.
    pub remaining: Millis,
    /// Whether the requester may take it over now, with an explicit request.
    pub take_over: bool,
}

impl Agreement {
    /// Records that this version of the row announces to the primary that it may continue for this long. `heard` is
    /// what it acknowledges.
    ///
    /// A longer time takes effect as soon as it is sent, a shorter one only when the primary has acknowledged it.
    pub(super) fn announce(&mut self, goes_on: Millis, heard: Option<u64>, version: u64) {
        if let Some(heard) = heard.filter(|heard| *heard >= self.counts_from && *heard < version) {
            self.heard = self.heard.max(heard);
        }
        if self.announced != goes_on {
            (self.announced, self.announced_at) = (goes_on, version);
        }
        if goes_on > Millis(0) && self.counts_from == 0 {
            // The first list of the term.
            (self.heard, self.counts_from) = (version, version);
        }
        if goes_on > self.goes_on || self.heard >= self.announced_at {
            self.goes_on = goes_on;
        }
    }

    /// After a change of store: acknowledgements of the previous one mean nothing here.
    pub(super) const fn forget(&mut self, version: u64) {
        self.heard = 0;
        self.counts_from = version;
        self.announced_at = version;
    }
}

impl Term {
    /// The latest time, by the store's clock, at which its primary may still act.
    #[must_use]
    pub const fn may_act_until(&self) -> Time {
        self.expires_at.after(self.agreement.goes_on)
    }

    /// This term at its present end.
    #[must_use]
    pub const fn bid(&self) -> Bid {
        Bid { epoch: self.epoch, expires_at: self.expires_at }
    }
}

impl RoleRow {
    /// Whether standbys become members that a primary must ask.
    pub(super) fn has_members(&self) -> bool {
        self.longest_to_go_on() > Millis(0)
    }

    /// How long a primary may continue after its term, by the settings or by an earlier announcement.
    pub(super) fn longest_to_go_on(&self) -> Millis {
        self.settings.goes_on().max(self.agreed())
    }

    fn agreed(&self) -> Millis {
        self.term.as_ref().map_or(Millis(0), |term| term.agreement.goes_on)
    }

    /// Whether this standby is certainly on the list of the term's primary.
    pub(super) fn is_heard(&self, standby: &StandbyRow) -> bool {
        let heard = self.term.as_ref().map_or(0, |term| term.agreement.heard);
        standby.joined > 0 && standby.joined <= heard
    }
}

/// The members on the list sent to the primary, without those whose rows are removed with it.
pub(super) fn members(facts: &Facts, primary: &Uuid, removed: &[(Uuid, Option<StandbyRow>)]) -> Vec<Member> {
    let stays = |uuid: &Uuid| uuid != primary && !removed.iter().any(|(gone, row)| gone == uuid && row.is_none());
    let joined = facts.standbys.iter().filter(|standby| standby.joined > 0 && stays(&standby.candidate.uuid));
    let member =
        |s: &StandbyRow| Member { uuid: s.candidate.uuid.clone(), peer: s.candidate.peer.clone(), from: s.from };
    joined.map(member).collect()
}

/// Why a candidate must wait for the end of a term whose primary may continue, and until when; `None` if it need not.
pub(super) fn barred(facts: &Facts, row: &RoleRow, candidate: &Candidate) -> Option<(&'static str, Time)> {
    let (_, until) = facts.going_on(row)?;
    // A restarted candidate with another peer address may not remember its earlier promises.
    let is_same = |known: &Candidate| known.uuid == candidate.uuid && known.peer == candidate.peer;
    match facts.standbys.iter().find(|standby| standby.joined > 0 && is_same(&standby.candidate)) {
        None => Some(("it did not know of you", until)),
        Some(standby) if !row.is_heard(standby) => {
            Some(("you joined later than the last list that it surely has", until))
        }
        Some(_) => None,
    }
}
