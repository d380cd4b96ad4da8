//! The pace settings of hosts and groups, converted in one place. Their whole numbers are checked before.

use wayleave_core::settings::PaceSettings;

use crate::Patch;
use crate::bad_value::{BadValue, between};

/// The core stores factors in thousandths.
const MILLI: f64 = 1_000.0;

/// The largest factor.
pub(crate) const FACTOR_MAX: f64 = u32::MAX as f64 / MILLI;

/// The changes in a request of a host or of a group; the two differ only in the last setting.
macro_rules! pace_changes {
    ($request:ident, $own:ident: $field:ident as $change:expr) => {
        impl TryFrom<&$request> for ::wayleave_core::settings::PaceChanges {
            type Error = $crate::BadValue;

            fn try_from(request: &$request) -> Result<Self, Self::Error> {
                let span = ::wayleave_core::time::Millis;
                $crate::pace::check_order(request.delay_ms_min, request.delay_ms_max)?;
                let changes = Self {
                    delay: request.delay_ms.map(span),
                    factor_milli: request.delay_factor.try_into_change($crate::pace::factor_milli)?,
                    delay_min: request.delay_ms_min.map(span),
                    delay_max: request.delay_ms_max.map(span),
                    blocked_until: request.blocked_until.map(|at| at.0),
                    paused: request.paused.into(),
                    limit: request.limit.into(),
                    $own: request.$field.map($change),
                    ..Self::default()
                };
                $crate::bounds::Bounded::check_bounds(request)?;
                Ok(changes)
            }
        }
    };
}
pub(crate) use pace_changes;

pub(crate) fn check_order(min: Patch<u64>, max: Patch<u64>) -> Result<(), BadValue> {
    match (min.value(), max.value()) {
        (Some(min), Some(max)) if min > max => {
            let reason = format!("{min} is more than delay_ms_max, which is {max}");
            Err(BadValue::contradiction("delay_ms_min", reason))
        }
        _ => Ok(()),
    }
}

pub(crate) fn factor_milli(factor: f64) -> Result<u32, BadValue> {
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
    use wayleave_core::settings::{Change, PaceChanges};

    #[test]
    fn a_factor_is_kept_in_thousandths_and_shown_as_it_was_sent() {
        let changes = PaceChanges::try_from(&Group { delay_factor: Patch::Set(2.5), ..Group::default() }).unwrap();
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
        let changes = PaceChanges::try_from(&Group { paused: Patch::Clear, ..Group::default() }).unwrap();
        assert_eq!(changes, PaceChanges { paused: Change::Clear, ..PaceChanges::default() });
    }
}
