//! Settings of the fleet: how often machines report and are probed, and when their work moves. Those of the node that owns
//! shard 0 count; give all nodes the same.

use wayleave_core::limits::{
    FLEET_INTERVAL_MS_MIN, FLEET_MS_MAX, MOVES_PER_MINUTE_DEFAULT, PROBATION_BASE, PROBE_INTERVAL,
    REPLACE_AFTER_DEFAULT, REPORT_INTERVAL,
};
use wayleave_core::time::Millis;
use wayleave_core::{fleet, placement};

use crate::exit::Usage;

/// The settings as they are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Given {
    /// Interval at which machines of the fleet report, in milliseconds: three missed reports make one suspect, six a failed
    /// one [default: 5000]
    #[arg(long, env = "WAYLEAVE_REPORT_INTERVAL_MS", value_name = "MS")]
    pub report_interval_ms: Option<u64>,
    /// Interval between two probes of one machine, in milliseconds [default: 5000]
    #[arg(long, env = "WAYLEAVE_PROBE_INTERVAL_MS", value_name = "MS")]
    pub probe_interval_ms: Option<u64>,
    /// How long a machine that has failed must report again before it gets work, in milliseconds; after the n-th failure n
    /// times as long, up to 20 [default: 30000]
    #[arg(long, env = "WAYLEAVE_PROBATION_MS", value_name = "MS")]
    pub probation_ms: Option<u64>,
    /// How long an index server must have failed before its chunks are placed on others, in milliseconds [default: 60000]
    #[arg(long, env = "WAYLEAVE_REPLACE_AFTER_MS", value_name = "MS")]
    pub replace_after_ms: Option<u64>,
    /// Chunks per minute that move to even out the load of index servers; 0 moves none [default: 600]
    #[arg(long, env = "WAYLEAVE_MOVES_PER_MINUTE", value_name = "NUMBER")]
    pub moves_per_minute: Option<u32>,
}

/// The settings in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetTimes {
    /// How machines are judged.
    pub fleet: fleet::Config,
    /// How built chunks are placed.
    pub placement: placement::Config,
}

impl FleetTimes {
    /// Those of the flags and variables, else those of the file, else the defaults.
    pub fn merge(flags: Given, file: Given) -> Result<Self, Usage> {
        let span = |name: &str, given: Option<u64>, usual: Millis, least: u64| {
            let ms = given.unwrap_or(usual.0);
            if (least..=FLEET_MS_MAX).contains(&ms) {
                return Ok(Millis(ms));
            }
            let flag = name.replace('_', "-");
            Err(Usage(format!(
                "--{flag}, or {name} in the file, is {ms} and not between {least} and {FLEET_MS_MAX} milliseconds: set it to one of \
                 those, or leave it out for {usual}",
                usual = usual.0
            )))
        };
        let report = flags.report_interval_ms.or(file.report_interval_ms);
        let probe = flags.probe_interval_ms.or(file.probe_interval_ms);
        let probation = flags.probation_ms.or(file.probation_ms);
        let replace = flags.replace_after_ms.or(file.replace_after_ms);
        let moves = flags.moves_per_minute.or(file.moves_per_minute);
        Ok(Self {
            fleet: fleet::Config {
                report_interval: span("report_interval_ms", report, REPORT_INTERVAL, FLEET_INTERVAL_MS_MIN)?,
                probe_interval: span("probe_interval_ms", probe, PROBE_INTERVAL, FLEET_INTERVAL_MS_MIN)?,
                probation: span("probation_ms", probation, PROBATION_BASE, 0)?,
            },
            placement: placement::Config {
                replace_after: span("replace_after_ms", replace, REPLACE_AFTER_DEFAULT, 0)?,
                moves_per_minute: moves.unwrap_or(MOVES_PER_MINUTE_DEFAULT),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_come_before_the_file_and_the_file_before_the_defaults() {
        let flags = Given { report_interval_ms: Some(1_000), ..Given::default() };
        let file = Given {
            report_interval_ms: Some(2_000),
            replace_after_ms: Some(0),
            moves_per_minute: Some(7),
            ..Given::default()
        };
        let times = FleetTimes::merge(flags, file).unwrap();
        assert_eq!((times.fleet.report_interval, times.fleet.failed_after()), (Millis(1_000), Millis(6_000)));
        assert_eq!(times.fleet.probe_interval, PROBE_INTERVAL);
        assert_eq!((times.placement.replace_after, times.placement.moves_per_minute), (Millis(0), 7));
        let usual = FleetTimes::merge(Given::default(), Given::default()).unwrap();
        assert_eq!((usual.fleet, usual.placement), (fleet::Config::default(), placement::Config::default()));
    }

    #[test]
    fn what_is_out_of_bounds_is_named() {
        let refuse = |given: Given| FleetTimes::merge(Given::default(), given).unwrap_err().to_string();
        let told = refuse(Given { report_interval_ms: Some(499), ..Given::default() });
        let wanted = "--report-interval-ms, or report_interval_ms in the file, is 499 and not between 500 and 86400000";
        assert!(told.contains(wanted) && told.ends_with("or leave it out for 5000"), "{told}");
        let told = refuse(Given { replace_after_ms: Some(86_400_001), ..Given::default() });
        assert!(told.contains("--replace-after-ms, or replace_after_ms in the file, is 86400001"), "{told}");
    }
}
