//! Workers of this machine that another server has recorded, in a folder that no server uses any more: a store was restored
//! from a backup into another folder, or the old folder is lost. Its pools know them, or want them ended, so they are taken
//! over, with their records and logs.
//!
//! They are found by their environment, which says what was recorded and where. Only those of the pool and the installation
//! that list their workers are looked at. A server that only restarts must not lose its workers meanwhile, so its folder
//! has to be unused at two looks with a pause between them. The folder stays locked while a worker is taken from it, so
//! that the server cannot start in that moment and find a record that is about to go.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use wayleave_core::names::PoolName;

use super::record::{self, Process, Record};
use super::{LOCK, Shared, output, system};

/// The variable that holds the first record of a worker's run.
pub const RECORD: &str = "WAYLEAVE_RECORD";
/// The variable that names the folder of the records.
pub const STATE: &str = "WAYLEAVE_STATE";
/// Pools list their workers one by one: they share a look.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A worker that another server has recorded.
#[derive(Clone, Debug)]
struct Stranger {
    record: Record,
    state: PathBuf,
}

/// What was found so far.
#[derive(Debug, Default)]
pub struct Strangers(Mutex<Observed>);

#[derive(Debug, Default)]
struct Observed {
    looked: Option<Instant>,
    found: Vec<Stranger>,
    /// When a worker was first seen without its server, by its mark.
    since: BTreeMap<String, Instant>,
}

impl Shared {
    /// Takes over the workers of a pool whose server is gone.
    pub fn adopt_strangers(self: &Arc<Self>, pool: &PoolName, owner: &str) -> io::Result<()> {
        let mut seen = self.strangers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if seen.looked.is_none_or(|looked| now.duration_since(looked) >= LOOK_EVERY.min(self.settings.stranger_after)) {
            seen.look(&self.settings.state, now)?;
        }
        let of_pool = |it: &&Stranger| it.record.is_of_pool(pool, owner) && it.record.is_of(&self.boot);
        let due = |it: &&Stranger| {
            let since = seen.since.get(&it.record.mark);
            since.is_some_and(|since| now.duration_since(*since) >= self.settings.stranger_after)
        };
        let due: Vec<Stranger> = seen.found.iter().filter(of_pool).filter(due).cloned().collect();
        due.iter().try_for_each(|stranger| self.take_over(stranger))
    }

    fn take_over(self: &Arc<Self>, stranger: &Stranger) -> io::Result<()> {
        let Stranger { record, state } = stranger;
        let Some(key) = record.key().filter(|key| self.known(key).is_none()) else { return Ok(()) };
        let Ok(_lock) = unused(state) else { return Ok(()) };
        let (from, to) = (record::folder(state, &key), record::folder(&self.settings.state, &key));
        record.write(&to)?;
        for file in [output::FILE, output::BEFORE] {
            // On another disk they stay behind; the worker goes on writing there.
            _ = fs::rename(from.join(file), to.join(file));
        }
        self.worker(&key).adopt(self, record.clone())?;
        tracing::info!(worker = %key, from = %state.display(), "took over a worker whose server is gone");
        _ = record::erase(&from);
        Ok(())
    }
}

impl Observed {
    fn look(&mut self, own: &Path, now: Instant) -> io::Result<()> {
        self.found = find(own)?;
        self.looked = Some(now);
        let Self { found, since, .. } = self;
        since.retain(|mark, _| found.iter().any(|stranger| stranger.record.mark == *mark));
        found.iter().for_each(|stranger| _ = since.entry(stranger.record.mark.clone()).or_insert(now));
        Ok(())
    }
}

/// Every worker that was recorded in another folder, which no server uses.
fn find(own: &Path) -> io::Result<Vec<Stranger>> {
    let mut found: BTreeMap<String, Stranger> = BTreeMap::new();
    for pid in system::all()? {
        let Some(environment) = system::environment(pid)? else { continue };
        let of = |name| system::variable(&environment, name);
        let Some((mut record, state)) = of(RECORD)
            .zip(of(STATE))
            .and_then(|(record, state)| Some((Record::parse(record.as_bytes()).ok()?, PathBuf::from(state))))
        else {
            continue;
        };
        // What a worker has started carries the same variables; the worker leads its group.
        let Some(stat) = system::Stat::of(pid)?.filter(|stat| stat.group == pid && !stat.ended) else { continue };
        if is_same(&state, own) || unused(&state).is_err() {
            continue;
        }
        record.process = Some(Process { pid, started: stat.started });
        let earlier = found.get(&record.mark).and_then(|it| it.record.process);
        if earlier.is_none_or(|earlier| stat.started < earlier.started) {
            found.insert(record.mark.clone(), Stranger { record, state });
        }
    }
    Ok(found.into_values().collect())
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other
        || fs::canonicalize(one).ok().is_some_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

/// The lock of a folder that no server uses; none if the folder is gone.
///
/// # Errors
/// If a server uses it, or that cannot be told.
fn unused(state: &Path) -> io::Result<Option<File>> {
    match File::open(state.join(LOCK)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(lock) => lock.try_lock().map(|()| Some(lock)).map_err(io::Error::other),
    }
}
