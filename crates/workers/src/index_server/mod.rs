//! The index server: holds the chunks that are placed on it, and answers searches in them.
//!
//! It must not know which chunks it should have but from the placements, or how a search is spread over servers.

mod answers;
mod chunk_files;
mod copies;
pub mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio_util::sync::CancellationToken;
use wayleave_client::Client;
use wayleave_outgoing::Policy;

pub use chunk_files::{ChunkFiles, Error};
use copies::Copies;

use crate::fleet::MachineToken;
use crate::store::Store;

/// Settings of an index server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name.
    pub id: String,
    /// Its row.
    pub row: u8,
    /// How often it reads its placements.
    pub poll: Duration,
    /// How long it serves a chunk that it should no longer have.
    pub grace: Duration,
    /// Which addresses it may call.
    pub policy: Policy,
}

/// The routes of a server.
pub fn router(chunk_files: &Arc<ChunkFiles>) -> Router {
    answers::router(Arc::clone(chunk_files))
}

/// Keeps the chunks as the placements say, until it is stopped. Its reports present the machine's token.
pub async fn run(
    client: Client,
    config: Config,
    token: MachineToken,
    chunk_files: Arc<ChunkFiles>,
    store: Store,
    stop: CancellationToken,
) -> Result<(), wayleave_client::Error> {
    let poll = config.poll;
    let mut copies = Copies::new(client, token, chunk_files, store, config);
    loop {
        let round = tokio::select! {
            round = copies.round() => round,
            () = stop.cancelled() => return Ok(()),
        };
        match round {
            Ok(()) => {}
            Err(error) if error.is_transient() => {
                tracing::warn!(error = %error, "the placements cannot be read: the server does not answer");
            }
            // The next listing shows what became of it.
            Err(error) if error.is_outcome_unknown() => {
                tracing::warn!(error = %error, "the answer to a report of a chunk was lost");
            }
            // Not known while it registers anew, after it was deleted.
            Err(error) if error.problem().is_some_and(|problem| problem.status == 404) => {
                tracing::warn!(error = %error, "the placements cannot be read");
            }
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = tokio::time::sleep(poll) => {}
            () = stop.cancelled() => return Ok(()),
        }
    }
}
