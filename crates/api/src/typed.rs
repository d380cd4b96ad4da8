//! Parses bodies and queries with errors in plain words: which field is wrong, what came and what is expected.
//!
//! The JSON library is fast and says little of what is wrong, in words of Rust. A text that it refuses is therefore parsed again by this
//! deserializer, in which each value knows what it was asked for. It parses one level of the text at a time, so that it keeps no more of a
//! hostile body in memory than the path to the present value. `5.0` is the integer 5, as in JSON Schema.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IgnoredAny, IntoDeserializer,
    MapAccess, SeqAccess, Visitor,
};
use serde_json::Number;
use wayleave_core::limits;

use crate::bounds::{self, BODIES, Bound};
use crate::wording::{Wrong, got_text};

/// Parses a text that is not empty, or the query of a request.
pub(crate) fn read<T: DeserializeOwned>(source: Source<'_>) -> Result<T, Wrong> {
    T::deserialize(Typed { source, bound: None })
}

/// Where a value is.
#[derive(Clone, Copy)]
pub(crate) enum Source<'de> {
    /// In a JSON text, which begins with it.
    Json(&'de str),
    /// In a query, where each value is a text.
    Text(&'de str),
    /// It is the whole query.
    Query(&'de [(String, String)]),
}

enum Kind {
    Null,
    Bool(bool),
    Number,
    Text,
    List,
    Object,
}

#[derive(Clone, Copy)]
struct Typed<'de> {
    source: Source<'de>,
    /// The bound of the field that it is the value of.
    bound: Option<Bound>,
}

impl<'de> Typed<'de> {
    fn kind(&self) -> Kind {
        match self.source {
            Source::Text(_) => Kind::Text,
            Source::Query(_) => Kind::Object,
            Source::Json(text) => match text.as_bytes().first() {
                Some(b'{') => Kind::Object,
                Some(b'[') => Kind::List,
                Some(b'"') => Kind::Text,
                Some(b'n') => Kind::Null,
                Some(b't') => Kind::Bool(true),
                Some(b'f') => Kind::Bool(false),
                _ => Kind::Number,
            },
        }
    }

    /// A value of another type than expected.
    fn wrong(&self, expected: &dyn fmt::Display) -> Wrong {
        let got = match self.kind() {
            Kind::Null => "null".to_owned(),
            Kind::Bool(value) => value.to_string(),
            Kind::List => "a list".to_owned(),
            Kind::Object => "an object".to_owned(),
            Kind::Number => match self.number() {
                Ok(number) => number.to_string(),
                Err(wrong) => return wrong,
            },
            Kind::Text => match self.text() {
                Ok(text) => got_text(&text),
                Err(wrong) => return wrong,
            },
        };
        Wrong::expected(expected, &got)
    }

    fn scalar<T: Deserialize<'de>>(&self) -> Result<T, Wrong> {
        let Source::Json(text) = self.source else { return Err(Wrong::custom(OTHER_KIND)) };
        serde_json::from_str(text).map_err(|error| Wrong::syntax(&error))
    }

    fn number(&self) -> Result<Number, Wrong> {
        self.scalar()
    }

    fn text(&self) -> Result<Cow<'de, str>, Wrong> {
        match self.source {
            Source::Text(text) => Ok(text.into()),
            _ => self.scalar().map(Cow::Owned),
        }
    }

    fn whole<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let (found, is_large) = match (self.source, self.kind()) {
            (Source::Text(text), _) => {
                (text.parse().ok(), text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty())
            }
            (_, Kind::Number) => {
                let number = self.number()?;
                let float = number.as_f64().unwrap_or_default();
                let is_exact = float.fract() == 0.0 && (0.0..=limits::NUMBER_MAX as f64).contains(&float);
                (number.as_u64().or(is_exact.then_some(float as u64)), float > limits::NUMBER_MAX as f64)
            }
            _ => (None, false),
        };
        let fits = found.and_then(|number| visitor.visit_u64::<Wrong>(number).ok());
        fits.ok_or_else(|| match self.bound {
            Some(bound) => self.wrong(&(&bound as &dyn Expected)),
            None if is_large || found.is_some() => self.wrong(&"a smaller whole number"),
            None => self.wrong(&"a whole number from 0 on"),
        })
    }

    /// What is in a list or an object.
    fn parts(&self) -> Parts<'de> {
        match self.source {
            Source::Json(text) => Parts(text.strip_prefix(['[', '{']).unwrap_or_default()),
            Source::Text(_) | Source::Query(_) => Parts(""),
        }
    }

    /// An object, of which the fields of the type `of` have bounds.
    fn object<V: Visitor<'de>>(self, of: &str, visitor: V) -> Result<V::Value, Wrong> {
        match self.source {
            Source::Json(_) => {
                let bounds =
                    BODIES.iter().find(|fields| fields.of == of).map(|fields| fields.bounds).unwrap_or_default();
                let mut parts = self.parts();
                let next = || -> Result<_, Wrong> {
                    let Some((name, _)) = parts.next::<String>()? else { return Ok(None) };
                    let Some((_, value)) = parts.next::<IgnoredAny>()? else {
                        return Err(Wrong::syntax(&"a value is missing"));
                    };
                    let bound = bounds.iter().find(|(field, _)| *field == name).map(|(_, bound)| *bound);
                    Ok(Some((name, Typed { source: Source::Json(value), bound })))
                };
                visitor.visit_map(Entries { next, value: None })
            }
            Source::Query(pairs) => {
                let mut pairs = pairs.iter();
                let next = || -> Result<_, Wrong> {
                    let Some((name, value)) = pairs.next() else { return Ok(None) };
                    // Lines have no maximum, pages do.
                    let bound = bounds::parameter("", name).filter(|_| name != "limit");
                    Ok(Some((name.clone(), Typed { source: Source::Text(value), bound })))
                };
                visitor.visit_map(Entries { next, value: None })
            }
            Source::Text(_) => Err(self.wrong(&"an object")),
        }
    }
}

macro_rules! whole_numbers {
    ($($method:ident),+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
            self.whole(visitor)
        }
    )+};
}

/// What a visitor of the standard library or of our own expects.
fn expected<'de, V: Visitor<'de>>(visitor: &V) -> String {
    (visitor as &dyn Expected).to_string()
}

impl<'de> Deserializer<'de> for Typed<'de> {
    type Error = Wrong;

    whole_numbers!(deserialize_u8, deserialize_u16, deserialize_u32, deserialize_u64);

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.source {
            Source::Json(text) => {
                let read = serde_json::Deserializer::from_str(text).deserialize_any(visitor);
                read.map_err(|error| Wrong::syntax(&error))
            }
            Source::Text(text) => visitor.visit_str(text),
            Source::Query(_) => self.object("", visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match (self.kind(), self.source) {
            (Kind::Bool(value), _) => visitor.visit_bool(value),
            (_, Source::Text(text)) if matches!(text, "true" | "false") => visitor.visit_bool(text == "true"),
            _ => Err(self.wrong(&"true or false")),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.kind() {
            Kind::Number => visitor.visit_f64(self.number()?.as_f64().unwrap_or_default()),
            _ => Err(self.wrong(&"a number")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.kind() {
            Kind::Text => visitor.visit_str(&self.text()?),
            _ => Err(self.wrong(&expected(&visitor))),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.kind() {
            Kind::Text => visitor.visit_str(&self.text()?),
            _ => Err(self.wrong(&"a text")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.kind() {
            Kind::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.kind() {
            // Nothing but JSON has lists.
            Kind::List => visitor.visit_seq(Items { parts: self.parts(), at: 0 }),
            _ => Err(self.wrong(&expected(&visitor).replace("a sequence", "a list"))),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.kind() {
            Kind::Object => self.object("", visitor),
            _ => Err(self.wrong(&expected(&visitor).replace("a map", "an object"))),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match self.kind() {
            Kind::Object => self.object(name, visitor),
            _ => Err(self.wrong(&"an object")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match self.kind() {
            Kind::Text => visitor.visit_enum(self.text()?.into_deserializer()),
            Kind::Object if self.parts().next::<IgnoredAny>()?.is_some() => self.object(name, OneOf(visitor)),
            _ => Err(Wrong::custom(OTHER_KIND)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

const OTHER_KIND: &str = "a value of another kind is expected";

/// An enum with content: an object of one entry.
struct OneOf<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for OneOf<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<V::Value, A::Error> {
        let read = self.0.visit_enum(MapAccessDeserializer::new(&mut map))?;
        match map.next_key::<IgnoredAny>()? {
            Some(_) => Err(A::Error::custom(OTHER_KIND)),
            None => Ok(read),
        }
    }
}

/// The rest of a list or an object. That commas and colons are in their places is checked elsewhere.
struct Parts<'de>(&'de str);

impl<'de> Parts<'de> {
    /// The next value, with its text; `None` at the end.
    fn next<T: Deserialize<'de>>(&mut self) -> Result<Option<(T, &'de str)>, Wrong> {
        let rest = self.0.trim_start_matches([' ', '\n', '\r', '\t', ',', ':']);
        if rest.starts_with([']', '}']) {
            return Ok(None);
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter();
        let value = values.next().ok_or_else(|| Wrong::syntax(&"its end is missing"))?;
        let (text, rest) = rest.split_at(values.byte_offset());
        self.0 = rest;
        value.map(|value| Some((value, text))).map_err(|error| Wrong::syntax(&error))
    }
}

struct Items<'de> {
    parts: Parts<'de>,
    at: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Wrong;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Wrong> {
        let Some((_, text)) = self.parts.next::<IgnoredAny>()? else { return Ok(None) };
        let read = seed.deserialize(Typed { source: Source::Json(text), bound: None });
        let read = read.map_err(|wrong| wrong.within(&format!("[{}]", self.at)))?;
        self.at += 1;
        Ok(Some(read))
    }
}

struct Entries<'de, N> {
    next: N,
    value: Option<(String, Typed<'de>)>,
}

impl<'de, N: FnMut() -> Result<Option<(String, Typed<'de>)>, Wrong>> MapAccess<'de> for Entries<'de, N> {
    type Error = Wrong;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Wrong> {
        self.value = (self.next)()?;
        let Some((name, _)) = &self.value else { return Ok(None) };
        seed.deserialize(name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Wrong> {
        let Some((name, value)) = self.value.take() else { return Err(Wrong::custom("a value without a name")) };
        seed.deserialize(value).map_err(|wrong| wrong.within(&name))
    }
}
