//! A value of the right type that is not acceptable.

use std::fmt::Display;

/// Which field is not acceptable, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct BadValue {
    /// The field, as written in the body or the query.
    pub field: String,
    /// Why, and what would be accepted.
    pub reason: String,
    /// Whether it is valid by itself and only conflicts with another field.
    pub contradicts: bool,
}

impl BadValue {
    /// A refusal of `field`.
    pub fn new(field: impl Into<String>, reason: impl Display) -> Self {
        Self { field: field.into(), reason: reason.to_string(), contradicts: false }
    }

    /// A refusal of `field` because of another one.
    pub fn contradiction(field: impl Into<String>, reason: impl Display) -> Self {
        Self { contradicts: true, ..Self::new(field, reason) }
    }

    /// The same refusal, one level further out: `url` in `urls[3]` becomes `urls[3].url`.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        self.field = format!("{outer}.{}", self.field);
        self
    }
}

/// Accepts a number between two bounds; the message of the error names both.
pub(crate) fn between<T: PartialOrd + Display>(field: &str, value: T, least: T, most: T) -> Result<T, BadValue> {
    if value < least || value > most {
        return Err(BadValue::new(field, format!("{value} is not between {least} and {most}")));
    }
    Ok(value)
}

/// A list that exceeds the limit of one request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: has more entries than the limit, which is {limit}: send several requests")]
pub struct TooMany {
    /// The list, as written in the body.
    pub field: &'static str,
    /// The limit.
    pub limit: usize,
}

impl From<TooMany> for BadValue {
    fn from(many: TooMany) -> Self {
        let TooMany { field, limit } = many;
        Self::new(field, format!("has more entries than the limit, which is {limit}"))
    }
}

/// Accepts a list of at most `limit` entries.
pub(crate) const fn at_most(field: &'static str, found: usize, limit: usize) -> Result<(), TooMany> {
    if found > limit { Err(TooMany { field, limit }) } else { Ok(()) }
}
