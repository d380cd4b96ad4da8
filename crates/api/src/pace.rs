//! The pace settings of hosts and groups, converted in one place. Their whole numbers are checked before.

use wayleave_core::settings::{PaceChanges, PaceSettings};
use wayleave_core::time::Millis;

use crate::bad_value::{BadValue, between};
use crate::{Patch, Timestamp};

/// The core stores factors in thousandths.
const MILLI: f64 = 1_000.0;

/// The largest factor.
pub(crate) const FACTOR_MAX: f64 = u32::MAX as f64 / MILLI;

/// Changes as received.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pace {
    pub delay_ms: Patch<u64>,
    pub delay_factor: Patch<f64>,
    pub delay_ms_min: Patch<u64>,
    pub delay_ms_max: Patch<u64>,
    pub blocked_until: Patch<Timestamp>,
    pub paused: Patch<bool>,
    pub limit: Patch<u64>,
    pub parallel: Patch<u32>,
    pub crawl_delay_ms: Patch<u64>,
}

/// The changes in a request of a host or of a group; the two differ only in the last field.
macro_rules! pace_of {
    ($request:expr, $($own:ident: $value:expr),+) => {
        $crate::pace::Pace {
            delay_ms: $request.delay_ms,
            delay_factor: $request.delay_factor,
            delay_ms_min: $request.delay_ms_min,
            delay_ms_max: $request.delay_ms_max,
            blocked_until: $request.blocked_until,
            paused: $request.paused,
            limit: $request.limit,
            $($own: $value),+
        }
    };
}

pub(crate) use pace_of;

impl TryFrom<Pace> for PaceChanges {
    type Error = BadValue;

    fn try_from(pace: Pace) -> Result<Self, BadValue> {
        if let (Some(min), Some(max)) = (pace.delay_ms_min.value(), pace.delay_ms_max.value())
            && min > max
        {
            return Err(BadValue::contradiction(
                "delay_ms_min",
                format!("{min} is more than delay_ms_max, which is {max}"),
            ));
        }
        Ok(Self {
            delay: pace.delay_ms.map(Millis),
            factor_milli: pace.delay_factor.try_into_change(factor_milli)?,
            delay_min: pace.delay_ms_min.map(Millis),
            delay_max: pace.delay_ms_max.map(Millis),
            blocked_until: pace.blocked_until.map(|at| at.0),
            paused: pace.paused.into(),
            limit: pace.limit.into(),
            parallel: pace.parallel.into(),
            crawl_delay: pace.crawl_delay_ms.map(Millis),
        })
    }
}

fn factor_milli(factor: f64) -> Result<u32, BadValue> {
    if !factor.is_finite() {
        return Err(BadValue::new("delay_factor", "is not a number"));
    }
    let factor = between("delay_factor", factor, 0.0, FACTOR_MAX)?;
    Ok((factor * MILLI).round() as u32)
}

/// A factor as it is shown.
pub(crate) fn factor(settings: &PaceSettings) -> Option<f64> {
    settings.factor_milli.map(|milli| f64::from(milli) / MILLI)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::SetGroupRequest as Group;
    use wayleave_core::limits;
    use wayleave_core::settings::Change;

    #[test]
    fn a_factor_is_kept_in_thousandths_and_shown_as_it_was_sent() {
        let changes = PaceChanges::try_from(Pace { delay_factor: Patch::Set(2.5), ..Pace::default() }).unwrap();
        assert_eq!(changes.factor_milli, Change::Set(2_500));
        let mut settings = PaceSettings::default();
        changes.apply(&mut settings);
        assert_eq!(factor(&settings), Some(2.5));
    }

    #[test]
    fn every_bound_is_named_with_its_field() {
        let over = limits::DELAY_MAX.0 + 1;
        for (group, field) in [
            (Group { delay_ms: Patch::Set(over), ..Group::default() }, "delay_ms"),
            (Group { delay_ms_min: Patch::Set(over), ..Group::default() }, "delay_ms_min"),
            (Group { delay_ms_max: Patch::Set(over), ..Group::default() }, "delay_ms_max"),
            (Group { delay_ms_min: Patch::Set(2), delay_ms_max: Patch::Set(1), ..Group::default() }, "delay_ms_min"),
            (Group { delay_factor: Patch::Set(-0.5), ..Group::default() }, "delay_factor"),
            (Group { delay_factor: Patch::Set(f64::NAN), ..Group::default() }, "delay_factor"),
            (Group { parallel: Patch::Set(0), ..Group::default() }, "parallel"),
            (Group { parallel: Patch::Set(limits::PARALLEL_MAX + 1), ..Group::default() }, "parallel"),
        ] {
            assert_eq!(PaceChanges::try_from(&group).expect_err(field).field, field);
        }
    }

    #[test]
    fn null_clears_and_absence_keeps() {
        let changes = PaceChanges::try_from(Pace { paused: Patch::Clear, ..Pace::default() }).unwrap();
        assert_eq!(changes, PaceChanges { paused: Change::Clear, ..PaceChanges::default() });
    }
}
