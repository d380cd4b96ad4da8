//! The server's metrics and their Prometheus text. Totals of the frontier are queried when they are scraped.

pub mod histogram;
pub mod roles;
mod text;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use wayleave_api::urls::AddCounts;
use wayleave_core::frontier::view::Stats;

pub use histogram::Histogram;

/// Appends metrics of another API to the page.
type Annex = Box<dyn Fn(&mut String) + Send + Sync>;

/// Counters of one process; cheap to increment from any task.
#[derive(Default)]
pub struct Metrics {
    /// Open connections.
    pub connections: AtomicI64,
    /// URLs received over HTTP, by result.
    pub urls: UrlCounters,
    /// Reservations granted over HTTP.
    pub reservations_granted: AtomicU64,
    /// URLs handed out with them.
    pub urls_reserved: AtomicU64,
    /// Reservations released over HTTP.
    pub reservations_released: AtomicU64,
    /// Renewals and releases with an expired token.
    pub reservations_stale: AtomicU64,
    requests: RwLock<BTreeMap<Requests, Arc<Histogram>>>,
    annexes: RwLock<Vec<Annex>>,
}

/// URLs by result.
#[derive(Default)]
pub struct UrlCounters {
    added: AtomicU64,
    known: AtomicU64,
    requeued: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
}

impl UrlCounters {
    /// Adds the counts of one request or one chunk of a stream.
    pub fn add(&self, counts: &AddCounts) {
        self.added.fetch_add(counts.added, Ordering::Relaxed);
        self.known.fetch_add(counts.known, Ordering::Relaxed);
        self.requeued.fetch_add(counts.requeued, Ordering::Relaxed);
        self.rejected.fetch_add(counts.rejected, Ordering::Relaxed);
        self.failed.fetch_add(counts.failed, Ordering::Relaxed);
    }
}

/// The labels of a request. Routes are templates, so their number is bounded.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Requests {
    method: &'static str,
    route: String,
    status: u16,
}

impl Metrics {
    /// Counts an answered request.
    pub fn on_request(&self, method: &hyper::Method, route: &str, status: u16, took: Duration) {
        let line = Requests { method: known_method(method), route: route.to_owned(), status };
        let known = self.requests.read().unwrap_or_else(PoisonError::into_inner).get(&line).cloned();
        let histogram = known.unwrap_or_else(|| {
            self.requests.write().unwrap_or_else(PoisonError::into_inner).entry(line).or_default().clone()
        });
        histogram.observe(took);
    }

    /// Registers the metrics of another API on the same page.
    pub fn annex(&self, write: impl Fn(&mut String) + Send + Sync + 'static) {
        self.annexes.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(write));
    }

    /// All metrics as Prometheus text; with `stats` if the frontier provided them.
    #[must_use]
    pub fn render(&self, stats: Option<&Stats>, ready: bool) -> String {
        let mut out = text::Page::default();
        self.render_server(&mut out, ready);
        self.render_requests(&mut out);
        if let Some(stats) = stats {
            render_stats(&mut out, stats);
        }
        let mut out = out.into_text();
        for annex in self.annexes.read().unwrap_or_else(PoisonError::into_inner).iter() {
            annex(&mut out);
        }
        out
    }

    fn render_server(&self, out: &mut text::Page, ready: bool) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        out.gauge("wayleave_ready", "Whether the frontier is ready.", u64::from(ready));
        let open = u64::try_from(self.connections.load(Ordering::Relaxed)).unwrap_or(0);
        out.gauge("wayleave_connections", "Open connections.", open);
        out.head("wayleave_http_urls_total", "URLs received over HTTP, by result.", "counter");
        for (result, counter) in [
            ("added", &self.urls.added),
            ("known", &self.urls.known),
            ("requeued", &self.urls.requeued),
            ("rejected", &self.urls.rejected),
            ("failed", &self.urls.failed),
        ] {
            out.line("wayleave_http_urls_total", &[("result", result)], count(counter));
        }
        for (name, help, counter) in [
            ("wayleave_reservations_granted_total", "Reservations granted over HTTP.", &self.reservations_granted),
            ("wayleave_urls_reserved_total", "URLs handed out with reservations.", &self.urls_reserved),
            ("wayleave_reservations_released_total", "Reservations released over HTTP.", &self.reservations_released),
            (
                "wayleave_reservations_stale_total",
                "Renewals and releases with an expired token.",
                &self.reservations_stale,
            ),
        ] {
            out.counter(name, help, count(counter));
        }
    }

    fn render_requests(&self, out: &mut text::Page) {
        const NAME: &str = "wayleave_http_request_duration_seconds";
        out.head(NAME, "Time from request to response header.", "histogram");
        for (line, histogram) in self.requests.read().unwrap_or_else(PoisonError::into_inner).iter() {
            let status = line.status.to_string();
            let labels = [("method", line.method), ("route", line.route.as_str()), ("status", status.as_str())];
            out.histogram(NAME, &labels, histogram);
        }
    }
}

/// The methods of the API; all others share one label, so that clients cannot invent labels.
fn known_method(method: &hyper::Method) -> &'static str {
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
        .into_iter()
        .find(|known| *known == method.as_str())
        .unwrap_or("OTHER")
}

fn render_stats(out: &mut text::Page, stats: &Stats) {
    out.head("wayleave_urls", "URLs by state.", "gauge");
    for (state, count) in [
        ("queued", stats.urls.queued),
        ("reserved", stats.urls.reserved),
        ("fetched", stats.urls.fetched),
        ("gone", stats.urls.gone),
        ("failed", stats.urls.failed),
    ] {
        out.line("wayleave_urls", &[("state", state)], count);
    }
    for (name, help, value) in [
        ("wayleave_hosts", "Known hosts.", stats.hosts),
        ("wayleave_aliases", "Groups of several hosts.", stats.aliases),
        ("wayleave_crawls", "Crawls.", stats.crawls),
        ("wayleave_queues", "Queues: one for each host and crawl.", stats.queues),
        ("wayleave_reservations", "Current reservations.", stats.reservations),
        ("wayleave_holds", "URLs on hold in the paced form.", stats.holds),
        ("wayleave_groups_ready", "Pairs of group and crawl that may be visited now.", stats.ready),
        ("wayleave_groups_waiting", "Pairs of group and crawl that wait for a time.", stats.waiting),
    ] {
        out.gauge(name, help, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_totals_are_on_the_page() {
        let metrics = Metrics::default();
        metrics.on_request(&hyper::Method::GET, "/v1/hosts/{host}", 404, Duration::from_millis(3));
        metrics.on_request(&hyper::Method::GET, "/v1/hosts/{host}", 404, Duration::from_millis(3));
        metrics.urls.add(&AddCounts { added: 2, known: 1, ..AddCounts::default() });
        metrics.annex(|out| out.push_str("other_door_total 7\n"));
        let stats = Stats { hosts: 5, ..Stats::default() };
        let page = metrics.render(Some(&stats), true);
        for want in [
            "wayleave_http_request_duration_seconds_count{method=\"GET\",route=\"/v1/hosts/{host}\",status=\"404\"} 2\n",
            "wayleave_http_urls_total{result=\"added\"} 2\n",
            "wayleave_hosts 5\n",
            "wayleave_ready 1\n",
            "other_door_total 7\n",
        ] {
            assert!(page.contains(want), "{want} is not in\n{page}");
        }
    }

    #[test]
    fn without_totals_the_page_still_comes() {
        let page = Metrics::default().render(None, false);
        assert!(page.contains("wayleave_ready 0\n") && !page.contains("wayleave_hosts"), "{page}");
    }

    #[test]
    fn invented_methods_share_one_line() {
        let metrics = Metrics::default();
        for method in ["BREW", "STEEP"] {
            let method = hyper::Method::from_bytes(method.as_bytes()).unwrap();
            metrics.on_request(&method, "-", 404, Duration::ZERO);
        }
        assert!(metrics.render(None, true).contains("_count{method=\"OTHER\",route=\"-\",status=\"404\"} 2\n"));
    }
}
