//! Revisit policies on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wayleave_core::limits;
use wayleave_core::settings;
use wayleave_core::time::Millis;

use crate::BadValue;
use crate::bounds::{Bound, Fields, whole};
use crate::object::Object;

/// When a fetched URL is revisited, unless the worker says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", from = "Read")]
pub enum Revisit {
    /// Never.
    #[default]
    Never,
    /// After a fixed time.
    FixedMs(u64),
    /// Sooner if it has changed, later if not, between two bounds.
    Adaptive {
        /// Shortest time.
        min_ms: u64,
        /// Longest time.
        max_ms: u64,
    },
}

/// The form that is parsed: the bounds are an object, never a list.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Read {
    Never,
    FixedMs(u64),
    Adaptive(Object<Bounds>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bounds {
    min_ms: u64,
    max_ms: u64,
}

const SPAN: Bound = whole(1, limits::DELAY_MAX.0);
pub(crate) const FIXED: Fields = Fields { of: "Read", schema: "Revisit/oneOf/1", bounds: &[("fixed_ms", SPAN)] };
pub(crate) const ADAPTIVE: Fields = Fields {
    of: "Bounds",
    schema: "Revisit/oneOf/2/properties/adaptive",
    bounds: &[("min_ms", SPAN), ("max_ms", SPAN)],
};

impl From<Read> for Revisit {
    fn from(read: Read) -> Self {
        match read {
            Read::Never => Self::Never,
            Read::FixedMs(ms) => Self::FixedMs(ms),
            Read::Adaptive(Object(Bounds { min_ms, max_ms })) => Self::Adaptive { min_ms, max_ms },
        }
    }
}

impl From<settings::Revisit> for Revisit {
    fn from(revisit: settings::Revisit) -> Self {
        match revisit {
            settings::Revisit::Never => Self::Never,
            settings::Revisit::Fixed(ms) => Self::FixedMs(ms.0),
            settings::Revisit::Adaptive { min, max } => Self::Adaptive { min_ms: min.0, max_ms: max.0 },
        }
    }
}

impl TryFrom<Revisit> for settings::Revisit {
    type Error = BadValue;

    fn try_from(revisit: Revisit) -> Result<Self, BadValue> {
        let span = |field, ms| SPAN.check(field, ms).map(Millis);
        Ok(match revisit {
            Revisit::Never => Self::Never,
            Revisit::FixedMs(ms) => Self::Fixed(span("revisit.fixed_ms", ms)?),
            Revisit::Adaptive { min_ms, max_ms } => {
                let (min, max) = (span("revisit.adaptive.min_ms", min_ms)?, span("revisit.adaptive.max_ms", max_ms)?);
                if min > max {
                    let reason = format!("{min_ms} is more than max_ms, which is {max_ms}");
                    return Err(BadValue::contradiction("revisit.adaptive.min_ms", reason));
                }
                Self::Adaptive { min, max }
            }
        })
    }
}
