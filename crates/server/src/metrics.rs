//! The server's metrics and their Prometheus text. Totals of the frontier are queried when they are scraped.

pub mod chunks;
pub mod damage;
pub mod nodes;
pub mod pools;
pub mod roles;
pub(crate) mod text;
pub mod waits;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hyper::{Method, StatusCode};
use prometheus::core::Collector;
use prometheus::{HistogramOpts, HistogramVec};
use wayleave_api::urls::AddCounts;
use wayleave_core::frontier::view::Stats;

use text::Page;

/// Upper bounds of the buckets of latencies, in seconds.
const BOUNDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Appends metrics of another API to the page.
type Annex = Box<dyn Fn(&mut String) + Send + Sync>;

/// Counters of one process; cheap to increment from any task.
#[derive(Default)]
pub struct Metrics {
    /// Open connections.
    pub connections: Arc<AtomicI64>,
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
    requests: Requests,
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

/// Latencies by method, route and status. Routes are templates, so their number is bounded.
struct Requests(HistogramVec);

impl Default for Requests {
    #[expect(clippy::expect_used, reason = "the names are constants; wrong ones would fail in every test")]
    fn default() -> Self {
        let help = "Time from request to response header.";
        let options = HistogramOpts::new("wayleave_http_request_duration_seconds", help).buckets(BOUNDS.to_vec());
        Self(HistogramVec::new(options, &["method", "route", "status"]).expect("the names are valid"))
    }
}

impl Metrics {
    /// Counts an answered request.
    pub fn on_request(&self, method: &Method, route: &str, status: StatusCode, took: Duration) {
        // It fails if the number of labels is wrong.
        if let Ok(latency) =
            self.requests.0.get_metric_with_label_values(&[known_method(method), route, status.as_str()])
        {
            latency.observe(took.as_secs_f64());
        }
    }

    /// Registers the metrics of another API on the same page.
    pub fn annex(&self, write: impl Fn(&mut String) + Send + Sync + 'static) {
        self.annexes.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(write));
    }

    /// All metrics as Prometheus text; with `stats` if the frontier provided them.
    #[must_use]
    pub fn render(&self, stats: Option<&Stats>, ready: bool) -> String {
        let mut page = Page::default();
        self.render_server(&mut page, ready);
        page.extend(self.requests.0.collect());
        if let Some(stats) = stats {
            render_stats(&mut page, stats);
        }
        let mut out = String::new();
        page.write(&mut out);
        for annex in self.annexes.read().unwrap_or_else(PoisonError::into_inner).iter() {
            annex(&mut out);
        }
        out
    }

    fn render_server(&self, out: &mut Page, ready: bool) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        out.gauge("wayleave_ready", "Whether the frontier is ready.", u64::from(ready));
        let open = u64::try_from(self.connections.load(Ordering::Relaxed)).unwrap_or(0);
        out.gauge("wayleave_connections", "Open connections.", open);
        let urls = [
            ("added", count(&self.urls.added)),
            ("known", count(&self.urls.known)),
            ("requeued", count(&self.urls.requeued)),
            ("rejected", count(&self.urls.rejected)),
            ("failed", count(&self.urls.failed)),
        ];
        out.counters("wayleave_http_urls_total", "URLs received over HTTP, by result.", "result", &urls);
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
}

/// The methods of the API; all others share one label, so that clients cannot invent labels.
fn known_method(method: &Method) -> &'static str {
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
        .into_iter()
        .find(|known| *known == method.as_str())
        .unwrap_or("OTHER")
}

fn render_stats(out: &mut Page, stats: &Stats) {
    let urls = [
        ("queued", stats.urls.queued),
        ("reserved", stats.urls.reserved),
        ("fetched", stats.urls.fetched),
        ("gone", stats.urls.gone),
        ("failed", stats.urls.failed),
    ];
    out.gauges("wayleave_urls", "URLs by state.", "state", &urls);
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
        for ms in [1, 3, 400, 60_000] {
            metrics.on_request(&Method::GET, "/v1/hosts/{host}", StatusCode::NOT_FOUND, Duration::from_millis(ms));
        }
        metrics.urls.add(&AddCounts { added: 2, known: 1, ..AddCounts::default() });
        metrics.annex(|out| out.push_str("other_door_total 7\n"));
        let stats = Stats { hosts: 5, ..Stats::default() };
        let page = metrics.render(Some(&stats), true);
        for want in [
            "_count{method=\"GET\",route=\"/v1/hosts/{host}\",status=\"404\"} 4\n",
            "_sum{method=\"GET\",route=\"/v1/hosts/{host}\",status=\"404\"} 60.404\n",
            "_bucket{method=\"GET\",route=\"/v1/hosts/{host}\",status=\"404\",le=\"0.001\"} 1\n",
            "_bucket{method=\"GET\",route=\"/v1/hosts/{host}\",status=\"404\",le=\"0.005\"} 2\n",
            "_bucket{method=\"GET\",route=\"/v1/hosts/{host}\",status=\"404\",le=\"30\"} 3\n",
            "_bucket{method=\"GET\",route=\"/v1/hosts/{host}\",status=\"404\",le=\"+Inf\"} 4\n",
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
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            metrics.on_request(&method, "-", StatusCode::NOT_FOUND, Duration::ZERO);
        }
        assert!(metrics.render(None, true).contains("_count{method=\"OTHER\",route=\"-\",status=\"404\"} 2\n"));
    }
}
