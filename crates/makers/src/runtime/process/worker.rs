//! One worker of the process runtime: its record, its port and who watches it.
//!
//! Every change of a worker holds its lock, so that a repeated order sees the effect of the first. Blocking work (files,
//! `/proc`) runs on blocking threads; waiting for a process to end happens without the lock.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fd::OwnedFd;
use rustix::process::{PidfdFlags, Signal, pidfd_open};
use tokio::sync::watch;
use wayleave_core::matches::{Exit, Instance, Make, WorkerFound};

use super::ports::Port;
use super::record::{self, Process, Record};
use super::spawn::{RunEnvironment, spawn};
use super::{Shared, ending, output, system};
use crate::runtime::{Ended, Failure, WorkerKey};

/// A worker.
#[derive(Debug)]
pub struct Worker {
    pub key: WorkerKey,
    pub folder: PathBuf,
    state: Mutex<State>,
    /// Changes whenever a run ends.
    ended: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    record: Option<Record>,
    port: Option<Port>,
    /// Where its process is watched. Its end is recorded from there, so until then the process counts as running.
    watched: Option<u64>,
    /// The last signal that it was sent by an order, if its run has not ended by itself before.
    told_to_end: Option<Signal>,
    /// Why its run was killed by the runtime itself.
    given_up: Option<Arc<str>>,
    /// Its files are removed: callers that still have this object look again.
    gone: bool,
}

/// What came of an order to make a worker.
#[derive(Debug)]
pub enum Making {
    /// This runs.
    Done(Instance),
    /// The worker was removed meanwhile: a new one takes its place.
    Gone,
}

impl Worker {
    /// A worker without a run.
    pub fn new(shared: &Shared, key: &WorkerKey) -> Self {
        let folder = record::folder(&shared.settings.state, key);
        Self { key: key.clone(), folder, state: Mutex::default(), ended: watch::Sender::new(()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a run, unless one runs, or has been started since the last one that the caller knows, or the caller has
    /// gone: `wanted` lives as long as it does.
    pub fn make(self: &Arc<Self>, shared: &Arc<Shared>, make: &Make, wanted: &Weak<()>) -> Result<Making, Failure> {
        let mut state = self.lock();
        if wanted.strong_count() == 0 {
            if state.record.is_none() {
                state.gone = true;
                shared.forget(&self.key);
            }
            return Err(Failure::new("it is not wanted any more"));
        }
        self.notice(&mut state, shared);
        if state.gone {
            return Ok(Making::Gone);
        }
        if let Some(record) = &state.record
            && let Some(instance) = record.instance()
        {
            match &record.exit {
                None => return Ok(Making::Done(instance)),
                Some(exit) if make.last.as_ref().is_none_or(|last| !last.is_run(&instance)) => {
                    return Err(Failure::new(exit));
                }
                Some(_) => {
                    let left = |error| Failure::new(format!("what is left of its last run cannot be told: {error}"));
                    ending::kill_marked(&record.mark).map_err(left)?;
                }
            }
        }
        self.start(&mut state, shared, make).map(Making::Done)
    }

    /// First the mark is durable, then there is a process, then its id is durable, then the caller hears of it.
    fn start(self: &Arc<Self>, state: &mut State, shared: &Arc<Shared>, make: &Make) -> Result<Instance, Failure> {
        let (host, reached_at) = shared.settings.hosts(make.recipe.advertise.as_deref());
        state.port = None;
        let port = match make.recipe.port {
            Some(number) => shared.ports.fixed(host, number)?,
            None => shared.ports.free(host, shared.settings.ports.as_ref())?,
        };
        let address = format!("{reached_at}:{}", port.number);
        let mut record = Record::new(&self.key, &shared.boot, super::random_mark()?, address, port.number);
        record.write(&self.folder).map_err(|error| unwritten(&error))?;
        let told = RunEnvironment { host, port: port.number, mark: &record.mark };
        let log =
            output::open(&self.folder).map_err(|error| Failure::new(format!("its log cannot be opened: {error}")));
        let process = match log.and_then(|log| spawn(make, &told, log)) {
            Ok(process) => process,
            Err(why) => {
                // What earlier runs wrote.
                if output::is_there(&self.folder) {
                    shared.keep_output(&self.key, &self.folder, &why.0);
                }
                (state.record, state.told_to_end, state.given_up) = (None, None, None);
                _ = record::erase(&self.folder);
                return Err(why);
            }
        };
        let pidfd = open(process);
        record.process = Some(process);
        let written = record.write(&self.folder);
        let instance = record.instance().ok_or_else(|| Failure::new("it has no process"));
        state.record = Some(record);
        (state.port, state.told_to_end, state.given_up) = (Some(port), None, None);
        self.watch(state, shared, pidfd);
        if let Err(error) = written {
            let why = unwritten(&error);
            state.given_up = Some(Arc::clone(&why.0));
            ending::signal_group(process, Signal::KILL);
            return Err(why);
        }
        instance
    }

    /// Takes over what an earlier server has started.
    pub fn adopt(self: &Arc<Self>, shared: &Arc<Shared>, mut record: Record) -> io::Result<()> {
        let mut state = self.lock();
        if record.process.is_none() {
            // That server died between the two records.
            record.process = if record.is_of(&shared.boot) { leader(&record.mark)? } else { None };
            if record.process.is_none() {
                shared.forget(&self.key);
                return record::erase(&self.folder);
            }
            record.write(&self.folder)?;
        }
        let pidfd = record.process.and_then(open);
        // The pidfd was opened before this look, so it is of the process that is seen here.
        let runs = record.runs(&shared.boot);
        if !runs && record.exit.is_none() {
            let same_boot = record.is_of(&shared.boot);
            let how = if same_boot { "it ended while no server ran" } else { "the machine was started anew" };
            // What cannot be found now is looked for when the worker is removed.
            _ = ending::kill_marked(&record.mark);
            record.exit = Some(Exit::Error(how.into()));
            record.write(&self.folder)?;
        }
        if runs {
            state.port = Some(shared.ports.adopt(record.port));
        }
        state.record = Some(record);
        if runs {
            self.watch(&mut state, shared, pidfd);
        }
        Ok(())
    }

    fn watch(self: &Arc<Self>, state: &mut State, shared: &Arc<Shared>, pidfd: Option<OwnedFd>) {
        let process = state.record.as_ref().and_then(|record| record.process);
        let (runtime, worker) = (Arc::downgrade(shared), Arc::clone(self));
        let on_end = Box::new(move |pidfd| {
            let Some(shared) = runtime.upgrade() else { return };
            let handle = shared.handle.clone();
            handle.spawn_blocking(move || worker.on_end(&shared, process, &pidfd));
        });
        state.watched = pidfd.and_then(|pidfd| shared.watch.add(pidfd, on_end).ok());
        if state.watched.is_none() {
            tracing::warn!(worker = %self.key, "cannot watch a worker's process; its end is noticed by lists only");
        }
    }

    /// A process that was watched has ended.
    pub fn on_end(&self, shared: &Shared, process: Option<Process>, pidfd: &OwnedFd) {
        let mut state = self.lock();
        if state.record.as_ref().is_some_and(|record| record.process == process) {
            self.end(&mut state, shared, Some(pidfd));
        }
    }

    /// Looks at a process that nobody watches.
    fn notice(&self, state: &mut State, shared: &Shared) {
        if state.watched.is_none() && state.record.as_ref().is_some_and(|record| !record.runs(&shared.boot)) {
            self.end(state, shared, None);
        }
    }

    fn end(&self, state: &mut State, shared: &Shared, pidfd: Option<&OwnedFd>) {
        let Some(record) = state.record.as_mut().filter(|record| record.exit.is_none()) else { return };
        let how = record.process.zip(pidfd).and_then(|(process, pidfd)| ending::reap(process, pidfd));
        // What cannot be found now is looked for when the worker is removed.
        _ = ending::kill_marked(&record.mark);
        let exit = told(how, state.given_up.as_deref(), || output::last_line(&self.folder));
        record.exit = Some(exit.clone());
        if let Err(error) = record.write(&self.folder) {
            tracing::warn!(worker = %self.key, %error, "cannot record how a worker ended");
        }
        let instance = record.instance();
        (state.port, state.watched) = (None, None);
        self.ended.send_replace(());
        if let Some(instance) = instance {
            shared.tell(Ended { worker: self.key.clone(), instance, exit });
        }
    }

    /// Signals the processes of a run that has not ended.
    pub fn signal(&self, shared: &Shared, signal: Signal) {
        let mut state = self.lock();
        if let Some(record) = state.record.as_ref().filter(|record| record.runs(&shared.boot))
            && let Some(process) = record.process
        {
            ending::signal_group(process, signal);
            if state.given_up.is_none() {
                state.told_to_end = Some(signal);
            }
        }
    }

    /// Changes whenever a run ends.
    pub fn ends(&self) -> watch::Receiver<()> {
        self.ended.subscribe()
    }

    /// Whether it has no run, or its end is recorded.
    pub fn is_over(&self, shared: &Shared) -> bool {
        let mut state = self.lock();
        self.notice(&mut state, shared);
        state.record.as_ref().is_none_or(|record| record.exit.is_some())
    }

    /// Removes its files; false if something of it still runs, or that cannot be told.
    pub fn erase(&self, shared: &Shared) -> Result<bool, Failure> {
        let mut state = self.lock();
        if let Some(record) = &state.record
            && (record.exit.is_none() || ending::kill_marked(&record.mark).map_or(true, |left| left > 0))
        {
            return Ok(false);
        }
        let exit = state.record.as_ref().and_then(|record| record.exit.as_ref());
        let end = match (state.told_to_end, exit) {
            (Some(Signal::KILL), _) => "it was removed while it ran".to_owned(),
            (Some(_), _) => "it was stopped".to_owned(),
            (None, exit) => exit.map_or_else(String::new, Exit::to_string),
        };
        shared.keep_output(&self.key, &self.folder, &end);
        record::erase(&self.folder).map_err(|error| Failure::new(format!("its files cannot be removed: {error}")))?;
        *state = State { gone: true, ..State::default() };
        shared.forget(&self.key);
        Ok(true)
    }

    /// As a list tells it; `None` if nothing was started.
    pub fn found(&self, shared: &Shared) -> Option<WorkerFound> {
        let mut state = self.lock();
        self.notice(&mut state, shared);
        let record = state.record.as_ref()?;
        let WorkerKey { generation, worker, .. } = self.key;
        Some(WorkerFound { worker, generation, instance: Some(record.instance()?), exit: record.exit.clone() })
    }
}

/// How a run ended, as it is told.
fn told(how: Option<Exit>, given_up: Option<&str>, last_line: impl FnOnce() -> Option<String>) -> Exit {
    match (how, given_up) {
        (_, Some(why)) => Exit::Error(format!("it was ended, because {why}").into()),
        (Some(Exit::Clean), None) => Exit::Clean,
        (Some(Exit::Error(why)), None) => Exit::Error(match last_line() {
            Some(line) => format!("{why}; its last output: {line}").into(),
            None => why,
        }),
        (None, None) => Exit::Error("it ended; how is not known, because an earlier server started it".into()),
    }
}

fn unwritten(error: &io::Error) -> Failure {
    Failure::new(format!("its record cannot be written: {error}"))
}

fn open(process: Process) -> Option<OwnedFd> {
    pidfd_open(system::pid(process.pid)?, PidfdFlags::empty()).ok()
}

/// The process that carries a run's mark and leads its group.
fn leader(mark: &str) -> io::Result<Option<Process>> {
    for pid in system::marked(mark)? {
        if let Some(stat) = system::Stat::of(pid)?.filter(|stat| stat.group == pid) {
            return Ok(Some(Process { pid, started: stat.started }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_the_runtime_ended_itself_is_not_said_to_be_out_of_memory() {
        let killed = || Some(Exit::Error(format!("it was ended by {}", ending::signal_name(9)).into()));
        let why = unwritten(&io::Error::other("no space left on device"));
        let want = "it was ended, because its record cannot be written: no space left on device";
        assert_eq!(told(killed(), Some(&why.0), || None), Exit::Error(want.into()));
        let want = "it was ended by signal 9, SIGKILL (perhaps out of memory); its last output: bye";
        assert_eq!(told(killed(), None, || Some("bye".into())), Exit::Error(want.into()));
        assert_eq!(told(Some(Exit::Clean), None, || Some("bye".into())), Exit::Clean);
    }
}
