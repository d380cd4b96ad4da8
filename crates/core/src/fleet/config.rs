//! Settings of the judge. Unset ones are derived from the set ones: three missed reports make a machine suspect, six
//! a failed one, so a longer interval between reports is never mistaken for silence.

use super::row::MachineRow;
use crate::limits;
use crate::time::{Millis, Time};

/// Settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Interval at which machines report. Every answer to a report names it.
    pub report_interval: Millis,
    /// Interval between two probes of one machine.
    pub probe_interval: Millis,
    /// Probation after the first failure; after the n-th one it is n times as long.
    pub probation: Millis,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            report_interval: limits::REPORT_INTERVAL,
            probe_interval: limits::PROBE_INTERVAL,
            probation: limits::PROBATION_BASE,
        }
    }
}

const fn times(span: Millis, number: u64) -> Millis {
    Millis(span.0.saturating_mul(number))
}

impl Config {
    /// A machine that was silent for this long is suspect.
    #[must_use]
    pub const fn suspect_after(&self) -> Millis {
        times(self.report_interval, limits::REPORTS_MISSED_SUSPECT)
    }

    /// A machine that was silent for this long has failed.
    #[must_use]
    pub const fn failed_after(&self) -> Millis {
        times(self.report_interval, limits::REPORTS_MISSED_FAILED)
    }

    /// An owner that was not called for this long may have missed reports.
    #[must_use]
    pub const fn stalled_after(&self) -> Millis {
        times(self.report_interval, limits::REPORTS_MISSED_DEAF)
    }

    /// How long a machine with this many failures must prove itself.
    #[must_use]
    pub fn hold_down(&self, failures: u32) -> Millis {
        times(self.probation, u64::from(failures.clamp(1, limits::PROBATIONS_MAX)))
    }

    /// When its probation is over, if it keeps reporting.
    pub(super) fn probation_ends(&self, row: &MachineRow) -> Time {
        row.judged_at.after(self.hold_down(row.failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_that_the_limits_name() {
        let config = Config::default();
        let spans = [config.suspect_after(), config.failed_after(), config.stalled_after()];
        assert_eq!(spans, [limits::SUSPECT_AFTER, limits::FAILED_AFTER, limits::DEAF_AFTER]);
        assert_eq!([0, 1, 3].map(|failures| config.hold_down(failures).0), [30_000, 30_000, 90_000]);
        assert_eq!(config.hold_down(u32::MAX), limits::PROBATION_MAX);
    }
}
