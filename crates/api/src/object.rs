//! Accepts objects only: the JSON library would also accept a list, with fields in declaration order.

use std::fmt;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use crate::Patch;

/// Parses its content from an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
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

/// Parses an object from a whole text. Only a text that is invalid is parsed by the slower parser that tracks positions.
///
/// # Errors
/// Where it is invalid (the path of the field, if parsing came that far), and why.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, (String, serde_json::Error)> {
    if let Ok(Object(read)) = serde_json::from_slice(bytes) {
        return Ok(read);
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut reader);
    let Object(read) = read.map_err(|error| (error.path().to_string(), error.into_inner()))?;
    // Trailing characters are an error too.
    reader.end().map_err(|error| (String::new(), error))?;
    Ok(read)
}
