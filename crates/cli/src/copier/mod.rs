//! The one copier of rows: `copy`, `restore`, `salvage` and snapshots are each a source, a sink and a way to read.
//!
//! A source gives the rows of a store at one moment in key order; a sink takes them in that order, and what it makes appears
//! as a whole or not at all. In between, rows change as `wayleave_engine::transplant` says, because the result is another
//! store, and damage is either an error or a gap that is named. Nothing here knows what a row means.
//!
//! Rows of a damaged store are read by `damage`, with the help of each engine (`careful` and `salvaged` in `engine-fjall`,
//! `past_damage` in `engine-postgres`). What is lost is rebuilt from other rows by `hot`, `homes` and `handed_out`; which
//! rows of the rest open is decided by `wayleave_engine::salvage`. New stores are filled by `bulk_load` of each engine.

#[cfg(test)]
mod blocks;
mod damage;
mod handed_out;
mod homes;
mod hot;
mod losses;
mod place;
mod progress;
mod run;
mod sink;
mod source;

pub use place::{Place, read_place};
pub use progress::Progress;
pub use run::{Copied, Damage, copy, write_snapshot};
pub use source::{DatabaseSource, FileSource, FolderSource, Source};
