//! Work that must run once in a cluster: the primary of a *system role* runs it, every other node stands by. System roles
//! are role rows like others, under names that the API refuses, so users neither see nor take them.
//!
//! Two safeguards, because one clock is not enough:
//!
//! - The work is dropped before its term ends by this process's clock, counted from the sending of the last acknowledged
//!   heartbeat. So two nodes seldom work at the same time.
//! - [`Lead::update`] writes only while the term is the present one, in the same compare-and-swap. So a process that was
//!   suspended beyond its term, and does not know it yet, changes nothing:
//!   (A leads) (A is suspended) (the term ends) (B leads) (A wakes up and writes): the row has B's token, and A is refused.
//!   (A looks) (A is suspended) (B leads) (A's write arrives): it expects A's row, and is a conflict.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use wayleave_core::ids::{Epoch, Token};
use wayleave_core::metadata::Metadata;
use wayleave_core::names::{self, RoleName, Uuid};
use wayleave_core::roles::{Candidate, HeartbeatCall, HeartbeatReply, Refusal};
use wayleave_core::time::Millis;
use wayleave_engine::rows::role;
use wayleave_engine::{Error, Look};
use wayleave_registry::{Decision, Registry, Subject, only, value};

use crate::{Roles, Wait, WaitFor};

/// How long a standby node waits for a vacancy before it asks again.
const STAND_BY: Millis = Millis(60_000);
/// Before another attempt, when the store cannot serve one.
const AGAIN: Duration = Duration::from_secs(1);

/// The right to do the work, for as long as its term lasts.
#[derive(Clone, Debug)]
pub struct Lead {
    role: RoleName,
    token: Token,
    epoch: Epoch,
}

impl Lead {
    /// Grows with every change of the node that leads.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Changes a record as [`Registry::update`] does, but only while this term lasts by the store's clock; `None` once it
    /// is over. `decide` sees the rows of its subject in their places. Fails as [`Registry::update`] does.
    pub async fn update<T, D>(
        &self,
        registry: &Registry,
        mut subject: Subject,
        mut decide: D,
    ) -> Result<Option<T>, Error>
    where
        T: Send + 'static,
        D: FnMut(&Look, bool) -> Decision<T> + Send + 'static,
    {
        let (key, token) = (role::key(&self.role), self.token);
        subject.scans.push(only(key.clone()));
        let decide = move |look: &Look, in_doubt: bool| {
            let row = value(look, &key).and_then(|row| role::decode(row).ok());
            let present = row.as_ref().and_then(|row| row.live(look.now));
            if present.is_none_or(|term| term.token != token) {
                return Decision::keep(None);
            }
            let Decision { writes, mut depends_on, news, answer } = decide(look, in_doubt);
            depends_on.push(key.clone());
            Decision { writes, depends_on, news, answer: Some(answer) }
        };
        registry.update(subject, decide).await
    }
}

/// Runs `work` whenever this node leads the duty, and drops it when it no longer does. Normally neither ends. If the work
/// ends, the node resigns and this returns. `me` must be unique among the processes of the store.
pub async fn led<W, F>(roles: &Roles, duty: &str, me: Uuid, mut work: W)
where
    W: FnMut(Lead) -> F,
    F: Future<Output = ()>,
{
    let role = names::system_role(duty);
    loop {
        let sent = Instant::now();
        match roles.heartbeat(role.clone(), ask(&me, None)).await {
            Ok(answer) => match answer.token {
                Some(token) => {
                    let lead = Lead { role: role.clone(), token, epoch: answer.epoch };
                    tracing::info!(duty, epoch = answer.epoch.0, "this node leads");
                    if work_while_primary(roles, &me, &lead, sure_until(sent, &answer), work(lead.clone())).await {
                        return;
                    }
                    tracing::warn!(duty, epoch = answer.epoch.0, "this node no longer leads");
                }
                None => stand_by(roles, &role, &answer).await,
            },
            Err(refusal) => {
                tracing::warn!(duty, %refusal, "cannot find out who leads");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Until when a term lasts by this process's clock: counted from before the store was asked, less a margin for clocks that
/// run at different rates.
fn sure_until(sent: Instant, answer: &HeartbeatReply) -> Instant {
    sent + Duration::from_millis(answer.remaining.0.saturating_sub(answer.ttl.0 / 50))
}

async fn stand_by(roles: &Roles, role: &RoleName, answer: &HeartbeatReply) {
    let vacancy = Wait { what: WaitFor::Vacancy(None), time: STAND_BY };
    // Without a holder the role is not granted yet, as after a failover of the store.
    if answer.holder.is_none() || roles.primary(role, vacancy).await.is_err() {
        tokio::time::sleep(AGAIN).await;
    }
}

/// Whether the work has ended by itself.
async fn work_while_primary(
    roles: &Roles,
    me: &Uuid,
    lead: &Lead,
    until: Instant,
    work: impl Future<Output = ()>,
) -> bool {
    let until = watch::Sender::new(until);
    let ended = async {
        let mut until = until.subscribe();
        loop {
            let end = *until.borrow_and_update();
            if Instant::now() >= end {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(end) => {}
                _ = until.changed() => {}
            }
        }
    };
    tokio::select! {
        biased;
        () = ended => false,
        () = renew(roles, me, lead, &until) => false,
        () = work => {
            if let Err(refusal) = roles.release(lead.role.clone(), me.clone(), Some(lead.token)).await {
                tracing::warn!(role.name = %lead.role, %refusal, "cannot release the term; other nodes wait until it expires");
            }
            true
        }
    }
}

/// Renews the term until another node has one.
async fn renew(roles: &Roles, me: &Uuid, lead: &Lead, until: &watch::Sender<Instant>) {
    let mut pause = Duration::ZERO;
    loop {
        tokio::time::sleep(pause).await;
        let sent = Instant::now();
        match roles.heartbeat(lead.role.clone(), ask(me, Some(lead.token))).await {
            Ok(answer) if answer.token == Some(lead.token) => {
                until.send_replace(sure_until(sent, &answer));
                pause = Duration::from_millis(answer.interval.0);
            }
            Ok(_) | Err(Refusal::NotTheTerm { .. }) => return,
            // The term may last: the task that waits for its end decides.
            Err(refusal) => {
                tracing::warn!(role.name = %lead.role, %refusal, "a term could not be renewed");
                pause = AGAIN;
            }
        }
    }
}

fn ask(me: &Uuid, token: Option<Token>) -> HeartbeatCall {
    let candidate = Candidate {
        uuid: me.clone(),
        address: None,
        metadata: Metadata::default(),
        ready: true,
        priority: 5,
        interval: None,
        peer: None,
    };
    HeartbeatCall { candidate, token, heard: None, take_over: None, slot: None, from: None }
}
