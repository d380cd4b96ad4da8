//! Address ownership: one address, one node. A process that starts at the address of another node has its port, so the
//! other is gone and its shards need not wait for its deadline. But an advertised address is only configuration: two
//! live nodes may name the same one. So a joining node first checks who answers there. If the other node does, the new
//! one is refused; if not, the other one's row is removed. Should that node be alive after all, it notices at its next
//! heartbeat and stops.

use std::time::Duration;

use futures::StreamExt;
use wayleave_core::cluster::NodeRow;
use wayleave_core::ids::NodeId;
use wayleave_engine::rows::node;
use wayleave_engine::{Error, Row};
use wayleave_registry::{News, Registry};

use crate::claims;
use crate::join_error::JoinError;
use crate::member::Options;
use crate::network::Network;
use wayleave_core::limits::NODES_MAX;

/// A node that does not respond in this time does not answer at its address.
const SAYS_SOMETHING: Duration = Duration::from_secs(2);

/// Another node with the same address.
pub(crate) struct Namesake {
    pub row: NodeRow,
    /// Whether its lease is unexpired.
    pub lives: bool,
    stored: Row,
}

/// The other nodes with this address.
pub(crate) async fn sharing(registry: &Registry, address: &str, me: NodeId) -> Result<Vec<Namesake>, Error> {
    let look = registry.look(&[node::all(NODES_MAX)]).await?;
    let now = look.now;
    let decoded =
        look.rows.into_iter().flatten().filter_map(|stored| Some((node::decode(&stored.value).ok()?, stored)));
    let same = decoded.filter(|(row, _)| *row.address == *address && row.id != me);
    Ok(same.map(|(row, stored)| Namesake { lives: row.is_alive(now), row, stored }).collect())
}

/// Claims a node's address before it joins, or refuses it.
pub(crate) async fn claim(registry: &Registry, network: &dyn Network, options: &Options) -> Result<(), JoinError> {
    for other in sharing(registry, &options.address, options.id).await? {
        yield_or_bury(registry, network, other).await?;
    }
    Ok(())
}

/// The same once this node's own row is written: of two that joined concurrently without seeing each other, the later
/// one gives way. Both have written by now, so the later one sees the earlier one's row.
pub(crate) async fn confirm(registry: &Registry, network: &dyn Network, mine: &NodeRow) -> Result<(), JoinError> {
    let rank = |row: &NodeRow| (row.started_at, row.id);
    let others = sharing(registry, &mine.address, mine.id).await?;
    for other in others.into_iter().filter(|other| rank(&other.row) < rank(mine)) {
        if let Err(refused) = yield_or_bury(registry, network, other).await {
            registry.write(claims::leave(mine.id), News::NOBODY).await?;
            return Err(refused);
        }
    }
    Ok(())
}

async fn yield_or_bury(registry: &Registry, network: &dyn Network, other: Namesake) -> Result<(), JoinError> {
    if other.lives && answers(network, &other.row).await {
        let (address, name) = (other.row.address.to_string(), other.row.name.to_string());
        return Err(JoinError::AddressTaken { address, name, id: other.row.id });
    }
    match registry.write(claims::bury(other.stored), News::NOBODY).await {
        Ok(()) | Err(Error::Conflict) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a node responds at its address. Another node there refuses calls meant for this one.
async fn answers(network: &dyn Network, row: &NodeRow) -> bool {
    network.meet(&[(row.id, row.address.clone())]);
    let mut said = network.listen(row.id);
    tokio::time::timeout(SAYS_SOMETHING, said.next()).await.is_ok_and(|beat| beat.is_some())
}
