//! Pins the wire layout of inter-node messages as text, per protocol version, because nodes of two versions must not
//! misread each other. A deserializer that invents its input walks through every type and variant and records what it
//! is asked for. Field names are recorded too, so that two fields of the same type cannot be swapped unnoticed.
//!
//! After a change: raise the version of the service, then `UPDATE=1 cargo test -p wayleave-shard layout`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use wayleave_core::frontier::refusal::Refusal;

use crate::ask::{Ask, Response};
use crate::fleet::call::{ControlCall, ControlResponse};
use crate::matches::call::{MatchResponse, RemoteMatchCall};
use crate::pipeline::call::{ChunkResponse, PipelineCall};
use crate::routing::protocol::Service;

type Choices = BTreeMap<&'static str, u32>;

#[derive(Debug)]
struct Stop(String);

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Stop {}

impl serde::de::Error for Stop {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// What the walk has recorded.
#[derive(Default)]
struct Walked {
    /// The shapes of each named type; two types may share a name.
    shapes: BTreeMap<String, BTreeSet<String>>,
    /// Enums with their number of variants and the choices that lead to them.
    enums: BTreeMap<&'static str, (usize, Choices)>,
    /// Shapes being recorded, innermost last.
    open: Vec<String>,
}

#[derive(Clone, Copy)]
struct Walk<'a> {
    found: &'a RefCell<Walked>,
    choices: &'a Choices,
}

impl Walk<'_> {
    fn write(self, text: &str) {
        if let Some(shape) = self.found.borrow_mut().open.last_mut() {
            shape.push_str(text);
        }
    }

    /// Records the shape of a named type separately; its uses only record the name.
    fn named<T>(self, name: &str, inner: impl FnOnce() -> Result<T, Stop>) -> Result<T, Stop> {
        self.write(name);
        self.found.borrow_mut().open.push(String::new());
        let value = inner()?;
        let mut found = self.found.borrow_mut();
        let shape = found.open.pop().unwrap_or_default();
        found.shapes.entry(name.to_owned()).or_default().insert(shape);
        Ok(value)
    }

    fn around<T>(self, open: &str, inner: impl FnOnce() -> Result<T, Stop>, close: &str) -> Result<T, Stop> {
        self.write(open);
        let value = inner()?;
        self.write(close);
        Ok(value)
    }
}

/// Entries of a list, a tuple, a struct or a map.
struct Entries<'a> {
    walk: Walk<'a>,
    left: usize,
    names: std::slice::Iter<'static, &'static str>,
}

impl<'de> SeqAccess<'de> for Entries<'_> {
    type Error = Stop;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Stop> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        if let Some(name) = self.names.next() {
            self.walk.write(&format!("{name}: "));
        }
        let value = seed.deserialize(self.walk)?;
        self.walk.write(", ");
        Ok(Some(value))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Stop;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Stop> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(self.walk).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Stop> {
        self.walk.write(" -> ");
        seed.deserialize(self.walk)
    }
}

struct Chosen<'a> {
    walk: Walk<'a>,
    variant: u32,
}

impl<'de, 'a> EnumAccess<'de> for Chosen<'a> {
    type Error = Stop;
    type Variant = Walk<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Walk<'a>), Stop> {
        let index: serde::de::value::U32Deserializer<Stop> = self.variant.into_deserializer();
        Ok((seed.deserialize(index)?, self.walk))
    }
}

impl<'de> VariantAccess<'de> for Walk<'_> {
    type Error = Stop;

    fn unit_variant(self) -> Result<(), Stop> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Stop> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_seq(Entries { walk: self, left: len, names: [].iter() })
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_seq(Entries { walk: self, left: fields.len(), names: fields.iter() })
    }
}

macro_rules! plain {
    ($($method:ident $visit:ident $value:expr, $name:literal;)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
            self.write($name);
            visitor.$visit($value)
        }
    )+};
}

impl<'de> Deserializer<'de> for Walk<'_> {
    type Error = Stop;

    plain! {
        deserialize_bool visit_bool true, "bool";
        deserialize_u8 visit_u8 1, "u8";
        deserialize_u16 visit_u16 1, "u16";
        deserialize_u32 visit_u32 1, "u32";
        deserialize_u64 visit_u64 1, "u64";
        deserialize_u128 visit_u128 1, "u128";
        deserialize_i8 visit_i8 1, "i8";
        deserialize_i16 visit_i16 1, "i16";
        deserialize_i32 visit_i32 1, "i32";
        deserialize_i64 visit_i64 1, "i64";
        deserialize_f32 visit_f32 1.0, "f32";
        deserialize_f64 visit_f64 1.0, "f64";
        deserialize_char visit_char 'a', "char";
        deserialize_str visit_str "a", "text";
        deserialize_string visit_str "a", "text";
        deserialize_bytes visit_bytes b"", "bytes";
        deserialize_byte_buf visit_bytes b"", "bytes";
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Stop> {
        Err(Stop::custom("nodes speak a format that does not describe itself"))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.around("option<", || visitor.visit_some(self), ">")
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.write("()");
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Stop> {
        self.named(name, || visitor.visit_newtype_struct(self))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.around("list<", || visitor.visit_seq(Entries { walk: self, left: 1, names: [].iter() }), ">")
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Stop> {
        self.around("(", || visitor.visit_seq(Entries { walk: self, left: len, names: [].iter() }), ")")
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.named(name, || visitor.visit_seq(Entries { walk: self, left: len, names: [].iter() }))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.around("map<", || visitor.visit_map(Entries { walk: self, left: 1, names: [].iter() }), ">")
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.named(name, || visitor.visit_seq(Entries { walk: self, left: fields.len(), names: fields.iter() }))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        let (choices, count) = (self.choices, variants.len());
        self.found.borrow_mut().enums.entry(name).or_insert_with(|| (count, choices.clone()));
        let variant = choices.get(name).copied().unwrap_or(0);
        let word = variants.get(variant as usize).copied().unwrap_or("?");
        self.write(name);
        self.found.borrow_mut().open.push(String::new());
        let value = visitor.visit_enum(Chosen { walk: self, variant })?;
        let mut found = self.found.borrow_mut();
        let shape = found.open.pop().unwrap_or_default();
        found.shapes.entry(format!("{name} {variant} {word}")).or_default().insert(shape);
        Ok(value)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Stop> {
        Err(Stop::custom("names do not travel"))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_unit()
    }
}

/// Walks through a type until every variant of every enum in it has been chosen once.
fn walk<T: for<'de> Deserialize<'de>>(found: &RefCell<Walked>) {
    let mut done = BTreeSet::new();
    let mut wanted = vec![Choices::new()];
    while let Some(choices) = wanted.pop() {
        found.borrow_mut().open = vec![String::new()];
        // Validation of an invented value may fail; everything requested until then is recorded.
        if let Err(stop) = T::deserialize(Walk { found, choices: &choices }) {
            panic!("{}: {stop}, with {choices:?}", std::any::type_name::<T>());
        }
        for (name, (count, way)) in &found.borrow().enums {
            for variant in 0..u32::try_from(*count).unwrap() {
                if done.insert((*name, variant)) {
                    let mut next = way.clone();
                    next.insert(name, variant);
                    wanted.push(next);
                }
            }
        }
    }
}

fn layout(service: Service, walks: &[fn(&RefCell<Walked>)]) -> String {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // Separately: the choices that lead to an enum start at the type that the walk began with.
    for walk in walks {
        let found = RefCell::default();
        walk(&found);
        for (name, shapes) in found.into_inner().shapes {
            all.entry(name).or_default().extend(shapes);
        }
    }
    let line = |(name, shapes): (&String, &BTreeSet<String>)| {
        shapes.iter().map(|shape| format!("{name} = {}\n", shape.trim_end_matches(", "))).collect::<String>()
    };
    format!("protocol {}\n{}", service.version(), all.iter().map(line).collect::<String>())
}

#[test]
fn the_layout_of_messages_between_nodes_changes_only_with_the_number_of_the_protocol() {
    let now = layout(Service::Frontier, &[walk::<Ask>, walk::<Response>, walk::<Refusal>]);
    check(now, concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/protocol.txt"));
}

#[test]
fn the_layout_of_messages_about_pools_changes_only_with_the_number_of_their_protocol() {
    let now = layout(Service::Matches, &[walk::<RemoteMatchCall>, walk::<MatchResponse>]);
    check(now, concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/matches_protocol.txt"));
}

#[test]
fn the_layout_of_messages_about_chunks_changes_only_with_the_number_of_their_protocol() {
    let now = layout(Service::Pipeline, &[walk::<PipelineCall>, walk::<ChunkResponse>]);
    check(now, concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/pipeline_protocol.txt"));
}

#[test]
fn the_layout_of_messages_about_machines_changes_only_with_the_number_of_their_protocol() {
    let now = layout(Service::Fleet, &[walk::<ControlCall>, walk::<ControlResponse>]);
    check(now, concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/fleet_protocol.txt"));
}

fn check(now: String, path: &str) {
    let pinned = std::fs::read_to_string(path).unwrap_or_default();
    let same_number = pinned.lines().next() == now.lines().next();
    if std::env::var_os("UPDATE").is_some() && !same_number {
        std::fs::write(path, now).unwrap();
        return;
    }
    let (before, after): (BTreeSet<&str>, BTreeSet<&str>) = (pinned.lines().collect(), now.lines().collect());
    let gone: Vec<_> = before.difference(&after).collect();
    let come: Vec<_> = after.difference(&before).collect();
    assert!(
        gone.is_empty() && come.is_empty(),
        "the layout changed; raise the version and run this test with UPDATE=1\nbefore: {gone:#?}\nnow: {come:#?}"
    );
}
