//! Fleet and placement as callers hold them: machines that report, copies of built chunks, and the map, kept by the owner
//! of one shard, wherever that is. Its messages between nodes are a service of their own.

pub(crate) mod call;
mod handle;
pub(crate) mod known_map;
pub(crate) mod news;

pub use handle::Fleet;

use wayleave_core::ids::ShardId;

/// The shard that keeps fleet and placement. Both are small next to the frontier, and one writer spares every
/// agreement between them.
pub(crate) const CONTROL_SHARD: ShardId = ShardId(0);
