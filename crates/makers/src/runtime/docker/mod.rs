//! The Docker runtime: workers are containers of a Docker engine.
//!
//! A container has the worker's name, so that it cannot be created twice, and labels, by which it is found: owner, pool,
//! generation, worker. Everything else about it is asked of the engine, so nothing is kept here, and a server that starts
//! anew knows as much as the one before. The time of a container's last start identifies a run.

mod container;
mod credentials;
mod engine;
mod events;
mod image;
mod state;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, ListContainersOptionsBuilder, LogsOptionsBuilder,
    RemoveContainerOptionsBuilder, StartContainerOptions, StopContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use wayleave_core::matches::{Instance, Make, RuntimeKind, WorkerFound};
use wayleave_core::names::PoolName;

use self::engine::{Engine, by, is_conflict, is_missing, is_unchanged};
use self::image::Pulls;
use self::state::ContainerView;
use super::removed_output::RemovedOutput;
use super::{Ended, Failure, Removed, Runtime, WorkerKey};
use crate::limits::{CREATE_ANSWER_AWAITED, CREATES_MAX, EVENTS_MAX, LOOKS_AT_ONCE_MAX, OUTPUT_BYTES_MAX, STOP_GRACE};

/// Deadline of the first contact.
const CONNECT: Duration = Duration::from_secs(10);
/// Deadline that the client puts on single calls; ours are shorter or longer, as the order says.
const CALL_SECS: u64 = 3_600;
/// Pause between looks at something that takes a moment; it doubles.
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_secs(1);
/// Lines of output that are asked for: more than the bound on the log holds of usual ones.
const LOG_LINES: &str = "5000";

/// The socket of an engine that was not named.
pub const SOCKET: &str = "/var/run/docker.sock";
/// Reading the output of a container must not hold up its removal for longer.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
/// The file that the output of a removed container is kept in.
const LOG_FILE: &str = "log";

/// Workers as containers. When it is dropped they continue.
#[derive(Clone, Debug)]
pub struct DockerRuntime {
    engine: Engine,
    /// The output of removed containers, which the engine forgets.
    kept: Option<RemovedContainers>,
    /// Containers that the engine may be asked to create: a permit is back when it has answered.
    creates: Arc<Semaphore>,
    pulls: Pulls,
}

impl DockerRuntime {
    /// Connects to an engine: the socket that is given, or else what `DOCKER_HOST` names, or the usual socket.
    pub async fn connect(socket: Option<&str>) -> Result<Self, Failure> {
        let of_environment = || std::env::var("DOCKER_HOST").unwrap_or_else(|_| SOCKET.to_owned());
        let named = socket.map_or_else(of_environment, str::to_owned);
        let address: Arc<str> = engine::without_credentials(&named).into();
        let docker = match socket {
            Some(path) => Docker::connect_with_unix(path, CALL_SECS, API_DEFAULT_VERSION),
            None => Docker::connect_with_defaults().map(|docker| docker.with_timeout(Duration::from_secs(CALL_SECS))),
        };
        // An address that cannot be used is part of the reason.
        let reason = |error: &bollard::errors::Error| engine::reason(error).replace(&named, &address);
        let unreached = |error: bollard::errors::Error| engine::silent(&address, &reason(&error));
        let docker = docker.map_err(unreached)?;
        let docker = timeout(CONNECT, docker.negotiate_version()).await;
        let docker = docker.map_err(|_| engine::silent(&address, &format!("nothing came within {CONNECT:?}")))?;
        let docker = docker.map_err(unreached)?;
        let creates = Arc::new(Semaphore::new(CREATES_MAX));
        Ok(Self { engine: Engine { docker, address }, kept: None, creates, pulls: Pulls::new() })
    }

    /// The same, and the output of containers that it removes is kept in a folder, within bounds.
    #[must_use]
    pub fn keeping_logs_in(self, folder: PathBuf) -> Self {
        Self { kept: Some(RemovedContainers::new(folder)), ..self }
    }

    /// The same, with the credentials of registries in this settings file of Docker, instead of the user's own.
    #[must_use]
    pub fn with_credentials_of(mut self, file: PathBuf) -> Self {
        self.pulls.credentials = Some(file);
        self
    }

    /// The engine's own id: the same for all who use it, and after a restart.
    pub async fn engine_id(&self, deadline: Instant) -> Result<String, Failure> {
        let what = "report its id";
        let info =
            by(deadline, what, self.engine.docker.info()).await?.map_err(|error| self.engine.failure(what, &error))?;
        info.id.filter(|id| !id.is_empty()).ok_or_else(|| Failure::new("Docker does not report its id"))
    }

    /// The container of a worker; `None` if there is none.
    async fn look(&self, worker: &WorkerKey, deadline: Instant) -> Result<Option<ContainerView>, Failure> {
        let name = worker.to_string();
        let what = "look at the container";
        let found =
            by(deadline, what, self.engine.docker.inspect_container(&name, None::<InspectContainerOptions>)).await?;
        match found {
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(self.engine.failure(what, &error)),
            Ok(found) => match ContainerView::of(&found).filter(|seen| seen.worker == *worker) {
                Some(seen) => Ok(Some(seen)),
                None => Err(Failure::new(format!("a container called {name} is not ours: remove or rename it"))),
            },
        }
    }

    /// Creates the container, unless its name is taken.
    ///
    /// An engine continues with what it has begun, whether its caller waits or not. (create is sent)(the order is given up)
    /// (the worker is removed: there is nothing yet)(the engine creates it): so a task waits for the engine in any case,
    /// and removes a container that is no longer wanted. If it was created just before the order was given up, the
    /// order to remove the worker, which waits for its turn until then, finds it.
    ///
    /// Such tasks are bounded: the task holds a permit until the engine has answered, or has not for some minutes. (the call is
    /// dropped)(the engine creates it): then a list finds it, as after a restart of the server. An order that is given up
    /// while it waits for a permit, or gets one too late, has sent nothing.
    async fn create_container(&self, worker: &WorkerKey, make: &Make, deadline: Instant) -> Result<Creation, Failure> {
        let options = CreateContainerOptionsBuilder::default().name(&worker.to_string()).build();
        let (engine, key, body) = (self.engine.clone(), worker.clone(), container::body(worker, make)?);
        let permit = Arc::clone(&self.creates).acquire_owned();
        let permit = timeout_at(deadline, permit).await;
        let Some(permit) = permit.ok().and_then(Result::ok).filter(|_| Instant::now() < deadline) else {
            let address = &self.engine.address;
            return Err(Failure::new(format!(
                "the Docker engine at {address} has not answered {CREATES_MAX} earlier orders to create a container"
            )));
        };
        let wanted = Arc::new(());
        let is_wanted = Arc::downgrade(&wanted);
        let created = tokio::spawn(async move {
            let _permit = permit;
            let create = engine.docker.create_container(Some(options), body);
            let Ok(created) = timeout_at(deadline + CREATE_ANSWER_AWAITED, create).await else {
                tracing::warn!(worker = %key, "an order to create a container was never answered");
                return Err(bollard::errors::Error::RequestTimeoutError);
            };
            if let (Ok(created), 0) = (&created, is_wanted.strong_count()) {
                // Not by force: another node that shares the engine may have found and started it by now.
                let options = RemoveContainerOptionsBuilder::default().v(true).build();
                match engine.docker.remove_container(&created.id, Some(options)).await {
                    Err(error) if !is_missing(&error) => {
                        let why = engine.failure("remove the container", &error);
                        tracing::warn!(worker = %key, %why, "a container came too late; the next list finds it");
                    }
                    _ => tracing::info!(worker = %key, "removed a container that came too late"),
                }
            }
            created
        });
        let created = by(deadline, "create the container", created).await?;
        drop(wanted);
        match created.map_err(|error| Failure::new(format!("a task broke: {error}")))? {
            Ok(_) => Ok(Creation::Done),
            Err(error) if is_conflict(&error) => {
                Ok(Creation::NameTaken(self.engine.failure("create the container", &error)))
            }
            Err(error) => Err(self.engine.failure("create the container", &error)),
        }
    }

    /// The end of a container's output.
    async fn output(&self, id: &str, bytes_max: usize, deadline: Instant) -> Result<String, Failure> {
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).tail(LOG_LINES).build();
        let lines = self.engine.docker.logs(id, Some(options));
        let text = lines.try_fold(Vec::new(), |mut text, line| async move {
            text.extend_from_slice(&line.into_bytes());
            let surplus = text.len().saturating_sub(bytes_max);
            text.drain(..surplus);
            Ok(text)
        });
        let text =
            by(deadline, "read the log", text).await?.map_err(|error| self.engine.failure("read the log", &error))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Keeps the output of a container that is about to be removed. What cannot be read is not missed.
    async fn keep_output(&self, seen: &ContainerView, deadline: Instant) {
        let Some(kept) = self.kept.clone() else { return };
        let soon = deadline.min(Instant::now() + LAST_OUTPUT);
        let bytes = usize::try_from(OUTPUT_BYTES_MAX).unwrap_or(usize::MAX);
        let Ok(text) = self.output(&seen.id, bytes, soon).await else { return };
        let (worker, end) = (seen.worker.clone(), seen.end());
        if text.is_empty() && end.is_none() {
            return;
        }
        let end = end.unwrap_or_default();
        let keep = move || kept.0.keep_text(&worker, LOG_FILE, &text, &end, SystemTime::now());
        _ = timeout_at(deadline, spawn_blocking(keep)).await;
    }

    /// Starts a container, unless it runs or has run since the last run that the caller knows.
    async fn start(&self, worker: &WorkerKey, make: &Make, deadline: Instant) -> Result<Instance, Failure> {
        let seen = self.look(worker, deadline).await?.ok_or_else(|| Failure::new("its container is gone"))?;
        if !seen.runs {
            let is_last = |instance: &Instance| make.last.as_ref().is_some_and(|last| last.is_run(instance));
            if let (Some(exit), Some(_)) = (&seen.exit, seen.instance.as_ref().filter(|run| !is_last(run))) {
                return Err(Failure::new(exit));
            }
            let start = self.engine.docker.start_container(&seen.id, None::<StartContainerOptions>);
            match by(deadline, "start the container", start).await? {
                Err(error) if !is_unchanged(&error) => return Err(self.engine.failure("start the container", &error)),
                _ => {}
            }
        }
        loop {
            let seen = self.look(worker, deadline).await?.ok_or_else(|| Failure::new("its container is gone"))?;
            match (seen.runs, seen.instance, seen.port, &seen.exit) {
                (true, Some(instance), Some(_), _) => return Ok(instance),
                (false, _, _, Some(exit)) => return Err(Failure::new(exit)),
                _ if Instant::now() >= deadline => {
                    return Err(Failure::new("Docker started the container and published no port"));
                }
                _ => sleep(LOOK_MIN).await,
            }
        }
    }
}

/// What came of creating a container.
enum Creation {
    Done,
    /// The engine's answer.
    NameTaken(Failure),
}

/// The output of containers that were removed, in a folder. It can be read while there is no engine.
#[derive(Clone, Debug)]
pub struct RemovedContainers(Arc<RemovedOutput>);

impl RemovedContainers {
    /// In this folder.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self(Arc::new(RemovedOutput::new(folder)))
    }

    /// Those of a pool, the last one first. Fails if the disk does not answer in time.
    pub async fn list(&self, pool: &PoolName, deadline: Instant) -> Result<Vec<Removed>, Failure> {
        self.0.list_by(pool, deadline).await
    }

    /// The end of the output of one; `None` if there is none. Fails if the disk does not answer in time, or the output
    /// cannot be read.
    pub async fn log(
        &self,
        worker: &WorkerKey,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Option<String>, Failure> {
        let path = self.0.of(worker).join(LOG_FILE);
        let read = timeout_at(deadline, spawn_blocking(move || std::fs::read(path))).await;
        let read = read.map_err(|_| Failure::new("the disk did not answer in time"))?;
        match read.map_err(|error| Failure::new(format!("a task broke: {error}")))? {
            Ok(text) => {
                let end = text.get(text.len().saturating_sub(bytes_max)..).unwrap_or_default();
                Ok(Some(String::from_utf8_lossy(end).into_owned()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::new(format!("its log cannot be read: {error}"))),
        }
    }
}

/// Pauses between looks at something that another order is doing: the engine is not asked ever again without a rest.
struct Pauses(Duration);

impl Pauses {
    const fn new() -> Self {
        Self(LOOK_MIN)
    }

    /// False at the deadline: a pause does not last longer.
    async fn next(&mut self, deadline: Instant) -> bool {
        sleep_until(deadline.min(Instant::now() + self.0)).await;
        self.0 = (self.0 * 2).min(LOOK_MAX);
        Instant::now() < deadline
    }
}

#[async_trait]
impl Runtime for DockerRuntime {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Docker
    }

    async fn create(&self, worker: &WorkerKey, make: &Make, deadline: Instant) -> Result<Instance, Failure> {
        if self.look(worker, deadline).await?.is_none() {
            image::ensure(&self.engine, &self.pulls, make, deadline).await?;
            let mut pauses = Pauses::new();
            // Docker takes a name before it shows the container: that of an order at the same time is waited for.
            while let Creation::NameTaken(why) = self.create_container(worker, make, deadline).await? {
                if self.look(worker, deadline).await?.is_some() {
                    break;
                }
                if !pauses.next(deadline).await {
                    return Err(why);
                }
            }
        }
        self.start(worker, make, deadline).await
    }

    async fn restart(&self, worker: &WorkerKey, make: &Make, deadline: Instant) -> Result<Instance, Failure> {
        self.start(worker, make, deadline).await
    }

    async fn stop(&self, worker: &WorkerKey, deadline: Instant) -> Result<(), Failure> {
        let Some(seen) = self.look(worker, deadline).await?.filter(|seen| seen.runs) else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        let grace = left.saturating_sub(Duration::from_secs(2)).min(STOP_GRACE).as_secs();
        let options = StopContainerOptionsBuilder::default().t(i32::try_from(grace).unwrap_or(10)).build();
        match by(deadline, "stop the container", self.engine.docker.stop_container(&seen.id, Some(options))).await? {
            Err(error) if !is_missing(&error) && !is_unchanged(&error) => {
                Err(self.engine.failure("stop the container", &error))
            }
            _ => Ok(()),
        }
    }

    async fn remove(&self, worker: &WorkerKey, deadline: Instant) -> Result<(), Failure> {
        let (mut kept, mut pauses, mut last) = (None, Pauses::new(), None);
        let what = "remove the container";
        loop {
            let seen = match self.look(worker, deadline).await {
                Ok(Some(seen)) => seen,
                Ok(None) => return Ok(()),
                // The last answer of the engine explains more than an expired deadline.
                Err(why) => return Err(last.filter(|_| Instant::now() >= deadline).unwrap_or(why)),
            };
            if let Some(why) = last.take() {
                if !pauses.next(deadline).await {
                    return Err(why);
                }
                last = Some(why);
            }
            // Once, however often the engine says that another order is removing it.
            if kept.as_ref() != Some(&seen.id) {
                self.keep_output(&seen, deadline).await;
                kept = Some(seen.id.clone());
            }
            let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
            match by(deadline, what, self.engine.docker.remove_container(&seen.id, Some(options))).await {
                Err(late) => return Err(last.unwrap_or(late)),
                Ok(Ok(())) => last = Some(Failure::new("Docker removed the container, and shows it still")),
                Ok(Err(error)) if is_missing(&error) => return Ok(()),
                // It is being removed by another order.
                Ok(Err(error)) if is_conflict(&error) => last = Some(self.engine.failure(what, &error)),
                Ok(Err(error)) => return Err(self.engine.failure(what, &error)),
            }
        }
    }

    async fn list(&self, pool: &PoolName, owner: &str, deadline: Instant) -> Result<Vec<WorkerFound>, Failure> {
        let labels = [(container::OWNER, owner), (container::POOL, pool)].map(|(name, it)| (name.into(), it.into()));
        let filters = container::filter(labels);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let listed = by(deadline, "list containers", self.engine.docker.list_containers(Some(options))).await?;
        let listed = listed.map_err(|error| self.engine.failure("list containers", &error))?;
        let looks = listed.into_iter().filter_map(|container| container.id).map(|id| async move {
            let look = self.engine.docker.inspect_container(&id, None::<InspectContainerOptions>);
            match by(deadline, "look at a container", look).await? {
                Ok(found) => Ok(ContainerView::of(&found).map(ContainerView::found)),
                // Removed since it was listed.
                Err(error) if is_missing(&error) => Ok(None),
                Err(error) => Err(self.engine.failure("look at a container", &error)),
            }
        });
        let found = futures::stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE_MAX);
        found.try_filter_map(|found| std::future::ready(Ok(found))).try_collect().await
    }

    async fn logs(&self, worker: &WorkerKey, bytes_max: usize, deadline: Instant) -> Result<String, Failure> {
        // The engine may be away, and has nothing of a container that was removed.
        if let Some(kept) = &self.kept
            && let Some(text) = kept.log(worker, bytes_max, deadline).await?
        {
            return Ok(text);
        }
        match self.look(worker, deadline).await? {
            Some(seen) => self.output(&seen.id, bytes_max, deadline).await,
            None => Ok(String::new()),
        }
    }

    async fn removed(&self, pool: &PoolName, deadline: Instant) -> Result<Vec<Removed>, Failure> {
        match &self.kept {
            Some(kept) => kept.list(pool, deadline).await,
            None => Ok(Vec::new()),
        }
    }

    fn events(&self) -> mpsc::Receiver<Ended> {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        tokio::spawn(events::run(self.engine.docker.clone(), sender));
        receiver
    }
}
