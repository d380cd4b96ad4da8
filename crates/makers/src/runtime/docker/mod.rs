//! The Docker runtime: workers are containers of a Docker engine.
//!
//! A container has the worker's name, so that it cannot be created twice, and labels, by which it is found: owner, pool,
//! generation, worker. Everything else about it is asked of the engine, so nothing is kept here, and a server that starts
//! anew knows as much as the one before. A run is told by when the container was started last.

mod container;
mod engine;
mod events;
mod image;
mod state;

use std::time::Duration;

use async_trait::async_trait;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, ListContainersOptionsBuilder, LogsOptionsBuilder,
    RemoveContainerOptionsBuilder, StartContainerOptions, StopContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use wayleave_core::matches::{Exit, Found, Instance, Make, RuntimeKind};
use wayleave_core::names::PoolName;

use self::engine::{by, is_conflict, is_missing, is_unchanged, told};
use self::state::Seen;
use super::{Ended, Failure, Runtime, WorkerKey};

/// Deadline of the first contact.
const CONNECT: Duration = Duration::from_secs(10);
/// Deadline that the client puts on single calls; ours are shorter or longer, as the order says.
const CALL_SECS: u64 = 3_600;
/// A worker gets this long to end by itself, at most; then Docker kills it.
const GRACE: Duration = Duration::from_secs(25);
/// Containers that are looked at side by side.
const LOOKS_AT_ONCE: usize = 8;
/// Pause between looks at something that takes a moment.
const LOOK: Duration = Duration::from_millis(20);
/// News that nobody has taken yet.
const EVENTS_MAX: usize = 1_024;
/// Lines of output that are asked for: more than the bound on the log holds of usual ones.
const LOG_LINES: &str = "5000";

/// Workers as containers. When it is dropped they go on.
#[derive(Clone, Debug)]
pub struct DockerRuntime {
    docker: Docker,
}

impl DockerRuntime {
    /// Connects to an engine: the socket that is given, or else what `DOCKER_HOST` names, or the usual socket.
    ///
    /// # Errors
    /// If no engine answers.
    pub async fn connect(socket: Option<&str>) -> Result<Self, Failure> {
        let docker = match socket {
            Some(path) => Docker::connect_with_unix(path, CALL_SECS, API_DEFAULT_VERSION),
            None => Docker::connect_with_defaults().map(|docker| docker.with_timeout(Duration::from_secs(CALL_SECS))),
        };
        let docker = docker.map_err(|error| told("be reached", &error))?;
        let docker = by(Instant::now() + CONNECT, "answer", docker.negotiate_version()).await?;
        Ok(Self { docker: docker.map_err(|error| told("be reached", &error))? })
    }

    /// The engine's own id: the same for all who use it, and after a restart.
    ///
    /// # Errors
    /// If the engine does not tell.
    pub async fn engine_id(&self, deadline: Instant) -> Result<String, Failure> {
        let what = "tell its id";
        let info = by(deadline, what, self.docker.info()).await?.map_err(|error| told(what, &error))?;
        info.id.filter(|id| !id.is_empty()).ok_or_else(|| Failure::new("Docker does not tell its id"))
    }

    /// The container of a worker; `None` if there is none.
    async fn look(&self, worker: &WorkerKey, deadline: Instant) -> Result<Option<Seen>, Failure> {
        let name = worker.to_string();
        let what = "look at the container";
        let found = by(deadline, what, self.docker.inspect_container(&name, None::<InspectContainerOptions>)).await?;
        match found {
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(told(what, &error)),
            Ok(found) => match Seen::of(&found).filter(|seen| seen.worker == *worker) {
                Some(seen) => Ok(Some(seen)),
                None => Err(Failure::new(format!("a container called {name} is not ours: remove or rename it"))),
            },
        }
    }

    /// Creates the container; false if its name is taken.
    async fn create_container(&self, worker: &WorkerKey, make: &Make, deadline: Instant) -> Result<bool, Failure> {
        let options = CreateContainerOptionsBuilder::default().name(&worker.to_string()).build();
        let created = self.docker.create_container(Some(options), container::body(worker, make)?);
        match by(deadline, "create the container", created).await? {
            Ok(_) => Ok(true),
            Err(error) if is_conflict(&error) => Ok(false),
            Err(error) => Err(told("create the container", &error)),
        }
    }

    /// Starts a container, unless it runs or has run since the last run that the caller knows.
    async fn start(&self, worker: &WorkerKey, make: &Make, deadline: Instant) -> Result<Instance, Failure> {
        let seen = self.look(worker, deadline).await?.ok_or_else(|| Failure::new("its container is gone"))?;
        if !seen.runs {
            let is_last = |instance: &Instance| make.last.as_ref().is_some_and(|last| last.is_run(instance));
            if let (Some(exit), Some(_)) = (&seen.exit, seen.instance.as_ref().filter(|run| !is_last(run))) {
                return Err(ended(exit));
            }
            let start = self.docker.start_container(&seen.id, None::<StartContainerOptions>);
            match by(deadline, "start the container", start).await? {
                Err(error) if !is_unchanged(&error) => return Err(told("start the container", &error)),
                _ => {}
            }
        }
        loop {
            let seen = self.look(worker, deadline).await?.ok_or_else(|| Failure::new("its container is gone"))?;
            match (seen.runs, seen.instance, seen.port, &seen.exit) {
                (true, Some(instance), Some(_), _) => return Ok(instance),
                (false, _, _, Some(exit)) => return Err(ended(exit)),
                _ if Instant::now() >= deadline => {
                    return Err(Failure::new("Docker started the container and published no port"));
                }
                _ => sleep(LOOK).await,
            }
        }
    }
}

fn ended(exit: &Exit) -> Failure {
    Failure::new(match exit {
        Exit::Clean => "it ended at once, without an error",
        Exit::Error(why) => why,
    })
}

#[async_trait]
impl Runtime for DockerRuntime {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Docker
    }

    async fn create(&self, worker: &WorkerKey, make: &Make, deadline: Instant) -> Result<Instance, Failure> {
        if self.look(worker, deadline).await?.is_none() {
            image::ensure(&self.docker, make, deadline).await?;
            // Docker takes a name before it shows the container: that of an order at the same time is waited for.
            while !self.create_container(worker, make, deadline).await? && self.look(worker, deadline).await?.is_none()
            {
                sleep(LOOK).await;
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
        let grace = left.saturating_sub(Duration::from_secs(2)).min(GRACE).as_secs();
        let options = StopContainerOptionsBuilder::default().t(i32::try_from(grace).unwrap_or(10)).build();
        match by(deadline, "stop the container", self.docker.stop_container(&seen.id, Some(options))).await? {
            Err(error) if !is_missing(&error) && !is_unchanged(&error) => Err(told("stop the container", &error)),
            _ => Ok(()),
        }
    }

    async fn remove(&self, worker: &WorkerKey, deadline: Instant) -> Result<(), Failure> {
        loop {
            let Some(seen) = self.look(worker, deadline).await? else { return Ok(()) };
            let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
            match by(deadline, "remove the container", self.docker.remove_container(&seen.id, Some(options))).await? {
                Ok(()) => {}
                Err(error) if is_missing(&error) => return Ok(()),
                // It is being removed by another order.
                Err(error) if is_conflict(&error) && Instant::now() < deadline => sleep(LOOK).await,
                Err(error) => return Err(told("remove the container", &error)),
            }
        }
    }

    async fn list(&self, pool: &PoolName, owner: &str, deadline: Instant) -> Result<Vec<Found>, Failure> {
        let labels = [(container::OWNER, owner), (container::POOL, pool)].map(|(name, it)| (name.into(), it.into()));
        let filters = container::filter(labels);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let listed = by(deadline, "list containers", self.docker.list_containers(Some(options))).await?;
        let listed = listed.map_err(|error| told("list containers", &error))?;
        let looks = listed.into_iter().filter_map(|container| container.id).map(|id| async move {
            let look = self.docker.inspect_container(&id, None::<InspectContainerOptions>);
            match by(deadline, "look at a container", look).await? {
                Ok(found) => Ok(Seen::of(&found).map(Seen::found)),
                // Removed since it was listed.
                Err(error) if is_missing(&error) => Ok(None),
                Err(error) => Err(told("look at a container", &error)),
            }
        });
        let found = futures::stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE);
        found.try_filter_map(|found| std::future::ready(Ok(found))).try_collect().await
    }

    async fn logs(&self, worker: &WorkerKey, bytes_max: usize, deadline: Instant) -> Result<String, Failure> {
        let missing = || Failure::new(format!("there is no worker {worker} here"));
        let seen = self.look(worker, deadline).await?.ok_or_else(missing)?;
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).tail(LOG_LINES).build();
        let lines = self.docker.logs(&seen.id, Some(options));
        let text = lines.try_fold(Vec::new(), |mut text, line| async move {
            text.extend_from_slice(&line.into_bytes());
            let surplus = text.len().saturating_sub(bytes_max);
            text.drain(..surplus);
            Ok(text)
        });
        let text = by(deadline, "read the log", text).await?.map_err(|error| told("read the log", &error))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn events(&self) -> mpsc::Receiver<Ended> {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        tokio::spawn(events::run(self.docker.clone(), sender));
        receiver
    }
}
