//! The encoding of the fields of rows, stated once for both directions. A row lists its fields in the order of its layout, with [`fields`],
//! or its variants with their numbers, with [`variants`]; reading, writing and random values for properties follow from the list.
//! Rows that every put or visit touches leave out what most of them lack, with [`sparse`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{ChunkId, CrawlNo, Epoch, GroupId, HostId, NodeId, ShardId, Token};
use wayleave_core::metadata::Metadata;
use wayleave_core::names::{Alias, ClientName, CrawlName, HostName, MachineId, PoolName, SiteName, Slot, Uuid};
use wayleave_core::time::{Millis, Time};

use crate::format;

/// A value with one encoding.
pub(super) trait Field: Sized {
    /// Appends it.
    fn write(&self, out: &mut Writer);

    /// Reads what [`Field::write`] has written.
    fn read(input: &mut Reader<'_>) -> Result<Self, Damaged>;

    /// Appends an optional one: a flag, then the value.
    fn write_option(field: Option<&Self>, out: &mut Writer) {
        field.is_some().write(out);
        if let Some(field) = field {
            field.write(out);
        }
    }

    /// Reads what [`Field::write_option`] has written.
    fn read_option(input: &mut Reader<'_>) -> Result<Option<Self>, Damaged> {
        if bool::read(input)? { Self::read(input).map(Some) } else { Ok(None) }
    }
}

/// The value of a row: its format, then its fields.
pub(super) fn encode<T: Field>(row: &T) -> Vec<u8> {
    encode_with(row, T::write)
}

/// The same, for a row that is not a field: a part of it is in its key.
pub(super) fn encode_with<T: ?Sized>(row: &T, write: impl FnOnce(&T, &mut Writer)) -> Vec<u8> {
    let mut out = Writer::with_capacity(128);
    format::write(&mut out);
    write(row, &mut out);
    out.into()
}

/// Reads what [`encode`] has written.
pub(super) fn decode<T: Field>(bytes: &[u8]) -> Result<T, Damaged> {
    T::read(&mut fields_of(bytes)?)
}

/// The fields of a row of any format that this program knows.
pub(super) fn fields_of(bytes: &[u8]) -> Result<Reader<'_>, Damaged> {
    let mut input = Reader::new(bytes);
    format::read(&mut input)?;
    Ok(input)
}

/// The functions `encode` and `decode` of a row that is a field.
macro_rules! codec {
    ($row:ty) => {
        /// Encodes a row.
        #[must_use]
        pub fn encode(row: &$row) -> Vec<u8> {
            field::encode(row)
        }

        /// Decodes a row.
        pub fn decode(bytes: &[u8]) -> Result<$row, Damaged> {
            field::decode(bytes)
        }
    };
}
pub(super) use codec;

/// The version of rows that nodes of every format read. They may only be appended to.
const FROZEN: u8 = 1;

/// The value of such a row.
pub(super) fn encode_frozen<T: Field>(row: &T) -> Vec<u8> {
    let mut out = Writer::with_capacity(64);
    out.byte(FROZEN);
    row.write(&mut out);
    out.into()
}

/// Reads what [`encode_frozen`] has written.
pub(super) fn decode_frozen<T: Field>(bytes: &[u8], unknown: &'static str) -> Result<T, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? == FROZEN { T::read(&mut input) } else { Err(Damaged(unknown)) }
}

/// Lists the fields of a struct in the order of their encoding. `field as module` is encoded by the functions `write` and `read` of that
/// module; fields that are not listed are those of `from`. `=> write, read` makes functions of these names instead; `given name: Type` is
/// a field that they leave out, such as one that the key has.
macro_rules! fields {
    ($type:ident { $($field:ident $(as $how:ident)?),* $(,)? } $(from $base:expr)?) => {
        impl Field for $type {
            fn write(&self, out: &mut Writer) {
                $(fields!(@write out, &self.$field $(, $how)?);)*
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
                Ok(Self { $($field: fields!(@read input $(, $how)?),)* $(..$base)? })
            }
        }

        #[cfg(test)]
        $crate::rows::sample::samples!($type { $($field),* } $(from $base)?);
    };
    ($type:ident $(given $key:ident: $of:ty)? => $write:ident, $read:ident { $($field:ident $(as $how:ident)?),* $(,)? }) => {
        fn $write(row: &$type, out: &mut Writer) {
            $(fields!(@write out, &row.$field $(, $how)?);)*
        }

        fn $read($($key: $of,)? input: &mut Reader<'_>) -> Result<$type, Damaged> {
            Ok($type { $($key,)? $($field: fields!(@read input $(, $how)?)),* })
        }

        #[cfg(test)]
        $crate::rows::sample::samples!($type { $($key,)? $($field),* });
    };
    (@write $out:ident, $value:expr) => { Field::write($value, $out) };
    (@write $out:ident, $value:expr, $how:ident) => { $how::write($value, $out) };
    (@read $input:ident) => { Field::read($input)? };
    (@read $input:ident, $how:ident) => { $how::read($input)? };
}
pub(super) use fields;

/// A value that most rows lack. One that is there is written without a flag.
pub(super) trait Sparse: Default {
    /// Whether it is not there.
    fn lacks(&self) -> bool;
    /// Appends one that is there.
    fn write_there(&self, out: &mut Writer);
    /// Reads what [`Sparse::write_there`] has written.
    fn read_there(input: &mut Reader<'_>) -> Result<Self, Damaged>;
}

impl<T: Field> Sparse for Option<T> {
    fn lacks(&self) -> bool {
        self.is_none()
    }

    fn write_there(&self, out: &mut Writer) {
        self.iter().for_each(|value| value.write(out));
    }

    fn read_there(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        T::read(input).map(Some)
    }
}

macro_rules! zeros {
    ($($type:ty),*) => {$(
        impl Sparse for $type {
            fn lacks(&self) -> bool {
                *self == Self::default()
            }

            fn write_there(&self, out: &mut Writer) {
                self.write(out);
            }

            fn read_there(input: &mut Reader<'_>) -> Result<Self, Damaged> {
                Field::read(input)
            }
        }
    )*};
}
zeros!(u8, u16, u32, Time, Millis, CrawlNo, Metadata);

/// Lists the fields of a struct: first those that every row has, then up to eight that are written only where they are there, behind
/// a byte that tells which.
macro_rules! sparse {
    ($type:ident { $($always:ident),*; $($field:ident),* $(,)? }) => {
        impl Field for $type {
            fn write(&self, out: &mut Writer) {
                $(self.$always.write(out);)*
                let there = [$(!$crate::rows::field::Sparse::lacks(&self.$field)),*];
                out.byte(there.iter().rev().fold(0, |flags, there| flags << 1 | u8::from(*there)));
                $(if !$crate::rows::field::Sparse::lacks(&self.$field) {
                    $crate::rows::field::Sparse::write_there(&self.$field, out);
                })*
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
                $(let $always = Field::read(input)?;)*
                let flags = input.byte()?;
                let mut there = (0..8).map(|bit| flags & (1 << bit) != 0);
                $(let $field = if there.next() == Some(true) {
                    $crate::rows::field::Sparse::read_there(input)?
                } else {
                    Default::default()
                };)*
                Ok(Self { $($always,)* $($field),* })
            }
        }

        #[cfg(test)]
        $crate::rows::sample::samples!($type { $($always,)* $($field),* });
    };
}
pub(super) use sparse;

/// Appends several fields.
macro_rules! write_all {
    ($out:ident, $($field:expr),*) => { $(Field::write($field, $out);)* };
}
pub(super) use write_all;

/// Lists the variants of an enum with their numbers and the order of their fields.
macro_rules! variants {
    ($type:ident, $unknown:literal {
        $($no:literal $variant:ident $(($($part:ident),*))? $({ $($field:ident),* })?),* $(,)?
    }) => {
        impl Field for $type {
            fn write(&self, out: &mut Writer) {
                match self {
                    $(Self::$variant $(($($part),*))? $({ $($field),* })? => {
                        out.byte($no);
                        $($($part.write(out);)*)?
                        $($($field.write(out);)*)?
                    })*
                }
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
                Ok(match input.byte()? {
                    $($no => Self::$variant
                        $(($({ let $part = Field::read(input)?; $part }),*))?
                        $({ $($field: Field::read(input)?),* })?,)*
                    _ => return Err(Damaged($unknown)),
                })
            }
        }

        #[cfg(test)]
        $crate::rows::sample::samples!($type one of $($variant $(($($part),*))? $({ $($field),* })?),*);
    };
}
pub(super) use variants;

/// An enum without fields, encoded as the place of its value in a list that only grows.
pub(super) trait Numbered: Copy + PartialEq + 'static {
    /// Its values by their numbers.
    const VALUES: &[Self];
    /// What a number without a value is.
    const UNKNOWN: Damaged;

    /// The number of a value.
    fn number(self) -> u64 {
        Self::VALUES.iter().position(|value| *value == self).unwrap_or_default() as u64
    }

    /// The value of a number.
    fn numbered(number: u64) -> Result<Self, Damaged> {
        let value = usize::try_from(number).ok().and_then(|number| Self::VALUES.get(number));
        value.copied().ok_or(Self::UNKNOWN)
    }
}

/// Numbers the values of enums.
macro_rules! numbered {
    ($($type:ident: $($value:ident),*;)*) => {$(
        impl $crate::rows::field::Numbered for $type {
            const VALUES: &[Self] = &[$(Self::$value),*];
            const UNKNOWN: Damaged = Damaged(concat!("a ", stringify!($type), " has an unknown number"));
        }

        impl Field for $type {
            fn write(&self, out: &mut Writer) {
                out.byte($crate::rows::field::Numbered::number(*self) as u8);
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
                $crate::rows::field::Numbered::numbered(input.byte()?.into())
            }

            fn write_option(field: Option<&Self>, out: &mut Writer) {
                out.maybe(field.copied().map($crate::rows::field::Numbered::number));
            }

            fn read_option(input: &mut Reader<'_>) -> Result<Option<Self>, Damaged> {
                input.maybe()?.map($crate::rows::field::Numbered::numbered).transpose()
            }
        }

        #[cfg(test)]
        impl $crate::rows::sample::Sample for $type {
            fn sample(from: &mut $crate::rows::sample::Source<'_>) -> Self {
                *from.one_of(<Self as $crate::rows::field::Numbered>::VALUES)
            }
        }
    )*};
}
pub(super) use numbered;

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn write(&self, out: &mut Writer) {
                out.number((*self).into());
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
                input.small()
            }

            fn write_option(field: Option<&Self>, out: &mut Writer) {
                out.maybe(field.map(|number| (*number).into()));
            }

            fn read_option(input: &mut Reader<'_>) -> Result<Option<Self>, Damaged> {
                let number = input.maybe()?.map(Self::try_from).transpose();
                number.map_err(|_| Damaged("a number is too large"))
            }
        }
    )*};
}
numbers!(u16, u32, u64);

/// A type with one field is encoded as that field.
macro_rules! wraps {
    ($($type:ty),* $(,)?) => {$(
        impl Field for $type {
            fn write(&self, out: &mut Writer) {
                self.0.write(out);
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
                Field::read(input).map(Self)
            }

            fn write_option(field: Option<&Self>, out: &mut Writer) {
                Field::write_option(field.map(|field| &field.0), out);
            }

            fn read_option(input: &mut Reader<'_>) -> Result<Option<Self>, Damaged> {
                Ok(Field::read_option(input)?.map(Self))
            }
        }

        #[cfg(test)]
        impl $crate::rows::sample::Sample for $type {
            fn sample(from: &mut $crate::rows::sample::Source<'_>) -> Self {
                Self($crate::rows::sample::Sample::sample(from))
            }

            fn sample_some(from: &mut $crate::rows::sample::Source<'_>) -> Self {
                Self($crate::rows::sample::Sample::sample_some(from))
            }
        }
    )*};
}
pub(super) use wraps;
wraps!(Time, Millis, Epoch, ShardId, HostId, ChunkId, GroupId, NodeId, CrawlNo, Token, UrlKey);

macro_rules! texts {
    ($($type:ty),* $(,)?) => {$(
        impl Field for $type {
            fn write(&self, out: &mut Writer) {
                out.text(self);
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
                input.text().map(Into::into)
            }
        }
    )*};
}
texts!(Arc<str>, Box<str>, String, Alias, ClientName, CrawlName, HostName, MachineId, PoolName, SiteName, Slot, Uuid);

impl Field for u8 {
    fn write(&self, out: &mut Writer) {
        out.byte(*self);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        input.byte()
    }

    fn write_option(field: Option<&Self>, out: &mut Writer) {
        out.maybe(field.map(|byte| (*byte).into()));
    }

    fn read_option(input: &mut Reader<'_>) -> Result<Option<Self>, Damaged> {
        u16::read_option(input)?.map(Self::try_from).transpose().map_err(|_| Damaged("a number is too large"))
    }
}

impl Field for bool {
    fn write(&self, out: &mut Writer) {
        out.byte((*self).into());
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        match input.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Damaged("a flag is neither yes nor no")),
        }
    }

    fn write_option(field: Option<&Self>, out: &mut Writer) {
        out.maybe(field.map(|flag| (*flag).into()));
    }

    fn read_option(input: &mut Reader<'_>) -> Result<Option<Self>, Damaged> {
        Ok(input.maybe()?.map(|flag| flag != 0))
    }
}

impl<const N: usize> Field for [u8; N] {
    fn write(&self, out: &mut Writer) {
        out.raw(self);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        input.raw(N)?.try_into().map_err(|_| Damaged("it ends too early"))
    }
}

impl Field for Box<[u8]> {
    fn write(&self, out: &mut Writer) {
        out.bytes(self);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        input.bytes().map(Into::into)
    }
}

impl Field for Metadata {
    fn write(&self, out: &mut Writer) {
        out.bytes(self.as_bytes());
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        Self::from_bytes(input.bytes()?.into()).map_err(|_| Damaged("metadata is too large"))
    }
}

/// Length-prefixed octets; none at all for no address.
impl Field for IpAddr {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::V4(ip) => out.bytes(&ip.octets()),
            Self::V6(ip) => out.bytes(&ip.octets()),
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        Self::read_option(input)?.ok_or(Damaged("an IP address is missing"))
    }

    fn write_option(field: Option<&Self>, out: &mut Writer) {
        match field {
            None => out.bytes(&[]),
            Some(ip) => ip.write(out),
        }
    }

    fn read_option(input: &mut Reader<'_>) -> Result<Option<Self>, Damaged> {
        let bytes = input.bytes()?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let v4 = <[u8; 4]>::try_from(bytes).map(Self::from);
        let ip = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(Self::from));
        ip.map(Some).map_err(|_| Damaged("an IP address has a wrong length"))
    }
}

impl<T: Field> Field for Option<T> {
    fn write(&self, out: &mut Writer) {
        T::write_option(self.as_ref(), out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        T::read_option(input)
    }
}

impl<T: Field> Field for Box<T> {
    fn write(&self, out: &mut Writer) {
        (**self).write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        T::read(input).map(Self::new)
    }

    fn write_option(field: Option<&Self>, out: &mut Writer) {
        T::write_option(field.map(|field| &**field), out);
    }

    fn read_option(input: &mut Reader<'_>) -> Result<Option<Self>, Damaged> {
        Ok(T::read_option(input)?.map(Self::new))
    }
}

impl<T: Field> Field for [Option<T>; 2] {
    fn write(&self, out: &mut Writer) {
        self.iter().for_each(|entry| entry.write(out));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok([Field::read(input)?, Field::read(input)?])
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn write(&self, out: &mut Writer) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok((A::read(input)?, B::read(input)?))
    }
}

trait OrderedField: Field + Ord {}
impl<T: Field + Ord> OrderedField for T {}

/// A list: its length, then its entries. Nothing is reserved for a length that is read: one that is damaged ends with the bytes.
macro_rules! lists {
    ($($list:ident: $entry:path),*) => {$(
        impl<T: $entry> Field for $list<T> {
            fn write(&self, out: &mut Writer) {
                out.number(self.len() as u64);
                self.iter().for_each(|entry| entry.write(out));
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
                (0..input.number()?).map(|_| T::read(input)).collect()
            }
        }
    )*};
}
lists!(Vec: Field, VecDeque: Field, BTreeSet: OrderedField);

/// Appends what is read as a list.
pub(super) fn write_list<T: Field>(entries: &[T], out: &mut Writer) {
    out.number(entries.len() as u64);
    entries.iter().for_each(|entry| entry.write(out));
}

impl<K: Field + Ord, V: Field> Field for BTreeMap<K, V> {
    fn write(&self, out: &mut Writer) {
        out.number(self.len() as u64);
        for (key, value) in self {
            key.write(out);
            value.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        (0..input.number()?).map(|_| <(K, V)>::read(input)).collect()
    }
}

/// An optional text that is never empty: none is an empty one.
pub(super) mod or_empty {
    use wayleave_core::codec::{Damaged, Reader, Writer};

    pub fn write(text: &Option<impl AsRef<str>>, out: &mut Writer) {
        out.text(text.as_ref().map_or("", AsRef::as_ref));
    }

    pub fn read<T: for<'a> From<&'a str>>(input: &mut Reader<'_>) -> Result<Option<T>, Damaged> {
        Ok(Some(input.text()?).filter(|text| !text.is_empty()).map(Into::into))
    }
}
