//! Reports of machines: the first one registers the machine, later ones are its heartbeats with its state.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::row::{Cause, Desired, Judged, Kind, MachineRow, Reported, RowNo, Write};
use super::state::{Machine, State};
use crate::ids::{ShardId, Token};
use crate::limits;
use crate::names::MachineId;
use crate::time::{Millis, Time};

/// A report, as sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What the machine does.
    pub kind: Kind,
    /// Where it is reached.
    pub address: Arc<str>,
    /// The address that this report comes from, as the server saw it.
    pub from: Option<IpAddr>,
    /// Its share of the work, relative to others.
    pub capacity: u64,
    /// Its row. A server that names none is in row 0.
    pub row: Option<u64>,
    /// How it is.
    pub state: Reported,
    /// Its version, for people.
    pub version: Option<Arc<str>>,
    /// The token of its registration.
    pub token: Option<Token>,
}

/// The answer to a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportReply {
    /// What the operator wants of it.
    pub desired: Desired,
    /// How Wayleave judges it.
    pub judged: Judged,
    /// When to report again.
    pub interval: Millis,
    /// Why it is judged so; never empty.
    pub reason: String,
    /// What later reports must present.
    pub token: Token,
    /// Whether this report registered the machine.
    pub registered: bool,
}

/// What a report says of the machine, checked.
pub(super) struct Facts {
    pub capacity: u32,
    pub row: Option<RowNo>,
}

impl State {
    /// Takes a report. `shard` and `entropy` make the token of a new machine. Fails if the report is malformed, or is
    /// not that of the machine registered under this name.
    pub fn report(
        &mut self,
        id: &MachineId,
        report: &Report,
        (shard, entropy): (ShardId, u128),
        now: Time,
        out: &mut Vec<Write>,
    ) -> Result<ReportReply, Refusal> {
        let facts = check(report)?;
        let registered = match self.machines.get(id) {
            None => {
                self.check_new(id, report)?;
                self.called(now);
                if self.machines.len() >= limits::MACHINES_MAX {
                    self.forget_one(out);
                }
                self.register(id, report, &facts, Token::new(shard, entropy), now, out);
                true
            }
            Some(machine) if is_abandoned(&machine.row, report, &facts) => {
                let row = MachineRow { token: Token::new(shard, entropy), registered_at: now, ..machine.row.clone() };
                self.called(now);
                self.write(id, row, out);
                self.hear(id, report, &facts, now, out);
                true
            }
            Some(machine) => {
                check_known(id, &machine.row, report, &facts, (now, self.config.failed_after()))?;
                self.called(now);
                self.hear(id, report, &facts, now, out);
                false
            }
        };
        self.judge(id, now, out);
        let Some(machine) = self.machines.get(id) else { return Err(Refusal::UnknownMachine(id.to_string())) };
        Ok(ReportReply {
            desired: machine.row.desired,
            judged: machine.row.judged,
            interval: self.config.report_interval,
            reason: self.explain(machine, now),
            token: machine.row.token,
            registered,
        })
    }

    /// Checks the token of a call that is a machine's own. It must be given once the machine has presented it. A machine
    /// that is not known is not refused here. Fails if the token is missing, or is another one.
    pub fn check_token(&self, id: &MachineId, token: Option<Token>) -> Result<(), Refusal> {
        let Some(Machine { row, .. }) = self.machines.get(id) else { return Ok(()) };
        match token {
            Some(token) if token != row.token => Err(Refusal::AnothersToken(id.to_string())),
            None if row.confirmed => Err(Refusal::TokenMissing(id.to_string())),
            _ => Ok(()),
        }
    }

    fn check_new(&self, id: &MachineId, report: &Report) -> Result<(), Refusal> {
        if report.token.is_some() {
            return Err(Refusal::Deleted(id.to_string()));
        }
        if self.machines.len() >= limits::MACHINES_MAX && self.graves.is_empty() {
            let max = limits::MACHINES_MAX;
            return Err(Refusal::OverLimit(format!(
                "there are {max} machines, which is the limit; delete those that are gone before '{id}' registers"
            )));
        }
        Ok(())
    }

    fn register(
        &mut self,
        id: &MachineId,
        report: &Report,
        facts: &Facts,
        token: Token,
        now: Time,
        out: &mut Vec<Write>,
    ) {
        let row = MachineRow {
            kind: report.kind,
            address: report.address.clone(),
            from: report.from,
            also_from: None,
            capacity: facts.capacity,
            row: facts.row,
            version: report.version.clone(),
            token,
            confirmed: false,
            desired: Desired::Online,
            reported: report.state,
            judged: Judged::Healthy,
            cause: Cause::Well,
            judged_at: now,
            written_off: false,
            failures: 0,
            seen_at: now,
            registered_at: now,
            report_interval: self.config.report_interval,
        };
        out.push(Write::Machine(id.clone(), Some(row.clone())));
        self.insert(id.clone(), row, Some(now), now);
    }

    fn hear(&mut self, id: &MachineId, report: &Report, facts: &Facts, now: Time, out: &mut Vec<Write>) {
        let Some(machine) = self.machines.get_mut(id) else { return };
        let (again, interval) = (machine.heard.is_some(), self.config.report_interval);
        machine.heard = Some(now.max(machine.heard.unwrap_or_default()));
        let mut row = machine.row.clone();
        // A shorter interval counts from the second report: the answer to the first one may be lost.
        row.report_interval = if again { interval } else { interval.max(row.report_interval) };
        let known = report.from.is_none() || [row.from, row.also_from].contains(&report.from);
        let moved = row.address != report.address;
        if moved {
            (row.address, row.from, row.also_from) = (report.address.clone(), report.from, None);
        } else if !known && machine.sender_at.is_none_or(|at| now >= at.after(limits::SENDER_INTERVAL)) {
            (row.from, row.also_from) = (report.from, row.from);
        }
        if row.from != machine.row.from {
            machine.sender_at = Some(now);
        }
        if moved {
            self.update(id, |machine| machine.probes.forget());
        }
        row.version.clone_from(&report.version);
        row.capacity = facts.capacity;
        row.reported = report.state;
        row.confirmed |= report.token.is_some();
        self.write(id, row, out);
    }
}

/// Whether a registration replaces an unused one: its token was never presented, and the machine has failed. Its
/// answer was lost, and the machine would be locked out. The token before ends, so nothing is stolen with it.
fn is_abandoned(row: &MachineRow, report: &Report, facts: &Facts) -> bool {
    let same = (row.kind, row.row) == (report.kind, facts.row);
    report.token.is_none() && same && !row.confirmed && row.judged == Judged::Failed
}

fn check_known(
    id: &MachineId,
    row: &MachineRow,
    report: &Report,
    facts: &Facts,
    (now, soon): (Time, Millis),
) -> Result<(), Refusal> {
    // The answer with the token may have been lost; the same machine soon sends the same registration again. From
    // elsewhere or later it may be any process that has read what the machine registered.
    let same = (row.kind, &row.address, row.row, row.from) == (report.kind, &report.address, facts.row, report.from);
    let repeated = !row.confirmed && same && now.since(row.registered_at) < soon;
    match report.token {
        Some(token) if token != row.token => return Err(Refusal::AnothersToken(id.to_string())),
        None if !repeated => return Err(Refusal::TokenMissing(id.to_string())),
        _ => {}
    }
    row.check_same(id, report.kind, facts.row)
}

impl MachineRow {
    /// Checks that type and row, which never change, are these.
    pub(super) fn check_same(&self, id: &MachineId, kind: Kind, row: Option<RowNo>) -> Result<(), Refusal> {
        if self.kind != kind {
            let (id, kind, asked) = (id.to_string(), self.kind.name().into(), kind.name().into());
            return Err(Refusal::KindChanged { id, kind, asked });
        }
        match (self.row, row) {
            (Some(RowNo(row)), Some(RowNo(asked))) if row != asked => {
                Err(Refusal::RowChanged { id: id.to_string(), row, asked })
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn check(report: &Report) -> Result<Facts, Refusal> {
    let capacity = Some(report.capacity).filter(|capacity| (1..=limits::CAPACITY_MAX).contains(capacity));
    let capacity = capacity
        .and_then(|capacity| u32::try_from(capacity).ok())
        .ok_or(Refusal::CapacityOutOfBounds(report.capacity))?;
    let row = match (report.kind, report.row) {
        (Kind::Server, row) => Some(check_row(row.unwrap_or(0))?),
        (kind, Some(_)) => return Err(Refusal::RowOfNoServer(kind.name().into())),
        (_, None) => None,
    };
    check_address(&report.address)?;
    let too_long = |text: &Arc<str>| text.len() > limits::MACHINE_VERSION_BYTES_MAX;
    if report.version.as_ref().is_some_and(|text| too_long(text) || text.chars().any(char::is_control)) {
        return Err(Refusal::BadVersion);
    }
    Ok(Facts { capacity, row })
}

fn check_row(row: u64) -> Result<RowNo, Refusal> {
    let inside = u8::try_from(row).ok().filter(|row| u64::from(*row) <= limits::ROW_MAX);
    inside.map(RowNo).ok_or(Refusal::RowOutOfBounds(row))
}

/// Host and port, and nothing that would make a probe or a fetch go elsewhere.
fn check_address(address: &str) -> Result<(), Refusal> {
    let bad = || Refusal::BadAddress(address.chars().filter(|c| !c.is_control()).take(80).collect());
    let strange = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '/' | '\\' | '?' | '#' | '@');
    // A name outside ASCII would be encoded anew by everyone who reads it, perhaps differently.
    if address.is_empty()
        || address.len() > limits::ADDRESS_BYTES_MAX
        || !address.is_ascii()
        || address.contains(strange)
    {
        return Err(bad());
    }
    let url = url::Url::parse(&format!("http://{address}/")).map_err(|_| bad())?;
    if url.host().is_none() { Err(bad()) } else { Ok(()) }
}
