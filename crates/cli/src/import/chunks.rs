//! Restores chunks, in batches, once the URLs before them are stored.

use tokio::sync::mpsc;
use wayleave_api::carry::{ExportedChunk, ImportChunksRequest, ImportStatus};
use wayleave_client::{Client, Error};
use wayleave_core::limits::RESTORE_CHUNKS_MAX;

use super::parse::Line;
use super::route::Routed;
use crate::record::Record;

/// A chunk and its line.
pub type ChunkLine = (u64, Box<ExportedChunk>);

/// Links of one request, about: they are most of it.
const LINKS: usize = 4_000;

/// Restores a chunk and all that follow it. Returns the line after them.
///
/// # Errors
/// If the server does not answer.
pub async fn restore(
    routed: &mut Routed,
    client: &Client,
    lines: &mut mpsc::Receiver<(u64, Line)>,
    first: ChunkLine,
) -> anyhow::Result<Option<(u64, Line)>> {
    let mut links = first.1.links.len();
    let mut batch = vec![first];
    loop {
        match lines.recv().await {
            Some((number, Line::Record(Record::Chunk(chunk)))) => {
                links += chunk.links.len();
                if batch.len() >= RESTORE_CHUNKS_MAX || links > LINKS {
                    links = chunk.links.len();
                    send(routed, client, std::mem::take(&mut batch)).await?;
                }
                batch.push((number, chunk));
            }
            next => {
                send(routed, client, batch).await?;
                return Ok(next);
            }
        }
    }
}

async fn send(routed: &mut Routed, client: &Client, batch: Vec<ChunkLine>) -> anyhow::Result<()> {
    let alone = batch.len() == 1;
    match send_once(routed, client, &batch).await {
        // One line spoils the request: each goes alone, so that the others are restored and the bad one is named.
        Err(Error::Refused(problem)) if !alone && matches!(problem.status, 400 | 413) => {
            for line in batch {
                let sent = send_once(routed, client, std::slice::from_ref(&line)).await;
                routed.reject(line.0, sent)?;
            }
            Ok(())
        }
        sent => routed.reject(batch.first().map_or(0, |(line, _)| *line), sent),
    }
}

async fn send_once(routed: &mut Routed, client: &Client, batch: &[ChunkLine]) -> Result<(), Error> {
    let chunks = batch.iter().map(|(_, chunk)| (**chunk).clone()).collect();
    let results = client.import_chunks(&ImportChunksRequest { chunks }).await?.results;
    for ((line, _), result) in batch.iter().zip(results) {
        match result.status {
            ImportStatus::Restored => routed.chunks += 1,
            ImportStatus::Known => routed.chunks_known += 1,
            ImportStatus::Rejected => routed.reasons.push((*line, result.reason.unwrap_or_default())),
        }
    }
    Ok(())
}
