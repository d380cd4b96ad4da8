//! The Makers of a server: one for processes of this machine, one for its Docker engine. They fetch what pools order, and
//! carry it out.
//!
//! A *site* is where workers are; its name must outlast the server, because workers do. That of processes is written down
//! beside their records; that of an engine is the engine's own id, so that nodes that share an engine share the site.
//! Nothing here is fatal: a server without a runtime still answers for workers of others, and an engine that does not
//! answer is tried again.

use std::cmp::Reverse;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::ShardId;
use wayleave_core::limits::PAGE_MAX;
use wayleave_core::matches::{Effect, Input, Labels, Lack, RuntimeKind};
use wayleave_core::names::{self, PoolName, SiteName};
use wayleave_core::time::{Millis, Time};
use wayleave_engine::entropy;
use wayleave_engine_fjall::private::keep_and_log;
use wayleave_makers::runtime::docker::{DockerRuntime, RemovedContainers};
use wayleave_makers::runtime::process::{ProcessRuntime, Settings as ProcessSettings};
use wayleave_makers::runtime::{Removed, WorkerKey};
use wayleave_makers::{Calls, Failure, Maker, Pools, Runtime, Site, private};
use wayleave_server::{KeptLog, LogOf, WorkerLogs};
use wayleave_shard::matches::Matches;

use super::files;
use super::settings::{EngineKind, Settings};
use super::store::Copied;
use crate::exec;

/// Pause before a runtime that cannot be used is tried again.
const RUNTIME_PAUSE: Duration = Duration::from_secs(10);
/// How often it is logged that a wanted engine does not answer.
const DOCKER_WARN_EVERY: Duration = Duration::from_secs(60);
/// Deadline of reading a worker's output.
const LOG_TIME: Duration = Duration::from_secs(10);
/// Deadline of ending a worker whose pool is forgotten with its store.
const END_TIME: Duration = Duration::from_secs(10);
/// How often, and with which pause, a pool of the settings file is tried while its shard has no owner.
const TRIES: usize = 120;
const TRY_PAUSE: Duration = Duration::from_millis(500);

/// The sites of this process, and their Makers.
pub struct Makers {
    matches: Matches,
    sites: Sites,
    running: Arc<Mutex<Vec<Maker>>>,
    /// The search for runtimes that cannot be used yet.
    searching: Vec<AbortHandle>,
    /// Where records are while the store is in memory: then workers end with the server.
    volatile: Option<tempfile::TempDir>,
}

/// The sites, once they are there.
#[derive(Clone, Default)]
pub struct Sites(Arc<Mutex<Known>>);

#[derive(Clone, Default)]
struct Known {
    sites: Vec<Site>,
    /// The output of removed containers, which is here while their engine is away.
    containers: Option<RemovedContainers>,
}

/// The site of removed containers while their engine, and so its name, is not known. The name of an engine's site begins so.
const ANY_ENGINE: &str = "docker";

impl Sites {
    fn add(&self, site: Site) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sites.push(site);
    }

    fn keep_containers(&self, containers: RemovedContainers) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).containers = Some(containers);
    }

    fn known(&self) -> Known {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn runtime(&self, name: &SiteName) -> Option<Arc<dyn Runtime>> {
        self.known().sites.into_iter().find(|site| site.name == *name).map(|site| site.runtime)
    }
}

impl WorkerLogs for Sites {
    fn kept(&self, pool: PoolName) -> BoxFuture<'static, Vec<KeptLog>> {
        let Known { sites, containers } = self.known();
        async move {
            let mut kept = Vec::new();
            let mut add = |name: &SiteName, removed: Result<Vec<Removed>, Failure>| match removed {
                Ok(removed) => kept.extend(removed.into_iter().map(|gone| kept_log(&pool, name.clone(), gone))),
                Err(why) => tracing::warn!(site = %name, %why, "cannot list removed workers"),
            };
            for Site { name, runtime } in &sites {
                add(name, runtime.removed(&pool, Instant::now() + LOG_TIME).await);
            }
            let is_away = sites.iter().all(|site| site.runtime.kind() != RuntimeKind::Docker);
            if let Some(containers) = containers.filter(|_| is_away) {
                add(&ANY_ENGINE.into(), containers.list(&pool, Instant::now() + LOG_TIME).await);
            }
            kept.sort_by_key(|kept| Reverse(kept.removed_at));
            kept
        }
        .boxed()
    }

    fn log(&self, of: LogOf, bytes_max: usize) -> BoxFuture<'static, Option<Result<String, String>>> {
        let (runtime, containers) = (self.runtime(&of.site), self.known().containers);
        async move {
            let (key, deadline) = (WorkerKey::new(&of.pool, &of.labels), Instant::now() + LOG_TIME);
            let log = match runtime {
                Some(runtime) => runtime.logs(&key, bytes_max, deadline).await,
                None => {
                    let containers = containers.filter(|_| of.site.starts_with(ANY_ENGINE))?;
                    containers.log(&key, bytes_max, deadline).await.transpose()?
                }
            };
            Some(log.map_err(|why| why.to_string()))
        }
        .boxed()
    }
}

fn kept_log(pool: &PoolName, site: SiteName, removed: Removed) -> KeptLog {
    let Removed { generation, worker, reason, at, folder } = removed;
    // Told to people who are elsewhere.
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    // Its output is found without its owner.
    let labels = Labels { owner: "".into(), generation, worker };
    let age = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let removed_at = Time(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    KeptLog { worker: WorkerKey::new(pool, &labels).to_string(), labels, site, reason, removed_at, folder }
}

impl Makers {
    /// Starts the Makers of the runtimes that there are; those of `sites` are then known to others. Must be called within
    /// tokio.
    pub async fn start(settings: &Settings, matches: Matches, sites: Sites, calls: Calls) -> Self {
        let volatile = match settings.engine {
            EngineKind::Memory => {
                let private = Permissions::from_mode(0o700);
                tempfile::Builder::new().prefix("wayleave-").permissions(private).tempdir().ok()
            }
            _ => None,
        };
        let folder = match (&volatile, &settings.makers) {
            (Some(volatile), _) => volatile.path().to_owned(),
            (None, Some(folder)) => folder.clone(),
            (None, None) => settings.data.join("makers"),
        };
        if folder.exists() {
            keep_and_log(&folder);
        }
        let lack = Lacking::default();
        let mut makers = Self { matches, sites, running: Arc::default(), searching: Vec::new(), volatile };
        let begin = Arc::new(makers.beginner(lack.clone(), calls));
        let containers = folder.join("containers");
        makers.sites.keep_containers(RemovedContainers::new(containers.clone()));
        let wanted = Wanted::of(settings.docker.as_deref());
        if wanted == Wanted::Off {
            lack.set(RuntimeKind::Docker, Some("this node uses none (`serve --docker off`)".into()));
        }
        match processes(&folder).await {
            Ok(site) => begin(site),
            Err(why) => {
                tracing::warn!(%why, "this server starts no workers as processes for now; it tries again");
                lack.set(RuntimeKind::Process, Some(why.0));
                let (begin, lack) = (Arc::clone(&begin), lack.clone());
                let search = async move { begin(processes_at_last(&folder, &lack, RUNTIME_PAUSE).await) };
                makers.searching.push(tokio::spawn(search).abort_handle());
            }
        }
        if wanted != Wanted::Off {
            let search = Search { wanted, lack, logs: containers, matches: makers.matches.clone() };
            makers.searching.push(tokio::spawn(async move { begin(search.engine().await) }).abort_handle());
        }
        makers
    }

    /// What starts the Maker of a site.
    fn beginner(&self, lack: Lacking, calls: Calls) -> impl Fn(Site) + Send + Sync + 'static {
        let (matches, sites, running) = (self.matches.clone(), self.sites.clone(), self.running.clone());
        move |site| {
            tracing::info!(site = %site.name, "this server starts workers");
            sites.add(site.clone());
            let maker =
                Maker::start(site, Arc::new(Orders { matches: matches.clone(), lack: lack.clone() }), calls.clone());
            running.lock().unwrap_or_else(PoisonError::into_inner).push(maker);
        }
    }

    /// Stops the Makers. Workers go on, unless what is known of them goes with the server.
    pub async fn stop(self) {
        self.searching.iter().for_each(AbortHandle::abort);
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        futures::future::join_all(running.into_iter().map(Maker::stop)).await;
        if self.volatile.is_some() {
            end_workers(&self.matches, &self.sites).await;
        }
    }
}

/// Ends every worker of every pool: nobody would know them again.
async fn end_workers(matches: &Matches, sites: &Sites) {
    let (mut after, deadline) = (None, Instant::now() + END_TIME);
    loop {
        let Ok((pools, next)) = matches.pools(after, PAGE_MAX).await else { return };
        for pool in pools {
            let workers = matches.workers(pool.name.clone()).await.unwrap_or_default();
            let ends = workers.into_iter().filter_map(|worker| {
                let (runtime, key) = (sites.runtime(&worker.site)?, WorkerKey::new(&pool.name, &worker.labels));
                Some(async move { runtime.remove(&key, deadline).await })
            });
            for failed in futures::future::join_all(ends).await.into_iter().filter_map(Result::err) {
                tracing::warn!(pool = %pool.name, why = %failed, "a worker may be left over");
            }
        }
        match next {
            Some(last) => after = Some(last),
            None => return,
        }
    }
}

/// Sets up the pools of the settings file. Repeating it changes nothing. A pool that cannot be set up is told, and the
/// others are. With `paused`, and at the first start of a store that was made from another one, all of them are paused, whatever
/// the file says.
pub async fn set_pools(settings: &Settings, matches: &Matches, paused: bool, copied: Option<Copied>) {
    let (paused, mut failed) = (paused || copied.is_some(), 0);
    for (name, request) in &settings.pools {
        let Ok(wanted) = request.clone().settings() else { continue };
        let mut tries = 0;
        loop {
            let paused = if paused { Some(true) } else { request.paused };
            match matches.set_pool_paused(name.as_str().into(), wanted.clone(), paused).await {
                Ok(_) => break,
                // The nodes of a cluster need a moment until every shard has an owner.
                Err(Refusal::Unavailable(_) | Refusal::Overloaded | Refusal::OutcomeUnknown(_)) if tries < TRIES => {
                    tries += 1;
                    sleep(TRY_PAUSE).await;
                }
                Err(refusal) => {
                    tracing::error!(pool = name, why = %refusal, "cannot set up a pool of the settings file; start the server again once the reason is gone");
                    failed += 1;
                    break;
                }
            }
        }
    }
    if let Some(copied) = copied {
        tracing::warn!(
            "this store was made from another one: no command is started, and all pools are paused, also those of the settings file, \
             until `wayleave pools resume --all`; the next start does again what the settings file says"
        );
        match failed {
            0 => copied.settle().await,
            _ => tracing::error!(
                pools.failed = failed,
                "not all pools could be paused: the next start pauses them all again"
            ),
        }
    }
}

/// The site of this machine's processes.
async fn processes(folder: &Path) -> Result<Site, Failure> {
    let name = site_name(folder).map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
    let launcher = exec::with_files(files::before());
    let settings = ProcessSettings { launcher, ..ProcessSettings::new(folder.join("processes")) };
    let runtime = ProcessRuntime::open(settings).await?;
    Ok(Site { name, runtime: Arc::new(runtime) })
}

/// The same, as soon as its folder can be used: the server that uses it, or a copy of it, may end.
async fn processes_at_last(folder: &Path, lack: &Lacking, pause: Duration) -> Site {
    loop {
        sleep(pause).await;
        match processes(folder).await {
            Ok(site) => {
                lack.set(RuntimeKind::Process, None);
                return site;
            }
            Err(why) => lack.set(RuntimeKind::Process, Some(why.0)),
        }
    }
}

/// The name of the site whose records are in a folder: drawn once, and kept with them.
fn site_name(folder: &Path) -> std::io::Result<SiteName> {
    let file = folder.join("site");
    match std::fs::read_to_string(&file) {
        Ok(text) if names::site(text.trim()).is_ok() => return Ok(text.trim().into()),
        Ok(_) => return Err(std::io::Error::other(format!("{} is damaged: remove it", file.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    private::create_dir_all(folder)?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = format!("process:{host}-{:08x}", entropy::system() as u32);
    // Durable before the first worker: under another name it would never be found again.
    let written = folder.join("site.new");
    let mut out = private::create(&written)?;
    out.write_all(name.as_bytes())?;
    out.sync_all()?;
    std::fs::rename(&written, &file)?;
    std::fs::File::open(folder)?.sync_all()?;
    Ok(name.as_str().into())
}

/// Which engine to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// None.
    Off,
    /// The one at this socket.
    Socket(String),
    /// The one that `DOCKER_HOST` names.
    Environment,
    /// The usual one. A machine without it is nothing unusual.
    Usual,
}

impl Wanted {
    fn of(named: Option<&str>) -> Self {
        match named {
            Some("off") => Self::Off,
            Some(address) => Self::Socket(address.strip_prefix("unix://").unwrap_or(address).to_owned()),
            None if std::env::var_os("DOCKER_HOST").is_some() => Self::Environment,
            None => Self::Usual,
        }
    }

    fn socket(&self) -> Option<&str> {
        match self {
            Self::Socket(path) => Some(path),
            _ => None,
        }
    }
}

/// Which runtimes this node cannot use, and why. The polls of its other site tell pools; a node without any site does not
/// poll, and only logs it.
#[derive(Clone, Debug, Default)]
struct Lacking(Arc<Mutex<Vec<Lack>>>);

impl Lacking {
    fn set(&self, runtime: RuntimeKind, why: Option<Arc<str>>) {
        let mut lacks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lacks.retain(|lack| lack.runtime != runtime);
        lacks.extend(why.map(|why| Lack { runtime, why }));
    }

    /// What the node of a site lacks besides.
    fn besides(&self, site: RuntimeKind) -> Option<Lack> {
        let lacks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lacks.iter().find(|lack| lack.runtime != site).cloned()
    }
}

/// The search for an engine that does not answer yet.
struct Search {
    wanted: Wanted,
    lack: Lacking,
    /// Where the output of removed containers is kept.
    logs: PathBuf,
    matches: Matches,
}

impl Search {
    /// The site of the engine, as soon as it answers.
    async fn engine(self) -> Site {
        let mut warn_at = Instant::now();
        loop {
            let why = match self.connect().await {
                Ok(site) => {
                    self.lack.set(RuntimeKind::Docker, None);
                    return site;
                }
                Err(why) => why,
            };
            self.lack.set(RuntimeKind::Docker, Some(why.0.clone()));
            if Instant::now() >= warn_at && self.is_missed().await {
                warn_at = Instant::now() + DOCKER_WARN_EVERY;
                tracing::warn!(%why, "this server starts no containers until its Docker engine answers");
            }
            sleep(RUNTIME_PAUSE).await;
        }
    }

    async fn connect(&self) -> Result<Site, Failure> {
        let runtime = DockerRuntime::connect(self.wanted.socket()).await?.keeping_logs_in(self.logs.clone());
        let id = runtime.engine_id(Instant::now() + LOG_TIME).await?;
        Ok(Site { name: format!("docker:{id}").as_str().into(), runtime: Arc::new(runtime) })
    }

    /// Whether anybody wants the engine: an operator who named it, or a pool.
    async fn is_missed(&self) -> bool {
        if self.wanted != Wanted::Usual {
            return true;
        }
        let mut after = None;
        loop {
            let Ok((pools, next)) = self.matches.pools(after, PAGE_MAX).await else { return false };
            if pools.iter().any(|pool| pool.runtime == RuntimeKind::Docker) {
                return true;
            }
            match next {
                Some(last) => after = Some(last),
                None => return false,
            }
        }
    }
}

/// The pools, as Makers see them.
struct Orders {
    matches: Matches,
    lack: Lacking,
}

#[async_trait]
impl Pools for Orders {
    fn shards(&self) -> u16 {
        u16::try_from(self.matches.shards().len()).unwrap_or(u16::MAX)
    }

    fn now(&self) -> Time {
        self.matches.now()
    }

    async fn orders(
        &self,
        shard: ShardId,
        site: &SiteName,
        runtime: RuntimeKind,
        wait: Millis,
    ) -> Result<Vec<(PoolName, Effect)>, Failure> {
        let what = (runtime, self.lack.besides(runtime));
        self.matches.orders_lacking(shard, site.clone(), what, wait).await.map_err(Failure::new)
    }

    async fn report(&self, pool: &PoolName, news: Vec<Input>) -> Result<(), Failure> {
        let inputs = news.into_iter().map(|news| (pool.clone(), news)).collect();
        self.matches.tell(inputs).await.map_err(Failure::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_site_outlasts_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("makers");
        let name = site_name(&path).unwrap();
        assert!(name.starts_with("process:"), "{name}");
        assert_eq!(site_name(&path).unwrap(), name);
        std::fs::write(path.join("site"), "a\u{7}").unwrap();
        let error = site_name(&path).expect_err("damaged").to_string();
        assert!(error.contains("damaged"), "{error}");
    }

    #[test]
    fn a_site_tells_what_its_node_lacks_besides() {
        let lack = Lacking::default();
        lack.set(RuntimeKind::Process, Some("a copy".into()));
        lack.set(RuntimeKind::Docker, Some("no engine".into()));
        let told = |site| lack.besides(site).map(|lack| lack.why.to_string());
        assert_eq!(told(RuntimeKind::Docker).as_deref(), Some("a copy"));
        assert_eq!(told(RuntimeKind::Process).as_deref(), Some("no engine"));
        lack.set(RuntimeKind::Process, None);
        assert_eq!(told(RuntimeKind::Docker), None);
    }

    #[tokio::test]
    async fn a_folder_that_another_server_uses_is_taken_once_that_ends() {
        let folder = tempfile::tempdir().unwrap();
        let first = processes(folder.path()).await.unwrap();
        let lack = Lacking::default();
        let refused = async {
            while lack.besides(RuntimeKind::Docker).is_none() {
                tokio::task::yield_now().await;
            }
        };
        let waiting = processes_at_last(folder.path(), &lack, Duration::from_millis(1));
        tokio::pin!(waiting);
        tokio::select! {
            _ = &mut waiting => panic!("two servers have the folder"),
            () = refused => {}
        }
        assert!(lack.besides(RuntimeKind::Docker).is_some_and(|lack| lack.why.contains("another server uses")));
        drop(first);
        let site = waiting.await;
        assert_eq!((site.runtime.kind(), lack.besides(RuntimeKind::Docker)), (RuntimeKind::Process, None));
    }

    #[tokio::test]
    async fn the_output_of_removed_containers_is_listed_and_read_while_their_engine_is_away() {
        let folder = tempfile::tempdir().unwrap();
        let worker = folder.path().join("p/00000000000000ab-4");
        std::fs::create_dir_all(&worker).unwrap();
        std::fs::write(worker.join("log"), "bye").unwrap();
        let sites = Sites::default();
        assert!(sites.kept("p".into()).await.is_empty());
        sites.keep_containers(RemovedContainers::new(folder.path().to_owned()));
        let kept = sites.kept("p".into()).await;
        assert_eq!((kept.len(), kept[0].worker.as_str()), (1, "p-00000000000000ab-4"));
        let of = |site: &str| LogOf { pool: "p".into(), labels: kept[0].labels.clone(), site: site.into() };
        for site in [&*kept[0].site, "docker:an-engine"] {
            assert_eq!(sites.log(of(site), 100).await, Some(Ok("bye".into())), "{site}");
        }
        assert_eq!(sites.log(of("process:elsewhere"), 100).await, None);
    }

    #[test]
    fn an_engine_is_named_by_its_socket_or_left_out() {
        assert_eq!(Wanted::of(Some("off")), Wanted::Off);
        assert_eq!(Wanted::of(Some("unix:///run/d.sock")).socket(), Some("/run/d.sock"));
        assert_eq!(Wanted::of(Some("/run/d.sock")).socket(), Some("/run/d.sock"));
    }
}
