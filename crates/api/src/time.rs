//! Points in time on the wire: RFC 3339 in any form in, UTC with milliseconds out.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;
use wayleave_core::time::Time;

/// A point in time, written `2026-11-15T03:04:05.678Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
#[schema(value_type = String, format = DateTime, example = "2026-11-15T03:04:05.678Z")]
pub struct Timestamp(pub Time);

/// The text is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an RFC 3339 time with an offset, such as 2026-11-15T03:04:05.678Z")]
pub struct BadTime(String);

impl From<Time> for Timestamp {
    fn from(time: Time) -> Self {
        Self(time)
    }
}

impl From<Timestamp> for Time {
    fn from(timestamp: Timestamp) -> Self {
        timestamp.0
    }
}

impl FromStr for Timestamp {
    type Err = BadTime;

    fn from_str(text: &str) -> Result<Self, BadTime> {
        let instant: jiff::Timestamp = text.parse().map_err(|_| BadTime(text.chars().take(80).collect()))?;
        // Times before 1970 are in the past, and all past times mean the same to a frontier.
        let millis = u64::try_from(instant.as_millisecond()).unwrap_or(0);
        Ok(Self(Time(millis.min(Time::NEVER.0))))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The calendar ends with the year 9999; later times are shown as its last moment.
        let millis = i64::try_from(self.0.0).unwrap_or(i64::MAX);
        let instant = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{instant:.3}")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = Timestamp;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RFC 3339 time such as \"2026-11-15T03:04:05.678Z\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Timestamp, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_rfc_3339_form_comes_out_as_utc_with_milliseconds() {
        for (text, want) in [
            ("2026-11-15T03:04:05.678Z", "2026-11-15T03:04:05.678Z"),
            ("2026-11-15T03:04:05Z", "2026-11-15T03:04:05.000Z"),
            ("2026-11-15t03:04:05.6789z", "2026-11-15T03:04:05.678Z"),
            ("2026-11-15 04:04:05+01:00", "2026-11-15T03:04:05.000Z"),
            ("2026-11-14T23:04:05.5-04:00", "2026-11-15T03:04:05.500Z"),
            ("1900-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(text.parse::<Timestamp>().map(|t| t.to_string()), Ok(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_point_in_time_is_refused_with_an_example() {
        for text in ["", "yesterday", "2026-11-15", "2026-11-15T03:04:05", "1700000000", "2026-13-01T00:00:00Z"] {
            let error = text.parse::<Timestamp>().expect_err(text).to_string();
            assert!(error.contains("such as 2026-11-15T03:04:05.678Z"), "{error}");
        }
        let error = serde_json::from_str::<Timestamp>("1700000000").expect_err("a number").to_string();
        assert!(error.contains("expected an RFC 3339 time"), "{error}");
    }

    #[test]
    fn a_time_beyond_the_calendar_is_shown_as_its_end() {
        let text = Timestamp(Time::NEVER).to_string();
        assert!(text.starts_with("9999-12-30T"), "{text}");
    }
}
