//! Who asked for what, and when; and how politely.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::ACCESS_LOG_MAX;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The host's address.
    pub host: String,
    /// Path and query.
    pub path: String,
    /// When it came.
    pub start: Instant,
    /// When its answer was ready to send, or the client had gone.
    pub end: Instant,
    /// The status; none if the client left first.
    pub status: Option<u16>,
}

/// The requests to a site, in the order of their ends.
#[derive(Debug, Default)]
pub struct AccessLog(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    kept: Vec<Access>,
    lost: usize,
}

/// How a host was treated. A request of robots.txt is no visit: it belongs to the one that follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Politeness {
    /// Visits.
    pub visits: usize,
    /// The shortest time from the end of one visit to the start of the next; none below two visits.
    pub smallest_gap: Option<Duration>,
    /// Visits that began while another one was in progress.
    pub overlaps: usize,
}

impl AccessLog {
    pub(super) fn push(&self, access: Access) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.kept.len() < ACCESS_LOG_MAX { entries.kept.push(access) } else { entries.lost += 1 }
    }

    /// A copy of all requests.
    #[must_use]
    pub fn entries(&self) -> Vec<Access> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).kept.clone()
    }

    /// How many requests came after the log was full.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).lost
    }

    /// How each host was treated.
    #[must_use]
    pub fn politeness(&self) -> BTreeMap<String, Politeness> {
        politeness(self.entries())
    }
}

fn politeness(mut entries: Vec<Access>) -> BTreeMap<String, Politeness> {
    entries.retain(|access| access.path != "/robots.txt");
    entries.sort_by_key(|access| access.start);
    let mut hosts: BTreeMap<String, (Politeness, Option<Instant>)> = BTreeMap::new();
    for access in entries {
        let (host, busy_until) = hosts.entry(access.host).or_default();
        host.visits += 1;
        if let Some(end) = *busy_until {
            host.overlaps += usize::from(access.start < end);
            let gap = access.start.saturating_duration_since(end);
            host.smallest_gap = Some(host.smallest_gap.map_or(gap, |smallest| smallest.min(gap)));
        }
        // A long visit may outlast later ones.
        *busy_until = (*busy_until).max(Some(access.end));
    }
    hosts.into_iter().map(|(name, (host, _))| (name, host)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts, paths and times in milliseconds, in any order.
    fn of(accesses: &[(&str, &str, u64, u64)]) -> BTreeMap<String, Politeness> {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let entries = accesses.iter().map(|&(host, path, start, end)| Access {
            host: host.to_owned(),
            path: path.to_owned(),
            start: at(start),
            end: at(end),
            status: Some(200),
        });
        politeness(entries.collect())
    }

    fn polite(visits: usize, gap_ms: Option<u64>, overlaps: usize) -> Politeness {
        Politeness { visits, smallest_gap: gap_ms.map(Duration::from_millis), overlaps }
    }

    #[test]
    fn the_smallest_gap_runs_from_end_to_start() {
        let hosts = of(&[("a", "/2", 600, 700), ("a", "/1", 0, 100), ("a", "/3", 1000, 1001), ("b", "/", 5, 6)]);
        assert_eq!(hosts["a"], polite(3, Some(300), 0));
        assert_eq!(hosts["b"], polite(1, None, 0));
    }

    #[test]
    fn overlaps_are_seen_also_behind_a_long_visit() {
        let hosts =
            of(&[("a", "/slow", 0, 1000), ("a", "/1", 100, 200), ("a", "/2", 500, 600), ("a", "/3", 1000, 1100)]);
        assert_eq!(hosts["a"], polite(4, Some(0), 2));
    }

    #[test]
    fn robots_txt_is_part_of_the_next_visit() {
        let hosts = of(&[("a", "/1", 0, 10), ("a", "/robots.txt", 500, 505), ("a", "/2", 506, 510)]);
        assert_eq!(hosts["a"], polite(2, Some(496), 0));
    }
}
