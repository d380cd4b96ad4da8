//! The settings that hosts and groups share, as flags.

use wayleave_api::{Patch, Timestamp};

use crate::values;

/// Settings that can be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Clear {
    /// The delay.
    Delay,
    /// The factor.
    DelayFactor,
    /// The least delay of the factor.
    DelayMin,
    /// The largest delay of the factor.
    DelayMax,
    /// The block, also the one that the site asked for.
    Blocked,
    /// The Crawl-delay of robots.txt (hosts only).
    CrawlDelay,
    /// The limit of pages.
    Limit,
}

/// How something is to be visited.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PaceArgs {
    /// Time between two visits
    #[arg(long, value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    pub delay: Option<u64>,
    /// Delay as a multiple of the last visit's duration
    #[arg(long, value_name = "NUMBER", value_parser = values::factor)]
    pub delay_factor: Option<f64>,
    /// Least delay that the factor gives
    #[arg(long, value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    pub delay_min: Option<u64>,
    /// Largest delay that the factor gives
    #[arg(long, value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    pub delay_max: Option<u64>,
    /// No visits until this time, or for this span
    #[arg(long, value_name = "WHEN", value_parser = values::when, allow_hyphen_values = true)]
    pub block: Option<Timestamp>,
    /// No visits until it is resumed
    #[arg(long, conflicts_with = "resume")]
    pub pause: bool,
    /// Visits again after a pause
    #[arg(long)]
    pub resume: bool,
    /// Pages of each crawl after which no more are handed out
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<u64>,
    /// Settings to take back; may be repeated
    #[arg(long, value_enum, value_name = "SETTING", value_delimiter = ',')]
    pub clear: Vec<Clear>,
}

/// The change that a flag asks for.
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

    /// The change of the pause switch.
    pub fn paused(&self) -> Patch<bool> {
        patch(self.pause.then_some(true), self.resume)
    }
}
