//! Where a worker is and keeps its artifacts: its name, its address, its store.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use axum::Router;
use axum::routing::get;
use tokio_util::sync::CancellationToken;
use wayleave_api::fleet::MachineType;
use wayleave_client::Client;
use wayleave_core::redact;
use wayleave_outgoing::{Network, Policy};
use wayleave_workers::digest::sha256;
use wayleave_workers::fleet::{self, Orders, Registration};
use wayleave_workers::folder_lock::FolderLock;
use wayleave_workers::pause::{self, Pause};
use wayleave_workers::serving::Listening;
use wayleave_workers::store::{self, Store};

use crate::exit::{Ended, REFUSED};
use crate::remote::Remote;
use crate::values;

/// Arguments of every worker.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkerArgs {
    /// Name of this worker, unique in the fleet; the machine's name and the process id by default
    #[arg(long, value_name = "NAME", value_parser = values::name)]
    id: Option<String>,
    /// Address to listen on, for other workers and health checks; port 0 takes a free one, and the same one after a restart
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS", value_parser = values::listen)]
    listen: SocketAddr,
    /// Host and port under which others reach this worker; the address that it listens on by default
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Option<String>,
    /// Host name by which others may call this worker, besides addresses and that of --advertise; may be repeated. A leading
    /// dot includes all subdomains
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = values::allowed_host)]
    allow_host: Vec<String>,
    #[command(flatten)]
    pub allow: AllowArgs,
    /// What to log: error, warn, info, debug or trace
    #[arg(long, default_value = "warn", value_name = "LEVEL")]
    pub log_level: String,
}

/// Which private addresses a command may call.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AllowArgs {
    /// Range of IP addresses, such as 10.0.0.0/8, that may be called although it is not public; may be repeated
    #[arg(long, env = "WAYLEAVE_ALLOW_NET", value_name = "RANGE", value_delimiter = ',')]
    allow_net: Vec<Network>,
}

impl AllowArgs {
    /// What the command may call.
    pub fn policy(&self, remote: &Remote) -> Policy {
        Policy::new(self.allow_net.clone(), remote.is_here)
    }
}

/// The store of a worker that nobody else uses under its name.
pub struct Opened {
    pub store: Store,
    /// Where others reach the worker.
    pub address: String,
    /// Held while the worker runs; none if the store is not a folder.
    pub lock: Option<FolderLock>,
}

impl WorkerArgs {
    /// The worker's name.
    pub fn id(&self) -> String {
        let machine = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        self.id.clone().unwrap_or_else(|| format!("{}-{}", machine(), std::process::id()))
    }

    /// The name of a worker that keeps it, with other things, in a folder.
    pub fn id_of(&self, folder: &Path) -> anyhow::Result<String> {
        let file = folder.join(".id");
        let noted = std::fs::read_to_string(&file).ok().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
        let id = self.id.clone().or_else(|| noted.clone()).unwrap_or_else(|| self.id());
        if noted.as_ref() != Some(&id) {
            // Also one that was given: a restart without it is the same worker.
            std::fs::create_dir_all(folder).with_context(|| format!("cannot use {}", folder.display()))?;
            std::fs::write(&file, &id).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(id)
    }

    /// Registers a crawler or builder, which ends when it is drained. Returns what keeps it from new work.
    pub async fn register(
        &self,
        client: &Client,
        kind: MachineType,
        address: String,
        folder: Option<&Path>,
        stop: &CancellationToken,
    ) -> anyhow::Result<(Registration, Pause)> {
        let (switch, pause) = pause::switch();
        let id = self.id();
        let token_file = folder.map(|folder| token_file(folder, &id));
        let config = fleet::Config { id, kind, address, capacity: 1, row: None, token_file };
        let orders = Orders { pause: switch, drain: stop.clone(), stop: stop.clone() };
        Ok((Registration::start(client.clone(), config, orders).await?, pause))
    }

    /// Listens, with the port noted in `folder`.
    pub async fn listen(&self, folder: Option<&Path>) -> anyhow::Result<Listening> {
        let listening = Listening::start(self.listen, self.advertise.as_deref(), folder).await?;
        Ok(listening.allowing(&self.allow_host))
    }

    /// Opens the store of a worker, and serves it if it is a folder. Fails if the store or the address cannot be used,
    /// or a worker of this name uses the folder.
    pub async fn open(&self, setting: &str) -> anyhow::Result<Opened> {
        let folder = (!setting.contains("://")).then(|| Path::new(setting));
        // First of all: one that is refused must not take or change the port that is noted in the folder.
        let lock_of = |folder| FolderLock::of_id(folder, &self.id());
        let served = folder.map(lock_of).transpose()?;
        let listening = self.listen(folder).await?;
        let store = Store::open(setting, Some(listening.base())).context("cannot open the store")?;
        let lock = match served {
            Some(lock) => Some(lock),
            None => store.folder().map(lock_of).transpose()?,
        };
        store.check().await.with_context(|| format!("cannot write to the store {}", redact::location(setting)))?;
        let address = listening.address();
        let mut router = health();
        if let Some(folder) = folder {
            router = router.merge(store::serve::router(folder));
        }
        listening.serve(router);
        Ok(Opened { store, address, lock })
    }

    /// Listens for health checks alone.
    pub async fn open_without_store(&self) -> anyhow::Result<String> {
        let listening = self.listen(None).await?;
        let address = listening.address();
        listening.serve(health());
        Ok(address)
    }
}

/// Where a machine's token is kept. Several machines may share a folder.
pub fn token_file(folder: &Path, id: &str) -> PathBuf {
    let digest = sha256(id.as_bytes());
    folder.join(format!(".token-{}", digest.get(7..19).unwrap_or_default()))
}

/// The end of a worker that the server has refused.
pub fn check_refused(registration: &Registration) -> anyhow::Result<()> {
    match registration.refused() {
        Some(why) => {
            Err(Ended { code: REFUSED, message: format!("this machine is no longer in the fleet: {why}") }.into())
        }
        None => Ok(()),
    }
}

fn health() -> Router {
    Router::new().route("/healthz", get(async || "ok\n"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        worker: WorkerArgs,
    }

    /// A regression: only a name that was not given was noted.
    #[test]
    fn a_name_that_was_given_is_kept_for_a_start_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let id = |args: &[&str]| {
            let args = Command::parse_from(["index"].iter().chain(args));
            args.worker.id_of(&folder.path().join("data")).unwrap()
        };
        let first = id(&[]);
        assert!(first.ends_with(&std::process::id().to_string()), "{first}");
        assert_eq!([id(&["--id", "a"]), id(&[]), id(&["--id", "b"]), id(&[])], ["a", "a", "b", "b"]);
    }

    #[tokio::test]
    async fn a_worker_that_is_refused_leaves_the_folder_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let setting = folder.path().to_str().unwrap();
        let files =
            || std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect::<Vec<_>>();
        let _first = FolderLock::of_id(folder.path(), "w").unwrap();
        let before = files();
        let listen = "127.0.0.1:0".parse().unwrap();
        let args = WorkerArgs {
            id: Some("w".into()),
            listen,
            advertise: None,
            allow_host: Vec::new(),
            allow: AllowArgs::default(),
            log_level: "warn".into(),
        };
        let refused = args.open(setting).await.err().expect("one of this name runs");
        assert!(refused.to_string().contains("already runs with the folder"), "{refused}");
        assert_eq!(files(), before, "no port is noted");
    }
}
