//! The conversation with the server, in the candidate's words.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;
use wayleave_api::Code;
use wayleave_api::metadata::Metadata;
use wayleave_api::roles::{GetRoleQuery, HeartbeatRequest, HeartbeatResponse, Mode, Peer, Role, SlotRun, WaitFor};
use wayleave_client::{Client, Error as Failure, Retry};
use wayleave_core::time::Millis;

use super::state::{Control, Error};
use crate::candidate::{Answer, Heartbeat};
use crate::identity::{self, Identity};
use crate::options::Options;

/// A long poll for the end of the present term; the next one follows if nothing happens.
const VACANCY_WAIT_MS: u64 = 30_000;
/// A release is worth this much waiting; afterwards the term ends by itself.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// One that records a slot is worth more.
const RECORD_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Speaks for one candidate.
pub(super) struct Wire {
    client: Client,
    role: String,
    /// What every heartbeat says.
    form: HeartbeatRequest,
    identity: u32,
    /// The uuid of the identity before: a term that was granted to it by an answer that was lost is nobody else's.
    former: Option<String>,
    control: watch::Receiver<Control>,
}

/// What came back from a heartbeat.
pub(super) enum Heard {
    /// An answer, and what else the server said.
    Answer(Answer, Said),
    /// None, or none that makes sense; it may come to its senses.
    Lost(String),
    /// The server will not have this candidate, now or later.
    Refused(Failure),
}

/// What a server says besides what the candidate acts on.
pub(super) struct Said {
    /// Who is primary.
    pub primary: Option<String>,
    /// Where it is reached.
    pub address: Option<String>,
    /// In which epoch.
    pub epoch: u64,
    /// What a primary does that no server answers.
    pub mode: Mode,
    /// How the role stands.
    pub reason: String,
    /// The run of this candidate's slot, if there was one.
    pub slot_run: Option<SlotRun>,
}

/// What became of a release.
pub(super) struct Released {
    /// Whether a server has said something to it.
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
            // What the user says of host or pid is taken before what the machine says.
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
        // A candidate decides itself when to try again.
        Ok(Self { client: client.with_retry(Retry::NEVER), role, form, identity: 0, former: None, control })
    }

    /// Where this candidate takes questions, for every further heartbeat.
    pub fn set_peer(&mut self, peer: Option<Peer>) {
        self.form.peer = peer;
    }

    /// Whether others can ask this candidate.
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

    /// Waits for the end of the present term, after a pause.
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

    /// The slot that this candidate stands for.
    pub fn slot(&self) -> Option<&str> {
        self.form.slot.as_deref()
    }

    /// Gives the role back after the work of the slot was done, and has it remembered. Nothing else tells others that it was, so
    /// this is tried for longer than a mere release: also past the end of the term, for it counts until another has the role.
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

    /// Gives the role back, or leaves the line of standbys.
    pub fn release(&self, token: Option<String>) -> Pending<Released> {
        let (role, uuid) = (self.role.clone(), self.form.uuid.clone());
        // The same release may be sent again: it is bound to the term.
        let client = self.client.clone().with_retry(Retry { attempts: 3, ..Retry::default() });
        Box::pin(async move {
            let released = tokio::time::timeout(RELEASE_TIMEOUT, client.release_role(&role, &uuid, token.as_deref()));
            let released = released.await;
            match &released {
                Ok(Ok(_)) => {}
                Ok(Err(error)) if error.is_outcome_unknown() => tell_unknown(&role, &error.to_string()),
                Ok(Err(error)) if token.is_some() => {
                    tracing::warn!(role, error = %error, "the role was not given back; the term ends by itself");
                }
                Err(_) if token.is_some() => tell_unknown(&role, "no answer in time"),
                // Whoever has no term has nothing to give back; its place among the standbys ends by itself.
                Ok(Err(_)) | Err(_) => {}
            }
            let refused = |error: &Failure| error.problem().is_some_and(|problem| (400..500).contains(&problem.status));
            let answered = released.is_ok_and(|answer| answer.is_ok() || answer.is_err_and(|error| refused(&error)));
            Released { answered, unrecorded: None }
        })
    }
}

fn tell_unknown(role: &str, why: &str) {
    tracing::warn!(role, why, "it is not known whether the role was given back; if not, the term ends by itself");
}

fn draw() -> Result<String, Error> {
    Ok(Identity::draw().map_err(Error::Machine)?.uuid().to_owned())
}

/// What an answer means to the candidate with this uuid.
fn heard(answer: Result<HeartbeatResponse, Failure>, uuid: &str) -> Heard {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return failed(error),
    };
    let Some(told) = Answer::read(&answer, uuid) else {
        return Heard::Lost("the answer calls this candidate primary and names another one, or no token".into());
    };
    let HeartbeatResponse { holder: primary, address, epoch, mode, reason, slot_run, .. } = answer;
    Heard::Answer(told, Said { primary, address, epoch, mode, reason, slot_run })
}

fn failed(error: Failure) -> Heard {
    match error.code() {
        Some(Code::DuplicateIdentity | Code::NotTheTerm) => {
            let (mode, reason) = (Mode::Strict, error.to_string());
            let said = Said { primary: None, address: None, epoch: 0, mode, reason, slot_run: None };
            Heard::Answer(Answer::NotCurrent, said)
        }
        // Room may be made.
        Some(Code::OverLimit | Code::Overloaded) => Heard::Lost(error.to_string()),
        _ if error.problem().is_some_and(|problem| (400..500).contains(&problem.status)) => Heard::Refused(error),
        _ => Heard::Lost(error.to_string()),
    }
}
