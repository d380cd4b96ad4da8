//! Integers whose errors state their bounds, also for a fraction, a negative number, or one that overflows. Integers
//! out of bounds are refused later, by the same bounds, unless they are parsed by `within`. `5.0` is the integer 5, as
//! in JSON Schema.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, Visitor};
use wayleave_core::limits;

use crate::Patch;

/// Parses an integer of a body; null is none.
pub(crate) fn whole<'de, D, T, const LEAST: u64, const MOST: u64>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Wanted,
{
    deserializer.deserialize_any(Number::<T, LEAST, MOST>::default())
}

/// Parses an integer of a body that refuses the whole body at once if it is out of bounds.
pub(crate) fn within<'de, D, T, const LEAST: u64, const MOST: u64>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Wanted,
{
    deserializer.deserialize_any(Number::<T, LEAST, MOST> { bounded: true, ..Number::default() })
}

/// Parses an integer of a query, where everything is text.
pub(crate) fn whole_text<'de, D, T, const LEAST: u64, const MOST: u64>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Wanted,
{
    deserializer.deserialize_any(Number::<T, LEAST, MOST> { text: true, ..Number::default() })
}

/// An integer, or an optional one.
pub(crate) trait Wanted {
    fn some(value: u64) -> Option<Self>
    where
        Self: Sized;
    fn none() -> Option<Self>
    where
        Self: Sized;
}

macro_rules! wanted {
    ($($number:ty),+) => {$(
        impl Wanted for $number {
            fn some(value: u64) -> Option<Self> {
                value.try_into().ok()
            }

            fn none() -> Option<Self> {
                None
            }
        }
    )+};
}

wanted!(u8, u64);

impl<N: TryFrom<u64>> Wanted for Patch<N> {
    fn some(value: u64) -> Option<Self> {
        N::try_from(value).ok().map(Self::Set)
    }

    fn none() -> Option<Self> {
        Some(Self::Clear)
    }
}

impl<N: TryFrom<u64>> Wanted for Option<N> {
    fn some(value: u64) -> Option<Self> {
        N::try_from(value).ok().map(Some)
    }

    fn none() -> Option<Self> {
        Some(None)
    }
}

struct Number<T, const LEAST: u64, const MOST: u64> {
    text: bool,
    bounded: bool,
    wanted: PhantomData<T>,
}

impl<T, const LEAST: u64, const MOST: u64> Default for Number<T, LEAST, MOST> {
    fn default() -> Self {
        Self { text: false, bounded: false, wanted: PhantomData }
    }
}

impl<T: Wanted, const LEAST: u64, const MOST: u64> Visitor<'_> for Number<T, LEAST, MOST> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number between {LEAST} and {MOST}")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        let within = Some(value).filter(|value| !self.bounded || (LEAST..=MOST).contains(value)).and_then(T::some);
        within.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Unsigned(value), &self))
    }

    // Settings files have signed integers only.
    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::invalid_type(serde::de::Unexpected::Signed(value), &self)),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        let whole = value.fract() == 0.0 && (0.0..=limits::NUMBER_MAX as f64).contains(&value);
        if whole {
            self.visit_u64(value as u64)
        } else {
            Err(E::invalid_type(serde::de::Unexpected::Float(value), &self))
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        let wrong = || E::invalid_value(serde::de::Unexpected::Str(text), &self);
        if self.text { text.parse().ok().and_then(T::some).ok_or_else(wrong) } else { Err(wrong()) }
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        T::none().ok_or_else(|| E::invalid_type(serde::de::Unexpected::Unit, &self))
    }
}

#[cfg(test)]
mod tests {
    use crate::reservations::ReserveGroupsRequest;
    use crate::roles::HeartbeatRequest;

    #[test]
    fn a_number_that_cannot_be_one_is_refused_with_the_bounds() {
        for wrong in ["1e21", "-1", "1.5", "\"10\"", "[]", "36893488147419103232"] {
            let error = serde_json::from_str::<HeartbeatRequest>(&format!(r#"{{"uuid":"a","interval_ms":{wrong}}}"#));
            let error = error.expect_err(wrong).to_string();
            assert!(error.contains("between 10 and 900000"), "{wrong}: {error}");
            let error = serde_json::from_str::<ReserveGroupsRequest>(&format!(r#"{{"holder":"a","wait_ms":{wrong}}}"#));
            let error = error.expect_err(wrong).to_string();
            assert!(error.contains("between 0 and 60000"), "{wrong}: {error}");
        }
    }

    #[test]
    fn numbers_and_their_absence_are_read_as_before() {
        let beat = |text: &str| serde_json::from_str::<HeartbeatRequest>(text).unwrap().interval_ms;
        assert_eq!(beat(r#"{"uuid":"a","interval_ms":50}"#), Some(50));
        assert_eq!(beat(r#"{"uuid":"a","interval_ms":50.0}"#), Some(50));
        assert_eq!((beat(r#"{"uuid":"a","interval_ms":null}"#), beat(r#"{"uuid":"a"}"#)), (None, None));
        assert!(serde_json::from_str::<ReserveGroupsRequest>(r#"{"holder":"a","wait_ms":null}"#).is_err());
    }
}
