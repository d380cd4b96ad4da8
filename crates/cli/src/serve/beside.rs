//! Notices a store that is open beside a copy of it on this machine, before a command runs twice.
//!
//! A store that was restored, copied or salvaged has its pools paused. One that was copied by other means, such as `cp -r`, has
//! not: its server would start the same commands, and end the containers of the original. A pool has a random owner that
//! every copy repeats. So a server takes names made of its pools' owners ([`wayleave_makers::process_name`]); one that finds
//! a name taken pauses all of its pools and says so.
//!
//! Nodes that share a database repeat the owner too, so they take no names. A database that was copied is noticed by its
//! identity, which its store has noted ([`wayleave_engine_postgres::settle`]): also on another machine.
//!
//! Whichever server finds a name taken is taken for the copy's: the one that starts second, unless a pool is younger than a second. A copy on another machine, or in another network namespace, is not
//! noticed. Of many pools only the first ones have names: a copy has the same first ones.

use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::geteuid;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::limits::PAGE_MAX;
use wayleave_core::names::PoolName;
use wayleave_core::redact;
use wayleave_makers::process_name::{self, Peer, ProcessName};
use wayleave_shard::matches::Matches;

/// How many pools have names: each takes a file descriptor.
const NAMES_MAX: usize = 16;
/// How often new pools get names.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A server that is killed gives its names back a moment after its lock: how often, and how long, they are waited for.
const TRIES: u32 = 10;
const TRY_PAUSE: Duration = Duration::from_millis(100);
/// How often it is tried to pause the pools of a copy before its server does without them.
const PAUSE_TRIES: u32 = 30;

/// A pool whose name another process has, and which.
type Copied = (PoolName, Option<i32>);

/// The names of this store's pools, by their owners.
type Names = Arc<Mutex<Vec<(Arc<str>, UnixListener)>>>;

/// Keeps the names of this store while its server runs.
pub struct Beside {
    names: Names,
    is_copy: bool,
    may_start: bool,
    looking: AbortHandle,
}

impl Beside {
    /// Takes the names of all pools; pauses the pools if another server of this machine has one. To be called before anything
    /// carries out what pools order.
    pub async fn start(matches: &Matches) -> Self {
        let (names, mut told_of_user) = (Names::default(), false);
        let copied = take_names(matches, &names, &mut told_of_user).await;
        matches.note_beside(copied.as_ref().map(warning));
        let is_copy = copied.is_some();
        let may_start = match copied {
            Some(copied) => pause_beside(matches, copied).await,
            None => true,
        };
        let (later, matches) = (Arc::clone(&names), matches.clone());
        let look = async move {
            let (mut told, mut told_of_copy) = (is_copy, false);
            loop {
                sleep(LOOK_EVERY).await;
                let copied = take_names(&matches, &later, &mut told_of_user).await;
                matches.note_beside(copied.as_ref().map(warning));
                // A copy that was made before a pool had its name here may have taken it. Once: whoever resumes then knows.
                if let Some(copied) = copied.filter(|_| !told) {
                    told = true;
                    pause_beside(&matches, copied).await;
                }
                if let Some(asked) = answer(&later).filter(|_| !told_of_copy) {
                    told_of_copy = true;
                    tell_of_copy(asked);
                }
            }
        };
        Self { names, is_copy, may_start, looking: tokio::spawn(look).abort_handle() }
    }

    /// Whether another server of this machine has a copy of this store open.
    pub const fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// Whether commands may be started: all pools of a copy are paused.
    pub const fn may_start(&self) -> bool {
        self.may_start
    }

    /// Gives the names back; to be called before the store is closed, so that the next server finds them free.
    pub fn end(self) {
        self.looking.abort();
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Answers those who ask who has the names; returns the first.
fn answer(names: &Names) -> Option<Peer> {
    let names = names.lock().unwrap_or_else(PoisonError::into_inner);
    let asked: Vec<Peer> = names.iter().flat_map(|(_, name)| process_name::answer(name)).collect();
    asked.first().copied()
}

/// Any local process can ask, so no more is said of it than what the kernel tells.
fn tell_of_copy(asked: Peer) {
    let of = asked.process.map(command_of).unwrap_or_default();
    let text = match asked.user == geteuid().as_raw() {
        true => {
            "another process of this machine has asked for a name of this store, as a server does that has opened a copy of this store, and \
             then pauses its own pools; this one goes on: if the other one is to go on instead, stop this one and run `wayleave \
             pools resume --all` there"
        }
        false => {
            "a process of another user has asked for a name of this store, as a server does that has opened a copy of this store: such a server \
             does NOT pause its pools, so commands may run twice; run `wayleave pools pause --all` at one of them"
        }
    };
    tracing::warn!(process.id = asked.process, process.command = of, process.user = asked.user, "{text}");
}

/// Takes the names that this process does not have yet. Returns the first pool whose name another process of this user has.
async fn take_names(matches: &Matches, names: &Names, told: &mut bool) -> Option<Copied> {
    // A shard that is closed must not hide the pools of the others.
    let pools = matches.pools_that_answer(NAMES_MAX).await;
    let mut taken = None;
    for pool in pools {
        let Ok(pool) = matches.pool(pool.name).await else { continue };
        let has = |names: &Names| {
            let names = names.lock().unwrap_or_else(PoisonError::into_inner);
            names.len() >= NAMES_MAX || names.iter().any(|(owner, _)| *owner == pool.owner)
        };
        for attempt in 1..=TRIES {
            if has(names) {
                break;
            }
            match process_name::take(&format!("wayleave-pool-{}", pool.owner)).await {
                Ok(ProcessName::Ours(name)) => {
                    names.lock().unwrap_or_else(PoisonError::into_inner).push((Arc::clone(&pool.owner), name));
                }
                Ok(ProcessName::Taken(process)) if attempt == TRIES => {
                    taken = taken.or_else(|| Some((pool.name.clone(), process)));
                }
                Ok(ProcessName::Taken(_)) => sleep(TRY_PAUSE).await,
                Ok(ProcessName::OtherUser(peer)) => {
                    tell_of_other_user(&pool.name, peer, told);
                    break;
                }
                Err(_) => break,
            }
        }
        if taken.is_some() {
            return taken;
        }
    }
    None
}

/// What whoever resumes pools must know.
fn warning((_, process): &Copied) -> String {
    let of = process.map(|process| format!(" (process {process}: {})", command_of(process))).unwrap_or_default();
    format!(
        "another server of this machine{of} has the original or a copy of this store open: what its pools run, these run a second \
         time. Stop one of the servers, or pause the pools of one"
    )
}

/// Says once that a process of another user has the name of a pool. Pools are not paused: any local user can take a name.
fn tell_of_other_user(pool: &PoolName, peer: Peer, told: &mut bool) {
    if std::mem::replace(told, true) {
        return;
    }
    let of = peer.process.map(command_of).unwrap_or_default();
    tracing::warn!(
        %pool, process.id = peer.process, process.command = of, process.user = peer.user,
        "a process of another user has the name by which copies of this store are noticed, as a server does that has a copy of it \
         open; no pool is paused for that, so commands may run twice: if it is such a server, stop one of them"
    );
}

/// Pauses all pools because another process has the name of one, and says so. Returns whether all are paused.
async fn pause_beside(matches: &Matches, (pool, process): Copied) -> bool {
    let (paused, left) = pause_until(matches, Some(PAUSE_TRIES)).await;
    let of = process.map(command_of).unwrap_or_default();
    tracing::warn!(
        pool = %pool, process.id = process, process.command = of, pools.paused = paused,
        "this store is a copy of one that another server of this machine has open, or the other way round: all pools of this one are \
         paused, so that no command runs twice; stop the other server, then run `wayleave pools resume --all`"
    );
    if let Some(why) = &left {
        tracing::error!(%why, "not all pools could be paused");
    }
    left.is_none()
}

/// Pauses all pools of a store that was made from another one, and says so. Returns once all are paused, so that nothing carries
/// out before what they order.
pub async fn pause_copied(matches: &Matches) {
    let text = "the store of this database was made in another one: the database was copied, or moved. No command is started, and \
                all pools are paused, so that no command runs twice; once no server uses the original, run `wayleave pools resume --all`";
    tracing::warn!("{text}");
    let (paused, _) = pause_until(matches, None).await;
    tracing::warn!(pools.paused = paused, "all pools of this copied or moved store are paused");
}

/// Pauses every pool, and tries again for those that cannot be paused yet: the shards of nodes that died are taken over when
/// their leases end. Returns how many were not paused, and why some are still not after so many tries.
async fn pause_until(matches: &Matches, tries: Option<u32>) -> (usize, Option<Refusal>) {
    let (mut paused, mut tried) = (0, 0);
    loop {
        let (more, left) = pause_all(matches).await;
        (paused, tried) = (paused + more, tried + 1);
        match left {
            Some(why) if tries.is_none_or(|tries| tried < tries) => {
                tracing::debug!(%why, "a pool of a copied store is not paused yet");
            }
            left => return (paused, left),
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Pauses every pool. Returns how many were not paused, and why some are still not, if so.
async fn pause_all(matches: &Matches) -> (usize, Option<Refusal>) {
    let (mut after, mut paused, mut left) = (None, 0, None);
    loop {
        let (pools, next) = match matches.pools(after, PAGE_MAX).await {
            Ok(page) => page,
            Err(why) => return (paused, Some(why)),
        };
        for pool in pools.into_iter().filter(|pool| !pool.paused) {
            match matches.pause_pool(pool.name.clone(), true).await {
                Ok(_) => paused += 1,
                Err(why) => {
                    tracing::warn!(pool = %pool.name, %why, "a pool of a copied store cannot be paused yet");
                    left = Some(why);
                }
            }
        }
        match next {
            Some(last) => after = Some(last),
            None => return (paused, left),
        }
    }
}

/// What a process was started as.
fn command_of(process: i32) -> String {
    let command = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    redact::reason(&String::from_utf8_lossy(&command).replace('\0', " "), 200)
}
