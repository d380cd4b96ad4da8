//! The result: one line per scenario, as a table for people or as JSON for scripts.

use std::fmt::Write;

use anyhow::Result;
use serde_json::{Value, json};

use crate::latency::Latency;
use crate::put::Done;
use crate::target::Side;

/// The measurements of one server in one scenario.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    urls: u64,
    failed: u64,
    secs: f64,
    latency: Latency,
    cpu_secs: Option<f64>,
    rss_mib: Option<f64>,
    /// Why it dropped out, if it did.
    pub error: Option<String>,
}

impl Measured {
    /// Adds a round.
    pub(crate) fn add(&mut self, done: &Done, cpu_secs: Option<f64>, rss_mib: Option<f64>) {
        self.urls += done.urls;
        self.failed += done.failed;
        self.secs += done.took.as_secs_f64();
        self.latency.merge(&done.latency);
        if let Some(secs) = cpu_secs {
            *self.cpu_secs.get_or_insert(0.0) += secs;
        }
        self.rss_mib = rss_mib;
    }

    /// URLs (or reservations) per second.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (self.secs > 0.0 && self.error.is_none()).then(|| self.urls as f64 / self.secs)
    }

    /// A latency percentile of the calls, in milliseconds.
    #[must_use]
    pub fn percentile_ms(&self, percent: usize) -> Option<f64> {
        self.latency.percentile_ms(percent)
    }

    /// CPU seconds of the server's process per million URLs.
    fn cpu_per_million(&self) -> Option<f64> {
        let secs = self.cpu_secs.filter(|_| self.urls > 0)?;
        Some(secs * 1e6 / self.urls as f64)
    }

    fn json(&self) -> Value {
        json!({
            "per_second": self.rate(),
            "urls": self.urls,
            "failed": self.failed,
            "p50_ms": self.percentile_ms(50),
            "p99_ms": self.percentile_ms(99),
            "cpu_s_per_million": self.cpu_per_million(),
            "rss_mib": self.rss_mib,
            "error": self.error,
        })
    }
}

/// One scenario of the result.
#[derive(Clone, Debug)]
pub struct Line {
    /// The scenario.
    pub scenario: &'static str,
    /// The measured server.
    pub main: Option<Measured>,
    /// The second one.
    pub beside: Option<Measured>,
    /// The null server.
    pub null: Option<Measured>,
}

impl Line {
    pub(crate) const fn new(scenario: &'static str) -> Self {
        Self { scenario, main: None, beside: None, null: None }
    }

    pub(crate) fn set(&mut self, side: Side, measured: Measured) {
        let place = match side {
            Side::Main => &mut self.main,
            Side::Beside => &mut self.beside,
            Side::Null => &mut self.null,
        };
        *place = Some(measured);
    }

    /// The measured server's rate relative to another's.
    #[must_use]
    pub fn ratio(&self, to: Option<&Measured>) -> Option<f64> {
        let own = self.main.as_ref()?.rate()?;
        to?.rate().filter(|rate| *rate > 0.0).map(|rate| own / rate)
    }
}

/// JSON: one object per scenario.
pub(crate) fn json(lines: &[Line]) -> Result<String> {
    let line = |line: &Line| {
        json!({
            "scenario": line.scenario,
            "main": line.main.as_ref().map(Measured::json),
            "beside": line.beside.as_ref().map(Measured::json),
            "null": line.null.as_ref().map(Measured::json),
            "ratio_to_null": line.ratio(line.null.as_ref()),
            "ratio_to_beside": line.ratio(line.beside.as_ref()),
        })
    };
    Ok(serde_json::to_string_pretty(&lines.iter().map(line).collect::<Vec<_>>())?)
}

const HEAD: [&str; 12] = [
    "scenario",
    "main/s",
    "beside/s",
    "null/s",
    "main/null",
    "main/beside",
    "p50 ms",
    "p99 ms",
    "beside p50",
    "beside p99",
    "cpu s/M",
    "rss MiB",
];

fn cells(line: &Line) -> [String; 12] {
    let show = |value: Option<f64>, digits: usize| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"));
    let rate = |side: &Option<Measured>| show(side.as_ref().and_then(Measured::rate), 0);
    let percentile = |side: &Option<Measured>, percent| show(side.as_ref().and_then(|m| m.percentile_ms(percent)), 2);
    let main = line.main.as_ref();
    [
        line.scenario.to_owned(),
        rate(&line.main),
        rate(&line.beside),
        rate(&line.null),
        show(line.ratio(line.null.as_ref()), 2),
        show(line.ratio(line.beside.as_ref()), 2),
        percentile(&line.main, 50),
        percentile(&line.main, 99),
        percentile(&line.beside, 50),
        percentile(&line.beside, 99),
        show(main.and_then(Measured::cpu_per_million), 2),
        show(main.and_then(|m| m.rss_mib), 0),
    ]
}

/// A table, followed by errors.
pub(crate) fn table(lines: &[Line]) -> String {
    let rows: Vec<[String; 12]> = std::iter::once(HEAD.map(str::to_owned)).chain(lines.iter().map(cells)).collect();
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(String::len).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in &rows {
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to memory cannot fail.
            let _ = if at == 0 { write!(out, "{cell:<width$}") } else { write!(out, "  {cell:>width$}") };
        }
        out.push('\n');
    }
    for line in lines {
        for (name, side) in [("main", &line.main), ("beside", &line.beside), ("null", &line.null)] {
            let Some(side) = side else { continue };
            if let Some(error) = &side.error {
                let _ = writeln!(out, "{} on {name}: {error}", line.scenario);
            } else if side.failed > 0 {
                let _ = writeln!(out, "{} on {name}: {} URLs could not be stored", line.scenario, side.failed);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn measured(urls: u64, secs: u64) -> Measured {
        let mut measured = Measured::default();
        let mut done = Done { urls, took: Duration::from_secs(secs), ..Default::default() };
        done.latency.add(Duration::from_millis(3));
        measured.add(&done, Some(2.0), Some(100.0));
        measured
    }

    fn line() -> Line {
        let mut line = Line::new("put-1");
        line.set(Side::Main, measured(1_000, 2));
        line.set(Side::Null, measured(4_000, 2));
        line
    }

    #[test]
    fn rates_and_ratios_are_printed() {
        assert_eq!(line().ratio(line().null.as_ref()), Some(0.25));
        let text = table(&[line()]);
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["put-1", "500", "-", "2000", "0.25", "-", "3.00", "3.00", "-", "-", "2000.00", "100"]);
    }

    #[test]
    fn a_server_that_dropped_out_has_no_rate_but_a_reason() {
        let mut line = line();
        line.set(Side::Beside, Measured { error: Some("no answer".into()), ..measured(5, 1) });
        assert_eq!(line.ratio(line.beside.as_ref()), None);
        assert!(table(&[line.clone()]).contains("put-1 on beside: no answer"));
        let value: Value = serde_json::from_str(&json(&[line]).unwrap()).unwrap();
        assert_eq!(value[0]["beside"]["error"], "no answer");
        assert_eq!(value[0]["ratio_to_null"], 0.25);
    }
}
