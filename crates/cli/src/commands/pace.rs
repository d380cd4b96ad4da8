//! The pace settings of hosts and groups, as flags.

use wayleave_api::{Patch, Timestamp};

use crate::values;

/// Settings that can be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Clear {
    /// The delay.
    Delay,
    /// The factor.
    DelayFactor,
    /// The minimum delay of the factor.
    DelayMin,
    /// The maximum delay of the factor.
    DelayMax,
    /// The block, including one requested by the site.
    Blocked,
    /// The Crawl-delay of robots.txt (hosts only).
    CrawlDelay,
    /// The page limit.
    Limit,
}

/// Pace settings.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PaceArgs {
    /// Time between two visits
    #[arg(long, value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    pub delay: Option<u64>,
    /// Delay as a multiple of the last visit's duration
    #[arg(long, value_name = "NUMBER", value_parser = values::factor)]
    pub delay_factor: Option<f64>,
    /// Minimum delay for --delay-factor
    #[arg(long, value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    pub delay_min: Option<u64>,
    /// Maximum delay for --delay-factor
    #[arg(long, value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    pub delay_max: Option<u64>,
    /// No visits until this time, or for this span
    #[arg(long, value_name = "WHEN", value_parser = values::when, allow_hyphen_values = true)]
    pub block: Option<Timestamp>,
    /// Pause visits until --resume
    #[arg(long, conflicts_with = "resume")]
    pub pause: bool,
    /// Resume visits
    #[arg(long)]
    pub resume: bool,
    /// Limit on pages per crawl
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<u64>,
    /// Settings to clear; may be repeated
    #[arg(long, value_enum, value_name = "SETTING", value_delimiter = ',')]
    pub clear: Vec<Clear>,
}

/// The patch that a flag asks for.
pub fn patch<T>(value: Option<T>, clear: bool) -> Patch<T> {
    match value {
        Some(value) => Patch::Set(value),
        None if clear => Patch::Clear,
        None => Patch::Keep,
    }
}

impl PaceArgs {
    /// Whether a setting is to be cleared.
    pub fn clears(&self, setting: Clear) -> bool {
        self.clear.contains(&setting)
    }

    /// The patch of the pause switch.
    pub fn paused(&self) -> Patch<bool> {
        patch(self.pause.then_some(true), self.resume)
    }
}
