//! Checks the answers that the clients got against the laws. Lost responses are "perhaps".
//!
//! Reservations are judged by the store's times, which are in their responses. Hand-outs of the paced form and roles
//! are judged by this machine's clock: a decision falls between the sending of the request and the arrival of the
//! response.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicUsize};
use std::time::{SystemTime, UNIX_EPOCH};

use wayleave_core::invariants;
use wayleave_core::invariants::{Tenure, Visit};

use crate::prelude::*;

/// A URL by crawl and text.
pub type Id = (String, String);

/// How long servers may give no answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What happened, counted.
#[derive(Debug, Default)]
pub struct Counts {
    pub acknowledged: AtomicUsize,
    pub visits: AtomicUsize,
    pub finished: AtomicUsize,
    pub handed_out: AtomicUsize,
    pub stale_tokens_refused: AtomicUsize,
    pub heartbeats: AtomicUsize,
    pub guarded_writes: AtomicUsize,
    pub stale_writes_refused: AtomicUsize,
    pub calls_failed: AtomicUsize,
    pub moves: AtomicUsize,
    pub moves_unavailable: AtomicUsize,
    /// Of those, the ones after which the group was checked.
    pub moves_looked_at: AtomicUsize,
    pub puts_unavailable: AtomicUsize,
    pub reservations_unavailable: AtomicUsize,
}

/// Adds to a count.
pub fn count(counter: &AtomicUsize, more: usize) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// URLs of a queue handed out in the paced form.
struct HandOut {
    queue: String,
    urls: Vec<String>,
    asked: Instant,
    came: Instant,
}

#[derive(Default)]
struct Records {
    added: BTreeSet<Id>,
    /// The required state of each URL, and when that was acknowledged.
    finished: BTreeMap<Id, (UrlState, Instant)>,
    visits: Vec<Visit>,
    hand_outs: Vec<HandOut>,
    /// When results were sent for URLs of the paced form: they end holds, acknowledged or not.
    ended: BTreeMap<String, Vec<Instant>>,
    tenures: BTreeMap<(String, u64, String), Span>,
    /// Where hosts that move must be: in an alias, or alone. Absent while a move is in flight or its outcome unknown.
    places: BTreeMap<String, Option<String>>,
    /// URLs whose put was answered "unavailable", with the response.
    refused: BTreeMap<Id, String>,
    /// Holders whose reservation was answered "unavailable", with the response.
    refused_holders: BTreeMap<String, String>,
    /// Responses "unavailable" after which something had changed.
    untrue: BTreeSet<String>,
    /// Violations.
    broken: Vec<String>,
    /// What happened to each host, by the wall clock: printed when a law is broken there.
    stories: BTreeMap<String, Vec<(SystemTime, String)>>,
}

/// URLs that were acknowledged, and the states that results have given them.
pub struct Acknowledged {
    pub added: BTreeSet<Id>,
    pub finished: BTreeMap<Id, UrlState>,
}

impl Acknowledged {
    /// Everything is there.
    pub fn judge(&self, known: &BTreeMap<Id, UrlState>) {
        invariants::nothing_lost(&self.added, &known.keys().cloned().collect()).unwrap();
        for (id, state) in &self.finished {
            assert_eq!(known.get(id), Some(state), "the acknowledged result of {id:?} is in force");
        }
    }
}

/// Shared by all clients.
pub struct History {
    pub counts: Counts,
    records: Mutex<Records>,
    start: Instant,
    phase: AtomicU8,
    /// How long clients rest between two calls.
    pub rest_ms: u64,
}

impl History {
    pub fn new(rest_ms: u64) -> Self {
        let (counts, records) = (Counts::default(), Mutex::default());
        Self { counts, records, start: Instant::now(), phase: AtomicU8::new(0), rest_ms }
    }

    /// Waits for this many more answers to clients.
    pub async fn answers(&self, more: usize) {
        let Counts { acknowledged, visits, finished, handed_out, heartbeats, .. } = &self.counts;
        let counters = [acknowledged, visits, finished, handed_out, heartbeats];
        let answers = || counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum::<usize>();
        let (start, before) = (Instant::now(), answers());
        while answers() < before + more {
            self.check();
            assert!(start.elapsed() < PATIENCE, "the clients' work must go on");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Nothing new is put any more; the rest is being finished.
    pub fn is_draining(&self) -> bool {
        self.phase.load(Ordering::Relaxed) >= 1
    }

    pub fn is_over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) >= 2
    }

    /// From putting to draining, from draining to the end.
    pub fn next_phase(&self) {
        self.phase.fetch_add(1, Ordering::Relaxed);
    }

    pub fn added(&self, ids: impl IntoIterator<Item = Id>) {
        let mut records = self.records.lock().unwrap();
        for id in ids {
            if records.added.insert(id) {
                count(&self.counts.acknowledged, 1);
            }
        }
    }

    /// A put of a URL that no other client puts was answered "unavailable".
    pub fn refused(&self, id: Id, answer: String) {
        count(&self.counts.puts_unavailable, 1);
        self.records.lock().unwrap().refused.insert(id, answer);
    }

    /// A reservation under a unique name was answered "unavailable".
    pub fn refused_holder(&self, holder: String, answer: String) {
        count(&self.counts.reservations_unavailable, 1);
        self.records.lock().unwrap().refused_holders.insert(holder, answer);
    }

    /// The answer, if it was "unavailable".
    pub fn was_refused(&self, holder: &str) -> Option<String> {
        self.records.lock().unwrap().refused_holders.get(holder).cloned()
    }

    /// A host that moves is in an alias or alone; `None` if that is currently unknown.
    pub fn placed(&self, host: &str, place: Option<Option<String>>) {
        let places = &mut self.records.lock().unwrap().places;
        match place {
            Some(place) => _ = places.insert(host.to_owned(), place),
            None => _ = places.remove(host),
        }
    }

    /// Where hosts that move must be: the name of an alias, or their own.
    pub fn places(&self) -> BTreeMap<String, String> {
        let records = self.records.lock().unwrap();
        let place = |(host, alias): (&String, &Option<String>)| (host.clone(), alias.as_ref().unwrap_or(host).clone());
        records.places.iter().map(place).collect()
    }

    /// A result was acknowledged.
    pub fn finished(&self, ids: impl IntoIterator<Item = Id>, state: impl Fn(&str) -> UrlState) {
        let mut records = self.records.lock().unwrap();
        for id in ids {
            let state = state(&id.1);
            count(&self.counts.finished, 1);
            records.finished.entry(id).or_insert_with(|| (state, Instant::now()));
        }
    }

    /// URLs were handed out to a client that asked at `asked`: none of them may have been acknowledged as finished
    /// before.
    pub fn served(&self, urls: &[Id], asked: Instant) {
        let mut records = self.records.lock().unwrap();
        for url in urls {
            if let Some((_, at)) = records.finished.get(url).filter(|(_, at)| *at < asked) {
                let (at, asked, now) = (self.time(*at), self.time(asked), self.time(Instant::now()));
                let before = records.hand_outs.iter().filter(|hand_out| hand_out.urls.contains(&url.1));
                let before: Vec<_> = before.map(|h| (self.time(h.asked), self.time(h.came))).collect();
                let wrong = format!(
                    "{url:?} was finished at {at:?} and is handed out again at {now:?}, asked for at {asked:?}; before: {before:?}"
                );
                records.broken.push(wrong);
            }
        }
    }

    /// A response "unavailable" was not true. Judged at the end, so that the other laws are judged as well.
    pub fn untrue(&self, what: String) {
        self.records.lock().unwrap().untrue.insert(what);
    }

    /// Every answer "unavailable" was true.
    pub fn judge_words(&self) {
        let untrue = &self.records.lock().unwrap().untrue;
        let counters =
            [&self.counts.puts_unavailable, &self.counts.reservations_unavailable, &self.counts.moves_looked_at];
        let all: usize = counters.map(|counter| counter.load(Ordering::Relaxed)).iter().sum();
        assert!(untrue.is_empty(), "{} of {all} answers 'unavailable' were not true: {untrue:#?}", untrue.len());
    }

    /// Notes what happened to a host.
    pub fn note(&self, host: &str, what: String) {
        self.records.lock().unwrap().stories.entry(host.to_owned()).or_default().push((SystemTime::now(), what));
    }

    /// A client observed a violation.
    pub fn broken(&self, what: String) {
        self.records.lock().unwrap().broken.push(what);
    }

    /// Fails the test if a client observed a violation.
    pub fn check(&self) {
        let broken = std::mem::take(&mut self.records.lock().unwrap().broken);
        assert!(broken.is_empty(), "{broken:#?}");
    }

    /// A visit was granted; returns its number.
    pub fn granted(&self, place: &str, span: Span, delay_ms: u64, urls: &[Id]) -> usize {
        let urls = urls.iter().map(|(crawl, url)| (crawl.as_str().into(), url.as_str().into())).collect();
        let visit = Visit { place: place.into(), span, parallel: 1, delay: Millis(delay_ms), urls };
        count(&self.counts.visits, 1);
        let visits = &mut self.records.lock().unwrap().visits;
        visits.push(visit);
        visits.len() - 1
    }

    /// When a visit may be over at the earliest.
    pub fn ends(&self, visit: usize, end: Time) {
        self.records.lock().unwrap().visits[visit].span.end = end;
    }

    /// URLs of one queue were given in the paced form.
    pub fn handed_out(&self, queue: &str, urls: Vec<String>, asked: Instant) {
        count(&self.counts.handed_out, urls.len());
        let hand_out = HandOut { queue: queue.to_owned(), urls, asked, came: Instant::now() };
        self.records.lock().unwrap().hand_outs.push(hand_out);
    }

    /// Results of URLs of the paced form are about to be sent: from now on their holds may be over.
    pub fn ending(&self, urls: &[String]) {
        let (mut records, now) = (self.records.lock().unwrap(), Instant::now());
        for url in urls {
            records.ended.entry(url.clone()).or_default().push(now);
        }
    }

    /// A candidate believes itself primary from now until a time; a repeated call extends its term.
    pub fn primary(&self, role: &str, epoch: u64, holder: &str, until: Instant) {
        let (now, end) = (self.time(Instant::now()), self.time(until));
        let key = (role.to_owned(), epoch, holder.to_owned());
        let mut records = self.records.lock().unwrap();
        let span = records.tenures.entry(key).or_insert(Span { start: now, end });
        span.end = span.end.max(end);
    }

    /// A candidate is about to release: from now on it does not believe itself primary.
    pub fn lets_go(&self, role: &str, epoch: u64, holder: &str) {
        let now = self.time(Instant::now());
        let key = (role.to_owned(), epoch, holder.to_owned());
        if let Some(span) = self.records.lock().unwrap().tenures.get_mut(&key) {
            span.end = now;
        }
    }

    /// Terms that candidates knew of.
    pub fn terms(&self) -> usize {
        self.records.lock().unwrap().tenures.len()
    }

    /// What was acknowledged so far.
    pub fn acknowledged(&self) -> Acknowledged {
        let records = self.records.lock().unwrap();
        let finished = records.finished.iter().map(|(id, (state, _))| (id.clone(), *state)).collect();
        Acknowledged { added: records.added.clone(), finished }
    }

    fn time(&self, at: Instant) -> Time {
        // Finer than milliseconds, as a term may begin in the one in which the last one ended.
        Time(u64::try_from(at.saturating_duration_since(self.start).as_micros()).unwrap())
    }

    /// Checks everything against the laws. `known` are the URLs at the end; `pace` is the delay of the paced queues and
    /// their hold time.
    pub fn judge(&self, known: &BTreeMap<Id, UrlState>, pace: (u64, u64)) {
        self.check();
        self.acknowledged().judge(known);
        let mut records = self.records.lock().unwrap();
        let kept = records.refused.iter().filter(|(id, _)| known.contains_key(*id));
        let kept: Vec<String> = kept.map(|(id, why)| format!("{id:?} is stored; the answer was '{why}'")).collect();
        records.untrue.extend(kept);
        records.judge_visits();
        paced(&records, pace);
        let tenure = |((role, epoch, holder), span): (&(String, u64, String), &Span)| Tenure {
            role: role.as_str().into(),
            epoch: Epoch(*epoch),
            holder: holder.as_str().into(),
            span: *span,
        };
        invariants::one_primary(&records.tenures.iter().map(tenure).collect::<Vec<_>>()).unwrap();
    }
}

impl Records {
    /// The laws about visits, one place after the other, so that a violation can be shown with what led to it.
    fn judge_visits(&self) {
        let mut places: BTreeMap<&str, Vec<Visit>> = BTreeMap::new();
        for visit in &self.visits {
            places.entry(&visit.place).or_default().push(visit.clone());
        }
        for (place, visits) in places {
            let verdict = invariants::one_visitor(&visits).and_then(|()| invariants::politeness(&visits));
            assert!(verdict.is_ok(), "{verdict:?}\n{visits:#?}\n{}", self.story(place));
        }
        invariants::nothing_twice(&self.visits).unwrap();
    }

    fn story(&self, host: &str) -> String {
        let at = |at: &SystemTime| at.duration_since(UNIX_EPOCH).unwrap().as_millis();
        let lines = self.stories.get(host).into_iter().flatten().map(|(when, what)| format!("{} {what}\n", at(when)));
        lines.collect()
    }
}

/// Two hand-outs of a queue are its delay apart, and a URL is not handed out again during its hold. The first was
/// decided after its request and the second before its response, so the time between these two is an upper bound.
fn paced(records: &Records, (delay_ms, hold_ms): (u64, u64)) {
    let mut queues: BTreeMap<&str, Vec<&HandOut>> = BTreeMap::new();
    for hand_out in &records.hand_outs {
        queues.entry(&hand_out.queue).or_default().push(hand_out);
    }
    for (queue, mut hand_outs) in queues {
        hand_outs.sort_by_key(|hand_out| hand_out.asked);
        for (i, first) in hand_outs.iter().enumerate() {
            for second in &hand_outs[i + 1..] {
                // Concurrent requests may have been decided in either order.
                let apart =
                    second.came.saturating_duration_since(first.asked).max(first.came - second.asked.min(first.came));
                let apart = u64::try_from(apart.as_millis()).unwrap() + 2;
                assert!(apart >= delay_ms, "queue {queue} was handed out twice within {apart} ms");
                if apart >= hold_ms {
                    continue;
                }
                for url in second.urls.iter().filter(|url| first.urls.contains(url)) {
                    let ended = records.ended.get(url).into_iter().flatten().any(|at| *at < second.came);
                    assert!(ended, "{url} was handed out again after {apart} ms, while it was on hold");
                }
            }
        }
    }
}
