//! The bounds of a whole number that a caller may set, and the types that hold one.

use crate::time::Millis;

/// A whole number between two others, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
    /// What it is if it is left out, unless that depends on other settings.
    pub default: Option<u64>,
}

impl Whole {
    /// A number between two others.
    #[must_use]
    pub const fn new(least: u64, most: u64) -> Self {
        Self { least, most, default: None }
    }

    /// The same with what it is if it is left out.
    #[must_use]
    pub const fn or(self, default: u64) -> Self {
        Self { default: Some(default), ..self }
    }
}

/// A field that holds a whole number: a count or a time, perhaps an optional one.
pub trait Number: Sized {
    /// The field with this number, if it fits.
    fn of(number: Option<u64>) -> Option<Self>;

    /// Its number.
    fn number(&self) -> Option<u64>;
}

macro_rules! counts {
    ($($count:ty),*) => {$(
        impl Number for $count {
            fn of(number: Option<u64>) -> Option<Self> {
                Self::try_from(number?).ok()
            }

            fn number(&self) -> Option<u64> {
                Some((*self).into())
            }
        }
    )*};
}
counts!(u8, u16, u32, u64);

impl Number for Millis {
    fn of(number: Option<u64>) -> Option<Self> {
        number.map(Self)
    }

    fn number(&self) -> Option<u64> {
        Some(self.0)
    }
}

impl<N: Number> Number for Option<N> {
    fn of(number: Option<u64>) -> Option<Self> {
        if number.is_none() { Some(None) } else { N::of(number).map(Some) }
    }

    fn number(&self) -> Option<u64> {
        self.as_ref()?.number()
    }
}
