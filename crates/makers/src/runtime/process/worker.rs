//! One worker of the process runtime: its record, its port and who watches it.
//!
//! Every change of a worker holds its lock, so that a repeated order sees the effect of the first. Blocking work (files,
//! `/proc`) runs on blocking threads; waiting for a process to end, and looking for what is left of a run, happen without
//! the lock.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::process::{PidfdFlags, Signal, pidfd_open};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use wayleave_core::matches::{Exit, Instance, Make, WorkerFound};

use super::ending::Trace;
use super::ports::Port;
use super::record::{self, Process, Record};
use super::spawn::{RunEnvironment, spawn};
use super::{Shared, ending, output, system};
use crate::limits::{LEFT_GRACE, STOP_GRACE};
use crate::runtime::{Ended, Failure, WorkerKey};

/// Pause between looks at what a run has left; it doubles.
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_millis(500);
/// How long it may be unknown whether something is left, and how long killed processes may take to die.
const UNTOLD_MAX: Duration = Duration::from_secs(1);
/// What to do about processes that do not die.
pub const AS_ROOT: &str = "only root can end a process of another user (kill -9)";

/// A worker.
#[derive(Debug)]
pub struct Worker {
    pub key: WorkerKey,
    pub folder: PathBuf,
    state: Mutex<State>,
    /// Changes whenever a run ends.
    ended: watch::Sender<()>,
    /// Somebody wants its run killed that is ending.
    killed: Notify,
}

#[derive(Debug, Default)]
struct State {
    record: Option<Record>,
    port: Option<Port>,
    /// Where its process is watched. Its end is recorded from there, so until then the process counts as running.
    watched: Option<u64>,
    /// The last signal that it was sent by an order, if its run has not ended by itself before.
    end_signal: Option<Signal>,
    /// Why its run was killed by the runtime itself.
    given_up: Option<Arc<str>>,
    /// How its run ended, while what it has left behind has its grace.
    ending: Option<Exit>,
    /// What is left of it gets no more time.
    killing: bool,
    /// What was left of it at the last look, for people.
    left: Vec<i32>,
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
        Self { key: key.clone(), folder, state: Mutex::default(), ended: watch::Sender::new(()), killed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a run, unless one runs, or has been started since the last one that the caller knows, or the caller has
    /// gone: `wanted` lives as long as it does.
    pub fn make(self: &Arc<Self>, shared: &Arc<Shared>, make: &Make, wanted: &Weak<()>) -> Result<Making, Failure> {
        // The run that has left nothing.
        let mut cleared: Option<Trace> = None;
        loop {
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
            let earlier = match state.record.as_ref().and_then(|record| Some((record, record.instance()?))) {
                None => None,
                Some((record, instance)) => match &record.exit {
                    None => return Ok(Making::Done(instance)),
                    Some(exit) if make.last.as_ref().is_none_or(|last| !last.is_run(&instance)) => {
                        return Err(Failure::new(exit));
                    }
                    Some(_) => Some(record.trace(&shared.boot)),
                },
            };
            if earlier == cleared {
                return self.start(&mut state, shared, make).map(Making::Done);
            }
            drop(state);
            if let Some(trace) = &earlier {
                let left = |error| Failure::new(format!("what is left of its last run is unknown: {error}"));
                trace.kill().map_err(left)?;
            }
            cleared = earlier;
        }
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
        let environment = RunEnvironment { host, port: port.number, mark: &record.mark };
        let log =
            output::open(&self.folder).map_err(|error| Failure::new(format!("its log cannot be opened: {error}")));
        let process = match log.and_then(|log| spawn(make, &environment, &shared.settings.launcher, log)) {
            Ok(process) => process,
            Err(why) => {
                // What earlier runs wrote.
                if output::is_there(&self.folder) {
                    shared.keep_output(&self.key, &self.folder, &why.0);
                }
                (state.record, state.end_signal, state.given_up) = (None, None, None);
                _ = record::erase(&self.folder);
                return Err(why);
            }
        };
        let pidfd = open(process);
        record.process = Some(process);
        let written = record.write(&self.folder);
        let instance = record.instance().ok_or_else(|| Failure::new("it has no process"));
        state.record = Some(record);
        (state.port, state.end_signal, state.given_up) = (Some(port), None, None);
        (state.killing, state.left) = (false, Vec::new());
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
        let mut ending = None;
        if !runs && record.exit.is_none() {
            let (trace, same_boot) = (record.trace(&shared.boot), record.is_of(&shared.boot));
            let how = if same_boot { "it ended while no server ran" } else { "the machine was started anew" };
            let exit = Exit::Error(how.into());
            if same_boot && trace.left().is_ok_and(|left| !left.is_empty()) {
                ending = Some((exit, trace));
            } else {
                // What cannot be found now is looked for when the worker is removed.
                _ = trace.kill();
                record.exit = Some(exit);
                record.write(&self.folder)?;
            }
        }
        let mut state = self.lock();
        if runs || ending.is_some() {
            state.port = Some(shared.ports.adopt(record.port));
        }
        state.record = Some(record);
        if runs {
            self.watch(&mut state, shared, pidfd);
        }
        if let Some((exit, trace)) = ending {
            self.begin_end(&mut state, shared, exit, trace);
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
    pub fn on_end(self: &Arc<Self>, shared: &Arc<Shared>, process: Option<Process>, pidfd: &OwnedFd) {
        let mut state = self.lock();
        if state.record.as_ref().is_some_and(|record| record.process == process) {
            self.end(&mut state, shared, Some(pidfd));
        }
    }

    /// Polls a process that is not watched.
    fn notice(self: &Arc<Self>, state: &mut State, shared: &Arc<Shared>) {
        if state.watched.is_none() && state.record.as_ref().is_some_and(|record| !record.runs(&shared.boot)) {
            self.end(state, shared, None);
        }
    }

    /// The leader of a run has ended.
    fn end(self: &Arc<Self>, state: &mut State, shared: &Arc<Shared>, pidfd: Option<&OwnedFd>) {
        let Some(record) = state.record.as_ref().filter(|record| record.exit.is_none()) else { return };
        if state.ending.is_some() {
            return;
        }
        let exit =
            describe_exit(pidfd.and_then(ending::reap), state.given_up.as_deref(), || output::last_line(&self.folder));
        let trace = record.trace(&shared.boot);
        state.killing = state.given_up.is_some() || state.end_signal == Some(Signal::KILL);
        self.begin_end(state, shared, exit, trace);
    }

    /// What a run has left behind gets its grace; then its end is recorded.
    fn begin_end(self: &Arc<Self>, state: &mut State, shared: &Arc<Shared>, exit: Exit, trace: Trace) {
        state.ending = Some(exit);
        // Not kept meanwhile: the folder may be opened anew as soon as the runtime is dropped.
        let (worker, runtime) = (Arc::clone(self), Arc::downgrade(shared));
        let was_asked = state.end_signal.is_some();
        shared.handle.spawn(async move { worker.wind_down(runtime, trace, was_asked).await });
    }

    /// Waits until nothing is left of a run whose leader has ended, and records its end. What is left is asked to end, if
    /// the group was not; when its grace period is over, or on request, it is killed. What cannot be killed is waited
    /// for.
    async fn wind_down(self: Arc<Self>, runtime: Weak<Shared>, trace: Trace, was_asked: bool) {
        let (begun, grace) = (Instant::now(), if was_asked { STOP_GRACE } else { LEFT_GRACE });
        let (mut pause, mut asked, mut says) = (LOOK_MIN, HashSet::new(), true);
        let trace = Arc::new(trace);
        loop {
            let look = Arc::clone(&trace);
            let left = spawn_blocking(move || look.left()).await;
            let left = match left.unwrap_or_else(|error| Err(io::Error::other(error))) {
                // What cannot be found now is looked for when the worker is removed.
                Err(_) if begun.elapsed() >= UNTOLD_MAX => Vec::new(),
                Err(_) => {
                    sleep(pause).await;
                    continue;
                }
                Ok(left) => left,
            };
            let Some(shared) = runtime.upgrade() else { return };
            if left.is_empty() {
                let worker = Arc::clone(&self);
                _ = spawn_blocking(move || worker.record_end(&shared)).await;
                return;
            }
            let killing = {
                let mut state = self.lock();
                state.killing |= begun.elapsed() >= grace;
                state.left = left.iter().map(|process| process.pid).collect();
                state.killing
            };
            if killing && begun.elapsed() >= grace + UNTOLD_MAX && std::mem::take(&mut says) {
                tracing::warn!(worker = %self.key, pids = ?self.lock().left, "processes of a worker do not die; {AS_ROOT}");
            }
            for process in left {
                if killing {
                    process.signal(Signal::KILL);
                } else if asked.insert(process) && !(was_asked && process.in_group) {
                    process.signal(Signal::TERM);
                }
            }
            drop(shared);
            _ = timeout(pause, self.killed.notified()).await;
            pause = (pause * 2).min(LOOK_MAX);
        }
    }

    fn record_end(&self, shared: &Shared) {
        let mut state = self.lock();
        let Some(exit) = state.ending.take() else { return };
        let Some(record) = state.record.as_mut().filter(|record| record.exit.is_none()) else { return };
        record.exit = Some(exit.clone());
        if let Err(error) = record.write(&self.folder) {
            tracing::warn!(worker = %self.key, %error, "cannot record how a worker ended");
        }
        let instance = record.instance();
        (state.port, state.watched) = (None, None);
        self.ended.send_replace(());
        if let Some(instance) = instance {
            shared.report(Ended { worker: self.key.clone(), instance, exit });
        }
    }

    /// Signals the processes of a run that has not ended.
    pub fn signal(&self, shared: &Shared, signal: Signal) {
        let mut state = self.lock();
        if state.ending.is_some() {
            if signal == Signal::KILL {
                state.killing = true;
                self.killed.notify_one();
            }
            return;
        }
        if let Some(record) = state.record.as_ref().filter(|record| record.runs(&shared.boot))
            && let Some(process) = record.process
        {
            ending::signal_group(process, signal);
            if state.given_up.is_none() {
                state.end_signal = Some(signal);
            }
        }
    }

    /// What still runs of it, for people.
    pub fn what_runs(&self) -> String {
        let state = self.lock();
        let leader = state.record.as_ref().and_then(|record| record.process).map(|process| process.pid);
        match (&state.ending, state.left.as_slice(), leader) {
            (Some(_), [_, ..], _) => format!("processes that it has started ({}) still run", numbers(&state.left)),
            (_, _, Some(leader)) => format!("it still runs (process {leader})"),
            _ => "it still runs".to_owned(),
        }
    }

    /// Changes whenever a run ends.
    pub fn ends(&self) -> watch::Receiver<()> {
        self.ended.subscribe()
    }

    /// Whether it has no run, or its end is recorded.
    pub fn is_over(self: &Arc<Self>, shared: &Arc<Shared>) -> bool {
        let mut state = self.lock();
        self.notice(&mut state, shared);
        state.record.as_ref().is_none_or(|record| record.exit.is_some())
    }

    /// Removes its files; false if something of it runs or may run.
    pub fn erase(&self, shared: &Shared) -> Result<bool, Failure> {
        let trace_of = |state: &State| state.record.as_ref().map(|record| record.trace(&shared.boot));
        let is_over = |state: &State| state.record.as_ref().is_none_or(|record| record.exit.is_some());
        let trace = {
            let state = self.lock();
            if !is_over(&state) {
                return Ok(false);
            }
            trace_of(&state)
        };
        if trace.as_ref().is_some_and(|trace| trace.kill().map_or(true, |left| left > 0)) {
            return Ok(false);
        }
        let mut state = self.lock();
        if !is_over(&state) || trace_of(&state) != trace {
            // Another run was started meanwhile.
            return Ok(false);
        }
        let exit = state.record.as_ref().and_then(|record| record.exit.as_ref());
        let end = match (state.end_signal, exit) {
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

    /// As a list shows it; `None` if nothing was started.
    pub fn found(self: &Arc<Self>, shared: &Arc<Shared>) -> Option<WorkerFound> {
        let mut state = self.lock();
        self.notice(&mut state, shared);
        let record = state.record.as_ref()?;
        let WorkerKey { generation, worker, .. } = self.key;
        Some(WorkerFound { worker, generation, instance: Some(record.instance()?), exit: record.exit.clone() })
    }
}

/// How a run ended, as it is reported.
fn describe_exit(how: Option<Exit>, given_up: Option<&str>, last_line: impl FnOnce() -> Option<String>) -> Exit {
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

fn numbers(pids: &[i32]) -> String {
    pids.iter().map(i32::to_string).collect::<Vec<_>>().join(" ")
}

/// The process that carries a run's mark and leads its group.
fn leader(mark: &str) -> io::Result<Option<Process>> {
    for (pid, stat) in system::running()? {
        if stat.group == pid && system::is_marked(pid, mark)? {
            return Ok(Some(Process { pid, started: stat.started, session: Some(stat.session) }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_the_runtime_killed_is_not_called_out_of_memory() {
        let killed = || Some(Exit::Error(format!("it was ended by {}", ending::signal_name(9)).into()));
        let why = unwritten(&io::Error::other("no space left on device"));
        let want = "it was ended, because its record cannot be written: no space left on device";
        assert_eq!(describe_exit(killed(), Some(&why.0), || None), Exit::Error(want.into()));
        let want = "it was ended by signal 9, SIGKILL (perhaps out of memory); its last output: bye";
        assert_eq!(describe_exit(killed(), None, || Some("bye".into())), Exit::Error(want.into()));
        assert_eq!(describe_exit(Some(Exit::Clean), None, || Some("bye".into())), Exit::Clean);
    }
}
