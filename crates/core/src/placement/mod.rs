//! Placement: which index server holds which built chunk, and the map that readers use.
//!
//! This module decides. It must not know the time, where rows are stored, who asked, or how a server fetches. In: a
//! command and *now*. Out: an answer, and row writes in the caller's list. A refusal comes before the first change. If
//! a commit fails, the state must be dropped and loaded again.
//!
//! **Rows and assignments.** Index servers belong to rows; every row holds one copy of every built chunk. The place of a
//! chunk in a row is an *assignment*: the *chosen* copy, and while that is not ready the *former* one, which serves until
//! then. Copies go assigned → fetching → ready → draining → gone; gone is no row. A server deletes a draining copy and
//! reports it gone; until then the chunk is not placed there again. Servers should serve a draining copy for a grace
//! period, because readers may still have an older map.
//!
//! **What moves a chunk.** A chunk that has no chosen copy in a row is placed at once, also while moves are frozen: the
//! first time, in a new row, and when its server reports it gone or is deleted. A server that the operator drains
//! gives up its chunks at once, a failed one after a delay (60 s by default). If it comes back before the new copy is
//! ready, the new copy is cancelled; if after, its own copy is surplus. While the fleet is frozen no such move
//! begins, and when the freeze ends the delay of failed servers starts anew: they are about to come back as well.
//! Copies that are not ready have deadlines of their own, see `unready`.
//!
//! **Balance.** A copy goes to the healthy server with the fewest bytes per capacity; the first copy in a row without
//! healthy servers to one that reports, and that only probes doubt. A server that leaves moves only its own
//! chunks. Towards one that joins, chunks move from the fullest server until the two are within 8 %, a bounded number
//! per minute. A move is planned only if it narrows the gap by a chunk of mean size, so placing alone never causes one.
//! A server that cannot keep what it fetches rests from all of this, see `rest`.
//!
//! **What no server can fetch.** After a few copies that servers gave up before any was ready, the index is given up as
//! well: the chunk leaves placement, and the pipeline has it built anew, see `give_up`.
//!
//! **The map.** Each chunk appears at most once per row: at its former copy while there is one, else at its chosen copy
//! once that is ready; never at a failed server. Each visible change raises the version, in the same commit.
//!
//! **Work.** No command walks all chunks. A change of membership or health leaves work behind: a sweep over one
//! server's copies, or over the chunks for a new row; a tick does a slice of it and says whether there is more. All of
//! it follows from rows, so a loaded state picks it up. The map and the self-check walk everything and are for readers
//! and tests.
//!
//! **The owner** passes the fleet's servers after a load and whenever they changed, and ticks while there is more and
//! at [`State::next_tick`].

mod assignment;
mod build;
mod chunk;
mod give_up;
mod listing;
mod load;
pub mod map;
mod plan;
mod rebalance;
pub mod refusal;
mod report;
mod rest;
pub mod row;
mod self_check;
mod servers;
mod state;
mod tick;
mod unready;

pub use build::Built;
pub use give_up::GivenUpIndex;
pub use listing::{Cursor, Filter, Page, PlacementView};
pub use load::Damaged;
pub use map::{Map, MapRow, MapServer, Missing};
pub use refusal::Refusal;
pub use report::CopyReport;
pub use row::{BuiltRow, CopyRole, GiveUpReason, LedgerRow, PlacementRow, PlacementState, ReturnRow, ServerRow, Write};
pub use state::{Config, State};
pub use tick::Ticked;
