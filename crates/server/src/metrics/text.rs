//! The Prometheus text format.

use std::fmt::{Display, Write};

use super::Histogram;

/// A page of metrics under construction.
#[derive(Default)]
pub(super) struct Page(String);

impl Page {
    pub(super) fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing into a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(super) fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            self.0.push(if i == 0 { '{' } else { ',' });
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{label}=\"{text}\"");
        }
        self.0.push_str(if labels.is_empty() { "" } else { "}" });
        let _ = writeln!(self.0, " {value}");
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "gauge");
        self.line(name, &[], value);
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "counter");
        self.line(name, &[], value);
    }

    pub(super) fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        let mut with_bound = labels.to_vec();
        for (bound, below) in histogram.cumulative() {
            let bound = bound.to_string();
            let mut labels = with_bound.clone();
            labels.push(("le", &bound));
            self.line(&bucket, &labels, below);
        }
        with_bound.push(("le", "+Inf"));
        self.line(&bucket, &with_bound, histogram.count());
        self.line(&format!("{name}_sum"), labels, histogram.sum_secs());
        self.line(&format!("{name}_count"), labels, histogram.count());
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}
