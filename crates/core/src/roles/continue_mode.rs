//! Going on after a term by the standbys' agreement: whom the primary must ask, what it was told of them, and who may take
//! over a term that ran out while its primary may still go on by their promises.
//!
//! The rule: a primary that no store answers acts after its term only while *every* member of the last list that it was told
//! has just promised not to take over. So only who is surely on that list may take over before the time to go on has passed.
//! A member is a standby whose row says with which version it joined. Joining changes the role's row, and a row of a member is
//! removed only by a write that expects it: so every list that is told from that version on has it, as long as its row is
//! there. What the primary has surely heard ([`Agreement::heard`]) is what it says itself with its next heartbeat.
//!
//! The answer to the heartbeat that acquires a term tells no time to go on: it may be lost, and then nobody acts. The first
//! list goes with the first renewal. Whoever has joined by then is on it or, if that answer is lost, the primary is strict:
//! so that list counts as heard at once.

use super::facts::Facts;
use super::row::{Candidate, Peer, RoleRow, StandbyRow, Term};
use crate::ids::Epoch;
use crate::names::Uuid;
use crate::time::{Millis, Time};

/// What a primary may go on by after its term, as far as it was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// How long it may go on at most: the longest time that it may still count on.
    pub goes_on: Millis,
    /// The time that it was told last.
    pub told: Millis,
    /// The version from which on it was told that and nothing else.
    pub told_at: u64,
    /// The version of the latest list that it surely has; zero if it is not known to have one.
    pub heard: u64,
    /// What it has heard counts from this version on.
    pub counts_from: u64,
}

/// One whom the primary must ask before it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its uuid.
    pub uuid: Uuid,
    /// Where it takes questions; one that takes none cannot promise anything.
    pub peer: Option<Peer>,
}

/// What a primary is told of going on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoingOn {
    /// The version of the role's row that this was told with; goes back with the next heartbeat.
    pub version: u64,
    /// How long at most it may go on after its term; zero: not at all.
    pub goes_on: Millis,
    /// Whose promise it needs.
    pub members: Vec<Member>,
}

/// An ask to take over one term that ran out, and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bid {
    /// The term's epoch.
    pub epoch: Epoch,
    /// Its end as the asker saw it.
    pub expires_at: Time,
}

/// The last term as a standby is told of it, where its primary may go on after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastTerm {
    /// Which term it is, and its end.
    pub term: Bid,
    /// How long it still holds by the store's time; zero if it is over.
    pub remaining: Millis,
    /// Whether the asker may take it over now, by an ask of its own.
    pub take_over: bool,
}

impl Agreement {
    /// The primary is told, with this version of the row, that it may go on for so long. `heard` is what it says it has.
    ///
    /// A longer time counts as soon as it is told, a shorter one only when the primary has heard it.
    pub(super) fn tell(&mut self, goes_on: Millis, heard: Option<u64>, version: u64) {
        if let Some(heard) = heard.filter(|heard| *heard >= self.counts_from && *heard < version) {
            self.heard = self.heard.max(heard);
        }
        if self.told != goes_on {
            (self.told, self.told_at) = (goes_on, version);
        }
        if goes_on > Millis(0) && self.counts_from == 0 {
            // The first list of the term.
            (self.heard, self.counts_from) = (version, version);
        }
        if goes_on > self.goes_on || self.heard >= self.told_at {
            self.goes_on = goes_on;
        }
    }

    /// Another store has stepped in: what was heard of the one before means nothing here.
    pub(super) const fn forget(&mut self, version: u64) {
        self.heard = 0;
        self.counts_from = version;
        self.told_at = version;
    }
}

impl Term {
    /// The latest moment, by the store's time, at which its primary may still act.
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
    /// Whether standbys join those whom a primary must ask.
    pub(super) fn has_members(&self) -> bool {
        self.longest_to_go_on() > Millis(0)
    }

    /// How long after its term a primary may go on, by what is set or what it was told.
    pub(super) fn longest_to_go_on(&self) -> Millis {
        self.settings.goes_on().max(self.agreed())
    }

    fn agreed(&self) -> Millis {
        self.term.as_ref().map_or(Millis(0), |term| term.agreement.goes_on)
    }

    /// The term that ran out and whose primary may go on at this time.
    pub(super) fn going_on(&self, now: Time) -> Option<&Term> {
        self.term.as_ref().filter(|term| term.expires_at <= now && now < term.may_act_until())
    }

    /// Whether this standby is surely on the list of the term's primary.
    pub(super) fn is_heard(&self, standby: &StandbyRow) -> bool {
        let heard = self.term.as_ref().map_or(0, |term| term.agreement.heard);
        standby.joined > 0 && standby.joined <= heard
    }
}

/// Who is on the list that is told to the primary, without those whose rows are removed with it.
pub(super) fn members(facts: &Facts, primary: &Uuid, removed: &[(Uuid, Option<StandbyRow>)]) -> Vec<Member> {
    let stays = |uuid: &Uuid| uuid != primary && !removed.iter().any(|(gone, row)| gone == uuid && row.is_none());
    let joined = facts.standbys.iter().filter(|standby| standby.joined > 0 && stays(&standby.candidate.uuid));
    joined.map(|s| Member { uuid: s.candidate.uuid.clone(), peer: s.candidate.peer.clone() }).collect()
}

/// Why a candidate must wait for the end of a term whose primary may go on, and until when; none if it need not.
pub(super) fn barred(facts: &Facts, row: &RoleRow, candidate: &Candidate) -> Option<(&'static str, Time)> {
    let term = row.going_on(facts.now)?;
    let until = term.may_act_until();
    // One with another door may not remember what it has promised at the last one.
    let is_same = |known: &Candidate| known.uuid == candidate.uuid && known.peer == candidate.peer;
    match facts.standbys.iter().find(|standby| standby.joined > 0 && is_same(&standby.candidate)) {
        None => Some(("it did not know of you", until)),
        Some(standby) if !row.is_heard(standby) => Some(("you joined later than it was surely told", until)),
        Some(_) => None,
    }
}
