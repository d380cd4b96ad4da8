//! The record of a worker: one small file that outlives the server, and says what was started.
//!
//! It is written twice per run. First without a process: the *mark* that the process will carry is durable before there is
//! a process. Then with its id and start time, before the caller hears of it. A server that dies in between finds the
//! process by its mark.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wayleave_core::matches::{Exit, Instance, WorkerNo};
use wayleave_core::names;

use super::ending::Trace;
use super::system;
use crate::private;
use crate::runtime::{WorkerKey, worker_folder};

const FILE: &str = "record.json";
const VERSION: u32 = 1;
/// A longer file is not a record.
const BYTES_MAX: u64 = 16 * 1024;

/// What is known about a worker's last run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    owner: String,
    pool: String,
    generation: u64,
    worker: u64,
    /// The boot of the machine in which it was started.
    boot: String,
    /// What its processes carry in their environment.
    pub mark: String,
    /// Where it is reached.
    pub address: String,
    /// Its port.
    pub port: u16,
    /// Its process, once there is one.
    pub process: Option<Process>,
    /// How it ended, if that is known.
    pub exit: Option<Exit>,
}

/// A process that cannot be mistaken for another one of the same boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id, which is also that of its group.
    pub pid: i32,
    /// When it was started, in clock ticks since boot.
    pub started: u64,
    /// Its session, which is the server's.
    #[serde(default)]
    pub session: Option<i32>,
}

impl Record {
    /// Of a run that is about to start.
    pub fn new(worker: &WorkerKey, boot: &str, mark: String, address: String, port: u16) -> Self {
        Self {
            version: VERSION,
            owner: worker.owner.to_string(),
            pool: worker.pool.to_string(),
            generation: worker.generation,
            worker: worker.worker.0,
            boot: boot.into(),
            mark,
            address,
            port,
            process: None,
            exit: None,
        }
    }

    /// The worker that it is about.
    pub fn key(&self) -> Option<WorkerKey> {
        let pool = names::pool(&self.pool).ok()?;
        let owner = Arc::from(self.owner.as_str());
        Some(WorkerKey { owner, pool, generation: self.generation, worker: WorkerNo(self.worker) })
    }

    /// What a pool learns of it.
    pub fn instance(&self) -> Option<Instance> {
        let process = self.process?;
        let id = Arc::from(process.pid.to_string());
        Some(Instance { id, started: process.started, address: Arc::from(self.address.as_str()) })
    }

    /// Whether its process runs: the same one, in the same boot.
    pub fn runs(&self, boot: &str) -> bool {
        self.exit.is_none()
            && self.boot == boot
            && self.process.is_some_and(|process| system::runs(process.pid, process.started))
    }

    /// What its processes have in common.
    pub fn trace(&self, boot: &str) -> Trace {
        Trace { mark: self.mark.clone(), leader: self.process.filter(|_| self.is_of(boot)) }
    }

    /// Whether it was started in this boot of the machine.
    pub fn is_of(&self, boot: &str) -> bool {
        self.boot == boot
    }

    /// Makes the record durable.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        private::create_dir_all(folder)?;
        let new = folder.join("record.new");
        let mut file = private::create(&new)?;
        file.write_all(&serde_json::to_vec(self).map_err(io::Error::other)?)?;
        file.sync_all()?;
        fs::rename(&new, folder.join(FILE))?;
        sync_folders(folder)
    }

    /// Reads the record in a folder; `None` if there is none. One that is damaged is an error: something may run.
    pub fn read(folder: &Path) -> io::Result<Option<Self>> {
        let path = folder.join(FILE);
        let bytes = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            Ok(found) if found.len() > BYTES_MAX => return Err(io::Error::other("it is too long")),
            Ok(_) => fs::read(&path)?,
        };
        let record: Self = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
        if record.version != VERSION {
            return Err(io::Error::other(format!("it has version {}, and {VERSION} is known", record.version)));
        }
        Ok(Some(record))
    }
}

/// Where a worker's files are.
pub fn folder(state: &Path, worker: &WorkerKey) -> PathBuf {
    worker_folder(&state.join("workers"), worker)
}

/// The folders of all workers. Pools without any are forgotten, which no other task may do: a worker may be about to
/// get its folder there.
pub fn folders(state: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for pool in entries(&state.join("workers"))? {
        let workers = entries(&pool)?;
        if workers.is_empty() {
            _ = fs::remove_dir(&pool);
        }
        found.extend(workers);
    }
    Ok(found)
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// Removes a worker's files. The record goes first: what is left without one is no worker.
pub fn erase(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join(FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match folder.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all()) {
        // Nothing of its pool was ever started.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A file's name is durable once its folder is, and so on up to the state folder.
fn sync_folders(folder: &Path) -> io::Result<()> {
    folder.ancestors().take(4).try_for_each(|folder| File::open(folder)?.sync_all())
}
