//! Delta encoding of a byte string against a base string: the lengths of the common prefix and suffix, and the bytes in
//! between. It does not interpret the strings.

use std::cmp::Ordering;

/// A string encoded against its base: common prefix, own middle part, common suffix.
#[derive(Clone, Copy)]
pub(crate) struct Delta<'a>([&'a [u8]; 3]);

/// Common prefixes and suffixes are capped at this length.
const SHARED_MAX: usize = u8::MAX as usize;
/// Bytes of the length header.
const LENGTHS: usize = 3;
/// Escape value: the length of the middle part follows in two bytes.
const LONG: u8 = u8::MAX;

impl<'a> Delta<'a> {
    /// Encodes a string; `None` if its middle part is too long for the length field.
    pub fn of(text: &'a [u8], model: &[u8]) -> Option<Self> {
        let same = |pair: &(&u8, &u8)| pair.0 == pair.1;
        let start = text.iter().zip(model).take(SHARED_MAX).take_while(same).count();
        let (first, rest) = text.split_at_checked(start)?;
        let left = model.get(start..)?;
        let end = rest.iter().rev().zip(left.iter().rev()).take(SHARED_MAX).take_while(same).count();
        let (own, last) = rest.split_at_checked(rest.len() - end)?;
        u16::try_from(own.len()).ok().map(|_| Self([first, own, last]))
    }

    /// Encoded length in bytes.
    pub fn written_len(&self) -> usize {
        let own = self.0[1].len();
        LENGTHS + if own < usize::from(LONG) { own } else { 2 + own }
    }

    /// Appends the encoded form.
    pub fn write(&self, out: &mut Vec<u8>) {
        let [first, own, last] = self.0;
        let shared = [first.len() as u8, last.len() as u8];
        out.extend_from_slice(&shared);
        match u8::try_from(own.len()) {
            Ok(len) if len < LONG => out.push(len),
            _ => {
                out.push(LONG);
                out.extend_from_slice(&(own.len() as u16).to_le_bytes());
            }
        }
        out.extend_from_slice(own);
    }

    /// Decodes one string from the front of `bytes`; also returns the remaining bytes.
    pub fn read(bytes: &'a [u8], model: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let ([first, last, own], mut rest) = bytes.split_first_chunk::<LENGTHS>()?;
        let mut own = usize::from(*own);
        if own == usize::from(LONG) {
            let (long, after) = rest.split_first_chunk()?;
            (own, rest) = (usize::from(u16::from_le_bytes(*long)), after);
        }
        let (own, rest) = rest.split_at_checked(own)?;
        let first = model.get(..usize::from(*first))?;
        let last = model.get(model.len().checked_sub(usize::from(*last))?..)?;
        Some((Self([first, own, last]), rest))
    }

    /// Appends the decoded string.
    pub fn join(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|piece| out.extend_from_slice(piece));
    }

    /// Compares the decoded string with another one, without decoding it.
    pub fn cmp(&self, mut other: &[u8]) -> Ordering {
        for piece in self.0 {
            let (start, rest) = other.split_at(piece.len().min(other.len()));
            let order = piece.cmp(start);
            if order.is_ne() {
                return order;
            }
            other = rest;
        }
        if other.is_empty() { Ordering::Equal } else { Ordering::Less }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_what_it_was_and_compares_as_it_did(
            (text, model, other) in ("[ab]{0,8}", "[ab]{0,8}", "[ab]{0,8}"),
            (before, after) in (prop::sample::select(vec![0, 1, 254, 300]), prop::sample::select(vec![0, 1, 254, 300])),
            like in any::<bool>(),
        ) {
            let long = |text: &str| ["x".repeat(before).as_bytes(), text.as_bytes(), "y".repeat(after).as_bytes()].concat();
            let (text, other) = (long(&text), long(&other));
            let model = if like { long(&model) } else { model.into_bytes() };
            let mut out = Vec::new();
            let pieces = Delta::of(&text, &model).unwrap();
            pieces.write(&mut out);
            prop_assert_eq!(out.len(), pieces.written_len());
            out.push(7);
            let (read, rest) = Delta::read(&out, &model).unwrap();
            prop_assert_eq!(rest, &[7]);
            let mut joined = Vec::new();
            read.join(&mut joined);
            prop_assert_eq!(&joined, &text);
            prop_assert_eq!(read.cmp(&other), text.cmp(&other));
            prop_assert_eq!(read.cmp(&text), Ordering::Equal);
        }
    }

    #[test]
    fn what_is_shared_takes_no_room() {
        let (text, model) = (b"/shop/item/1234/page.html", b"/shop/item/1334/page.html");
        assert_eq!(Delta::of(text, model).unwrap().written_len(), LENGTHS + 1);
        assert_eq!(Delta::of(&[7; 70_000], &[]).map(|pieces| pieces.written_len()), None, "longer than can be told");
    }
}
