//! What the clients were told, checked against the laws. Lost responses are "perhaps".

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wayleave_core::ids::Epoch;
use wayleave_core::invariants::{self, Span, Tenure, Visit};
use wayleave_core::time::{Millis, Time};

/// A URL by crawl and text.
pub type Id = (String, String);

/// What happened, counted.
#[derive(Debug)]
#[expect(dead_code, reason = "printed in the summary")]
pub struct Counts {
    pub acknowledged: usize,
    pub visits: usize,
    pub finished: usize,
    pub handed_out: usize,
    pub terms: usize,
}

#[derive(Default)]
struct Told {
    added: BTreeSet<Id>,
    finished: BTreeSet<Id>,
    visits: Vec<Visit>,
    handed_out: usize,
    /// Terms by role, epoch and holder, by this machine's clock.
    tenures: BTreeMap<(String, u64, String), Span>,
}

/// How long the server may run without any response.
const PATIENCE: Duration = Duration::from_secs(60);

/// Shared by all clients.
pub struct History {
    start: Instant,
    told: Mutex<Told>,
    /// How many answers came.
    answers: tokio::sync::watch::Sender<u64>,
    over: AtomicBool,
}

impl History {
    pub fn new() -> Self {
        let (told, answers, over) = (Mutex::default(), tokio::sync::watch::Sender::default(), AtomicBool::new(false));
        Self { start: Instant::now(), told, answers, over }
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Waits until this many more responses have arrived.
    pub async fn answers(&self, more: u64) {
        let mut answers = self.answers.subscribe();
        let goal = *answers.borrow() + more;
        let came = tokio::time::timeout(PATIENCE, answers.wait_for(|count| *count >= goal)).await;
        _ = came.expect("the clients' work must go on").unwrap();
    }

    fn answered(&self) {
        self.answers.send_modify(|count| *count += 1);
    }

    pub fn added(&self, ids: impl IntoIterator<Item = Id>) {
        self.told.lock().unwrap().added.extend(ids);
        self.answered();
    }

    pub fn finished(&self, ids: impl IntoIterator<Item = Id>) {
        self.told.lock().unwrap().finished.extend(ids);
        self.answered();
    }

    /// URLs were handed out: none of them may have been acknowledged as finished before.
    pub fn served(&self, urls: &[Id]) {
        self.answered();
        let mut told = self.told.lock().unwrap();
        told.handed_out += urls.len();
        for url in urls {
            assert!(!told.finished.contains(url), "{url:?} was finished and is handed out again");
        }
    }

    /// A visit was granted; returns its number.
    pub fn granted(&self, place: &str, span: Span, delay_ms: u64, urls: &[Id]) -> usize {
        let urls = urls.iter().map(|(crawl, url)| (crawl.as_str().into(), url.as_str().into())).collect();
        let visit = Visit { place: place.into(), span, parallel: 1, delay: Millis(delay_ms), urls };
        let visits = &mut self.told.lock().unwrap().visits;
        visits.push(visit);
        visits.len() - 1
    }

    /// When a visit may be over at the earliest.
    pub fn ends(&self, visit: usize, end: Time) {
        self.told.lock().unwrap().visits[visit].span.end = end;
    }

    /// A candidate is primary, as far as it knows, from now until a time.
    pub fn primary(&self, role: &str, epoch: u64, holder: &str, until: Instant) {
        self.answered();
        let (now, end) = (self.time(Instant::now()), self.time(until));
        let mut told = self.told.lock().unwrap();
        let span = told.tenures.entry((role.into(), epoch, holder.into())).or_insert(Span { start: now, end });
        span.end = span.end.max(end);
    }

    /// A candidate is about to release its term: from now on another may be primary.
    pub fn lets_go(&self, role: &str, epoch: u64, holder: &str) {
        let now = self.time(Instant::now());
        let key = (role.to_owned(), epoch, holder.to_owned());
        if let Some(span) = self.told.lock().unwrap().tenures.get_mut(&key) {
            span.end = now;
        }
    }

    fn time(&self, at: Instant) -> Time {
        // In microseconds: a term may begin in the millisecond in which the last one ended.
        Time(u64::try_from(at.saturating_duration_since(self.start).as_micros()).unwrap())
    }

    /// Checks everything against the laws. `known` are the URLs at the end, each with whether it is finished.
    pub fn judge(&self, known: &BTreeMap<Id, bool>) -> Counts {
        let told = self.told.lock().unwrap();
        let names: BTreeSet<Id> = known.keys().cloned().collect();
        let done: BTreeSet<Id> = known.iter().filter(|(_, done)| **done).map(|(id, _)| id.clone()).collect();
        invariants::nothing_lost(&told.added, &names).unwrap();
        invariants::nothing_lost(&told.finished, &done).unwrap();
        invariants::one_visitor(&told.visits).unwrap();
        invariants::politeness(&told.visits).unwrap();
        invariants::nothing_twice(&told.visits).unwrap();
        let tenure = |((role, epoch, holder), span): (&(String, u64, String), &Span)| Tenure {
            role: role.as_str().into(),
            epoch: Epoch(*epoch),
            holder: holder.as_str().into(),
            span: *span,
        };
        invariants::one_primary(&told.tenures.iter().map(tenure).collect::<Vec<_>>()).unwrap();
        Counts {
            acknowledged: told.added.len(),
            visits: told.visits.len(),
            finished: told.finished.len(),
            handed_out: told.handed_out,
            terms: told.tenures.len(),
        }
    }
}
