//! A page of metrics in Prometheus text format, made of values that are read when the page is scraped.
//!
//! The format is written by the `prometheus` crate. `prometheus-client` writes OpenMetrics only, which has other family
//! names for counters, and knows no summaries, which the dashboard of URLFrontier reads.

use prometheus::TextEncoder;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType, Summary};

/// Appends gauges to a page: name, help, value.
pub(crate) fn gauges(values: Vec<(&'static str, &'static str, u64)>, out: &mut String) {
    let mut page = Page::default();
    values.into_iter().for_each(|(name, help, value)| page.gauge(name, help, value));
    page.write(out);
}

/// A page of metrics under construction.
#[derive(Default)]
pub(crate) struct Page(Vec<MetricFamily>);

impl Page {
    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, help, MetricType::GAUGE, vec![gauge(value)]);
    }

    pub(crate) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, help, MetricType::COUNTER, vec![counter(value)]);
    }

    /// Gauges that differ in one label.
    pub(crate) fn gauges(&mut self, name: &str, help: &str, label: &str, values: &[(&str, u64)]) {
        let one = |(text, value): &(&str, u64)| labelled(gauge(*value), label, text);
        self.family(name, help, MetricType::GAUGE, values.iter().map(one).collect());
    }

    /// Counters that differ in one label.
    pub(crate) fn counters(&mut self, name: &str, help: &str, label: &str, values: &[(&str, u64)]) {
        let one = |(text, value): &(&str, u64)| labelled(counter(*value), label, text);
        self.family(name, help, MetricType::COUNTER, values.iter().map(one).collect());
    }

    /// A summary without quantiles.
    pub(crate) fn summary(&mut self, name: &str, help: &str, count: u64, sum: f64) {
        let (mut metric, mut summary) = (Metric::default(), Summary::default());
        summary.set_sample_count(count);
        summary.set_sample_sum(sum);
        metric.set_summary(summary);
        self.family(name, help, MetricType::SUMMARY, vec![metric]);
    }

    /// Families that a collector gathered.
    pub(crate) fn extend(&mut self, families: Vec<MetricFamily>) {
        self.0.extend(families);
    }

    fn family(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }

    /// Appends the page to a text.
    pub(crate) fn write(mut self, out: &mut String) {
        self.0.retain(|family| !family.get_metric().is_empty());
        // It fails for families without a name or without metrics, and there are none.
        if let Err(error) = TextEncoder::new().encode_utf8(&self.0, out) {
            tracing::error!(%error, "the page of metrics is incomplete, which is a bug");
        }
    }
}

fn gauge(value: u64) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value as f64);
    Metric::from_gauge(gauge)
}

fn counter(value: u64) -> Metric {
    let (mut metric, mut counter) = (Metric::default(), Counter::default());
    counter.set_value(value as f64);
    metric.set_counter(counter);
    metric
}

fn labelled(mut metric: Metric, name: &str, text: &str) -> Metric {
    let mut label = LabelPair::default();
    label.set_name(name.to_owned());
    label.set_value(text.to_owned());
    metric.set_label(vec![label]);
    metric
}
