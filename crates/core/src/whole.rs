//! The bounds of a whole number that a caller may set.

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
