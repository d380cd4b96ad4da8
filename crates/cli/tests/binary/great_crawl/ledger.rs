//! What the workers saw: every hold of every page, and every report. A hold is certainly alive from when its worker
//! read the response until its worker reported, or until its lease expired counted from when the worker *asked*; the
//! server's own times are outside this interval. So two holds that overlap here overlapped at the server.

use std::sync::atomic::AtomicU64;

use crate::great_crawl::web::{Web, scatter};
use crate::prelude::*;

/// The server's clock counts whole milliseconds and is slewed towards the wall clock; a hold may be shorter by this.
const CLOCK: Duration = Duration::from_millis(3);
/// Without a report for this long, something is stuck.
const PATIENCE: Duration = Duration::from_secs(90);

/// One hold of a page.
#[derive(Clone, Copy, Debug)]
struct Hold {
    from: Instant,
    until: Instant,
}

#[derive(Clone, Debug, Default)]
struct Page {
    holds: Vec<Hold>,
    /// Reports that were sent, whatever their outcome.
    sent: u32,
    /// Reports that the server accepted.
    taken: u32,
}

/// A hold as its worker knows it.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub page: usize,
    no: usize,
    /// Whether this visit is meant to take longer than the hold.
    pub outlasts: bool,
    /// Until then the hold is certainly alive, unless it was reported.
    pub lives: Instant,
    /// From then on it is certainly over.
    pub over: Instant,
}

pub struct Ledger {
    pub web: Web,
    /// One page in this many outlasts its first hold.
    slow_one_in: u64,
    pages: Mutex<Vec<Page>>,
    begun: Instant,
    /// Milliseconds from the start to the last accepted report.
    last: AtomicU64,
    reported: AtomicUsize,
    pub visits: AtomicUsize,
    /// Reports of visits that were meant to outlast their hold, sent after it.
    pub late: AtomicUsize,
    /// Reports that were refused because the hold was over.
    pub refused: AtomicUsize,
}

impl Ledger {
    pub fn new(web: Web, slow_one_in: u64) -> Self {
        Self {
            web,
            slow_one_in,
            pages: Mutex::new(vec![Page::default(); web.size()]),
            begun: Instant::now(),
            last: AtomicU64::new(0),
            reported: AtomicUsize::new(0),
            visits: AtomicUsize::new(0),
            late: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        }
    }

    /// A URL was handed out: requested at `asked`, just read.
    pub fn handed_out(&self, url: &str, asked: Instant, lease: Duration) -> Held {
        let page = self.web.page(url);
        let from = Instant::now();
        let mut pages = self.pages.lock().unwrap();
        let holds = &mut pages[page].holds;
        let lives = asked + lease - CLOCK;
        holds.push(Hold { from, until: lives });
        let outlasts = holds.len() == 1 && scatter(page as u64, 77).is_multiple_of(self.slow_one_in);
        Held { page, no: holds.len() - 1, outlasts, lives, over: from + lease + 10 * CLOCK }
    }

    /// A report is about to be sent: from now on the server may end the hold.
    pub fn reports(&self, held: &Held) {
        let mut pages = self.pages.lock().unwrap();
        let page = &mut pages[held.page];
        page.sent += 1;
        page.holds[held.no].until = page.holds[held.no].until.min(Instant::now());
    }

    /// The server accepted a report.
    pub fn reported(&self, held: &Held) {
        let mut pages = self.pages.lock().unwrap();
        pages[held.page].taken += 1;
        if pages[held.page].taken == 1 {
            self.reported.fetch_add(1, Ordering::Relaxed);
        }
        self.last.store(self.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Called by idle workers: fails once nothing has been reported for too long.
    pub fn be_patient(&self, why: Option<&str>) {
        let quiet = self.begun.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)));
        assert!(quiet < PATIENCE, "stuck: nothing was reported for {quiet:?}; {why:?}; {:?}", self.missing());
    }

    /// Called by workers that learned that the crawl is finished: nothing may be left.
    pub fn finished(&self) {
        let missing = self.missing();
        assert!(missing.is_empty(), "said to be finished, but not reported yet: {missing:?}");
    }

    /// The first pages without any report, with how often each was handed out.
    fn missing(&self) -> Vec<(String, usize)> {
        let pages = self.pages.lock().unwrap();
        let missing = pages.iter().enumerate().filter(|(_, page)| page.sent == 0);
        missing.take(10).map(|(no, page)| (self.web.url(no), page.holds.len())).collect()
    }

    /// Judges the whole crawl: every page was handed out and reported, and none was in two live holds at once.
    pub fn judge(&self, once: bool) -> Judged {
        let mut pages = self.pages.lock().unwrap();
        let mut judged = Judged::default();
        for (no, page) in pages.iter_mut().enumerate() {
            assert!(!page.holds.is_empty() && page.sent > 0, "{} was never visited", self.web.url(no));
            // A report whose response was lost with its worker may have been accepted.
            assert!(!once || page.taken <= 1, "{} was reported {} times", self.web.url(no), page.taken);
            page.holds.sort_by_key(|hold| hold.from);
            for pair in page.holds.windows(2) {
                assert!(pair[0].until <= pair[1].from, "{} is in two holds at once: {pair:?}", self.web.url(no));
            }
            judged.holds += page.holds.len();
            judged.most_holds = judged.most_holds.max(page.holds.len());
            judged.perhaps += usize::from(page.taken == 0);
        }
        judged
    }
}

/// The figures of a crawl.
#[derive(Clone, Copy, Debug, Default)]
pub struct Judged {
    /// The number of holds.
    pub holds: usize,
    /// The most holds of one page.
    pub most_holds: usize,
    /// Pages whose only reports lost their responses with their workers.
    pub perhaps: usize,
}
