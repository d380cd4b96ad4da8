//! Watches workers' processes through pidfds, which also report the end of processes that an earlier server started.
//! One thread waits for all of them.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::OwnedFd;

/// Marks the descriptor that ends the thread.
const STOP: u64 = u64::MAX;
/// Ends that are taken at once.
const ENDS_MAX: usize = 64;

/// What to do when a process has ended. It is given the pidfd, and must not block.
pub type OnEnd = Box<dyn FnOnce(OwnedFd) + Send>;

/// The processes that are watched.
pub struct Watch {
    epoll: OwnedFd,
    stop: OwnedFd,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    next: u64,
    by_id: HashMap<u64, (OwnedFd, OnEnd)>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({} processes)", self.lock().by_id.len())
    }
}

impl Watch {
    /// Starts the thread.
    pub fn start() -> io::Result<Arc<Self>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        let watch = Arc::new(Self { epoll, stop, watched: Mutex::default() });
        let thread = Arc::clone(&watch);
        std::thread::Builder::new().name("wayleave-workers".into()).spawn(move || thread.run())?;
        Ok(watch)
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a process; returns the number of the watch.
    pub fn add(&self, pidfd: OwnedFd, on_end: OnEnd) -> io::Result<u64> {
        let mut watched = self.lock();
        let id = watched.next;
        watched.next += 1;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        epoll::add(&self.epoll, &pidfd, epoll::EventData::new_u64(id), flags)?;
        watched.by_id.insert(id, (pidfd, on_end));
        Ok(id)
    }

    /// Ends the thread, and watches nothing any more.
    pub fn stop(&self) {
        self.lock().by_id.clear();
        _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(ENDS_MAX);
        loop {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot wait for the end of workers; lists notice it");
                    return;
                }
            }
            for event in events.drain(..) {
                let id = event.data.u64();
                if id == STOP {
                    return;
                }
                let ended = self.lock().by_id.remove(&id);
                if let Some((pidfd, on_end)) = ended {
                    on_end(pidfd);
                }
            }
        }
    }
}
