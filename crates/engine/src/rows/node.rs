//! A node: one Wayleave process of several over a store.
//! Lifetime: from its first heartbeat until it leaves, or until it has been dead for long.
//! Key: outside · 14 · node id. Value: version, addresses, times.

use wayleave_core::cluster::NodeRow;
use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::ids::NodeId;
use wayleave_core::time::Time;

use super::{Kind, key as keys};
use crate::{Key, Scan};

const VERSION: u8 = 1;

/// The key of a node.
#[must_use]
pub fn key(node: NodeId) -> Key {
    let mut key = keys::start(keys::OUTSIDE, Kind::Node, 8);
    key.extend_from_slice(&node.0.to_be_bytes());
    key
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
    let mut out = Writer::with_capacity(64);
    out.byte(VERSION);
    out.number(row.id.0);
    out.text(&row.address);
    out.text(&row.name);
    out.text(&row.version);
    out.number(row.protocol.into());
    out.number(row.started_at.0);
    out.number(row.alive_since.0);
    out.number(row.expires_at.0);
    out.byte(row.leaving.into());
    out.into()
}

/// Decodes a row.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<NodeRow, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("a node row has an unknown version"));
    }
    Ok(NodeRow {
        id: NodeId(input.number()?),
        address: input.text()?.into(),
        name: input.text()?.into(),
        version: input.text()?.into(),
        protocol: input.small()?,
        started_at: Time(input.number()?),
        alive_since: Time(input.number()?),
        expires_at: Time(input.number()?),
        leaving: input.byte()? != 0,
    })
}
