//! `stats`: totals.

use crate::output::{self, Table};
use crate::remote::Remote;

/// Prints the totals.
pub async fn run(remote: &Remote) -> anyhow::Result<()> {
    let stats = remote.client.stats().await?;
    if remote.json {
        return output::json(&stats);
    }
    let mut table = Table::new(["what", "number"]);
    let urls = &stats.urls;
    for (name, number) in [
        ("URLs queued", urls.queued),
        ("URLs reserved", urls.reserved),
        ("URLs fetched", urls.fetched),
        ("URLs gone", urls.gone),
        ("URLs failed", urls.failed),
        ("hosts", stats.hosts),
        ("aliases", stats.aliases),
        ("crawls", stats.crawls),
        ("queues (host and crawl)", stats.queues),
        ("ready now (group and crawl)", stats.ready),
        ("waiting for a time", stats.waiting),
        ("reservations", stats.reservations),
        ("holds (URLFrontier)", stats.holds),
    ] {
        table.row([name.to_owned(), number.to_string()]);
    }
    table.print()
}
