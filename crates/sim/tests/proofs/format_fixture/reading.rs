//! A store as a reader of any version sees it.

use std::fmt::Write as _;
use std::sync::Arc;

use wayleave_core::frontier::view::{HostFilter, UrlFilter, UrlState};
use wayleave_core::metadata::Metadata;
use wayleave_engine::Engine;
use wayleave_shard::{Config, Frontier};

/// Opens a store and prints everything in it, except the state of hosts, which depends on the time.
pub async fn read(engine: Arc<dyn Engine>) -> String {
    let runtime = tokio::runtime::Handle::current();
    let frontier = Frontier::open(engine, Config::new(crate::format_fixture::SHARDS), &runtime).await.unwrap();
    let mut text = String::new();
    let mut hosts = frontier.hosts(&HostFilter::default(), None, 1_000).await.unwrap().items;
    hosts.sort_by(|a, b| a.host.cmp(&b.host));
    for host in hosts {
        let (end, queued) = (host.last_visit_at, host.queued_at);
        writeln!(text, "host {} group {} delay {:?}", host.host, host.group, host.delay).unwrap();
        writeln!(text, "  last visit {end:?} queued {queued:?}\n  {:?}\n  {:?}", host.counts, host.settings).unwrap();
        for queue in host.queues {
            writeln!(text, "  queue {} next {:?} limit {:?}", queue.crawl, queue.next_due, queue.limit).unwrap();
        }
    }
    for group in frontier.groups(&HostFilter::default(), None, 1_000).await.unwrap().items {
        if group.aliased {
            let (hosts, end) = (group.hosts, group.last_visit_at);
            writeln!(text, "alias {} {hosts:?} last visit {end:?}\n  {:?}", group.group, group.settings).unwrap();
        }
    }
    let mut urls = frontier.urls(&UrlFilter::default(), None, 1_000).await.unwrap().items;
    urls.sort_by(|a, b| (&a.crawl, &a.url).cmp(&(&b.crawl, &b.url)));
    for url in urls {
        let shown = if url.url.len() > 100 { format!("{} bytes", url.url.len()) } else { url.url.to_string() };
        let (due, held, last) = (url.due_at, url.held_until, url.last);
        writeln!(text, "url {} {shown} {} due {due:?} held {held:?}", url.crawl, url.state.as_str()).unwrap();
        // The first formats do not keep these for a finished URL; the reading has the defaults instead.
        let is_done = matches!(url.state, UrlState::Fetched | UrlState::Gone | UrlState::Failed);
        let (priority, depth) = if is_done { (5, 0) } else { (url.priority, url.depth) };
        let (attempts, metadata) = (url.attempts, if is_done { Metadata::default() } else { url.metadata });
        writeln!(text, "  priority {priority} depth {depth} attempts {attempts} last {last:?} {metadata:?}").unwrap();
    }
    for lease in frontier.reservations(None, 1_000).await.unwrap().items {
        let (holder, from, until) = (lease.holder, lease.granted_at.0, lease.expires_at.0);
        writeln!(text, "reservation {} of {} by {holder} {from}-{until}", lease.host, lease.group).unwrap();
    }
    for crawl in frontier.crawls().await.unwrap() {
        writeln!(text, "crawl {} {:?}\n  {:?}", crawl.crawl, crawl.counts, crawl.settings).unwrap();
    }
    let stats = frontier.stats().await.unwrap();
    writeln!(
        text,
        "{} hosts, {} queues, {} reservations, {} holds",
        stats.hosts, stats.queues, stats.reservations, stats.holds
    )
    .unwrap();
    writeln!(text, "active {}", frontier.is_active().await.unwrap()).unwrap();
    frontier.stop().await;
    text
}
