//! Points in time and durations, in milliseconds. The core reads no clock; time is an argument.

use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since 1970, UTC, by the engine's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub u64);

/// A duration in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Millis(pub u64);

impl Time {
    /// Before everything.
    pub const ZERO: Self = Self(0);
    /// The last time that a key can hold (six bytes); means "never".
    pub const NEVER: Self = Self((1 << 48) - 1);

    /// This time plus a span, never past [`Time::NEVER`].
    #[must_use]
    pub const fn after(self, span: Millis) -> Self {
        let sum = self.0.saturating_add(span.0);
        if sum > Self::NEVER.0 { Self::NEVER } else { Self(sum) }
    }

    /// This time less a span, never before [`Time::ZERO`].
    #[must_use]
    pub const fn before(self, span: Millis) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// The span since an earlier time; zero if it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }

    /// From whole seconds, as URLFrontier counts them.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(if secs > Self::NEVER.0 / 1000 { Self::NEVER.0 } else { secs * 1000 })
    }

    /// Whole seconds, rounded down.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }
}

impl Millis {
    /// From whole seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// Formatted in its two largest units: `14.5 s`, `3 min 20 s`.
    #[must_use]
    pub fn in_words(self) -> String {
        let (secs, rest) = (self.0 / 1_000, self.0 % 1_000);
        match secs {
            0 => format!("{rest} ms"),
            1..60 if rest < 100 => format!("{secs} s"),
            1..60 => format!("{secs}.{} s", rest / 100),
            60..3_600 => format!("{} min {} s", secs / 60, secs % 60),
            3_600..86_400 => format!("{} h {} min", secs / 3_600, secs % 3_600 / 60),
            _ => format!("{} d {} h", secs / 86_400, secs % 86_400 / 3_600),
        }
    }
}
