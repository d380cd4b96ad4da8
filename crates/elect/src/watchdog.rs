//! The second line of defence: a thread that ends guarded work when nothing else does.
//!
//! It is a plain OS thread, not a task: it works even if the runtime hangs, a task blocks, or a lock is held forever. A
//! primary that neither renews nor stops is the one thing that other candidates cannot see.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{Clock, Moment};

/// Waits on the monotonic clock are no longer than this, so that a suspend is noticed directly after it.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What ends work that did not stop.
#[derive(Clone)]
pub enum LastLine {
    /// Abort the process. The default, also for a library: work that cannot be stopped otherwise would run concurrently
    /// with the next primary's, and a hanging process is useless. Its supervisor restarts it.
    AbortProcess,
    /// Something else that reliably ends the work, such as killing the processes that do it.
    Call(Arc<dyn Fn() + Send + Sync>),
}

impl std::fmt::Debug for LastLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::AbortProcess) { "AbortProcess" } else { "Call" })
    }
}

type Cancel = Box<dyn FnOnce() + Send>;

struct Entry {
    cancel_at: Moment,
    end_at: Moment,
    cancel: Option<Cancel>,
    last: LastLine,
}

#[derive(Default)]
struct Watched {
    entries: BTreeMap<u64, Entry>,
    next: u64,
    closed: bool,
}

struct Shared {
    watched: Mutex<Watched>,
    changed: Condvar,
    clock: Arc<dyn Clock>,
}

impl Shared {
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread; it ends when this is dropped.
pub struct Watchdog(Arc<Shared>);

/// Watched work; dropping this means that the work has stopped.
pub struct Watch {
    shared: Arc<Shared>,
    id: u64,
}

impl Watchdog {
    /// Starts the thread. Fails if no thread can be spawned: then nothing may be led.
    pub fn start(clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { watched: Mutex::default(), changed: Condvar::new(), clock });
        let watching = shared.clone();
        std::thread::Builder::new().name("wayleave-watchdog".into()).spawn(move || run(&watching))?;
        Ok(Self(shared))
    }

    /// Watches work: at `cancel_at` it is cancelled (which must not block), and if the watch still exists at `end_at`,
    /// the last line is called.
    pub fn watch(&self, cancel_at: Moment, end_at: Moment, cancel: Cancel, last: LastLine) -> Watch {
        let mut watched = self.0.watched();
        let id = watched.next;
        watched.next += 1;
        watched.entries.insert(id, Entry { cancel_at, end_at, cancel: Some(cancel), last });
        drop(watched);
        self.0.changed.notify_one();
        Watch { shared: self.0.clone(), id }
    }
}

impl Watch {
    /// Moves both moments.
    pub fn move_to(&self, cancel_at: Moment, end_at: Moment) {
        if let Some(entry) = self.shared.watched().entries.get_mut(&self.id) {
            (entry.cancel_at, entry.end_at) = (cancel_at, end_at);
        }
        self.shared.changed.notify_one();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.watched().entries.remove(&self.id);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.watched().closed = true;
        self.0.changed.notify_one();
    }
}

impl std::fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watchdog").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("id", &self.id).finish_non_exhaustive()
    }
}

fn run(shared: &Shared) {
    let mut watched = shared.watched();
    // Entries are processed even after the handle is gone: their work may still be running.
    while !(watched.closed && watched.entries.is_empty()) {
        let now = shared.clock.now();
        let (cancels, lasts) = due(&mut watched, now);
        if !(cancels.is_empty() && lasts.is_empty()) {
            // Outside the lock: whatever the callbacks do, new watches must be possible.
            drop(watched);
            cancels.into_iter().for_each(|cancel| cancel());
            lasts.iter().for_each(end);
            watched = shared.watched();
            continue;
        }
        let next = watched.entries.values().map(Entry::next).min();
        let wait = next.map_or(LOOK_AGAIN, |at| Duration::from_millis(at.since(now).0).min(LOOK_AGAIN));
        watched = shared.changed.wait_timeout(watched, wait).unwrap_or_else(PoisonError::into_inner).0;
    }
}

impl Entry {
    fn next(&self) -> Moment {
        if self.cancel.is_some() { self.cancel_at.min(self.end_at) } else { self.end_at }
    }
}

/// The callbacks that are due.
fn due(watched: &mut Watched, now: Moment) -> (Vec<Cancel>, Vec<LastLine>) {
    let mut cancels = Vec::new();
    for entry in watched.entries.values_mut() {
        if now >= entry.cancel_at.min(entry.end_at) {
            cancels.extend(entry.cancel.take());
        }
    }
    let over: Vec<u64> = watched.entries.iter().filter(|(_, entry)| now >= entry.end_at).map(|(id, _)| *id).collect();
    let lasts = over.iter().filter_map(|id| watched.entries.remove(id)).map(|entry| entry.last).collect();
    (cancels, lasts)
}

fn end(last: &LastLine) {
    match last {
        LastLine::AbortProcess => {
            // Straight to stderr: the logger may be what hangs.
            eprintln!("wayleave: the term is over and the guarded work has not stopped; aborting the process");
            std::process::abort();
        }
        LastLine::Call(call) => call(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use wayleave_core::time::Millis;

    use super::*;
    use crate::clock::BootClock;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn watch(dog: &Watchdog, cancel_ms: u64, end_ms: u64) -> (Watch, Receiver<&'static str>) {
        let (say, heard) = channel();
        let (cancelled, ended) = (say.clone(), Mutex::new(say));
        let cancel = Box::new(move || cancelled.send("cancel").unwrap());
        let last = LastLine::Call(Arc::new(move || ended.lock().unwrap().send("end").unwrap()));
        let now = BootClock.now();
        (dog.watch(now.after(Millis(cancel_ms)), now.after(Millis(end_ms)), cancel, last), heard)
    }

    #[test]
    fn work_that_hangs_is_cancelled_first_and_ended_at_the_end_of_the_term() {
        let dog = Watchdog::start(Arc::new(BootClock)).unwrap();
        let from = BootClock.now();
        let (_watch, heard) = watch(&dog, 30, 60);
        assert_eq!(heard.recv_timeout(PATIENCE), Ok("cancel"));
        assert_eq!(heard.recv_timeout(PATIENCE), Ok("end"));
        assert!(BootClock.now().since(from) >= Millis(60));
    }

    #[test]
    fn work_that_stopped_is_left_alone_and_a_longer_term_is_waited_for() {
        let dog = Watchdog::start(Arc::new(BootClock)).unwrap();
        let (stopped, quiet) = watch(&dog, 30, 30);
        let (longer, heard) = watch(&dog, 30, 30);
        let from = BootClock.now();
        longer.move_to(from.after(Millis(200)), from.after(Millis(200)));
        drop(stopped);
        assert_eq!(heard.recv_timeout(PATIENCE), Ok("cancel"));
        assert!(BootClock.now().since(from) >= Millis(200));
        assert_eq!(heard.recv_timeout(PATIENCE), Ok("end"));
        assert!(quiet.try_recv().is_err());
    }
}
