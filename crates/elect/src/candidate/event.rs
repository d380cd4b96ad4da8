//! Events of a candidate other than time: responses, their loss, and the end of its work.

use wayleave_api::roles::{GoingOn, LastTerm};
use wayleave_core::time::Millis;

use super::types::{Call, CandidateStage, Effect, HeartbeatReply, Held, Reason, Then};
use super::{Candidate, RETRY_PART, jittered};
use crate::clock::Moment;
use crate::plan::{Plan, TooTight};

/// The heartbeat interval is jittered by this fraction of it.
const JITTER_PART: u64 = 8;

impl Candidate {
    /// Step 4 and the server's half of 5a: a response arrived. It may be late; its content counts from the sending.
    pub fn on_answer(&mut self, now: Moment, call: Call, answer: HeartbeatReply, entropy: u64) -> Vec<Effect> {
        // A response to an abandoned identity is void.
        if call.identity != self.identity {
            return Vec::new();
        }
        self.line.hear(now, call.sent, &answer);
        let awaited = self.in_flight == Some(call.sent);
        if awaited {
            self.end_asking();
            self.in_flight = None;
            self.losses = 0;
            self.next_send = now.after(jittered(self.interval(), entropy, JITTER_PART));
        }
        let mut effects = Vec::new();
        let mut unusable = None;
        match answer {
            HeartbeatReply::Primary { epoch, token, ttl, remaining, step_down, going_on } => {
                unusable = self.make_plan(now, ttl, awaited, entropy);
                let held = Held::new(epoch, token, call.sent, (ttl, remaining));
                self.on_primary(now, held, going_on, &mut effects);
                if step_down && self.working().is_some_and(|(working, _)| working == epoch) {
                    // Other ready candidates take precedence for one interval.
                    self.step_down(Reason::Asked, Then::StandAgain(self.interval()), &mut effects);
                }
            }
            // These two end a term, so they must answer the latest heartbeat: an older response may describe a time
            // before the term.
            HeartbeatReply::Standby { ttl, remaining, last } if awaited => {
                unusable = self.make_plan(now, ttl, awaited, entropy);
                self.on_standby(now, remaining, &mut effects);
                self.consider(now, last);
            }
            HeartbeatReply::NotCurrent if awaited => self.on_not_current(now, entropy, &mut effects),
            HeartbeatReply::Standby { .. } | HeartbeatReply::NotCurrent => {}
        }
        if let Some(error) = unusable {
            self.fail(error, &mut effects);
        }
        if awaited && !self.leaving && matches!(self.stage, CandidateStage::Standing(None)) {
            // A server responds again: a term that no server has taken back yet can now be released.
            if let Some(token) = self.unreleased.take() {
                effects.extend(self.release(Some(token), Then::StandAgain(Millis(0))));
            }
        }
        effects.extend(self.leave());
        effects
    }

    /// Steps 4c and 4d: the response to a heartbeat is lost or invalid. The server may have applied the heartbeat.
    pub fn on_lost(&mut self, now: Moment, call: Call, entropy: u64) -> Vec<Effect> {
        if call.identity == self.identity && self.in_flight == Some(call.sent) {
            self.lose(now, entropy);
        }
        self.leave()
    }

    /// The guarded work has stopped: by itself, in which case `then` says how to continue, or on request.
    pub fn on_stopped(&mut self, now: Moment, then: Then) -> Vec<Effect> {
        let (held, then, next) = match std::mem::replace(&mut self.stage, CandidateStage::Finished) {
            CandidateStage::Leading(held) => (held, then, None),
            CandidateStage::Stopping { held, then, next } => (held, then, next),
            other => {
                self.stage = other;
                return Vec::new();
            }
        };
        if let (Some(next), Then::StandAgain(_)) = (&next, then) {
            // The server says that the old term is over: nothing to release. The new one must be confirmed first.
            self.stage = CandidateStage::Standing(Some(next.clone()));
            self.next_send = now;
            return Vec::new();
        }
        let held = next.unwrap_or(held);
        if !held.current {
            return self.go_on(now, then);
        }
        self.release(Some(held.token), then)
    }

    /// The release was acknowledged.
    pub fn on_released(&mut self, now: Moment) -> Vec<Effect> {
        self.unreleased = None;
        self.on_release_lost(now)
    }

    /// The release was abandoned: the term expires by itself, or is released when a server responds again.
    pub fn on_release_lost(&mut self, now: Moment) -> Vec<Effect> {
        match self.stage {
            CandidateStage::Releasing(then) => self.go_on(now, then),
            _ => Vec::new(),
        }
    }

    /// The candidate must stop for good, once its work has stopped.
    pub fn on_resign(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        match &mut self.stage {
            CandidateStage::Standing(_) => {
                self.leaving = true;
                effects.extend(self.leave());
            }
            CandidateStage::Leading(_) => self.step_down(Reason::Resigned, Then::Finish, &mut effects),
            CandidateStage::Stopping { then, .. } | CandidateStage::Releasing(then) => {
                if matches!(then, Then::StandAgain(_)) {
                    *then = Then::Finish;
                }
            }
            CandidateStage::Finished => {}
        }
        effects
    }

    /// A standing candidate that must leave does so once no response is pending.
    pub(super) fn leave(&mut self) -> Vec<Effect> {
        match &mut self.stage {
            CandidateStage::Standing(held) if self.leaving && self.in_flight.is_none() => {
                let token = held.take().map(|held| held.token).or(self.unreleased.take());
                self.release(token, Then::Finish)
            }
            _ => Vec::new(),
        }
    }

    fn on_primary(&mut self, now: Moment, new: Held, going_on: Option<GoingOn>, effects: &mut Vec<Effect>) {
        // A response that arrives after the end of its own term must not revive it.
        let fresh = new.epoch > self.led;
        match &mut self.stage {
            CandidateStage::Standing(held) if fresh => {
                *held = Some(new.clone());
                let waits = self.line.waits(now);
                if self.plan.is_some() && !self.leaving && !waits && now < self.stop_at(&new) {
                    self.led = new.epoch;
                    effects.push(Effect::Lead { epoch: new.epoch, until: new.until });
                    self.stage = CandidateStage::Leading(new);
                    self.agree_anew(going_on);
                    self.move_end(effects);
                } else if !waits {
                    // Granted, but its response arrived too late to begin with: renew, then lead.
                    self.next_send = now;
                }
            }
            // A term that has ended here stays ended, however late its heartbeat counted: a store that has lost a later
            // take-over cannot know.
            CandidateStage::Leading(held) | CandidateStage::Stopping { held, .. }
                if held.epoch == new.epoch && self.agreement.heard().is_some() && now >= held.until => {}
            CandidateStage::Leading(held) | CandidateStage::Stopping { held, .. } if held.epoch == new.epoch => {
                let (latest, newer) = (new.acknowledged >= held.acknowledged, new.acknowledged > held.acknowledged);
                if latest {
                    // The latest response about a term counts, even if it shortens it: T may have been lowered.
                    *held = Held { until: held.until, ..new };
                }
                self.agree(going_on, latest, newer);
                self.move_end(effects);
            }
            CandidateStage::Leading(_) if fresh => {
                // The term was over and a new one was granted: the work of the old epoch must end before that of the
                // new one.
                self.step_down(Reason::Superseded, Then::StandAgain(Millis(0)), effects);
                self.outlive(Some(new));
            }
            CandidateStage::Stopping { .. } if fresh => self.outlive(Some(new)),
            _ => {}
        }
    }

    fn on_standby(&mut self, now: Moment, remaining: Millis, effects: &mut Vec<Effect>) {
        match &mut self.stage {
            CandidateStage::Standing(held) => {
                *held = None;
                // The current term may end before the next heartbeat is due: be there then.
                let soonest = Millis(self.interval().0 / (RETRY_PART * 2));
                self.next_send = self.next_send.min(now.after(Millis(remaining.0.max(soonest.0))));
            }
            _ => {
                self.step_down(Reason::Superseded, Then::StandAgain(Millis(0)), effects);
                self.outlive(None);
            }
        }
    }

    /// A standby that may take over does so with its own heartbeat, at once unless it has promised to wait.
    fn consider(&mut self, now: Moment, last: Option<LastTerm>) {
        if matches!(self.stage, CandidateStage::Standing(None))
            && let Some(at) = self.line.consider(now, last)
        {
            self.next_send = self.next_send.min(at);
        }
    }

    fn on_not_current(&mut self, now: Moment, entropy: u64, effects: &mut Vec<Effect>) {
        self.identity = self.identity.wrapping_add(1);
        self.unreleased = None;
        self.line.forget_offer();
        if let CandidateStage::Standing(held) = &mut self.stage {
            // A term of the old identity, granted by a lost response, must expire: no reason to hurry.
            *held = None;
            self.next_send = now.after(jittered(self.interval(), entropy, JITTER_PART));
        }
        self.step_down(Reason::Superseded, Then::StandAgain(Millis(0)), effects);
        self.outlive(None);
    }

    /// For the server, the term whose work is being stopped is over.
    fn outlive(&mut self, later: Option<Held>) {
        if let CandidateStage::Stopping { held, next, .. } = &mut self.stage {
            held.current = false;
            *next = later;
        }
    }

    /// Applies the server's T; heartbeats scheduled by another T are rescheduled.
    fn make_plan(&mut self, now: Moment, ttl: Millis, awaited: bool, entropy: u64) -> Option<TooTight> {
        if self.plan.is_some_and(|plan| plan.ttl == ttl) {
            return None;
        }
        let plan = Plan::new(ttl, self.wish);
        (self.plan, self.unfit) = (plan.ok(), plan.err());
        self.fitted |= plan.is_ok();
        if awaited {
            self.next_send = now.after(jittered(self.interval(), entropy, JITTER_PART));
        }
        plan.err()
    }

    /// An unusable T: leading with it would fail at the first lost response. It ends a candidate that is starting; a
    /// running one releases the role and stands by until T fits again.
    fn fail(&mut self, error: TooTight, effects: &mut Vec<Effect>) {
        let then = if self.fitted { Then::StandAgain(self.interval()) } else { Then::Fail(error) };
        match &mut self.stage {
            CandidateStage::Standing(None) if self.fitted => {}
            CandidateStage::Standing(held) => {
                let token = held.take().map(|held| held.token);
                effects.extend(self.release(token, then));
            }
            CandidateStage::Leading(_) => self.step_down(Reason::TooTight, then, effects),
            CandidateStage::Stopping { then: after, .. } if !self.fitted => *after = then,
            CandidateStage::Stopping { .. } | CandidateStage::Releasing(_) | CandidateStage::Finished => {}
        }
    }

    fn release(&mut self, token: Option<String>, then: Then) -> Vec<Effect> {
        self.in_flight = None;
        self.stage = CandidateStage::Releasing(then);
        self.unreleased = token.clone().filter(|_| self.agreement.heard().is_some());
        vec![Effect::Release { identity: self.identity, token }]
    }

    fn go_on(&mut self, now: Moment, then: Then) -> Vec<Effect> {
        match then {
            Then::StandAgain(pause) => {
                self.stage = CandidateStage::Standing(None);
                self.next_send = now.after(pause);
                Vec::new()
            }
            Then::Finish => self.finish(Ok(())),
            Then::Fail(error) => self.finish(Err(error)),
        }
    }

    fn finish(&mut self, how: Result<(), TooTight>) -> Vec<Effect> {
        self.stage = CandidateStage::Finished;
        vec![Effect::Finished(how)]
    }
}
