//! Reading past damage.
//!
//! A block that cannot be read makes every read fail that starts in it or reaches it: what it holds might be newer than what
//! older tables say of the same keys. The source tells where that ends, and which rows it does not concern.

use wayleave_engine::{Key, Row};

use super::source::{END, ReadError, Source, after};

/// Rows of a damaged interval per read: more than of others, because each part of it is compared with rows elsewhere.
const CERTAIN_ROWS: usize = 100_000;

/// What comes next in a store.
#[derive(Debug)]
pub struct Step {
    /// Rows, in order.
    pub rows: Vec<Row>,
    /// Where the next step begins; `None` at the end.
    pub next: Option<Key>,
    /// Why others up to there cannot be read, if so.
    pub damage: Option<String>,
}

/// Reads about as many rows as `limit` from a key on: up to damage, or all that is certain in a damaged interval.
pub fn read(source: &mut dyn Source, from: &[u8], limit: usize) -> anyhow::Result<Step> {
    let mut part = limit.max(1);
    loop {
        match source.page(from, part) {
            Ok(rows) => {
                let next = rows.last().map(|row| after(&row.key));
                return Ok(Step { rows, next, damage: None });
            }
            Err(ReadError::Failed(error)) => return Err(error),
            Err(ReadError::Damaged(why)) if part == 1 => {
                let (end, rows) = source.past_damage(from, CERTAIN_ROWS)?;
                let next = Some(end).filter(|end| end.as_slice() < END.as_slice());
                return Ok(Step { rows, next, damage: Some(why) });
            }
            Err(ReadError::Damaged(_)) => part /= 2,
        }
    }
}

#[cfg(test)]
#[path = "damage_tests.rs"]
mod tests;
