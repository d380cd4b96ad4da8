//! The protocol with the server, in the candidate's types.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;
use wayleave_api::Code;
use wayleave_api::metadata::Metadata;
use wayleave_api::roles::{GetRoleQuery, HeartbeatRequest, HeartbeatResponse, Mode, Peer, Role, SlotRun, WaitFor};
use wayleave_client::{Client, Error as Failure, Retry};
use wayleave_core::time::Millis;

use super::state::{Control, Error};
use crate::candidate::{Heartbeat, HeartbeatReply};
use crate::identity::{self, Identity};
use crate::options::Options;

/// The long-poll time for the end of the current term; another one follows if nothing happens.
const VACANCY_WAIT_MS: u64 = 30_000;
/// The timeout of a release; afterwards the term expires by itself.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// The timeout of a release that records a slot.
const RECORD_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The connection of one candidate.
pub(super) struct Wire {
    client: Client,
    role: String,
    /// The template of every heartbeat.
    form: HeartbeatRequest,
    identity: u32,
    /// The uuid of the previous identity: a term that was granted to it by a lost response is not another process's.
    former: Option<String>,
    control: watch::Receiver<Control>,
}

/// The outcome of a heartbeat.
pub(super) enum Heard {
    /// A response, and what else the server reported.
    Answer(HeartbeatReply, Reply),
    /// No response, or an invalid one; a retry may succeed.
    Lost(String),
    /// The server refuses this candidate permanently.
    Refused(Failure),
}

/// What a server says besides what the candidate acts on.
pub(super) struct Reply {
    /// The primary.
    pub primary: Option<String>,
    /// Its address.
    pub address: Option<String>,
    /// Its epoch.
    pub epoch: u64,
    /// What a primary does when no server responds.
    pub mode: Mode,
    /// The state of the role.
    pub reason: String,
    /// The run of this candidate's slot, if there was one.
    pub slot_run: Option<SlotRun>,
}

/// The outcome of a release.
pub(super) struct Released {
    /// Whether a server has responded to it.
    pub answered: bool,
    /// If there was a slot to record: why it is not known to be recorded.
    pub unrecorded: Option<String>,
}

impl Wire {
    pub fn new(
        client: Client,
        role: String,
        options: &Options,
        control: watch::Receiver<Control>,
    ) -> Result<Self, Error> {
        let mut metadata = options.metadata.iter().map(|(name, value)| (name.clone(), vec![value.clone()]));
        let mut entries: Vec<(String, Vec<String>)> = metadata.by_ref().collect();
        for (name, values) in identity::place() {
            // The user's values for host or pid take precedence over the machine's.
            if !entries.iter().any(|(known, _)| *known == name) {
                entries.push((name, values));
            }
        }
        let form = HeartbeatRequest {
            uuid: draw()?,
            interval_ms: options.interval.map(|interval| crate::options::millis(interval).0),
            token: None,
            address: options.address.clone(),
            metadata: Metadata(entries),
            ready: options.ready,
            priority: options.priority,
            peer: None,
            heard: None,
            take_over: None,
            slot: options.slot.clone(),
        };
        // The candidate itself decides when to retry.
        Ok(Self { client: client.with_retry(Retry::NEVER), role, form, identity: 0, former: None, control })
    }

    /// Sets where this candidate receives questions, for all further heartbeats.
    pub fn set_peer(&mut self, peer: Option<Peer>) {
        self.form.peer = peer;
    }

    /// Whether other candidates can ask this one.
    pub const fn has_peer(&self) -> bool {
        self.form.peer.is_some()
    }

    pub fn role(&self) -> &str {
        &self.role
    }

    pub fn uuid(&self) -> &str {
        &self.form.uuid
    }

    /// Sends a heartbeat.
    pub fn heartbeat(&mut self, beat: &Heartbeat, timeout: Millis) -> Result<Pending<Heard>, Error> {
        if beat.call.identity != self.identity {
            self.identity = beat.call.identity;
            self.former = Some(std::mem::replace(&mut self.form.uuid, draw()?));
        }
        let request = HeartbeatRequest {
            token: beat.token.clone(),
            ready: beat.ready && self.control.borrow().ready,
            heard: beat.heard,
            take_over: beat.take_over,
            ..self.form.clone()
        };
        let (client, role, timeout) = (self.client.clone(), self.role.clone(), Duration::from_millis(timeout.0));
        Ok(Box::pin(async move {
            let answer = client.heartbeat(&role, &request, timeout).await;
            heard(answer, &request.uuid)
        }))
    }

    /// Waits for the end of the current term, after a pause.
    pub fn vacancy(&self, pause: Duration) -> Pending<Result<Role, Failure>> {
        let (client, role) = (self.client.clone(), self.role.clone());
        let query = GetRoleQuery { wait_ms: Some(VACANCY_WAIT_MS), min_epoch: None, wait_for: Some(WaitFor::Vacancy) };
        Box::pin(async move {
            tokio::time::sleep(pause).await;
            client.role(&role, &query).await
        })
    }

    /// Whether a primary is another process.
    pub fn is_another(&self, primary: &str) -> bool {
        self.former.as_deref() != Some(primary)
    }

    /// The slot that this candidate asks for.
    pub fn slot(&self) -> Option<&str> {
        self.form.slot.as_deref()
    }

    /// Releases the role after the work of the slot was done, and records the slot. Nothing else informs others that it
    /// was done, so this is retried for longer than a mere release: also past the end of the term, because it counts
    /// until another candidate has the role.
    pub fn release_after(&self, token: String) -> Pending<Released> {
        let (role, uuid) = (self.role.clone(), self.form.uuid.clone());
        let slot = self.form.slot.clone().unwrap_or_default();
        let retry = Retry { attempts: u32::MAX, base: Duration::from_millis(50), max: Duration::from_secs(1) };
        let client = self.client.clone().with_retry(retry);
        Box::pin(async move {
            let released =
                tokio::time::timeout(RECORD_TIMEOUT, client.release_role_after(&role, &uuid, &token, &slot)).await;
            let unrecorded = match released {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("no answer within {} s", RECORD_TIMEOUT.as_secs())),
            };
            Released { answered: unrecorded.is_none(), unrecorded }
        })
    }

    /// Releases the role, or withdraws a standby.
    pub fn release(&self, token: Option<String>) -> Pending<Released> {
        let (role, uuid) = (self.role.clone(), self.form.uuid.clone());
        // A release is idempotent: it is bound to the term.
        let client = self.client.clone().with_retry(Retry { attempts: 3, ..Retry::default() });
        Box::pin(async move {
            let released = tokio::time::timeout(RELEASE_TIMEOUT, client.release_role(&role, &uuid, token.as_deref()));
            let released = released.await;
            match &released {
                Ok(Ok(_)) => {}
                Ok(Err(error)) if error.is_outcome_unknown() => log_unknown(&role, &error.to_string()),
                Ok(Err(error)) if token.is_some() => {
                    tracing::warn!(role, error = %error, "the role was not released; the term expires by itself");
                }
                Err(_) if token.is_some() => log_unknown(&role, "no answer in time"),
                // A standby has no term to release; its registration expires by itself.
                Ok(Err(_)) | Err(_) => {}
            }
            let refused = |error: &Failure| error.problem().is_some_and(|problem| (400..500).contains(&problem.status));
            let answered = released.is_ok_and(|answer| answer.is_ok() || answer.is_err_and(|error| refused(&error)));
            Released { answered, unrecorded: None }
        })
    }
}

fn log_unknown(role: &str, why: &str) {
    tracing::warn!(role, why, "it is unknown whether the role was released; if not, the term expires by itself");
}

fn draw() -> Result<String, Error> {
    Ok(Identity::draw().map_err(Error::Machine)?.uuid().to_owned())
}

/// Interprets a response for the candidate with this uuid.
fn heard(answer: Result<HeartbeatResponse, Failure>, uuid: &str) -> Heard {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return failed(error),
    };
    let Some(outcome) = HeartbeatReply::read(&answer, uuid) else {
        return Heard::Lost("the answer calls this candidate primary and names another one, or no token".into());
    };
    let HeartbeatResponse { holder: primary, address, epoch, mode, reason, slot_run, .. } = answer;
    Heard::Answer(outcome, Reply { primary, address, epoch, mode, reason, slot_run })
}

fn failed(error: Failure) -> Heard {
    match error.code() {
        Some(Code::DuplicateIdentity | Code::NotTheTerm) => {
            let (mode, reason) = (Mode::Strict, error.to_string());
            let reply = Reply { primary: None, address: None, epoch: 0, mode, reason, slot_run: None };
            Heard::Answer(HeartbeatReply::NotCurrent, reply)
        }
        // Capacity may be freed.
        Some(Code::OverLimit | Code::Overloaded) => Heard::Lost(error.to_string()),
        _ if error.problem().is_some_and(|problem| (400..500).contains(&problem.status)) => Heard::Refused(error),
        _ => Heard::Lost(error.to_string()),
    }
}
