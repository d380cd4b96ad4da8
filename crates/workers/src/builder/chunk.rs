//! One chunk: fetch its WARC file, build, pack and publish its index, complete.
//!
//! Interleavings:
//! - The builder dies at any step: the lease ends, and the next attempt publishes under another name. That costs each chunk it
//!   held an attempt, also if it is started again at once under its name. It must: a file that kills every builder (by its memory,
//!   say) looks like one that a killed builder had in hand, and would be built without end if such attempts did not
//!   count (law 5). An operator's `chunks retry` forgives them.
//! - The lease is lost while the index is being built: the result is dropped. After it was published: `complete` is
//!   refused and names the index, which is removed.
//! - The crawler that has the file is away: the file is tried for a while, then the attempt fails; after
//!   [`INPUT_ATTEMPTS_MAX`] attempts it counts as lost, and its links are crawled again. Otherwise one machine that
//!   never comes back would keep its chunks out of the index. All chunks of a machine share the wait ([`unreachable`]).
//! - The file is gone, or is not the one that was described: it is lost at once.
//! - The file is where this builder cannot read, such as in a folder that is not its store or at an address that it
//!   may not call: the attempt fails, and the chunk is set aside after too many. That says nothing of the builder's
//!   own store, so the builder continues. It rests before its next claim, so that a builder that can read it takes
//!   the chunk first.
//! - The builder must stop while a claim is open: the claim ends by itself soon (dropped, it might leave chunks
//!   without a worker until their leases end), and chunks that it brings are given back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use url::Url;
use wayleave_api::chunks::{ClaimedChunk, CompleteChunkRequest, FailChunkRequest, RenewChunkRequest};
use wayleave_api::redact;
use wayleave_client::Error;
use wayleave_outgoing::{Rule, Target, Unresolved};

use super::scratch::Scratch;
use super::{Builder, Ended, extract, unreachable};
use crate::crawler::chunk::{described, discard};
use crate::crawler::recorder::attempt_name;
use crate::fleet::vouched;
use crate::lease::Lease;
use crate::limits::{INPUT_ATTEMPTS_MAX, INPUT_PAUSE_MAX, MACHINE_PROBE_MAX};
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
    cause: Cause,
}

/// What an attempt failed by.
#[derive(Debug, PartialEq, Eq)]
enum Cause {
    /// The chunk: its content is lost or cannot be built, or its machine is out of reach.
    Chunk,
    /// The input is where this builder cannot read; another one may.
    Input,
    /// The builder's own store or temporary folder does not work.
    Own,
}

/// Why an input was not fetched.
enum Unfetched {
    /// The machine that has it is out of reach.
    Unreachable(String),
    Store(store::Error),
}

/// Why work on a chunk stops early.
enum Halt {
    Unreachable,
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

    /// Builds a chunk. If the machine that has its input is out of reach, it is waited for only where `wait` says so.
    pub(super) async fn build(&self, held: &Held, wait: bool) -> Ended {
        let built = tokio::select! {
            why = held.lease.lost() => return lost(&held.chunk.id, &why),
            built = self.index(&held.chunk, wait) => built,
        };
        let (artifact, pages) = match built {
            Ok(built) => built,
            Err(Halt::Server(error)) => return lost(&held.chunk.id, &error.to_string()),
            Err(Halt::Unreachable) => return Ended::Unreachable,
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
    async fn index(&self, chunk: &ClaimedChunk, wait: bool) -> Result<(Artifact, u64), Halt> {
        let own = |cause: String| Halt::Failed(Failure { reason: cause, input_lost: false, cause: Cause::Own });
        let crawl = self.client.chunk(&chunk.id).await?.crawl;
        let name = attempt_name(&format!("chunk-{}", chunk.id), &chunk.token, "index.tar");
        let name = name.map_err(|error| own(error.to_string()))?;
        let scratch = Scratch::create(&std::env::temp_dir());
        let scratch = scratch.map_err(|error| own(format!("no temporary folder: {error}")))?;
        let warc = scratch.path().join("input.warc.gz");
        self.fetch(chunk, &warc, wait).await?;
        let work = tokio::task::spawn_blocking(move || index(&warc, &crawl, scratch));
        let (packed, pages, _scratch) = match work.await {
            Ok(Ok(built)) => built,
            Ok(Err(error)) => {
                let reason = error.to_string();
                // A file that can be fetched but not read is no better if it is fetched again; an operator decides.
                return Err(Halt::Failed(Failure { reason, input_lost: false, cause: Cause::Chunk }));
            }
            Err(error) => return Err(own(error.to_string())),
        };
        let artifact = self.store.put(&name, &packed).await.map_err(|error| own(error.to_string()))?;
        Ok((artifact, pages))
    }

    /// Fetches the input, and tries for a while where it is out of reach.
    async fn fetch(&self, chunk: &ClaimedChunk, into: &Path, wait: bool) -> Result<(), Halt> {
        let failed = |reason: String, input_lost| Halt::Failed(Failure { reason, input_lost, cause: Cause::Chunk });
        let input = chunk.inputs.first().ok_or_else(|| failed("the chunk has no input".to_owned(), true))?;
        let rule = self.config.policy.named(vouched([&input.from]));
        let input = &input.artifact;
        let location: Url = input
            .location
            .parse()
            .map_err(|_| failed(format!("{} is no URL", redact::location(&input.location)), true))?;
        let artifact = Artifact { location, bytes: input.bytes, checksum: input.checksum.clone() };
        let machine = unreachable::machine(&artifact.location);
        let mut pause = Duration::from_millis(200);
        loop {
            let begun = Instant::now();
            let error = match self.try_fetch(&machine, &artifact, &rule, into).await {
                Ok(()) => {
                    self.unreachable.back(&machine, Instant::now());
                    return Ok(());
                }
                Err(Unfetched::Unreachable(why)) => why,
                Err(Unfetched::Store(error)) => match error {
                    store::Error::Gone { .. } | store::Error::Differs { .. } | store::Error::Description { .. } => {
                        return Err(failed(error.to_string(), true));
                    }
                    other => {
                        let (reason, cause) = (other.to_string(), cause(&other, into));
                        return Err(Halt::Failed(Failure { reason, input_lost: false, cause }));
                    }
                },
            };
            let now = Instant::now();
            let until = self.unreachable.failed(&machine, begun, now, chunk.attempts);
            if !wait {
                return Err(Halt::Unreachable);
            }
            if now + pause >= until || self.stop.is_cancelled() {
                let reason = format!("{error}; if its crawler has ended, start one with the same --store again");
                let last = chunk.attempts.saturating_add(1) >= INPUT_ATTEMPTS_MAX;
                return Err(failed(reason, last && !self.stop.is_cancelled()));
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = self.stop.cancelled() => {}
            }
            pause = (pause * 2).min(INPUT_PAUSE_MAX);
        }
    }

    /// One try. Of a machine that was out of reach a moment ago nothing is asked before it takes a connection: a try that gets
    /// no answer at all takes long, and there may be many chunks of it.
    async fn try_fetch(&self, machine: &str, artifact: &Artifact, rule: &Rule, into: &Path) -> Result<(), Unfetched> {
        let (location, shown) = (&artifact.location, store::shown(&artifact.location));
        let http = matches!(location.scheme(), "http" | "https");
        if http && self.unreachable.is_unreachable(machine, Instant::now()) {
            let connected = timeout(MACHINE_PROBE_MAX, connect(machine, rule)).await;
            if !matches!(connected, Ok(Ok(_))) {
                return Err(Unfetched::Unreachable(format!("{shown}: {machine} is out of reach")));
            }
        }
        match timeout(self.config.patience.max(MACHINE_PROBE_MAX), self.store.get(artifact, rule, into)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error @ store::Error::Transfer { .. })) => Err(Unfetched::Unreachable(error.to_string())),
            Ok(Err(error)) => Err(Unfetched::Store(error)),
            Err(_) => Err(Unfetched::Unreachable(format!("{shown} took too long"))),
        }
    }

    async fn fail(&self, chunk: &ClaimedChunk, failure: Failure) -> Ended {
        let Failure { reason, input_lost, cause } = failure;
        tracing::warn!(chunk.id = chunk.id, reason, input.lost = input_lost, "a chunk cannot be built");
        let shortened = reason.chars().take(200).collect();
        let request = FailChunkRequest { token: chunk.token.clone(), reason: shortened, input_lost };
        if let Err(error) = self.client.fail_chunk(&chunk.id, &request).await {
            tracing::warn!(chunk.id = chunk.id, error = %error, "the chunk cannot be given back; its lease will end");
        }
        match (cause, input_lost) {
            (Cause::Own, _) => Ended::NotStored(reason),
            (Cause::Input, _) => Ended::Unreadable,
            (Cause::Chunk, true) => Ended::InputLost,
            (Cause::Chunk, false) => Ended::Lost,
        }
    }

    /// Gives back a chunk that came after the builder was asked to stop. That costs an attempt, like a lease that
    /// ends, but others can continue with it at once.
    pub(super) async fn give_back(&self, held: &Held) -> Ended {
        let reason = "its builder stopped before it began".to_owned();
        self.fail(&held.chunk, Failure { reason, input_lost: false, cause: Cause::Chunk }).await
    }
}

async fn connect(machine: &str, rule: &Rule) -> Result<TcpStream, Unresolved> {
    let addresses = machine.parse::<Target>()?.addresses(rule).await?;
    Ok(TcpStream::connect(addresses.as_slice()).await?)
}

/// Whose fault it is that an input could not be fetched to a file.
fn cause(error: &store::Error, into: &Path) -> Cause {
    match error {
        store::Error::File { path, .. } if path != into && *path != std::env::temp_dir() => Cause::Input,
        store::Error::Location(_) | store::Error::Refused { .. } => Cause::Input,
        _ => Cause::Own,
    }
}

/// Builds and packs; the scratch folder lives until the index is published.
fn index(warc: &Path, crawl: &str, scratch: Scratch) -> Result<(PathBuf, u64, Scratch), extract::Error> {
    let packed = scratch.path().join("index.tar");
    let pages = extract::index(warc, crawl, scratch.path(), &packed)?;
    Ok((packed, pages, scratch))
}

fn lost(id: &str, why: &str) -> Ended {
    tracing::warn!(chunk.id = id, reason = why, "a chunk is lost, and will be offered again");
    Ended::Lost
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_what_the_builder_itself_cannot_write_is_its_own_failure() {
        let into = Path::new("/tmp/scratch/input.warc.gz");
        let file = |path: &str| store::Error::File { path: path.into(), cause: io::ErrorKind::PermissionDenied.into() };
        assert_eq!(cause(&file("/shared/chunk-1.warc.gz"), into), Cause::Input);
        assert_eq!(cause(&store::Error::Location("file:///a".parse().unwrap()), into), Cause::Input);
        assert_eq!(cause(&file("/tmp/scratch/input.warc.gz"), into), Cause::Own);
        assert_eq!(cause(&file(std::env::temp_dir().to_str().unwrap()), into), Cause::Own);
    }
}
