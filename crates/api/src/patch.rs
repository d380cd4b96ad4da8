//! The three states of a setting in a body: absent, null, a value.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wayleave_core::settings::Change;

/// A change to one setting. Absent fields are not serialised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patch<T> {
    /// Absent: keep it (PUT: clear it).
    #[default]
    Keep,
    /// `null`: clear it.
    Clear,
    /// A value: set it.
    Set(T),
}

impl<T> Patch<T> {
    /// Whether it is absent.
    pub const fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }

    /// The value, if it sets one.
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::Set(value) => Some(value),
            Self::Keep | Self::Clear => None,
        }
    }

    /// The core's form of the change.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Change<U> {
        match self {
            Self::Keep => Change::Keep,
            Self::Clear => Change::Clear,
            Self::Set(value) => Change::Set(change(value)),
        }
    }

    /// The core's form of the change, with its value validated.
    pub fn try_into_change<U, E>(self, check: impl FnOnce(T) -> Result<U, E>) -> Result<Change<U>, E> {
        Ok(match self {
            Self::Keep => Change::Keep,
            Self::Clear => Change::Clear,
            Self::Set(value) => Change::Set(check(value)?),
        })
    }
}

impl<T> From<Option<T>> for Patch<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Keep, Self::Set)
    }
}

impl<T> From<Patch<T>> for Change<T> {
    fn from(patch: Patch<T>) -> Self {
        patch.map(|value| value)
    }
}

impl<T: Serialize> Serialize for Patch<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Patch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Clear, Self::Set))
    }
}

/// Declares a request that changes settings, each with its sentence, type and bound: `= bound` is checked here, `=> bound` by the type.
/// Fields that are not settings stand in `[]` before the settings, or in `{}` behind them.
macro_rules! patches {
    (
        $(#[$what:meta])*
        $request:ident {
            $([$($before:tt)*])?
            $($(#[$about:meta])* $field:ident: $type:ident $(= $bound:expr)? $(=> $shown:expr)?,)*
            $({$($behind:tt)*})?
        }
        $({ $($other:ident: $limit:expr),* })?
    ) => {
        $(#[$what])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $request {
            $($($before)*)?
            $(
                $(#[$about])*
                #[serde(default, skip_serializing_if = "Patch::is_keep")]
                #[schema(value_type = Option<$type>)]
                pub $field: Patch<$type>,
            )*
            $($($behind)*)?
        }

        $crate::bounds::bounds! {
            $request { $($($field: $bound,)?)* } { $($($field: $shown,)?)* $($($other: $limit,)*)? }
        }
    };
}
pub(crate) use patches;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Body {
        #[serde(default, skip_serializing_if = "Patch::is_keep")]
        a: Patch<u64>,
    }

    #[test]
    fn absent_null_and_a_value_are_three_things_and_read_back() {
        for (text, want) in [("{}", Patch::Keep), (r#"{"a":null}"#, Patch::Clear), (r#"{"a":7}"#, Patch::Set(7))] {
            let body: Body = serde_json::from_str(text).unwrap();
            assert_eq!(body.a, want, "{text}");
            assert_eq!(serde_json::to_string(&body).unwrap(), text);
        }
    }
}
