//! The metrics of damage: rows of the store that cannot be read.

use wayleave_shard::DamageReport;

use super::text::Page;

/// Appends what is known to be damaged in the shards of this process.
pub fn render(report: &DamageReport, text: &mut String) {
    let mut out = Page::default();
    for (name, help, value) in [
        ("wayleave_damaged_hosts", "Hosts of which rows cannot be read.", report.hosts),
        ("wayleave_stranded_urls", "Handed-out URLs that cannot be returned: unreadable.", report.stranded_urls),
        (
            "wayleave_damaged_shards",
            "Shards that are closed: rows that they need cannot be read.",
            report.shards_closed,
        ),
        (
            "wayleave_unfiltered_shards",
            "Shards without a filter of known URLs, for want of memory or because of damage: puts read the store.",
            report.shards_unfiltered,
        ),
    ] {
        out.gauge(name, help, value);
    }
    out.write(text);
}
