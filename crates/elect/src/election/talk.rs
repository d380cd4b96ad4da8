//! A candidate's exchanges with its peers, and which of them are logged.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;

use wayleave_api::roles::{Member, Mode};

use super::peers::{ALLOW, Asked, Asking, Door};
use super::wire::Reply;
use crate::candidate::{Candidate, Question};
use crate::clock::Moment;

/// The maximum number of reasons logged between two responses of a server.
const DECLINED_LOGGED_MAX: usize = 100;

/// The listener, if there is one, and its own questions.
pub(super) struct Talk {
    pub door: OwnDoor,
    pub asking: Asking,
    role: String,
    /// What was already logged: members that cannot be asked and why, and reasons of others since the last response of a
    /// server.
    mute: BTreeMap<String, String>,
    declined: BTreeSet<(String, String)>,
    warned: bool,
    goes_on: bool,
    /// The last known primary, and its epoch.
    primary: Option<(Option<String>, u64)>,
}

/// An optional listener.
pub(super) struct OwnDoor(Option<Door>);

impl OwnDoor {
    /// The next question; pends forever if there is no listener.
    pub async fn asked(&mut self) -> Asked {
        let Some(door) = &mut self.0 else { return pending().await };
        match door.next().await {
            Some(asked) => asked,
            None => pending().await,
        }
    }
}

impl Talk {
    pub fn new(role: &str, door: Option<Door>, asking: Asking) -> Self {
        Self {
            door: OwnDoor(door),
            asking,
            role: role.to_owned(),
            mute: BTreeMap::new(),
            declined: BTreeSet::new(),
            warned: false,
            goes_on: false,
            primary: None,
        }
    }

    /// Answers a question as the candidate decides.
    pub fn answer(candidate: &mut Candidate, now: Moment, asked: Asked) {
        let Asked { epoch, span, answer } = asked;
        let verdict = candidate.on_question(now, epoch, span).map_err(|decline| decline.to_string());
        // If the asker is gone it has no promise; one that was given is kept anyway.
        _ = answer.send(verdict);
    }

    /// A server has responded.
    pub fn on_heard(&mut self, candidate: &Candidate, mode: Mode, has_peer: bool) {
        self.declined.clear();
        let role = &self.role;
        if mode == Mode::Continue && !has_peer && !self.warned {
            self.warned = true;
            let text = "the role's mode is 'continue', but nobody can ask this candidate for its agreement: with it as a \
                        standby, the primary stops at the end of its term when no server answers; start it with --peer";
            tracing::warn!(role, "{text}");
        }
        let cannot = |member: &Member| match &member.peer {
            None => Some("start the standby with --peer".to_owned()),
            Some(peer) => {
                let kind = self.asking.refuses(member)?;
                Some(format!(
                    "its --peer address {} is {kind}, and not where its heartbeats come from: {ALLOW}",
                    peer.address
                ))
            }
        };
        let mute: BTreeMap<String, String> =
            candidate.members().filter_map(|member| Some((member.uuid.clone(), cannot(member)?))).collect();
        for (uuid, remedy) in mute.iter().filter(|(uuid, remedy)| self.mute.get(*uuid) != Some(remedy)) {
            let text = "this standby cannot be asked for its agreement: when no server answers, the work stops at the end of \
                        the term";
            tracing::warn!(role, uuid, "{text}; {remedy}");
        }
        self.mute = mute;
    }

    /// A member declined, or could not be reached.
    pub fn log_declined(&mut self, question: &Question, why: &str) {
        if self.declined.len() < DECLINED_LOGGED_MAX && self.declined.insert((question.member.clone(), why.to_owned()))
        {
            let (role, uuid, address) = (&self.role, &question.member, &question.peer.address);
            tracing::warn!(role, uuid, address, why, "a standby does not promise to wait; trying again");
        }
    }

    /// Logs when work continues by agreement alone, and when that ends.
    pub fn log_going_on(&mut self, candidate: &Candidate, now: Moment) {
        let goes_on = candidate.goes_on(now);
        if goes_on && !self.goes_on {
            let why =
                if candidate.has_members() { "all standbys have promised to wait" } else { "there is no standby" };
            tracing::warn!(role = self.role, "the term is over and no server answers; continuing because {why}");
        }
        self.goes_on = goes_on;
    }

    /// Logs the current primary when it changes.
    pub fn log_primary(&mut self, reply: &Reply) {
        let now = (reply.primary.clone(), if reply.primary.is_some() { reply.epoch } else { 0 });
        if self.primary.as_ref() == Some(&now) {
            return;
        }
        self.primary = Some(now);
        let role = &self.role;
        match &reply.primary {
            Some(uuid) => {
                let at = reply.address.as_deref().map(|address| format!(" at {address}")).unwrap_or_default();
                tracing::info!(role, "standing by; primary is {uuid}{at}, epoch {}", reply.epoch);
            }
            None => tracing::info!(role, "standing by; there is no primary: {}", reply.reason),
        }
    }

    /// It is primary itself now: whichever primary comes next is news.
    pub fn forget_primary(&mut self) {
        self.primary = None;
    }
}
