//! `nodes`: the processes that share the store.

use crate::output::{self, Table};
use crate::remote::Remote;

/// Prints the nodes.
pub async fn run(remote: &Remote) -> anyhow::Result<()> {
    let nodes = remote.client.nodes().await?;
    if remote.json {
        return output::json(&nodes);
    }
    let mut table = Table::new(["node", "name", "address", "state", "shards", "version", "format", "reason"]);
    let older: Vec<&str> = nodes.nodes.iter().filter(|node| node.holds_back).map(|node| node.name.as_str()).collect();
    if !older.is_empty() {
        eprintln!(
            "the store stays at format {} until these nodes are upgraded or gone: {}",
            nodes.format,
            older.join(", ")
        );
    }
    for node in nodes.nodes {
        let id = if node.here { format!("{} *", node.id) } else { node.id };
        let (state, shards) = (node.state.as_str().to_owned(), node.shards.to_string());
        table.row([id, node.name, node.address, state, shards, node.version, node.format.to_string(), node.reason]);
    }
    table.print()
}
