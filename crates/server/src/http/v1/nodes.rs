//! The nodes that share the store.

use axum::Json;
use axum::extract::State;
use wayleave_api::nodes::{Node, NodeState, Nodes};
use wayleave_api::{Code, Problem};
use wayleave_cluster::FORMAT;

use crate::http::app::App;
use crate::http::refused::Refused;

/// Lists all nodes with what they own; a server that is alone lists itself.
#[utoipa::path(get, path = "/v1/nodes", tag = "nodes", responses((status = 200, description = "The nodes.", body = Nodes)))]
pub async fn list_nodes(State(app): State<App>) -> Result<Json<Nodes>, Refused> {
    let shards = app.frontier.shards();
    let unknown =
        || Problem::new(Code::Unavailable, "the store cannot be reached, so the live nodes are unknown; try again");
    let (nodes, format) = match &app.peers {
        Some(peers) => (peers.nodes().ok_or_else(unknown)?, peers.format()),
        None => (vec![alone(&app)], FORMAT),
    };
    Ok(Json(Nodes { nodes, shards, format }))
}

fn alone(app: &App) -> Node {
    Node {
        id: "alone".to_owned(),
        name: "alone".to_owned(),
        address: format!("http://{}", app.config.advertised()),
        state: NodeState::Alive,
        reason: "an embedded store has one process; several nodes need PostgreSQL".to_owned(),
        shards: app.frontier.shards().into(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        format: FORMAT,
        holds_back: false,
        started_at: None,
        expires_at: None,
        here: true,
    }
}
