//! Continuing after a term by agreement of the standbys, from both sides: the primary that asks, and the standby that
//! promises.
//!
//! Why there is never a second primary: before `continue_for` has passed, the store lets only members that the primary
//! knows take over, and only by an explicit bid that becomes void once the term is renewed. A member that promises has
//! no such bid in flight and sends none until its promise ends; the primary counts the promise from the *sending* of
//! its question, which is earlier than the member's receipt. So while every member's promise holds, no take-over is
//! possible.

use std::net::IpAddr;

use wayleave_api::roles::{GoingOn, LastTerm, Member, Peer, TakeOver};
use wayleave_core::limits;
use wayleave_core::time::Millis;

use super::Candidate;
use super::types::{CandidateStage, Effect, HeartbeatReply, Held};
use crate::clock::Moment;
use crate::plan::Plan;

/// A question from the primary to one member: do not take over for this long.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// The member that is asked.
    pub member: String,
    /// Its address and secret.
    pub peer: Peer,
    /// Where its heartbeats come from.
    pub from: Option<IpAddr>,
    /// The primary's term.
    pub epoch: u64,
    /// When it was sent; read from the clock *before* the first byte leaves. The promise counts from here.
    pub sent: Moment,
    /// For how long.
    pub span: Millis,
}

/// Why a candidate declines to promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decline {
    /// A server has just responded to it: the store is available, and only the primary is cut off from it.
    ServerAnswers,
    /// It has bid for that very term, and does not know that the bid was refused.
    Asked,
    /// It knows of a later term.
    Later(u64),
    /// It is primary itself.
    Primary,
    /// It is leaving.
    Leaving,
    /// The requested time exceeds the limit.
    TooLong,
}

impl std::fmt::Display for Decline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ServerAnswers => f.write_str("a server has just responded to it, so the role may move"),
            Self::Asked => f.write_str("it has bid for the role itself and waits for the response"),
            Self::Later(epoch) => write!(f, "epoch {epoch} has begun, the one asked for is over"),
            Self::Primary => f.write_str("it is primary itself"),
            Self::Leaving => f.write_str("it is stopping"),
            Self::TooLong => f.write_str("the time asked for is too long"),
        }
    }
}

/// The agreement by which a primary may continue. Only the latest list counts; the primary echoes its version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Agreement {
    version: u64,
    goes_on: Millis,
    members: Vec<Asked>,
    /// When to ask again, while no server responds.
    next_ask: Option<Moment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    member: Member,
    /// The end of its last promise.
    promised: Option<Moment>,
}

impl Asked {
    /// Whether it is this one. Its heartbeats may come from another address than before.
    fn is(&self, uuid: &str, peer: Option<&Peer>) -> bool {
        self.member.uuid == uuid && self.member.peer.as_ref() == peer
    }
}

impl Agreement {
    fn hear(&mut self, going_on: Option<GoingOn>, newer: bool) {
        let Some(going_on) = going_on else {
            // Earlier lists stay excluded: the version is kept.
            (self.goes_on, self.members) = (Millis(0), Vec::new());
            return;
        };
        if going_on.version <= self.version && newer {
            // A store that does not know the earlier list: that list is worth nothing to it.
            *self = Self { next_ask: self.next_ask, ..Self::default() };
            return;
        }
        if going_on.version <= self.version {
            return;
        }
        (self.version, self.goes_on) = (going_on.version, Millis(going_on.continue_for_ms));
        let before = std::mem::take(&mut self.members);
        let promised = |m: &Member| before.iter().find(|asked| asked.is(&m.uuid, m.peer.as_ref()))?.promised;
        self.members = going_on.members.into_iter().map(|m| Asked { promised: promised(&m), member: m }).collect();
    }

    /// Whether the term may be continued at all.
    pub(super) fn is_given(&self) -> bool {
        self.goes_on > Millis(0)
    }

    /// The version to echo; `None` if there is nothing to continue by.
    pub(super) fn heard(&self) -> Option<u64> {
        Some(self.version).filter(|version| *version > 0)
    }

    /// The end of a term that may be continued: that of the term itself, or of the first promise to end.
    fn end(&self, held: &Held) -> Moment {
        let own = held.own_end();
        if self.goes_on == Millis(0) {
            return own;
        }
        // No other candidate may take over before this: without members it is the only bound.
        let whole = Millis(held.remaining.0.saturating_add(self.goes_on.0));
        let last = held.acknowledged.after(whole).before(Plan::margin(whole));
        let promised = |end: Moment, asked: &Asked| asked.promised.map(|promised| promised.min(end));
        self.members.iter().try_fold(last, promised).map_or(own, |promised| promised.max(own))
    }
}

/// What a standby has promised and asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Line {
    /// It bids for no term before then.
    promised_until: Moment,
    /// The highest epoch to which it has promised that.
    promised_to: u64,
    /// The term for which it may bid with its next heartbeat.
    offer: Option<TakeOver>,
    /// The term for which it has bid, until it knows that the bid can no longer take effect.
    bid: Option<TakeOver>,
    /// When a server last responded.
    answered: Option<Moment>,
    /// The highest epoch that it knows of.
    known: u64,
}

impl Line {
    /// A server responded; what it reported about terms is recorded.
    pub(super) fn hear(&mut self, now: Moment, sent: Moment, answer: &HeartbeatReply) {
        self.hear_of_renewal(sent, answer);
        self.answered = self.answered.max(Some(now));
        let (epoch, end) = match answer {
            HeartbeatReply::Primary { epoch, .. } => (*epoch, None),
            HeartbeatReply::Standby { last: Some(last), .. } => (last.epoch, Some(last.expires_at_ms)),
            HeartbeatReply::Standby { last: None, .. } | HeartbeatReply::NotCurrent => return,
        };
        self.known = self.known.max(epoch);
        // Ends only grow within an epoch: a bid that names an earlier end is void, wherever it still is.
        let is_void = |bid: &TakeOver| epoch > bid.epoch || epoch == bid.epoch && end > Some(bid.expires_at_ms);
        self.bid = self.bid.filter(|bid| !is_void(bid));
    }

    /// A term that holds in the store for at least as long as the promise does not need it: it was renewed since. So a
    /// release does not have to wait for the promise. The remaining time counts from the sending of the heartbeat,
    /// before the response was made.
    fn hear_of_renewal(&mut self, sent: Moment, answer: &HeartbeatReply) {
        if let HeartbeatReply::Standby { last: Some(last), .. } = answer
            && last.epoch == self.promised_to
            && sent.after(Millis(last.remaining_ms)) >= self.promised_until
        {
            self.promised_until = Moment(0);
        }
    }

    /// The standby learned of the last term; returns when it should send its next heartbeat for that, if sooner than
    /// usual.
    pub(super) fn consider(&mut self, now: Moment, last: Option<LastTerm>) -> Option<Moment> {
        self.offer = None;
        let last = last.filter(|last| last.take_over)?;
        if self.waits(now) {
            return Some(self.promised_until);
        }
        let offer = TakeOver { epoch: last.epoch, expires_at_ms: last.expires_at_ms };
        self.offer = Some(offer);
        // A repeated bid is not urgent.
        (self.bid != self.offer).then_some(now)
    }

    /// The bid to send with a heartbeat now.
    pub(super) fn take_offer(&mut self, now: Moment) -> Option<TakeOver> {
        let offer = self.offer.take().filter(|_| !self.waits(now));
        self.bid = offer.or(self.bid);
        offer
    }

    /// Whether it has promised to wait.
    pub(super) fn waits(&self, now: Moment) -> bool {
        now < self.promised_until
    }

    /// A new identity begins; offers to the last one are not for it.
    pub(super) const fn forget_offer(&mut self) {
        self.offer = None;
    }
}

impl Candidate {
    /// The primary of a term asks for a promise not to take over for `span`.
    pub fn on_question(&mut self, now: Moment, epoch: u64, span: Millis) -> Result<(), Decline> {
        match &self.stage {
            CandidateStage::Leading(_) | CandidateStage::Stopping { .. } | CandidateStage::Standing(Some(_)) => {
                return Err(Decline::Primary);
            }
            CandidateStage::Releasing(_) | CandidateStage::Finished => return Err(Decline::Leaving),
            CandidateStage::Standing(None) if self.leaving => return Err(Decline::Leaving),
            CandidateStage::Standing(None) => {}
        }
        let patience = Millis(self.interval().0.saturating_add(self.timeout().0));
        let line = &mut self.line;
        if line.known > epoch {
            return Err(Decline::Later(line.known));
        }
        if line.bid.is_some_and(|bid| bid.epoch >= epoch) {
            return Err(Decline::Asked);
        }
        if line.answered.is_some_and(|answered| now < answered.after(patience)) {
            return Err(Decline::ServerAnswers);
        }
        if span.0 > limits::ROLE_TTL_MS_MAX {
            return Err(Decline::TooLong);
        }
        line.promised_until = line.promised_until.max(now.after(span));
        line.promised_to = line.promised_to.max(epoch);
        Ok(())
    }

    /// A member promised what it was asked, whenever the answer arrives.
    pub fn on_promise(&mut self, question: &Question) -> Vec<Effect> {
        let mut effects = Vec::new();
        let end = question.sent.after(question.span).before(Plan::margin(question.span));
        let current = matches!(&self.stage, CandidateStage::Leading(held) | CandidateStage::Stopping { held, .. } if held.current);
        if current && self.working().is_some_and(|(epoch, _)| epoch == question.epoch) {
            let same = |asked: &&mut Asked| asked.is(&question.member, Some(&question.peer));
            if let Some(asked) = self.agreement.members.iter_mut().find(same) {
                asked.promised = asked.promised.max(Some(end));
            }
            self.move_end(&mut effects);
        }
        effects
    }

    /// The members whose promises it needs to continue after its term.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        let on = self.agreement.is_given();
        self.agreement.members.iter().filter(move |_| on).map(|asked| &asked.member)
    }

    /// Whether there are members that it must ask.
    #[must_use]
    pub fn has_members(&self) -> bool {
        !self.agreement.members.is_empty()
    }

    /// Whether it is currently working past the end of its own term, by promises alone.
    #[must_use]
    pub fn goes_on(&self, now: Moment) -> bool {
        match &self.stage {
            CandidateStage::Leading(held) | CandidateStage::Stopping { held, .. } => {
                now >= held.own_end() && now < held.until
            }
            _ => false,
        }
    }

    /// A new term begins: the agreement of an earlier one does not apply.
    pub(super) fn agree_anew(&mut self, going_on: Option<GoingOn>) {
        self.agreement = Agreement::default();
        self.agreement.hear(going_on, true);
    }

    /// What the server announced about continuing the current term.
    pub(super) fn agree(&mut self, going_on: Option<GoingOn>, latest: bool, newer: bool) {
        if going_on.is_some() || latest {
            self.agreement.hear(going_on, newer);
        }
    }

    /// Recomputes the end of the term.
    pub(super) fn move_end(&mut self, effects: &mut Vec<Effect>) {
        if let CandidateStage::Leading(held) | CandidateStage::Stopping { held, .. } = &mut self.stage {
            let until = self.agreement.end(held);
            if until != held.until {
                held.until = until;
                effects.push(Effect::Extend { epoch: held.epoch, until });
            }
        }
    }

    /// When the members must be asked, if at all.
    pub(super) fn ask_at(&self) -> Option<Moment> {
        let asks = matches!(&self.stage, CandidateStage::Leading(held) | CandidateStage::Stopping { held, .. } if held.current);
        let can = |asked: &Asked| asked.member.peer.is_some();
        let Agreement { goes_on, members, next_ask, .. } = &self.agreement;
        let useful = *goes_on > Millis(0) && !members.is_empty() && members.iter().all(can);
        next_ask.filter(|_| asks && useful && self.losses > 0 && self.plan.is_some())
    }

    /// A heartbeat is lost: from now on the members are asked.
    pub(super) fn begin_asking(&mut self, now: Moment) {
        self.agreement.next_ask = self.agreement.next_ask.or(Some(now));
    }

    /// A server has responded: no member needs to be asked.
    pub(super) const fn end_asking(&mut self) {
        self.agreement.next_ask = None;
    }

    /// The questions that are due.
    pub(super) fn ask(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let (Some(plan), Some(epoch)) = (self.plan, self.working().map(|(epoch, _)| epoch)) else { return };
        if self.ask_at().is_none_or(|at| now < at) {
            return;
        }
        self.agreement.next_ask = Some(now.after(Millis((plan.interval.0 / 2).max(1))));
        let question = |asked: &Asked| {
            let (member, peer) = (asked.member.uuid.clone(), asked.member.peer.clone()?);
            Some(Effect::Ask(Question { member, peer, from: asked.member.from, epoch, sent: now, span: plan.ttl }))
        };
        effects.extend(self.agreement.members.iter().filter_map(question));
    }
}
