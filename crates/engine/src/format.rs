//! The one number of the storage format: rows, data folders, snapshots and the tables of a database.
//!
//! Every store has a number, and no row in it is of a newer format. A program refuses a store with a higher number than it
//! knows, by name, before it changes anything. A store of one process is raised to the program's number when it is opened.
//! One of several nodes is raised by the nodes once all of them know the new number (`core::cluster::raise`); until then
//! they write the older layouts, which all of them read.
//!
//! Every row starts with the number of the format that it was written in. Rows of nodes, of seats, and those that nodes agree by are
//! exempt, because nodes of every format read them: they have a version of their own, and may only be appended to.

use std::sync::atomic::{AtomicU8, Ordering};

use wayleave_core::codec::{Damaged, Reader, Writer};

/// The newest format that this program reads and writes. Raise it whenever a layout changes. The feature is for tests of
/// upgrades: a program of the next format, whose rows differ from this one's by their number.
pub const VERSION: u32 = if cfg!(feature = "next-format") { 2 } else { 1 };

/// The format of the store of this process, as far as it knows. It may be behind the store's: older layouts may always be written.
static IN_FORCE: AtomicU8 = AtomicU8::new(1);

/// The store of this process has this format: from now on rows may be written in it.
pub fn raise(format: u32) {
    let format = u8::try_from(format.min(VERSION)).unwrap_or(u8::MAX);
    IN_FORCE.fetch_max(format, Ordering::Relaxed);
}

/// Starts a row, and returns the format in which the rest of it is to be written.
pub fn write(out: &mut Writer) -> u32 {
    let format = IN_FORCE.load(Ordering::Relaxed);
    out.byte(format);
    format.into()
}

/// Reads the start of a row: the format in which the rest of it was written. Fails if this program does not know the
/// format.
pub fn read(input: &mut Reader<'_>) -> Result<u32, Damaged> {
    match input.byte()?.into() {
        format @ 1..=VERSION => Ok(format),
        _ => Err(Damaged("its format is unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_unknown_formats_are_refused_and_no_row_is_written_in_one() {
        raise(VERSION + 1);
        let mut out = Writer::default();
        assert_eq!(write(&mut out), VERSION, "a program does not write what it does not know");
        assert_eq!(read(&mut Reader::new(out.as_bytes())), Ok(VERSION));
        for unknown in [0, VERSION as u8 + 1, u8::MAX] {
            assert!(read(&mut Reader::new(&[unknown])).is_err(), "{unknown}");
        }
        assert!(read(&mut Reader::new(&[])).is_err());
    }
}
