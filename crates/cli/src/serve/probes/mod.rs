//! Probes of the fleet's machines: one node at a time asks which are due, sends `GET /healthz` to all of them at once,
//! and reports what came back. What that says of a machine is decided by the owner of the fleet.
//!
//! In a cluster the work is led through a system role, so that machines are not probed by every node. Nothing depends on
//! that: if two nodes probed at the same time for a moment, each would get other machines, because one that was given
//! out is not due again for an interval. The results of a node that was suspended are as true as late ones.
//!
//! A name is resolved here, and the probe goes to the very addresses that were checked: what a second resolution would
//! say does not matter. A machine answers if one of them does. A lookup blocks a thread for as long as the resolver takes,
//! so few are made at once; the others wait. Redirects are not followed, and no proxy is used.

mod rules;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use tokio::sync::{Semaphore, watch};
use wayleave_core::fleet::{Probe, ProbeOutcome};
use wayleave_core::names::Uuid;
use wayleave_roles::{Roles, led};
use wayleave_shard::CallResult;
use wayleave_shard::fleet::Fleet;

pub use rules::Range;

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
    http: reqwest::Client,
    allowed: Vec<Range>,
    deadline: Duration,
    lookups: Arc<Semaphore>,
    /// Whether there is no other node, which might have heard a machine's report.
    alone: bool,
}

impl Prober {
    /// A prober that may go to these ranges, besides the addresses that machines report from.
    ///
    /// # Errors
    /// If no HTTP client can be made.
    pub fn new(allowed: Vec<Range>) -> anyhow::Result<Self> {
        Self::with(allowed, DEADLINE)
    }

    /// The same for one of several nodes.
    ///
    /// # Errors
    /// If no HTTP client can be made.
    pub fn of_cluster(allowed: Vec<Range>) -> anyhow::Result<Self> {
        Ok(Self { alone: false, ..Self::with(allowed, DEADLINE)? })
    }

    fn with(allowed: Vec<Range>, deadline: Duration) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .pool_max_idle_per_host(0)
            .user_agent(concat!("wayleave/", env!("CARGO_PKG_VERSION")))
            .build()
            .context("cannot start probes")?;
        Ok(Self { http, allowed, deadline, lookups: Arc::new(Semaphore::new(LOOKUPS_AT_ONCE)), alone: true })
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
        let Ok(addresses) = self.resolve(&probe.address).await else { return ProbeOutcome::Missed };
        let senders = [probe.from, probe.also_from];
        let (mut allowed, mut barred) = (Vec::new(), None);
        for address in addresses {
            match rules::may_probe(address.ip(), senders, &self.allowed, self.alone) {
                Ok(()) => allowed.push(address),
                Err(why) => barred = barred.or(Some(why)),
            }
        }
        match barred {
            Some(why) if allowed.is_empty() => ProbeOutcome::NotAllowed(why.into()),
            _ => self.get_any(&allowed, &probe.address).await,
        }
    }

    /// Asks all of a machine's addresses at once: one that hangs must not use up the time of the others.
    async fn get_any(&self, addresses: &[SocketAddr], host: &str) -> ProbeOutcome {
        let asked = addresses.iter().take(ADDRESSES_MAX);
        let mut answers: FuturesUnordered<_> = asked.map(|to| self.get(*to, host)).collect();
        while let Some(answer) = answers.next().await {
            if answer == ProbeOutcome::Answered {
                return answer;
            }
        }
        ProbeOutcome::Missed
    }

    async fn get(&self, to: SocketAddr, host: &str) -> ProbeOutcome {
        let request = self.http.get(format!("http://{to}/healthz")).header("host", host);
        match request.send().await {
            Ok(answer) if answer.status().is_success() => ProbeOutcome::Answered,
            Ok(_) | Err(_) => ProbeOutcome::Missed,
        }
    }

    /// The addresses of a machine, with their port.
    async fn resolve(&self, address: &str) -> anyhow::Result<Vec<SocketAddr>> {
        let url = url::Url::parse(&format!("http://{address}/"))?;
        let port = url.port_or_known_default().unwrap_or(80);
        Ok(match url.host().context("no host")? {
            url::Host::Ipv4(ip) => vec![(IpAddr::from(ip), port).into()],
            url::Host::Ipv6(ip) => vec![(IpAddr::from(ip), port).into()],
            url::Host::Domain(name) => {
                let (permit, name) = (self.lookups.clone().acquire_owned().await?, name.to_owned());
                // A task of its own: past the probe's deadline the thread is still busy, and so is the permit.
                let lookup = tokio::spawn(async move {
                    let found = tokio::net::lookup_host((name, port)).await.map(Iterator::collect);
                    drop(permit);
                    found
                });
                lookup.await??
            }
        })
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
