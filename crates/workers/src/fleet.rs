//! A worker as a machine of the fleet: it registers, reports, and learns what the operator wants of it.
//!
//! `paused` keeps it from new work; `drain` ends a crawler or builder once it has finished, and leaves an index server
//! running, because its chunks move away first. A report is sent once and never repeated: the next one supersedes it.
//!
//! Interleavings: the first answer is lost: the same report is sent again, and the server returns the same token. The
//! machine was deleted: its token is refused, and it registers anew. Its name is taken by another machine: it ends. A
//! worker that is restarted under a fixed name keeps its token in a file, else its name would be another's.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use futures::TryStreamExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use wayleave_api::Code;
use wayleave_api::fleet::{Desired, ListMachinesQuery, MachineState, MachineType, ReportMachineRequest};
use wayleave_client::{Client, Error, Retry};

use crate::limits::{REPORT_INTERVAL, REPORT_TIMEOUT_MIN};
use crate::pause::{Pause, Switch};

/// The addresses from which a server says that something was reported.
pub(crate) fn vouched<'a>(from: impl IntoIterator<Item = &'a Option<String>>) -> Vec<IpAddr> {
    from.into_iter().flatten().filter_map(|from| from.parse().ok()).collect()
}

/// Where the machines of a type report from, by their addresses.
pub(crate) async fn reporting(client: &Client, kind: MachineType) -> Result<HashMap<String, Vec<IpAddr>>, Error> {
    let query = ListMachinesQuery { kind: Some(kind), limit: Some(1_000), ..ListMachinesQuery::default() };
    let mut known: HashMap<String, Vec<IpAddr>> = HashMap::new();
    let machines = client.all_machines(query);
    let mut machines = std::pin::pin!(machines);
    while let Some(machine) = machines.try_next().await? {
        let from = machine.from.iter().filter_map(|from| from.parse::<IpAddr>().ok());
        known.entry(machine.address).or_default().extend(from);
    }
    Ok(known)
}

/// How a worker appears in the fleet.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name.
    pub id: String,
    /// What it does.
    pub kind: MachineType,
    /// Where others reach it.
    pub address: String,
    /// Its share of the work.
    pub capacity: u64,
    /// Its row, if it is an index server.
    pub row: Option<u64>,
    /// Where its token is kept across restarts, if it has a folder.
    pub token_file: Option<PathBuf>,
}

/// A registered machine. It reports until it is dropped.
#[derive(Debug)]
pub struct Registration {
    client: Client,
    id: String,
    task: JoinHandle<()>,
    refused: watch::Receiver<Option<String>>,
    token: MachineToken,
}

/// The token of a machine's registration, as it is now: a machine that was deleted gets another one.
#[derive(Debug, Clone)]
pub struct MachineToken(pub(crate) watch::Receiver<Option<String>>);

impl MachineToken {
    /// The token; none before the first report was answered.
    #[must_use]
    pub fn now(&self) -> Option<String> {
        self.0.borrow().clone()
    }
}

/// How a machine learns its desired state.
#[derive(Debug)]
pub struct Orders {
    /// On while the operator wants it paused or drained.
    pub pause: Switch,
    /// Cancelled when it is to be drained.
    pub drain: CancellationToken,
    /// Cancelled when the server refuses it.
    pub stop: CancellationToken,
}

struct Reporter {
    client: Client,
    config: Config,
    token: watch::Sender<Option<String>>,
    orders: Orders,
    seen: Pause,
}

impl Registration {
    /// Registers a machine: returns once the server knows it.
    pub async fn start(client: Client, config: Config, orders: Orders) -> Result<Self, Error> {
        let seen = orders.pause.pause();
        let token = config.token_file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        let (id, of) = (config.id.clone(), client.clone());
        let (token, shown) = watch::channel(token);
        let reporter = Reporter { client, config, token, orders, seen };
        let mut interval = match reporter.report(REPORT_INTERVAL).await {
            Err(error) if error.is_transient() => REPORT_INTERVAL,
            other => other?,
        };
        let (sender, refused) = watch::channel(None);
        let task = tokio::spawn(async move {
            let mut last = Instant::now();
            loop {
                sleep_until(last + interval).await;
                last = Instant::now();
                match reporter.report(interval).await {
                    Ok(next) => interval = next,
                    Err(error) if error.is_transient() => {
                        tracing::warn!(error = %error, "a report to the fleet was not answered");
                    }
                    Err(error) => {
                        sender.send_replace(Some(error.to_string()));
                        reporter.orders.stop.cancel();
                        return;
                    }
                }
            }
        });
        Ok(Self { client: of, id, task, refused, token: MachineToken(shown) })
    }

    /// The token that calls of this machine present.
    #[must_use]
    pub fn token(&self) -> MachineToken {
        self.token.clone()
    }

    /// Why the server refused this machine, if it did.
    #[must_use]
    pub fn refused(&self) -> Option<String> {
        self.refused.borrow().clone()
    }

    /// Leaves the fleet: for a worker that ends in good order, and has nothing that others rely on.
    pub async fn leave(self) {
        self.task.abort();
        // A server that is away does not keep a worker that has ended its work.
        let client = self.client.clone().with_retry(Retry::default());
        if self.refused().is_none()
            && let Err(error) = client.delete_machine(&self.id).await
        {
            tracing::warn!(error = %error, "this machine is still in the fleet: `wayleave fleet remove` forgets it");
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reporter {
    /// Sends a report and does what the answer says. Takes the last interval that it got, and returns the time until
    /// the next report.
    async fn report(&self, interval: Duration) -> Result<Duration, Error> {
        let timeout = answered_within(interval);
        let answer = match self.send(timeout).await {
            // Deleted meanwhile, or a token of another store: as a new machine it is welcome.
            Err(error) if self.token.borrow().is_some() && error.code() == Some(Code::NotCurrent) => {
                self.token.send_replace(None);
                self.send(timeout).await?
            }
            answer => answer?,
        };
        let known = self.token.borrow().as_ref() == Some(&answer.token);
        if !known {
            if let Some(file) = &self.config.token_file
                && let Err(error) = keep(file, &answer.token)
            {
                tracing::warn!(error = %error, "the token of this machine cannot be kept: a restart needs another --id");
            }
            self.token.send_replace(Some(answer.token));
        }
        self.orders.pause.set(answer.desired != Desired::Online);
        if answer.desired == Desired::Drain {
            self.orders.drain.cancel();
        }
        Ok(Duration::from_millis(answer.interval_ms.clamp(100, 60_000)))
    }

    async fn send(&self, timeout: Duration) -> Result<wayleave_api::fleet::ReportMachineResponse, Error> {
        let state = if self.seen.is_on() { MachineState::Paused } else { MachineState::Online };
        let request = ReportMachineRequest {
            capacity: self.config.capacity,
            row: self.config.row,
            state,
            token: self.token.borrow().clone(),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            ..ReportMachineRequest::new(self.config.kind, self.config.address.clone())
        };
        self.client.report_machine(&self.config.id, &request, timeout).await
    }
}

/// How long a report waits for its answer: half of the interval, so that one that is lost does not delay the next one, but
/// never so short that a server far away has no time.
fn answered_within(interval: Duration) -> Duration {
    (interval / 2).max(REPORT_TIMEOUT_MIN)
}

/// Readable by the owner only: its holder can report in the machine's place.
fn keep(file: &std::path::Path, token: &str) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(std::path::Path::new("."));
    let new = tempfile::Builder::new().prefix(".part-").tempfile_in(folder)?;
    fs::write(new.path(), token)?;
    new.persist(file).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_waits_for_half_of_the_interval_it_was_given() {
        let within = |ms| answered_within(Duration::from_millis(ms)).as_millis();
        assert_eq!([100, 500, 5_000, 60_000].map(within), [250, 250, 2_500, 30_000]);
    }
}
