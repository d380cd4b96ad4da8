//! Finds the next readable row behind a damaged page.
//!
//! The database does not name the keys that it cannot read: an index has them, but a read of the index visits the
//! table. It does show whether a range can be read. So the first damaged key is found byte by byte, as the end of the
//! longest range from the start of the scan that can be read, because it is empty. Keys near each other share long
//! prefixes, so this takes some dozens of reads for a row, all of them small.

use std::future::Future;

use wayleave_engine::{Error, Key};

/// Damaged rows that one call skips; a caller can continue.
const ROWS_MAX: usize = 256;

/// The part of a table that is read.
pub(crate) trait Readable {
    /// The first key from one on and before another.
    fn first_key(&self, from: &[u8], to: &[u8]) -> impl Future<Output = Result<Option<Key>, Error>> + Send;

    /// The same, if its whole row can be read.
    fn first_row(&self, from: &[u8], to: &[u8]) -> impl Future<Output = Result<Option<Key>, Error>> + Send;
}

/// The first key of a range whose row can be read, behind the damage that the range begins with; its end if there is none.
pub(crate) async fn past_damage(table: &impl Readable, (from, to): (&[u8], &[u8])) -> Result<Key, Error> {
    let mut from = from.to_vec();
    for _ in 0..ROWS_MAX {
        from = past_row(table, (&from, to)).await?;
        if from.as_slice() >= to {
            return Ok(to.to_vec());
        }
        match table.first_row(&from, to).await {
            Ok(next) => return Ok(next.unwrap_or_else(|| to.to_vec())),
            Err(Error::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(from)
}

/// A key behind the first row of a range, which cannot be read, and before the second.
async fn past_row(table: &impl Readable, (from, to): (&[u8], &[u8])) -> Result<Key, Error> {
    if let Some(end) = reads(table, from, to).await? {
        // Only the value cannot be read.
        return Ok(end.map_or_else(|| to.to_vec(), |key| next_to(&key)));
    }
    let is_damaged = async |end: &[u8]| reads(table, from, end.min(to)).await.map(|read| read.is_none());
    // The longest prefix that the damaged key shares with the start.
    let (mut shared, mut longer) = (0, from.len() + 1);
    while longer - shared > 1 {
        let middle = shared + (longer - shared) / 2;
        let ends_before = match behind(from.get(..middle).unwrap_or_default()) {
            Some(end) => is_damaged(&end).await?,
            None => true,
        };
        if ends_before { shared = middle } else { longer = middle }
    }
    let mut key = from.get(..shared).unwrap_or_default().to_vec();
    let mut least = from.get(shared).map_or(0, |byte| u16::from(*byte) + 1);
    loop {
        if key.as_slice() >= from && is_damaged(&next_to(&key)).await? {
            break;
        }
        // The least byte with which the damaged key can continue.
        let mut most = 256;
        while least < most {
            let middle = least + (most - least) / 2;
            let end = with_byte(&key, middle + 1);
            let found = match end {
                Some(end) => is_damaged(&end).await?,
                None => true,
            };
            if found { most = middle } else { least = middle + 1 }
        }
        let Ok(byte) = u8::try_from(least) else {
            // What was damaged can be read by now.
            return Ok(next_to(from));
        };
        key.push(byte);
        least = 0;
        if key.as_slice() >= to {
            return Ok(to.to_vec());
        }
    }
    let end = next_to(&key);
    // A damaged page of the index refuses every read that begins in it, also that of an empty range.
    if key == from && reads(table, &end, &next_to(&end)).await?.is_none() {
        return past_index_page(table, (from, to)).await;
    }
    Ok(end)
}

/// A key behind a damaged page of the index.
async fn past_index_page(table: &impl Readable, (from, to): (&[u8], &[u8])) -> Result<Key, Error> {
    let (mut bad, mut good) = (from.to_vec(), to.to_vec());
    for len in (1..=from.len()).rev() {
        let Some(end) = behind(from.get(..len).unwrap_or_default()).filter(|end| end.as_slice() < to) else { break };
        if reads(table, &end, &next_to(&end)).await?.is_some() {
            good = end;
            break;
        }
        bad = end;
    }
    while let Some(middle) = between(&bad, &good) {
        if reads(table, &middle, &next_to(&middle)).await?.is_some() { good = middle } else { bad = middle }
    }
    Ok(good)
}

/// The first key of a range; `None` if the range cannot be read.
async fn reads(table: &impl Readable, from: &[u8], to: &[u8]) -> Result<Option<Option<Key>>, Error> {
    match table.first_key(from, to).await {
        Ok(key) => Ok(Some(key)),
        Err(Error::Corrupt(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The least key after this one.
fn next_to(key: &[u8]) -> Key {
    [key, &[0]].concat()
}

/// The least key behind all that begin like this one, if there is any.
fn behind(prefix: &[u8]) -> Option<Key> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end)
}

/// The start of a key with this byte behind a prefix; past the last byte the least key behind the prefix.
fn with_byte(prefix: &[u8], byte: u16) -> Option<Key> {
    u8::try_from(byte).map_or_else(|_| behind(prefix), |byte| Some([prefix, &[byte]].concat()))
}

/// A key in the middle of two, to within some bytes behind their common prefix.
fn between(low: &[u8], high: &[u8]) -> Option<Key> {
    let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let bytes = key.iter().skip(common).chain(std::iter::repeat(&0)).take(8);
        bytes.fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let (first, last) = (number(low), number(high));
    let middle = first + last.saturating_sub(first) / 2;
    if middle == first {
        return None;
    }
    let mut key = [low.get(..common)?, &middle.to_be_bytes()].concat();
    while key.len() > common && key.last() == Some(&0) {
        key.pop();
    }
    Some(key).filter(|key| low < key.as_slice() && key.as_slice() < high)
}

#[cfg(test)]
#[path = "past_damage_tests.rs"]
mod tests;
