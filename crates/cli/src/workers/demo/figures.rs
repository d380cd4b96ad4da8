//! What a demonstration has shown, for people and for scripts.

use std::time::Duration;

use serde::Serialize;
use wayleave_workers::demo_site::Politeness;
use wayleave_workers::search::SearchResults;

use crate::output::{self, Table, span};
use crate::workers::search::print;

/// The figures; times are milliseconds since the start.
#[derive(Default, Serialize)]
pub struct Figures {
    pub pages: usize,
    pub first_hit_ms: u64,
    pub crawled_ms: u64,
    pub served_ms: u64,
    pub chunks: usize,
    pub hits: usize,
    pub hosts: Vec<Host>,
}

/// How a host was treated, by its own access log.
#[derive(Serialize)]
pub struct Host {
    host: String,
    visits: u64,
    smallest_gap_ms: Option<u64>,
    overlaps: u64,
}

impl Host {
    pub fn new(host: &str, seen: &Politeness) -> Self {
        let smallest_gap_ms = seen.smallest_gap.map(ms);
        Self { host: host.to_owned(), visits: seen.visits as u64, smallest_gap_ms, overlaps: seen.overlaps as u64 }
    }
}

impl Figures {
    /// Prints them: as one JSON object, or the hits and a table.
    pub fn print(&self, json: bool, word: &str, found: &SearchResults, delay: Duration) -> anyhow::Result<()> {
        if json {
            return output::json(self);
        }
        eprintln!("\n$ wayleave search {word}");
        print(false, found)?;
        let asked = span(ms(delay));
        eprintln!("\nWhat the hosts have seen, by their own access logs; their robots.txt asks for {asked}:\n");
        let mut table = Table::new(["host", "visits", "smallest gap", "overlaps"]);
        for Host { host, visits, smallest_gap_ms, overlaps } in &self.hosts {
            let gap = smallest_gap_ms.map_or_else(|| "-".to_owned(), span);
            table.row([host.clone(), visits.to_string(), gap, overlaps.to_string()]);
        }
        table.print()
    }
}

/// A span in milliseconds.
pub fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
