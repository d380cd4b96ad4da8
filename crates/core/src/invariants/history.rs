//! Laws checked on a history of events.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use super::{Verdict, judge};
use crate::frontier::request::Reservation;
use crate::limits;
use crate::time::{Millis, Time};

/// A half-open interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The start.
    pub start: Time,
    /// The end; if uncertain, the earliest possible time.
    pub end: Time,
}

/// A visit as its holder saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// What may not be visited twice at once: a group, or a host.
    pub place: Arc<str>,
    /// From the grant to the release, else to the deadline; a hand-out in the paced form takes no time.
    pub span: Span,
    /// Concurrent visits allowed for this place.
    pub parallel: usize,
    /// The delay in force when it was granted.
    pub delay: Millis,
    /// The URLs handed out, by crawl.
    pub urls: Vec<(Arc<str>, Box<str>)>,
}

/// Law 1: no visit starts while as many as the place allows are in progress. The error is the visit that was one too
/// many.
pub fn one_visitor(visits: &[Visit]) -> Verdict {
    for (visit, earlier) in with_earlier(visits) {
        let under_way = earlier.iter().filter(|v| v.span.end > visit.span.start).count();
        judge(1, "one visitor", under_way < visit.parallel, || {
            format!("{} visits of '{}' were under way at {}", under_way, visit.place, visit.span.start.0)
        })?;
    }
    Ok(())
}

/// Law 2: between the end of one visit and the start of the next at least the delay has passed. The error is the visit
/// that began too soon.
pub fn politeness(visits: &[Visit]) -> Verdict {
    for (visit, earlier) in with_earlier(visits) {
        let ended = earlier.iter().filter(|v| v.span.end <= visit.span.start).map(|v| v.span.end).max();
        let rested = ended.is_none_or(|end| end.after(visit.delay) <= visit.span.start);
        judge(2, "politeness", rested, || {
            let (place, start, delay) = (&visit.place, visit.span.start.0, visit.delay.0);
            format!("'{place}' was visited at {start}, less than {delay} ms after {ended:?}")
        })?;
    }
    Ok(())
}

/// Each visit with the earlier visits to its place.
fn with_earlier(visits: &[Visit]) -> Vec<(&Visit, Vec<&Visit>)> {
    let mut places: BTreeMap<&str, Vec<&Visit>> = BTreeMap::new();
    for visit in visits {
        places.entry(&visit.place).or_default().push(visit);
    }
    let mut pairs = Vec::with_capacity(visits.len());
    for mut visits in places.into_values() {
        visits.sort_by_key(|v| v.span.start);
        for (i, visit) in visits.iter().enumerate() {
            pairs.push((*visit, visits.iter().take(i).copied().collect()));
        }
    }
    pairs
}

/// Law 3: everything acknowledged is still known. The error is the first thing that is lost.
pub fn nothing_lost<T: Ord + Debug>(acknowledged: &BTreeSet<T>, known: &BTreeSet<T>) -> Verdict {
    let lost = acknowledged.difference(known).next();
    judge(3, "nothing lost", lost.is_none(), || format!("{lost:?} was acknowledged and is not there"))
}

/// Law 4: a URL is in at most one unexpired reservation. The error is the URL that was given to two visitors at once.
pub fn nothing_twice(visits: &[Visit]) -> Verdict {
    let mut spans: BTreeMap<(&str, &str), Vec<Span>> = BTreeMap::new();
    for visit in visits {
        for (crawl, url) in &visit.urls {
            spans.entry((crawl, url)).or_default().push(visit.span);
        }
    }
    for (url, mut spans) in spans {
        spans.sort_by_key(|span| span.start);
        let overlap = spans.windows(2).find(|pair| matches!(pair, [a, b] if a.end > b.start));
        judge(4, "nothing twice", overlap.is_none(), || format!("{url:?} was in two reservations: {overlap:?}"))?;
    }
    Ok(())
}

/// Law 7: everything answered is durable, as a crash shows. The error is the first answer that was not durable.
pub fn durable_before_answered<T: Ord + Debug>(answered: &BTreeSet<T>, durable: &BTreeSet<T>) -> Verdict {
    let early = answered.difference(durable).next();
    judge(7, "durable before answered", early.is_none(), || format!("{early:?} was answered before it was durable"))
}

/// Law 8: a store's time never goes back. The error is the step back.
pub fn clock_never_goes_back(times: &[Time]) -> Verdict {
    let step = times.windows(2).find(|pair| matches!(pair, [a, b] if a > b));
    judge(8, "the engine's clock rules", step.is_none(), || format!("the store's time went back: {step:?}"))
}

/// Law 9: an answer respects the limits and the request. The error is the limit that was passed.
pub fn bounded(granted: &[Reservation], groups: usize, urls: usize, lease: Millis) -> Verdict {
    let most = granted.iter().map(|r| r.urls.len()).max().unwrap_or_default();
    let longest = granted.iter().map(|r| r.expires_at.since(r.granted_at)).max().unwrap_or_default();
    let fits = granted.len() <= groups.min(limits::RESERVE_GROUPS_MAX)
        && most <= urls.min(limits::RESERVE_URLS_MAX)
        && longest <= lease.max(Millis(limits::LEASE_MS_MIN));
    judge(9, "bounded", fits, || format!("{} groups, {most} URLs, {longest:?}", granted.len()))
}
