//! Address ownership: one address, one node. A process that starts at the address of another node has its port, so the
//! other is gone and its shards need not wait for its deadline. But an advertised address is only configuration: two
//! live nodes may name the same one. So a joining node first checks who answers there. If the other node does, the new
//! one is refused; if not, the other one's row is removed. Should that node be alive after all, it notices at its next
//! heartbeat and stops.
//!
//! # Interleavings
//!
//! A and B have the same address. A node's row is only created by `cluster_rows::join`, whose batch expects the number of joins of its
//! look unchanged and raises it.
//!
//! 1. (A looks) (B looks) (A writes) (B writes): B conflicts, looks again, finds A and asks whether it answers.
//! 2. (A looks) (B looks, writes, has joined) (A writes): the same for A, however much earlier it started.
//! 3. (A's row is removed after a long pause) (A looks, to write it again) (B joins) (A writes): as 2; A is replaced.
//! 4. (A asks B, which does not answer) (B renews its row) (A writes): A decides on a new look that B's row goes. B finds
//!    its row missing and A in its place, and stops.
//! 5. (A looks, and asks B) (B leaves) (A writes): B answered, so A is refused and may be started again.

use std::collections::BTreeSet;
use std::time::Duration;

use wayleave_core::cluster::NodeRow;
use wayleave_core::limits::UPDATE_TRIES_MAX;
use wayleave_engine::Error;
use wayleave_shard::Deadline;

use crate::cluster_rows::Refused;
use crate::join_error::JoinError;
use crate::lease_renewal::{Creation, LeaseRenewal};
use crate::network::Network;

/// A node that does not respond in this time does not answer at its address.
const SAYS_SOMETHING: Duration = Duration::from_secs(2);

/// Writes a node's first row and with it claims its address, or refuses it. Returns until when the node may take itself
/// for alive.
pub(crate) async fn join(renewal: &mut LeaseRenewal, network: &dyn Network) -> Result<Deadline, JoinError> {
    let mut silent = BTreeSet::new();
    for _ in 0..UPDATE_TRIES_MAX {
        match renewal.create(false, &silent).await? {
            Creation::Done(deadline) => return Ok(deadline),
            Creation::Refused(Refused::Newer(found)) => return Err(renewal.newer(found)),
            Creation::Refused(Refused::Taken(other)) => {
                if answers(network, &other).await {
                    let (address, name) = (other.address.to_string(), other.name.to_string());
                    return Err(JoinError::AddressTaken { address, name, id: other.id });
                }
                silent.insert(other.id);
            }
        }
    }
    Err(Error::Unavailable("too many nodes join with the address of this one".to_owned()).into())
}

/// Whether a node responds at its address, whatever version of the protocol it speaks. Another node there refuses calls meant for this one.
async fn answers(network: &dyn Network, row: &NodeRow) -> bool {
    network.meet(&[(row.id, row.address.clone())]);
    tokio::time::timeout(SAYS_SOMETHING, network.answers(row.id)).await.unwrap_or(false)
}
