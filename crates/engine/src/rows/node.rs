//! A node: one Wayleave process of several over a store.
//! Lifetime: from its first heartbeat until it leaves, or until it has been dead for long.
//! Key: outside · 14 · node id. Value: version, addresses, times, format, failing shards.
//! Nodes of every format read it: it may only be appended to.

use wayleave_core::cluster::NodeRow;
use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::ids::NodeId;

use super::field::{self, Field, fields};
use super::{Kind, key as keys};
use crate::{Key, Scan};

fields!(NodeRow {
    id,
    address,
    name,
    version,
    protocol,
    started_at,
    alive_since,
    expires_at,
    leaving,
    format,
    failing
});

/// The key of a node.
#[must_use]
pub fn key(node: NodeId) -> Key {
    keys::of(keys::OUTSIDE, Kind::Node, &[&node.0.to_be_bytes()])
}

/// The scan of all nodes, up to a limit.
#[must_use]
pub fn all(limit: usize) -> Scan {
    let (from, to) = keys::range(keys::OUTSIDE, Kind::Node, Kind::Node);
    Scan { from, to, limit }
}

/// Encodes a row.
#[must_use]
pub fn encode(row: &NodeRow) -> Vec<u8> {
    field::encode_frozen(row)
}

/// Decodes a row.
pub fn decode(bytes: &[u8]) -> Result<NodeRow, Damaged> {
    field::decode_frozen(bytes, "a node row has an unknown version")
}
