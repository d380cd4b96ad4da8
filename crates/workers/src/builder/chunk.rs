//! One chunk: fetch its WARC file, build, pack and publish its index, complete.
//!
//! Interleavings:
//! - The builder dies at any step: the lease ends, and the next attempt publishes under another name.
//! - The lease is lost while the index is being built: the result is dropped. After it was published: `complete` is
//!   refused and names the index, which is removed.
//! - The crawler that has the file is away: the file is tried for a while, then the attempt fails; after
//!   [`INPUT_ATTEMPTS_MAX`] attempts it counts as lost, and its links are crawled again. Otherwise one machine that never
//!   comes back would keep its chunks from the index for ever.
//! - The file is gone, or is not the one that was described: it is lost at once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};
use url::Url;
use wayleave_api::chunks::{ClaimedChunk, CompleteChunkRequest, FailChunkRequest, RenewChunkRequest};
use wayleave_client::Error;

use super::{Builder, Ended, extract};
use crate::crawler::chunk::{described, discard};
use crate::crawler::recorder::attempt_name;
use crate::lease::Lease;
use crate::limits::{INPUT_ATTEMPTS_MAX, INPUT_PAUSE_MAX};
use crate::store::{self, Artifact};

/// A chunk in hand.
pub(super) struct Held {
    chunk: ClaimedChunk,
    lease: Lease,
}

/// Why an attempt fails.
struct Failure {
    reason: String,
    input_lost: bool,
    /// The builder's own store does not work.
    own: bool,
}

/// Why work on a chunk stops early.
enum Halt {
    Failed(Failure),
    Server(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

impl Builder {
    /// Keeps the lease of a chunk that was asked for at `asked`, also while others are worked on first.
    pub(super) fn hold(&self, chunk: ClaimedChunk, asked: Instant) -> Held {
        let (client, id, lease_ms) = (self.client.clone(), chunk.id.clone(), self.config.lease_ms);
        let request = RenewChunkRequest { token: chunk.token.clone(), lease_ms };
        let lease = Lease::keep(asked, Duration::from_millis(lease_ms), move || {
            let (client, id, request) = (client.clone(), id.clone(), request.clone());
            async move { client.renew_chunk(&id, &request).await.map(|_| ()) }
        });
        Held { chunk, lease }
    }

    pub(super) async fn build(&self, held: &Held) -> Ended {
        let built = tokio::select! {
            why = held.lease.lost() => return lost(&held.chunk.id, &why),
            built = self.index(&held.chunk) => built,
        };
        let (artifact, pages) = match built {
            Ok(built) => built,
            Err(Halt::Server(error)) => return lost(&held.chunk.id, &error.to_string()),
            Err(Halt::Failed(failure)) => return self.fail(&held.chunk, failure).await,
        };
        let request = CompleteChunkRequest { token: held.chunk.token.clone(), artifact: Some(described(&artifact)) };
        match self.client.complete_chunk(&held.chunk.id, &request).await {
            Ok(_) => Ended::Built { pages, bytes: artifact.bytes },
            Err(error) => {
                discard(&self.store, Some(&artifact), &error).await;
                lost(&held.chunk.id, &error.to_string())
            }
        }
    }

    /// The published index of a chunk, and the number of its pages.
    async fn index(&self, chunk: &ClaimedChunk) -> Result<(Artifact, u64), Halt> {
        let own = |cause: String| Halt::Failed(Failure { reason: cause, input_lost: false, own: true });
        let crawl = self.client.chunk(&chunk.id).await?.crawl;
        let name = attempt_name(&format!("chunk-{}", chunk.id), &chunk.token, "index.tar");
        let name = name.map_err(|error| own(error.to_string()))?;
        let scratch = tempfile::Builder::new().prefix("wayleave-build-").tempdir();
        let scratch = scratch.map_err(|error| own(format!("no temporary folder: {error}")))?;
        let warc = scratch.path().join("input.warc.gz");
        self.fetch(chunk, &warc).await.map_err(Halt::Failed)?;
        let work = tokio::task::spawn_blocking(move || index(&warc, &crawl, scratch));
        let (packed, pages, _scratch) = match work.await {
            Ok(Ok(built)) => built,
            Ok(Err(error)) => {
                let reason = error.to_string();
                // A file that can be fetched but not read is no better if it is fetched again; an operator decides.
                return Err(Halt::Failed(Failure { reason, input_lost: false, own: false }));
            }
            Err(error) => return Err(own(error.to_string())),
        };
        let artifact = self.store.put(&name, &packed).await.map_err(|error| own(error.to_string()))?;
        Ok((artifact, pages))
    }

    /// Fetches the input, and tries for a while where it is out of reach.
    async fn fetch(&self, chunk: &ClaimedChunk, into: &Path) -> Result<(), Failure> {
        let failed = |reason: String, input_lost| Failure { reason, input_lost, own: false };
        let input = chunk.inputs.first().map(|input| &input.artifact);
        let input = input.ok_or_else(|| failed("the chunk has no input".to_owned(), true))?;
        let location: Url =
            input.location.parse().map_err(|_| failed(format!("{} is no URL", input.location), true))?;
        let artifact = Artifact { location, bytes: input.bytes, checksum: input.checksum.clone() };
        let begun = Instant::now();
        let mut pause = Duration::from_millis(200);
        loop {
            let rest = self.config.patience.saturating_sub(begun.elapsed());
            let error = match timeout(rest.max(pause), self.store.get(&artifact, into)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error,
                Err(_) => {
                    let reason = format!("{} took too long", artifact.location);
                    return Err(failed(reason, chunk.attempts + 1 >= INPUT_ATTEMPTS_MAX));
                }
            };
            match error {
                store::Error::Gone { .. } | store::Error::Differs { .. } | store::Error::Description { .. } => {
                    return Err(failed(error.to_string(), true));
                }
                store::Error::Transfer { .. }
                    if begun.elapsed() + pause < self.config.patience && !self.stop.is_cancelled() =>
                {
                    tokio::select! {
                        () = sleep(pause) => {}
                        () = self.stop.cancelled() => {}
                    }
                    pause = (pause * 2).min(INPUT_PAUSE_MAX);
                }
                store::Error::Transfer { .. } => {
                    let lost = chunk.attempts + 1 >= INPUT_ATTEMPTS_MAX && !self.stop.is_cancelled();
                    let reason = format!("{error}; if its crawler has ended, start one with the same --store again");
                    return Err(failed(reason, lost));
                }
                other => return Err(Failure { reason: other.to_string(), input_lost: false, own: true }),
            }
        }
    }

    async fn fail(&self, chunk: &ClaimedChunk, failure: Failure) -> Ended {
        let Failure { reason, input_lost, own } = failure;
        tracing::warn!(chunk.id = chunk.id, reason, input.lost = input_lost, "a chunk cannot be built");
        let told = reason.chars().take(200).collect();
        let request = FailChunkRequest { token: chunk.token.clone(), reason: told, input_lost };
        if let Err(error) = self.client.fail_chunk(&chunk.id, &request).await {
            tracing::warn!(chunk.id = chunk.id, error = %error, "the chunk cannot be given back; its lease will end");
        }
        match (own, input_lost) {
            (true, _) => Ended::NotStored(reason),
            (_, true) => Ended::InputLost,
            _ => Ended::Lost,
        }
    }
}

/// Builds and packs; the scratch folder lives until the index is published.
fn index(warc: &Path, crawl: &str, scratch: TempDir) -> Result<(PathBuf, u64, TempDir), extract::Error> {
    let packed = scratch.path().join("index.tar");
    let pages = extract::index(warc, crawl, &scratch, &packed)?;
    Ok((packed, pages, scratch))
}

fn lost(id: &str, why: &str) -> Ended {
    tracing::warn!(chunk.id = id, reason = why, "a chunk is lost, and will be offered again");
    Ended::Lost
}
