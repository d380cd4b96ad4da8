//! Roles on the wire: heartbeats, the primary, settings, release.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use wayleave_core::ids::{Epoch, Token};
use wayleave_core::roles::view::{PrimaryView, StandbyView};
use wayleave_core::roles::{self as core, Candidate, HeartbeatCall, RoleChanges, RoleView};
use wayleave_core::time::Millis;
use wayleave_core::{limits, names};

use crate::BadValue;
use crate::bounds::{ADDRESS, Bounded, EXACT, PRIORITY, SLOT, TOKEN, UUID, WAIT, bounds, whole};
pub use crate::continue_mode::{GoingOn, LastTerm, Member, Mode, Peer, TakeOver};
use crate::metadata::Metadata;
use crate::object;
pub use crate::release_role::{ReleaseRoleQuery, ReleaseRoleResponse, Released};
pub use crate::slots::SlotRun;
use crate::slots::slot;
use crate::{Patch, Timestamp};

const fn yes() -> bool {
    true
}

const fn priority_default() -> u8 {
    5
}

/// Sets up a role. PUT resets absent settings to their defaults, PATCH keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRoleRequest {
    /// How long a term lasts without a heartbeat, 500 to 3,600,000; 15,000 by default. A current term keeps its length:
    /// a new value applies from its next renewal.
    #[serde(default, skip_serializing_if = "Patch::is_keep")]
    #[schema(value_type = Option<u64>)]
    pub ttl_ms: Patch<u64>,
    /// What a primary does when it cannot reach the server; `strict` by default.
    #[serde(default, skip_serializing_if = "Patch::is_keep")]
    #[schema(value_type = Option<Mode>)]
    pub mode: Patch<Mode>,
    /// With mode `continue`: how long a primary may continue after its term, 1,000 to 86,400,000; 600,000 by default.
    #[serde(default, skip_serializing_if = "Patch::is_keep")]
    #[schema(value_type = Option<u64>)]
    pub continue_for_ms: Patch<u64>,
}

bounds! {
    SetRoleRequest {
        ttl_ms: whole(limits::ROLE_TTL_MS_MIN, limits::ROLE_TTL_MS_MAX).or(limits::ROLE_TTL_DEFAULT.0),
        continue_for_ms: whole(limits::ROLE_CONTINUE_MS_MIN, limits::ROLE_CONTINUE_MS_MAX).or(limits::ROLE_CONTINUE_DEFAULT.0),
    }
}

impl SetRoleRequest {
    /// The changes in the core's form; `whole` clears what is absent, as PUT does.
    pub fn changes(mut self, whole: bool) -> Result<RoleChanges, BadValue> {
        if whole && self.ttl_ms.is_keep() {
            self.ttl_ms = Patch::Clear;
        }
        if whole && self.mode.is_keep() {
            self.mode = Patch::Clear;
        }
        if whole && self.continue_for_ms.is_keep() {
            self.continue_for_ms = Patch::Clear;
        }
        self.check_bounds()?;
        Ok(RoleChanges {
            ttl: self.ttl_ms.map(Millis),
            mode: self.mode.map(core::Mode::from),
            continue_for: self.continue_for_ms.map(Millis),
        })
    }
}

/// Raises the epoch of a role above those that another store has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RaiseEpochRequest {
    /// No epoch up to this one will be granted; at most 9,007,199,254,740,992.
    pub epoch: u64,
}

bounds!(RaiseEpochRequest { epoch: whole(0, limits::ROLE_EPOCH_RAISED_MAX) });

impl RaiseEpochRequest {
    /// The epoch in the core's form. Fails if it leaves no room for others.
    pub fn least(self) -> Result<Epoch, BadValue> {
        self.check_bounds()?;
        Ok(Epoch(self.epoch))
    }
}

const INTERVAL_MAX: u64 = limits::ROLE_TTL_MS_MAX / limits::ROLE_INTERVALS_MIN;

/// The heartbeat of a candidate: acquires the role, renews its term, or stands by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// The id of this process: best a random UUID drawn at every start. 1 to 128 visible ASCII characters.
    pub uuid: String,
    /// The interval between heartbeats; a quarter of the role's `ttl_ms` at most. If absent, the one in the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// The term's token, from the response that made this process primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The address of this process, for clients that look up the primary; at most 512 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Further information for them (protocol, host, pid …); at most 2,048 bytes.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// Whether this process could do the work now. One that could not never becomes primary.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub ready: bool,
    /// 0 to 9: among ready candidates 9 comes first.
    #[serde(default = "priority_default")]
    pub priority: u8,
    /// Where this process listens for questions of the primary, for roles with mode `continue`. Without it the primary
    /// must stop at the end of its term when no server responds.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub peer: Option<Peer>,
    /// From a working primary: the `version` it last received under `going_on`, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<u64>,
    /// Bid to take over this expired term; it counts only if the term was neither renewed nor taken since. See
    /// `last_term`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub take_over: Option<TakeOver>,
    /// The name of work that a schedule wants done once, for example a date: 1 to 64 visible ASCII characters. If the
    /// role has recorded it as run, this process does not become primary, and the response has `slot_run`. See the
    /// release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
}

bounds! {
    HeartbeatRequest {
        interval_ms: whole(limits::ROLE_INTERVAL_MS_MIN, INTERVAL_MAX), priority: PRIORITY.or(priority_default() as u64), heard: EXACT,
    } { uuid: UUID, token: TOKEN, address: ADDRESS, slot: SLOT }
}

impl HeartbeatRequest {
    /// A ready candidate with all other fields at their defaults.
    #[must_use]
    pub fn new(uuid: impl Into<String>) -> Self {
        Self {
            uuid: uuid.into(),
            interval_ms: None,
            token: None,
            address: None,
            metadata: Metadata::default(),
            ready: true,
            priority: priority_default(),
            peer: None,
            heard: None,
            take_over: None,
            slot: None,
        }
    }
}

impl TryFrom<&HeartbeatRequest> for HeartbeatCall {
    type Error = BadValue;

    fn try_from(body: &HeartbeatRequest) -> Result<Self, BadValue> {
        body.check_bounds()?;
        let candidate = Candidate {
            uuid: names::uuid(&body.uuid).map_err(|e| BadValue::new("uuid", e))?,
            address: body.address.as_deref().map(address).transpose()?.map(Into::into),
            metadata: metadata(&body.metadata)?,
            ready: body.ready,
            priority: body.priority,
            interval: body.interval_ms.map(Millis),
            peer: body.peer.as_ref().map(core::Peer::try_from).transpose()?,
        };
        let take_over = body.take_over.map(core::Bid::try_from).transpose()?;
        let (token, slot) = (token(body.token.as_deref())?, slot(body.slot.as_deref())?);
        Ok(Self { candidate, token, heard: body.heard, take_over, slot, from: None })
    }
}

pub(crate) fn token(text: Option<&str>) -> Result<Option<Token>, BadValue> {
    text.map(Token::parse).transpose().map_err(|e| BadValue::new("token", e))
}

pub(crate) fn address(text: &str) -> Result<&str, BadValue> {
    if text.is_empty() || text.len() > limits::ADDRESS_BYTES_MAX {
        let reason = format!("has {} bytes; give 1 to {}, or leave it out", text.len(), limits::ADDRESS_BYTES_MAX);
        return Err(BadValue::new("address", reason));
    }
    if text.chars().any(char::is_control) {
        return Err(BadValue::new("address", "must not contain control characters"));
    }
    Ok(text)
}

fn metadata(wire: &Metadata) -> Result<wayleave_core::metadata::Metadata, BadValue> {
    let made: wayleave_core::metadata::Metadata = wire.try_into().map_err(|e| BadValue::new("metadata", e))?;
    let (found, limit) = (made.as_bytes().len(), limits::ROLE_METADATA_BYTES_MAX);
    if found > limit {
        return Err(BadValue::new("metadata", format!("has {found} bytes; the limit for a candidate is {limit}")));
    }
    Ok(made)
}

/// The state of the role after a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatResponse {
    /// Whether the caller is primary now.
    pub primary: bool,
    /// The primary's uuid; null if there is none.
    pub holder: Option<String>,
    /// The primary's address.
    pub address: Option<String>,
    /// The epoch of the current term, otherwise the last one. It is the fencing token of every write that the role
    /// guards.
    pub epoch: u64,
    /// The token of the term, for its primary only: to be sent with every further heartbeat and with the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// How long a term lasts without a heartbeat.
    pub ttl_ms: u64,
    /// The remaining time of the current term, by the server's clock, when it responded. A primary counts it from the
    /// moment it *sent* the heartbeat.
    pub remaining_ms: u64,
    /// The heartbeat interval to use.
    pub interval_ms: u64,
    /// What to do when the server cannot be reached.
    pub mode: Mode,
    /// An operator asks the caller, which is primary, to step down: finish the work, then release.
    pub step_down: bool,
    /// The state of the role and why; never empty.
    pub reason: String,
    /// When that changes by itself; null if it depends on a heartbeat.
    pub changes_in_ms: Option<u64>,
    /// For the primary of a role with mode `continue`, from its first renewal on: the agreement by which it may
    /// continue after its term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub going_on: Option<GoingOn>,
    /// For a standby of a role whose primary may continue after its term: that term, and whether the caller may take it
    /// over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_term: Option<LastTerm>,
    /// The run of the requested slot, if there was one: nothing is left to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot_run: Option<SlotRun>,
}

impl From<core::HeartbeatReply> for HeartbeatResponse {
    fn from(answer: core::HeartbeatReply) -> Self {
        Self {
            primary: answer.outcome != core::Outcome::Standby,
            holder: answer.holder.map(|uuid| uuid.to_string()),
            address: answer.address.map(|address| address.to_string()),
            epoch: answer.epoch.0,
            token: answer.token.map(|token| token.to_string()),
            ttl_ms: answer.ttl.0,
            remaining_ms: answer.remaining.0,
            interval_ms: answer.interval.0,
            mode: answer.mode.into(),
            step_down: answer.step_down,
            reason: answer.reason,
            changes_in_ms: answer.changes_in.map(|ms| ms.0),
            going_on: answer.going_on.map(Into::into),
            last_term: answer.last.map(Into::into),
            slot_run: answer.ran.map(Into::into),
        }
    }
}

/// What to wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// A primary; with `min_epoch`, one of that epoch or a later one.
    #[default]
    Primary,
    /// The end of the current term: there is no primary. What standbys wait for.
    Vacancy,
}

/// Whether and how long to wait for a role to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetRoleQuery {
    /// The long-poll time in milliseconds, at most 60,000; 0 answers at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// The lowest epoch of a primary that counts: for callers that know an earlier one to be superseded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_epoch: Option<u64>,
    /// What to wait for: `primary` (default) or `vacancy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub wait_for: Option<WaitFor>,
}

impl GetRoleQuery {
    /// The lowest epoch that counts. Fails if the number is too large to be exact.
    pub fn min_epoch(&self) -> Result<Option<u64>, BadValue> {
        self.min_epoch.map(|epoch| EXACT.check("min_epoch", epoch)).transpose()
    }

    /// How long to wait.
    pub fn wait(&self) -> Result<Millis, BadValue> {
        WAIT.check_or_default("wait_ms", self.wait_ms).map(Millis)
    }
}

/// A role: its primary or none, why, and its standbys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Role {
    /// Its name.
    pub role: String,
    /// The primary; null if there is none. Never one whose term has expired.
    pub primary: Option<Primary>,
    /// Its state and why; never empty.
    pub reason: String,
    /// When that changes by itself; null if it depends on a heartbeat.
    pub changes_in_ms: Option<u64>,
    /// The epoch of the current term, otherwise the last one.
    pub epoch: u64,
    /// How long a term lasts without a heartbeat.
    pub ttl_ms: u64,
    /// What a primary does when it cannot reach the server.
    pub mode: Mode,
    /// With mode `continue`: how long it may continue after its term.
    #[serde(default)]
    pub continue_for_ms: u64,
    /// Incremented with every change of the role; 0 if it is unknown.
    pub version: u64,
    /// The slot that was run last, if any. The role remembers the last 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<SlotRun>,
    /// The number of standbys that could take over now.
    pub standbys_ready: u64,
    /// Its standbys.
    pub standbys: Vec<Standby>,
}

impl From<RoleView> for Role {
    fn from(view: RoleView) -> Self {
        Self {
            role: view.role.to_string(),
            primary: view.primary.map(Primary::from),
            reason: view.reason,
            changes_in_ms: view.changes_in.map(|ms| ms.0),
            epoch: view.epoch.0,
            ttl_ms: view.ttl.0,
            mode: view.mode.into(),
            continue_for_ms: view.continue_for.0,
            version: view.version,
            last_run: view.last_run.map(Into::into),
            standbys_ready: view.standbys.iter().filter(|standby| standby.ready).count() as u64,
            standbys: view.standbys.into_iter().map(Standby::from).collect(),
        }
    }
}

/// The holder of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Primary {
    /// Its uuid.
    pub uuid: String,
    /// Its address.
    pub address: Option<String>,
    /// Its metadata.
    pub metadata: Metadata,
    /// Its epoch; send it along with requests to the primary.
    pub epoch: u64,
    /// How long this response may be relied on without asking again.
    pub remaining_ms: u64,
    /// When its term began.
    pub granted_at: Timestamp,
    /// When its last heartbeat arrived.
    pub renewed_at: Timestamp,
    /// Whether it says that it is ready.
    pub ready: bool,
    /// 0 to 9, 9 first.
    pub priority: u8,
    /// How often it sends heartbeats.
    pub interval_ms: u64,
    /// Whether it was asked to step down.
    pub step_down: bool,
}

impl From<PrimaryView> for Primary {
    fn from(view: PrimaryView) -> Self {
        Self {
            uuid: view.uuid.to_string(),
            address: view.address.map(|address| address.to_string()),
            metadata: (&view.metadata).into(),
            epoch: view.epoch.0,
            remaining_ms: view.remaining.0,
            granted_at: Timestamp(view.granted_at),
            renewed_at: Timestamp(view.renewed_at),
            ready: view.ready,
            priority: view.priority,
            interval_ms: view.interval.0,
            step_down: view.step_down,
        }
    }
}

/// A standby.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Standby {
    /// Its uuid.
    pub uuid: String,
    /// Its address if it becomes primary.
    pub address: Option<String>,
    /// Its metadata.
    pub metadata: Metadata,
    /// Whether it could take over now.
    pub ready: bool,
    /// 0 to 9, 9 first.
    pub priority: u8,
    /// When its last heartbeat arrived.
    pub seen_at: Timestamp,
    /// How long it stays registered without another heartbeat.
    pub remaining_ms: u64,
}

impl From<StandbyView> for Standby {
    fn from(view: StandbyView) -> Self {
        Self {
            uuid: view.uuid.to_string(),
            address: view.address.map(|address| address.to_string()),
            metadata: (&view.metadata).into(),
            ready: view.ready,
            priority: view.priority,
            seen_at: Timestamp(view.seen_at),
            remaining_ms: view.remaining.0,
        }
    }
}

/// One page of roles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListRolesResponse {
    /// The roles, by name, each with its standbys; at most 100 on a page.
    pub roles: Vec<Role>,
    /// Pass it as `after` to get the next page; null at the end.
    pub next: Option<String>,
}

#[cfg(test)]
#[path = "roles_tests.rs"]
mod tests;
