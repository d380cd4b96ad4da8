//! Reads rows of tables one by one, up to damage or past it.
//!
//! The tree's own iterator reads ahead: its merge replaces a row in the heap before it returns it, and then peeks for older
//! versions. Where the next row cannot be read, the row before it is lost with the error. This one reads a row only when it
//! is wanted. It is slower, so reads begin with the other.
//!
//! Past damage, a row may be older than one that cannot be read.

use lsm_tree::{InternalValue, Slice, Table};
use wayleave_engine::Error;

use crate::tables::TableRow;
use crate::trouble;

/// The newest rows of tables in a key range.
pub(crate) struct CarefulRows {
    from: Slice,
    to: Slice,
    /// Versions with this sequence number or a higher one are not visible.
    instant: u64,
    /// Tables whose first rows may come later, the last of them first.
    unopened: Vec<Table>,
    readers: Vec<Reader>,
    /// The key of the last row: its older versions are passed over.
    last: Option<Slice>,
    failed: bool,
    passes: bool,
    /// Where the first damage that was passed ends: a read that begins here meets it no more.
    damage_end: Option<Slice>,
    /// The table of the last block that could not be read, and why.
    damaged: Option<(Table, String)>,
}

struct Reader {
    table: Table,
    rows: Box<dyn Iterator<Item = lsm_tree::Result<InternalValue>> + Send>,
    next: Option<InternalValue>,
}

impl CarefulRows {
    pub(crate) fn new<'a>(tables: impl Iterator<Item = &'a Table>, (from, to): (&[u8], &[u8]), instant: u64) -> Self {
        let in_range = |table: &&Table| {
            let keys = &table.metadata.key_range;
            **keys.min() < *to && **keys.max() >= *from
        };
        let mut unopened: Vec<Table> = tables.filter(in_range).cloned().collect();
        unopened.sort_by(|a, b| b.metadata.key_range.min().cmp(a.metadata.key_range.min()));
        let (from, to) = (from.into(), to.into());
        let (readers, last, failed, passes) = (Vec::new(), None, false, false);
        Self { from, to, instant, unopened, readers, last, failed, passes, damage_end: None, damaged: None }
    }

    /// Reads on past damage.
    pub(crate) fn passing(self) -> Self {
        Self { passes: true, ..self }
    }

    /// Where the first damage that was passed ends.
    pub(crate) fn damage_end(&self) -> Option<&[u8]> {
        self.damage_end.as_deref()
    }

    /// The table of the last block that could not be read, and why.
    pub(crate) const fn damaged(&self) -> Option<&(Table, String)> {
        self.damaged.as_ref()
    }

    /// The next row or tombstone.
    fn advance(&mut self) -> lsm_tree::Result<Option<InternalValue>> {
        let mut first = self.refill()?;
        // No table earlier than it must be: the first block of a later one may be damaged too.
        let may_precede = |table: &Table, row: &InternalValue| *table.metadata.key_range.min() <= row.key.user_key;
        while let Some(table) = self.unopened.pop_if(|table| match first.and_then(|at| self.readers.get(at)) {
            Some(Reader { next: Some(row), .. }) => may_precede(table, row),
            _ => true,
        }) {
            let rows = Box::new(table.range(self.from.clone()..self.to.clone()));
            self.readers.push(Reader { table, rows, next: None });
            first = self.refill()?;
        }
        let row = first.and_then(|at| self.readers.get_mut(at)?.next.take());
        self.last = row.as_ref().map(|row| row.key.user_key.clone());
        Ok(row)
    }

    /// Reads the next row of each table from which one was taken. Returns the reader that has the first of all.
    fn refill(&mut self) -> lsm_tree::Result<Option<usize>> {
        for reader in &mut self.readers {
            let is_wanted =
                |row: &InternalValue| row.key.seqno < self.instant && Some(&row.key.user_key) != self.last.as_ref();
            let mut met_damage = false;
            while !reader.next.as_ref().is_some_and(is_wanted) {
                reader.next = match reader.rows.next() {
                    Some(Ok(row)) => Some(row),
                    Some(Err(error)) => {
                        if trouble::is_damage(&error) {
                            self.damaged = Some((reader.table.clone(), trouble::describe(&error)));
                            met_damage = true;
                        }
                        if met_damage && self.passes {
                            continue;
                        }
                        return Err(error);
                    }
                    None => None,
                };
                if reader.next.is_none() {
                    break;
                }
            }
            if met_damage && self.damage_end.is_none() {
                let next = reader.next.as_ref().map(|row| row.key.user_key.clone());
                let after_last = || [&**reader.table.metadata.key_range.max(), &[0]].concat().into();
                self.damage_end = Some(next.unwrap_or_else(after_last));
            }
        }
        self.readers.retain(|reader| reader.next.is_some());
        let rows = self.readers.iter().enumerate().filter_map(|(at, reader)| Some((&reader.next.as_ref()?.key, at)));
        Ok(rows.min().map(|(_, at)| at))
    }
}

impl Iterator for CarefulRows {
    type Item = Result<TableRow, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        // After an error the iterator of a table would continue behind the damage.
        while !self.failed {
            match self.advance() {
                Ok(row) => {
                    let row = row?;
                    if !row.key.is_tombstone() {
                        return Some(Ok((row.key.user_key.to_vec(), row.value.to_vec())));
                    }
                }
                Err(error) => {
                    self.failed = true;
                    let of_table = self.damaged.as_ref().map(|(table, what)| trouble::on_damage(&table.path, what));
                    return Some(Err(of_table.unwrap_or_else(|| trouble::on_read(&error))));
                }
            }
        }
        None
    }
}
