//! Arbitrary rows for property tests: any value of each type that rows are made of. Most list their fields where they
//! are encoded, in [`super::field`]; those that are encoded by hand list them here.
//!
//! A value is made of the bytes that a property draws, and of zeros once they are used up, so that a failing one shrinks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;
use wayleave_core::frontier::row::{HostRow, HotRow, UrlStatus};
use wayleave_core::metadata::Metadata;
use wayleave_core::names::{Alias, ClientName, CrawlName, HostName, MachineId, PoolName, SiteName, Slot, Uuid};

/// What values are made of.
pub struct Source<'a> {
    bytes: &'a [u8],
    /// For fixtures: in turn 0 nothing is there that may be absent, in turn 1 all of it, and every turn has the next variants.
    turn: Option<usize>,
}

impl<'a> Source<'a> {
    pub const fn new(bytes: &'a [u8], turn: Option<usize>) -> Self {
        Self { bytes, turn }
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    /// A number of any length.
    fn number(&mut self) -> u64 {
        (0..self.byte() % 9).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// A number below a bound of at most 256.
    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    /// One of several.
    pub fn one_of<'b, T>(&mut self, all: &'b [T]) -> &'b T {
        &all[self.turn.unwrap_or_else(|| self.byte().into()) % all.len()]
    }

    fn text(&mut self, least: usize) -> String {
        (0..least + self.below(6)).map(|_| ['a', 'z', '0', ':', '/', ' ', 'ø', '.'][self.below(8)]).collect()
    }
}

/// A value that properties draw.
pub trait Sample: Sized {
    /// Any value.
    fn sample(from: &mut Source<'_>) -> Self;

    /// A value that differs from none.
    fn sample_some(from: &mut Source<'_>) -> Self {
        Self::sample(from)
    }
}

/// Any value of a type.
pub fn sampled<T: Sample + Debug>() -> impl Strategy<Value = T> {
    prop::collection::vec(any::<u8>(), 0..500).prop_map(|bytes| T::sample(&mut Source::new(&bytes, None)))
}

/// Draws structs field by field, and enums by one of their variants.
macro_rules! samples {
    ($type:ident { $($field:ident),* } $(from $base:expr)?) => {
        impl $crate::rows::sample::Sample for $type {
            fn sample(from: &mut $crate::rows::sample::Source<'_>) -> Self {
                Self { $($field: $crate::rows::sample::Sample::sample(from),)* $(..$base)? }
            }
        }
    };
    ($type:ident one of $($variant:ident $(($($part:ident),*))? $({ $($field:ident),* })?),* $(,)?) => {
        impl $crate::rows::sample::Sample for $type {
            fn sample(from: &mut $crate::rows::sample::Source<'_>) -> Self {
                let variants: &[fn(&mut $crate::rows::sample::Source<'_>) -> Self] = &[$(|_from| Self::$variant
                    $(($({ let $part = $crate::rows::sample::Sample::sample(_from); $part }),*))?
                    $({ $($field: $crate::rows::sample::Sample::sample(_from)),* })?),*];
                from.one_of(variants)(from)
            }
        }
    };
}
pub(super) use samples;

samples!(HostRow { id, name, group, settings, robots_delay, queued_at, next_queue, pace, queues });
samples!(HotRow one of
    Shard(row), Crawl(row), CrawlGone(no), Alias(row), AliasGone(id), Host(row), HostGone(id), HostAlias { host, alias });
samples!(UrlStatus one of
    Queued(position), Held { until, position, details }, Reserved { token, position, details }, Done { end, lane, details });

impl Sample for bool {
    fn sample(from: &mut Source<'_>) -> Self {
        match from.turn {
            Some(turn @ (0 | 1)) => turn == 1,
            _ => from.byte() % 2 == 1,
        }
    }
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Sample for $type {
            fn sample(from: &mut Source<'_>) -> Self {
                from.number() as Self
            }

            /// An optional number is written as the one after it.
            fn sample_some(from: &mut Source<'_>) -> Self {
                Self::sample(from).min(Self::MAX - 1)
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64);

macro_rules! texts {
    ($($type:ty),*) => {$(
        impl Sample for $type {
            fn sample(from: &mut Source<'_>) -> Self {
                from.text(0).as_str().into()
            }

            /// An empty text often means none.
            fn sample_some(from: &mut Source<'_>) -> Self {
                from.text(1).as_str().into()
            }
        }
    )*};
}
texts!(Arc<str>, Box<str>, String, Alias, ClientName, CrawlName, HostName, MachineId, PoolName, SiteName, Slot, Uuid);

impl<T: Sample, const N: usize> Sample for [T; N] {
    fn sample(from: &mut Source<'_>) -> Self {
        std::array::from_fn(|_| T::sample(from))
    }
}

impl Sample for Box<[u8]> {
    fn sample(from: &mut Source<'_>) -> Self {
        Vec::sample(from).into()
    }
}

impl Sample for Metadata {
    fn sample(from: &mut Source<'_>) -> Self {
        Self::from_bytes(Vec::sample(from)).unwrap_or_default()
    }
}

impl Sample for IpAddr {
    fn sample(from: &mut Source<'_>) -> Self {
        if bool::sample(from) { <[u8; 4]>::sample(from).into() } else { <[u8; 16]>::sample(from).into() }
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(from: &mut Source<'_>) -> Self {
        bool::sample(from).then(|| T::sample_some(from))
    }
}

impl<T: Sample> Sample for Box<T> {
    fn sample(from: &mut Source<'_>) -> Self {
        Self::new(T::sample(from))
    }
}

impl<A: Sample, B: Sample> Sample for (A, B) {
    fn sample(from: &mut Source<'_>) -> Self {
        (A::sample(from), B::sample(from))
    }
}

macro_rules! lists {
    ($($list:ty where $($bound:ident: $of:path),*;)*) => {$(
        impl<$($bound: $of),*> Sample for $list {
            fn sample(from: &mut Source<'_>) -> Self {
                let entries = from.turn.filter(|turn| *turn < 2).map_or_else(|| from.below(4), |turn| 2 * turn);
                (0..entries).map(|_| Sample::sample(from)).collect()
            }
        }
    )*};
}
trait Key: Sample + Ord {}
impl<T: Sample + Ord> Key for T {}
lists! {
    Vec<T> where T: Sample;
    VecDeque<T> where T: Sample;
    BTreeSet<T> where T: Key;
    BTreeMap<K, V> where K: Key, V: Sample;
}
