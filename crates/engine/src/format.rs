//! The one number of the storage format: rows, data folders, snapshots and the tables of a database.
//!
//! Every store records the number that it was created with. A program refuses a store with a higher number by name,
//! before it changes anything.

/// The format that this program reads and writes. Raise it whenever a layout changes.
pub const VERSION: u32 = 1;
