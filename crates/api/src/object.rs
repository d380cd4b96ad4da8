//! Accepts objects only: the JSON library would also accept a list, with fields in declaration order.

use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::Patch;
use crate::typed::{self, Source};
use crate::wording::{TextError, Wrong, syntax};

/// Parses its content from an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(Fields(deserializer)).map(Self)
    }
}

/// A deserializer of which a struct takes no list, or a visitor that takes none.
struct Fields<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Fields<D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, Fields(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Fields(visitor))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Fields<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(map)
    }
}

/// Parses a field that is an object or null.
pub(crate) fn optional<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(deserializer)?.map(|Object(content)| content))
}

/// Parses changes that are an object, or null to clear all.
pub(crate) fn patch<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Patch<T>, D::Error> {
    Ok(optional(deserializer)?.map_or(Patch::Clear, Patch::Set))
}

/// Parses an object from a whole text. The error says where it is invalid (the path of the field, if parsing came that far), and why.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, TextError> {
    let error = match serde_json::from_slice(bytes) {
        Ok(Object(read)) => return Ok(read),
        Err(error) => error,
    };
    let (text, json) = (String::from_utf8_lossy(bytes), serde_json::from_slice::<IgnoredAny>(bytes));
    let at_start = text.trim_start_matches([' ', '\n', '\r', '\t']);
    let wrong = match (typed::read(Source::Json(at_start)), json) {
        (Ok(read), Ok(_)) if std::str::from_utf8(bytes).is_ok() => return Ok(read),
        (Err(wrong), _) if !wrong.is_syntax && at_start.starts_with('{') => wrong,
        (_, Err(not_json)) => {
            let error = if error.is_data() { not_json } else { error };
            let (what, line, column) = (syntax(&error.to_string()), error.line(), error.column());
            return Err(TextError { field: None, what, is_json: false, line, column });
        }
        (Err(wrong), Ok(_)) => wrong,
        (Ok(_), Ok(_)) => Wrong::syntax(&error),
    };
    Err(wrong.at(error.line(), error.column()))
}

/// Parses a query from its names and values.
pub fn read_query<T: DeserializeOwned>(pairs: &[(String, String)]) -> Result<T, TextError> {
    typed::read(Source::Query(pairs)).map_err(|wrong| wrong.at(0, 0))
}
