//! File descriptors: raises the limit as far as the system allows, and divides it so that connections never take those
//! that the store needs.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For the process itself: the log, the lock, the listener, the journal files, and what libraries open.
const OWN: u64 = 64;
/// Per runtime: its epoll instance and its waker.
const RUNTIME: u64 = 4;
/// For compactions, which open their tables anew.
const MERGES: u64 = 200;
/// Table files that are kept open if there is room.
const TABLES: u64 = 900;
const TABLES_MIN: u64 = 32;
const CONNECTIONS_MIN: u64 = 16;

static BEFORE: OnceLock<u64> = OnceLock::new();

/// How file descriptors are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Table files that the store may keep open.
    pub tables: usize,
    /// The maximum number of connections.
    pub connections: usize,
}

/// The soft limit before it was raised, which workers of pools get: some allocate a table of that length, or cannot use
/// high descriptors.
pub fn before() -> u64 {
    *BEFORE.get_or_init(|| getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// Raises the soft limit to the hard limit; returns the limit in force.
pub fn raise() -> u64 {
    before();
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let hard = maximum.unwrap_or(u64::MAX);
    let soft = current.unwrap_or(u64::MAX);
    if soft >= hard {
        return soft;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => {
            tracing::info!(files.limit_before = soft, files.limit = hard, "raised the file descriptor limit");
            hard
        }
        Err(error) => {
            tracing::warn!(files.limit = soft, %error, "cannot raise the file descriptor limit");
            soft
        }
    }
}

/// Divides a limit between the store and at most `connections_max` connections, in a process with this many runtimes.
/// If there are few, the store comes first: without it connections are useless.
pub fn share(limit: u64, runtimes: usize, connections_max: usize) -> Shares {
    let fixed = OWN + MERGES + RUNTIME * runtimes as u64;
    let rest = limit.saturating_sub(fixed);
    let tables = (rest / 2).clamp(TABLES_MIN, TABLES);
    let connections = rest.saturating_sub(tables).max(CONNECTIONS_MIN);
    let connections = usize::try_from(connections).unwrap_or(usize::MAX).min(connections_max);
    if connections < connections_max {
        tracing::warn!(
            files.limit = limit,
            connections.max = connections,
            "few file descriptors: connections are limited; raise the hard limit (ulimit -Hn, LimitNOFILE)"
        );
    }
    Shares { tables: usize::try_from(tables).unwrap_or(usize::MAX), connections }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_get_what_the_store_leaves() {
        assert_eq!(share(1 << 20, 5, 10_000), Shares { tables: 900, connections: 10_000 });
        assert_eq!(share(u64::MAX, 5, 10_000), Shares { tables: 900, connections: 10_000 });
        let few = share(1_024, 5, 10_000);
        assert_eq!(few, Shares { tables: 370, connections: 370 });
        assert!((OWN + MERGES + 5 * RUNTIME) as usize + few.tables + few.connections <= 1_024);
        assert_eq!(share(256, 5, 10_000), Shares { tables: 32, connections: 16 }, "hopeless, but it starts");
    }

    #[test]
    fn the_limit_is_raised_as_far_as_it_goes() {
        let limit = raise();
        let now = getrlimit(Resource::Nofile);
        assert_eq!(now.current.unwrap_or(u64::MAX), limit);
        assert_eq!(now.current, now.maximum);
    }
}
