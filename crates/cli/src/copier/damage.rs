//! Reading past damage.
//!
//! A block that cannot be read makes every read fail that starts in it or reaches it: what it holds might be newer than what
//! older tables say of the same keys, so nothing of the interval may be used. Reads that start after its last key work again.
//! That key is found from reads alone: skip ever longer prefixes until one works, then narrow down byte by byte.

use wayleave_engine::rows::key::after_prefix;
use wayleave_engine::{Key, Row};

use super::source::{END, ReadError, Source, after};

/// No key is longer.
const KEY_BYTES_MAX: usize = 2_048;

/// What comes next in a store.
#[derive(Debug)]
pub enum Step {
    /// Rows, in order.
    Rows(Vec<Row>),
    /// Nothing from this key on, up to the next one, can be read.
    Gap {
        /// From here.
        from: Key,
        /// Up to here, exclusive.
        to: Key,
        /// Why.
        why: String,
    },
    /// There are no more rows.
    End,
}

/// Reads at most `limit` rows from a key on; of damage what is before it, then the gap.
///
/// # Errors
/// If nothing can be read at all.
pub fn read(source: &mut dyn Source, from: &[u8], limit: usize) -> anyhow::Result<Step> {
    let mut limit = limit.max(1);
    loop {
        match source.page(from, limit) {
            Ok(rows) if rows.is_empty() => return Ok(Step::End),
            Ok(rows) => return Ok(Step::Rows(rows)),
            Err(ReadError::Failed(error)) => return Err(error),
            Err(ReadError::Damaged(why)) if limit == 1 => {
                let to = end_of_damage(source, from)?;
                return Ok(Step::Gap { from: from.into(), to, why });
            }
            Err(ReadError::Damaged(_)) => limit /= 2,
        }
    }
}

/// The first key after `from`, where a read fails, from which it works.
fn end_of_damage(source: &mut dyn Source, from: &[u8]) -> anyhow::Result<Key> {
    // The damage ends with a key that begins like `from`, for the longest such beginning after which reads work.
    let mut failing = from.to_vec();
    let mut shared = from.len();
    let mut found = false;
    while !found {
        let next = from.get(..shared).filter(|shared| !shared.is_empty()).map_or_else(|| END.into(), after_prefix);
        found = next.as_slice() >= END.as_slice() || works(source, &next)?;
        if !found {
            failing = next;
            shared -= 1;
        }
    }
    let mut prefix = from.get(..shared).unwrap_or_default().to_vec();
    while prefix.len() < KEY_BYTES_MAX {
        // A read from the last key of the damage fails, and one right after it works.
        if prefix.as_slice() >= failing.as_slice() && works(source, &after(&prefix))? {
            return Ok(after(&prefix));
        }
        let (mut fails, mut all) = (failing.get(prefix.len()).copied().unwrap_or(0), 0x100_u16);
        if !failing.starts_with(&prefix) {
            fails = 0;
        }
        while all - u16::from(fails) > 1 {
            let middle = ((u16::from(fails) + all) / 2) as u8;
            if works(source, &[prefix.as_slice(), &[middle]].concat())? {
                all = middle.into();
            } else {
                fails = middle;
            }
        }
        prefix.push(fails);
        if failing < prefix {
            failing.clone_from(&prefix);
        }
    }
    Ok(after_prefix(&prefix))
}

fn works(source: &mut dyn Source, from: &[u8]) -> anyhow::Result<bool> {
    match source.page(from, 1) {
        Ok(_) => Ok(true),
        Err(ReadError::Damaged(_)) => Ok(false),
        Err(ReadError::Failed(error)) => Err(error),
    }
}

#[cfg(test)]
#[path = "damage_tests.rs"]
mod tests;
