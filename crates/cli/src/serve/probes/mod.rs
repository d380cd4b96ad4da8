//! Probes of the fleet's machines: one node at a time asks which are due, sends `GET /healthz` to all of them at once,
//! and reports what came back. What that says of a machine is decided by the owner of the fleet.
//!
//! In a cluster the work is led through a system role, so that machines are not probed by every node. Nothing depends on
//! that: if two nodes probed at the same time for a moment, each would get other machines, because one that was given
//! out is not due again for an interval. The results of a node that was suspended are as true as late ones.
//!
//! A machine names its own address, so a probe goes only to the address that it reports from, or where the operator allows; see
//! `wayleave_outgoing`. A name is resolved here, and the probe goes to the very addresses that were checked. A machine answers if
//! one of them does. A lookup blocks a thread for as long as the resolver takes, so few are made at once; the others wait.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use http_body_util::Empty;
use hyper::{Request, header};
use tokio::sync::{Semaphore, watch};
use wayleave_core::fleet::{Probe, ProbeOutcome};
use wayleave_core::names::Uuid;
use wayleave_outgoing::{HttpClient, Policy, Rule, Target, Unresolved, http_client};
use wayleave_roles::{Roles, led};
use wayleave_shard::CallResult;
use wayleave_shard::fleet::Fleet;

/// The duty of the node that probes.
const DUTY: &str = "wayleave.fleet";
/// Pause between two rounds.
const EVERY: Duration = Duration::from_secs(1);
/// How long a node that stops tries to give the duty back.
const RESIGNING: Duration = Duration::from_secs(1);
/// A machine that has not answered by then has missed a probe.
const DEADLINE: Duration = Duration::from_secs(2);
/// Names that are looked up at once.
const LOOKUPS_AT_ONCE: usize = 16;
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Sends probes.
pub struct Prober {
    policy: Policy,
    deadline: Duration,
    lookups: Arc<Semaphore>,
}

impl Prober {
    /// A prober that goes where a policy allows.
    pub fn new(policy: Policy) -> Self {
        Self::with(policy, DEADLINE)
    }

    fn with(policy: Policy, deadline: Duration) -> Self {
        Self { policy, deadline, lookups: Arc::new(Semaphore::new(LOOKUPS_AT_ONCE)) }
    }

    /// Probes the machines of a fleet, round after round, until `stop` changes.
    pub async fn run(&self, fleet: &Fleet, mut stop: watch::Receiver<bool>) {
        let rounds = async {
            loop {
                if let Err(refusal) = self.round(fleet).await {
                    tracing::debug!(%refusal, "machines cannot be probed; retrying");
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        tokio::select! {
            () = rounds => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    /// The same, while this node leads the duty.
    pub async fn run_led(&self, fleet: &Fleet, roles: &Roles, me: Uuid, stop: watch::Receiver<bool>) {
        let (leads, mut stopped) = (AtomicBool::new(false), stop.clone());
        let work = |_| async {
            leads.store(true, Ordering::Release);
            self.run(fleet, stop.clone()).await;
        };
        tokio::select! {
            () = led(roles, DUTY, me, work) => {}
            () = async {
                _ = stopped.wait_for(|stop| *stop).await;
                if leads.load(Ordering::Acquire) {
                    // Time to resign, if the store answers; a node that never led has nothing to resign from.
                    tokio::time::sleep(RESIGNING).await;
                }
            } => {}
        }
    }

    /// Sends all probes that are due.
    async fn round(&self, fleet: &Fleet) -> CallResult<()> {
        loop {
            let due = fleet.probes_due().await?;
            if due.is_empty() {
                return Ok(());
            }
            let outcomes = join_all(due.iter().map(|probe| self.probe(probe))).await;
            fleet.probed(due.into_iter().zip(outcomes).collect()).await?;
        }
    }

    async fn probe(&self, probe: &Probe) -> ProbeOutcome {
        let attempt = tokio::time::timeout(self.deadline, self.attempt(probe));
        attempt.await.unwrap_or(ProbeOutcome::Missed)
    }

    async fn attempt(&self, probe: &Probe) -> ProbeOutcome {
        let rule = self.policy.reporting(probe.from.into_iter().chain(probe.also_from));
        match self.resolve(&probe.address, &rule).await {
            Ok(addresses) => self.get_any(&addresses, &rule, &probe.address).await,
            Err(Unresolved::Refused(refused)) => ProbeOutcome::NotAllowed(refused.to_string().into()),
            Err(_) => ProbeOutcome::Missed,
        }
    }

    /// Asks all of a machine's addresses at once: one that hangs must not use up the time of the others.
    async fn get_any(&self, addresses: &[SocketAddr], rule: &Rule, host: &str) -> ProbeOutcome {
        let client = http_client(rule.clone(), 0, DEADLINE);
        let asked = addresses.iter().take(ADDRESSES_MAX);
        let mut answers: FuturesUnordered<_> = asked.map(|to| get(&client, *to, host)).collect();
        while let Some(answer) = answers.next().await {
            if answer == ProbeOutcome::Answered {
                return answer;
            }
        }
        ProbeOutcome::Missed
    }

    /// The addresses of a machine that may be called.
    async fn resolve(&self, address: &str, rule: &Rule) -> Result<Vec<SocketAddr>, Unresolved> {
        let target: Target = address.parse()?;
        if !target.is_name() {
            return target.addresses(rule).await;
        }
        let ended = |error: &dyn std::error::Error| Unresolved::Lookup(io::Error::other(error.to_string()));
        let permit = self.lookups.clone().acquire_owned().await.map_err(|error| ended(&error))?;
        let rule = rule.clone();
        // A task of its own: past the probe's deadline the thread is still busy, and so is the permit.
        let lookup = tokio::spawn(async move {
            let found = target.addresses(&rule).await;
            drop(permit);
            found
        });
        lookup.await.map_err(|error| ended(&error))?
    }
}

async fn get(client: &HttpClient, to: SocketAddr, host: &str) -> ProbeOutcome {
    let request = Request::get(format!("http://{to}/healthz")).header(header::HOST, host);
    let request = request.header(header::USER_AGENT, concat!("wayleave/", env!("CARGO_PKG_VERSION")));
    let Ok(request) = request.body(Empty::new()) else { return ProbeOutcome::Missed };
    match client.request(request).await {
        Ok(answer) if answer.status().is_success() => ProbeOutcome::Answered,
        Ok(_) | Err(_) => ProbeOutcome::Missed,
    }
}

/// Probes in the background; ends when told, or with the process.
pub struct Probing {
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Probing {
    /// Starts probes that `run` sends until told to stop.
    pub fn start<F: Future<Output = ()> + Send + 'static>(run: impl FnOnce(watch::Receiver<bool>) -> F) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { task: tokio::spawn(run(stopped)), stop }
    }

    /// Ends them, and gives the duty to another node.
    pub async fn end(self) {
        _ = self.stop.send(true);
        _ = self.task.await;
    }
}

#[cfg(test)]
mod tests;
