//! The process runtime: workers are processes of this machine. The embedded default.
//!
//! Processes outlive the server. What it has started it finds again by *records*, one file per worker in a state folder
//! that one server at a time uses, also among copies of it (see `state_lock`). In the order in which a server may die:
//!
//! | it dies | found by the next server |
//! |---|---|
//! | before the first record of a run | nothing was started |
//! | after it, before the process is started | a record whose mark no process carries: it was never started |
//! | after the start, before the second record | the process, by the mark in its environment |
//! | after the second record | the process, by id, start time and boot |
//! | after the process ended, before that is recorded | a record whose process does not run; what it has left behind, by the mark or its group |
//!
//! So an order that is repeated after a restart of the server finds what the first one did.
//!
//! What a worker has started and left behind becomes a child of the machine's first process, which asks how it ended. A
//! server that is itself the first process of a container does not: give such a container an init (`docker run --init`),
//! or what its workers leave behind stays in the process table.

mod ending;
mod output;
mod ports;
mod record;
mod spawn;
mod state_lock;
mod system;
mod watch;
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use rustix::process::Signal;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until, timeout_at};
use wayleave_core::matches::{Instance, Make, RuntimeKind, WorkerFound};
use wayleave_core::names::PoolName;

pub(crate) use self::ending::signal_name;
use self::record::Record;
use self::state_lock::StateLock;
use self::watch::Watch;
use self::worker::{AS_ROOT, Making, Worker};
use super::removed_output::RemovedOutput;
use super::{Ended, Failure, Removed, Runtime, WorkerKey};
use crate::limits::{EVENTS_MAX, STOP_GRACE};
use crate::private;

/// How often logs are looked at.
const LOGS_BOUND_EVERY: Duration = Duration::from_millis(250);
/// How often old output of removed workers is looked for.
const OLD_FORGOTTEN_EVERY: Duration = Duration::from_secs(60 * 60);
/// How often a killed process is polled: processes that are not our children end without a signal to us.
const ENDING_LOOK: Duration = Duration::from_millis(20);

/// How the process runtime works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where records and logs are. One server at a time uses it.
    pub state: PathBuf,
    /// The address that workers listen on, unless their pool says otherwise.
    pub host: IpAddr,
    /// The ports that workers may have; any free one if there is no range.
    pub ports: Option<RangeInclusive<u16>>,
    /// A program and its arguments that change the process and then become the command of a worker, which follows them; if
    /// there is none, the command is started itself.
    pub launcher: Vec<String>,
}

impl Settings {
    /// Workers that listen on loopback, on any free port.
    #[must_use]
    pub fn new(state: PathBuf) -> Self {
        Self { state, host: Ipv4Addr::LOCALHOST.into(), ports: None, launcher: Vec::new() }
    }

    /// What a worker listens on, and the host that it is reached at.
    fn hosts(&self, advertise: Option<&str>) -> (IpAddr, String) {
        let written = |host: IpAddr| match host {
            IpAddr::V4(host) => host.to_string(),
            IpAddr::V6(host) => format!("[{host}]"),
        };
        match advertise.map(|name| (name, name.parse::<IpAddr>())) {
            None => (self.host, written(self.host)),
            Some((_, Ok(host))) => (host, written(host)),
            // Which of the machine's addresses a name means is not known here.
            Some((name, Err(_))) => (Ipv4Addr::UNSPECIFIED.into(), name.to_owned()),
        }
    }
}

/// Workers as processes of this machine. When it is dropped they continue.
#[derive(Debug)]
pub struct ProcessRuntime {
    shared: Arc<Shared>,
    keeper: AbortHandle,
}

impl Drop for ProcessRuntime {
    fn drop(&mut self) {
        self.keeper.abort();
        self.shared.watch.stop();
    }
}

/// What its tasks share.
#[derive(Debug)]
struct Shared {
    settings: Settings,
    boot: String,
    ports: ports::Ports,
    workers: Mutex<BTreeMap<WorkerKey, Arc<Worker>>>,
    events: Mutex<Option<mpsc::Sender<Ended>>>,
    watch: Arc<Watch>,
    /// The output of removed workers.
    kept: Arc<RemovedOutput>,
    handle: Handle,
    state_lock: StateLock,
}

impl ProcessRuntime {
    /// Opens the state folder and takes over the workers that are recorded there. Must be called within tokio. Fails if
    /// another server uses the folder, or it cannot be read.
    pub async fn open(settings: Settings) -> Result<Self, Failure> {
        let handle = Handle::current();
        let shared = blocking(move || Shared::open(settings, handle)).await?;
        let keeper = tokio::spawn(bound_logs(Arc::downgrade(&shared))).abort_handle();
        Ok(Self { shared, keeper })
    }

    /// Waits until a worker's process has ended.
    async fn ended(&self, worker: &Arc<Worker>, deadline: Instant) -> Result<(), Failure> {
        let mut ends = worker.ends();
        loop {
            let (shared, one) = (Arc::clone(&self.shared), Arc::clone(worker));
            if blocking(move || Ok(one.is_over(&shared))).await? {
                return Ok(());
            }
            // A process whose end cannot be watched is looked at as well.
            let look = sleep_until(Instant::now() + 10 * ENDING_LOOK);
            let wait = async {
                tokio::select! {
                    _ = ends.changed() => {}
                    () = look => {}
                }
            };
            if timeout_at(deadline, wait).await.is_err() {
                return Err(Failure::new(worker.what_runs()));
            }
        }
    }

    async fn signal(&self, worker: &Arc<Worker>, signal: Signal) -> Result<(), Failure> {
        let (shared, worker) = (Arc::clone(&self.shared), Arc::clone(worker));
        blocking(move || {
            worker.signal(&shared, signal);
            Ok(())
        })
        .await
    }

    async fn make(&self, key: &WorkerKey, make: &Make, deadline: Instant) -> Result<Instance, Failure> {
        let (shared, key, make) = (Arc::clone(&self.shared), key.clone(), make.clone());
        // Threads are not ended with their caller. One that has not begun by then starts nothing: a later removal of
        // the worker would not see it.
        let wanted = Arc::new(());
        let is_wanted = Arc::downgrade(&wanted);
        let made = blocking(move || {
            loop {
                if let Making::Done(instance) = shared.worker(&key).make(&shared, &make, &is_wanted)? {
                    return Ok(instance);
                }
            }
        });
        let _wanted = wanted;
        timeout_at(deadline, made).await.unwrap_or_else(|_| Err(Failure::new("the system did not start it in time")))
    }
}

#[async_trait]
impl Runtime for ProcessRuntime {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Process
    }

    async fn create(&self, worker: &WorkerKey, make: &Make, deadline: Instant) -> Result<Instance, Failure> {
        self.make(worker, make, deadline).await
    }

    /// A process is not started again: the worker gets another one, and keeps its log.
    async fn restart(&self, worker: &WorkerKey, make: &Make, deadline: Instant) -> Result<Instance, Failure> {
        self.make(worker, make, deadline).await
    }

    async fn stop(&self, worker: &WorkerKey, deadline: Instant) -> Result<(), Failure> {
        let Some(worker) = self.shared.known(worker) else { return Ok(()) };
        self.signal(&worker, Signal::TERM).await?;
        self.ended(&worker, deadline.min(Instant::now() + STOP_GRACE))
            .await
            .map_err(|why| Failure::new(format!("{why} after SIGTERM")))
    }

    async fn remove(&self, worker: &WorkerKey, deadline: Instant) -> Result<(), Failure> {
        let Some(worker) = self.shared.known(worker) else { return Ok(()) };
        self.signal(&worker, Signal::KILL).await?;
        self.ended(&worker, deadline).await.map_err(|why| Failure::new(format!("{why} after SIGKILL; {AS_ROOT}")))?;
        loop {
            let (shared, one) = (Arc::clone(&self.shared), Arc::clone(&worker));
            if blocking(move || one.erase(&shared)).await? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Failure::new(
                    "processes that it has started still run after SIGKILL, or cannot be looked for",
                ));
            }
            sleep_until(Instant::now() + ENDING_LOOK).await;
        }
    }

    async fn list(&self, pool: &PoolName, owner: &str, deadline: Instant) -> Result<Vec<WorkerFound>, Failure> {
        let (shared, pool, owner) = (Arc::clone(&self.shared), pool.clone(), owner.to_owned());
        let list = blocking(move || {
            let workers = shared.all();
            let of_pool = workers.iter().filter(|worker| worker.key.pool == pool && *worker.key.owner == *owner);
            Ok(of_pool.filter_map(|worker| worker.found(&shared)).collect())
        });
        timeout_at(deadline, list).await.unwrap_or_else(|_| Err(Failure::new("/proc did not answer in time")))
    }

    async fn logs(&self, worker: &WorkerKey, bytes_max: usize, deadline: Instant) -> Result<String, Failure> {
        let state = &self.shared.settings.state;
        let (present, kept) = (record::folder(state, worker), self.shared.kept.of(worker));
        let read = blocking(move || {
            let Some(folder) = [present, kept].into_iter().find(|folder| folder.exists()) else {
                return Ok(String::new());
            };
            output::read(&folder, bytes_max).map_err(|error| Failure::new(format!("its log cannot be read: {error}")))
        });
        timeout_at(deadline, read).await.unwrap_or_else(|_| Err(Failure::new("the disk did not answer in time")))
    }

    async fn removed(&self, pool: &PoolName, deadline: Instant) -> Result<Vec<Removed>, Failure> {
        self.shared.kept.list_by(pool, deadline).await
    }

    fn events(&self) -> mpsc::Receiver<Ended> {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        *self.shared.events.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }
}

impl Shared {
    fn open(settings: Settings, handle: Handle) -> Result<Arc<Self>, Failure> {
        let state = settings.state.display().to_string();
        let unusable = |error: io::Error| Failure::new(format!("the state folder {state} cannot be used: {error}"));
        private::create_dir_all(&settings.state).map_err(unusable)?;
        let state_lock = StateLock::take(&settings.state, &handle)?;
        let shared = Arc::new(Self {
            boot: system::boot_id().map_err(unusable)?,
            ports: ports::Ports::default(),
            workers: Mutex::default(),
            events: Mutex::default(),
            watch: Watch::start().map_err(unusable)?,
            kept: Arc::new(RemovedOutput::new(settings.state.join("ended"))),
            handle,
            state_lock,
            settings,
        });
        for folder in record::folders(&shared.settings.state).map_err(unusable)? {
            match Record::read(&folder) {
                Ok(Some(record)) => {
                    let Some(key) = record.key() else { continue };
                    shared.worker(&key).adopt(&shared, record).map_err(unusable)?;
                }
                Ok(None) => _ = record::erase(&folder),
                Err(error) => {
                    let folder = folder.display();
                    tracing::error!(%folder, %error, "a worker's record cannot be read; end its process, if it runs, and remove the folder");
                }
            }
        }
        Ok(shared)
    }

    fn worker(&self, key: &WorkerKey) -> Arc<Worker> {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = workers.entry(key.clone()).or_insert_with(|| Arc::new(Worker::new(self, key)));
        Arc::clone(worker)
    }

    fn known(&self, key: &WorkerKey) -> Option<Arc<Worker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn all(&self) -> Vec<Arc<Worker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn forget(&self, key: &WorkerKey) {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Keeps what a worker wrote, and how it ended. Of one that wrote nothing, and of whose end nothing is known, nothing
    /// is kept: it would take the place of real output.
    fn keep_output(&self, worker: &WorkerKey, folder: &Path, end: &str) {
        if end.is_empty() && !output::is_there(folder) {
            return;
        }
        _ = output::bound(folder);
        self.kept.keep_files(worker, folder, &[output::FILE, output::BEFORE], end, SystemTime::now());
    }

    /// Only a hint: without a receiver, lists show it.
    fn report(&self, ended: Ended) {
        if let Some(events) = &*self.events.lock().unwrap_or_else(PoisonError::into_inner) {
            _ = events.try_send(ended);
        }
    }
}

/// Keeps every log within its bound, and forgets old ones.
async fn bound_logs(shared: Weak<Shared>) {
    let mut ticks = tokio::time::interval(LOGS_BOUND_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut forget_at = Instant::now();
    loop {
        ticks.tick().await;
        let Some(shared) = shared.upgrade() else { return };
        if Instant::now() >= forget_at {
            forget_at = Instant::now() + OLD_FORGOTTEN_EVERY;
            let shared = Arc::clone(&shared);
            _ = spawn_blocking(move || shared.kept.forget_old(SystemTime::now())).await;
        }
        shared.state_lock.answer();
        let workers = shared.all();
        // Not kept meanwhile: the folder may be opened anew as soon as the runtime is dropped.
        drop(shared);
        _ = spawn_blocking(move || workers.iter().for_each(|worker| _ = output::bound(&worker.folder))).await;
    }
}

/// Random text that no other run has.
fn random_mark() -> Result<String, Failure> {
    let number = getrandom::u64().map_err(|error| Failure::new(format!("no random numbers: {error}")))?;
    Ok(format!("{number:016x}"))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(Failure::new(format!("a task broke: {error}"))))
}
