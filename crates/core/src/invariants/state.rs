//! Laws checked on the hot state of a shard, as an [`Audit`] recounts it from scratch.

use super::{Verdict, judge};
use crate::frontier::row::Link;
use crate::frontier::view::{Counts, Standing, State as Is};
use crate::ids::Token;
use crate::limits;
use crate::names::{CrawlName, HostName};
use crate::time::{Millis, Time};

/// A crawl: its maintained counts and the recount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrawlAudit {
    /// Its name.
    pub crawl: CrawlName,
    /// Its URLs, queues, active queues and pages, as maintained.
    pub kept: (Counts, u64, u64, u64),
    /// The same, recounted.
    pub recounted: (Counts, u64, u64, u64),
}

/// A reservation, and whether every index contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseAudit {
    /// Its token.
    pub token: Token,
    /// When it was granted.
    pub granted_at: Time,
    /// When it ends.
    pub expires_at: Time,
    /// Whether its group counts it.
    pub in_group: bool,
    /// Whether the sweep will find it.
    pub in_line: bool,
    /// The chunk that it belongs to, whose deadline is its own.
    pub link: Option<Link>,
}

/// The result of auditing a shard's hot state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// URLs of the shard, as maintained and as recounted.
    pub totals: (Counts, Counts),
    /// Its crawls.
    pub crawls: Vec<CrawlAudit>,
    /// Its reservations.
    pub leases: Vec<LeaseAudit>,
    /// Tokens in groups or the sweep's index without a reservation.
    pub stray_tokens: usize,
    /// Slots scheduled incorrectly, and why.
    pub misplaced: Vec<String>,
    /// The standing of each host.
    pub standings: Vec<(HostName, Standing)>,
}

/// Law 3, for counts: maintained counts equal the recount. The error is the count that drifted.
pub fn counts_agree(audit: &Audit) -> Verdict {
    let (kept, recounted) = audit.totals;
    judge(3, "counts agree", kept == recounted, || format!("totals {kept:?}, recounted {recounted:?}"))?;
    let drifted = audit.crawls.iter().find(|crawl| crawl.kept != crawl.recounted);
    judge(3, "counts agree", drifted.is_none(), || format!("{drifted:?}"))
}

/// Law 5: every reservation has a deadline that the sweep will find, and none outlives it by more than `grace`. The
/// error is the reservation that would never end.
pub fn everything_ends(audit: &Audit, now: Time, grace: Millis) -> Verdict {
    let longest = Millis(limits::LEASE_MS_MAX);
    let endless = audit.leases.iter().find(|lease| {
        let overdue = lease.expires_at.after(grace) < now;
        let idle = lease.link.is_some_and(|link| !link.visiting);
        !lease.in_group || !lease.in_line || (!idle && (lease.expires_at.since(now) > longest || overdue))
    });
    judge(5, "everything ends", endless.is_none(), || format!("at {}: {endless:?}", now.0))?;
    judge(5, "everything ends", audit.stray_tokens == 0, || format!("{} stray tokens", audit.stray_tokens))
}

/// Law 5, for groups: a group with work is ready, or waits for a time; nothing stays out of the schedule. The error
/// names the slots that are missing from the schedule.
pub fn scheduled(audit: &Audit) -> Verdict {
    judge(5, "scheduled", audit.misplaced.is_empty(), || audit.misplaced.join("; "))
}

/// Law 10: a host's state comes with its reason and the time it will change. The error is the host that is not
/// explained.
pub fn explained(audit: &Audit, now: Time) -> Verdict {
    let unclear = audit.standings.iter().find(|(_, standing)| {
        let is_consistent = match (standing.state, standing.ready_at) {
            (Is::Ready, Some(at)) => at <= now,
            (Is::Waiting | Is::Blocked, Some(at)) => at > now,
            (Is::Busy, at) => at.is_some(),
            (Is::Paused | Is::Idle, at) => at.is_none(),
            _ => false,
        };
        !is_consistent || standing.reason.is_empty()
    });
    judge(10, "explained", unclear.is_none(), || format!("at {}: {unclear:?}", now.0))
}
