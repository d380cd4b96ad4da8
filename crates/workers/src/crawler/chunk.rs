//! One chunk: its links at the same time, each reported as soon as it is done, and then its WARC file.
//!
//! Interleavings:
//! - The lease is lost while pages are being fetched: the fetches are dropped, nothing more is reported, the file is
//!   removed. The chunk is offered again, whole.
//! - The lease is lost after the file was published: `complete` is refused and names the file, which is removed.
//! - The answer to `complete` is lost: it is repeated by the client; if no answer comes at all, the file stays, because
//!   the chunk may refer to it.
//! - A link's host moves to another group, or an operator ends its visit: the next renewal names it as ended. It is not
//!   fetched, or its fetch is dropped, because another worker may be at its host. If it is reported before, its result
//!   is not taken. If it was reported before, its page is in the file, and in that of another chunk, too: `complete` names
//!   it, which is logged.
//! - The crawler must stop: what is being fetched is finished, the rest returns to its queues at `complete`.
//! - The server's store takes no new URLs, or the server does not answer: reports wait, with the lease. No more pages than are
//!   fetched at once wait with them. If the crawler is stopped meanwhile, links whose reports the full store refused return
//!   to their queues, too; their pages are in the file, and in that of another chunk, too.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use wayleave_api::chunks::{
    Artifact, ClaimedChunk, CompleteChunkRequest, FailChunkRequest, Link, RenewChunkRequest, ReportLinksRequest,
};
use wayleave_api::reservations::Outcome;
use wayleave_client::Error;

use super::patience::is_full;
use super::recorder::{self, Recorder};
use super::visit::Trouble;
use super::{Crawler, Ended};
use crate::lease::Lease;
use crate::limits::{FETCHES_MAX, REPLACED_MAX};
use crate::store::{self, Store};

/// What the report of a link led to.
struct Reported {
    fetched: bool,
    replacements: Vec<Link>,
}

/// Why work on a chunk stops early.
enum Halt {
    Server(Error),
    Trouble(Trouble),
    Lost(String),
}

/// A chunk in hand.
struct Held {
    id: String,
    token: String,
    lease: Lease,
    /// Links that are no longer part of it.
    ended: watch::Receiver<HashSet<String>>,
    recorder: Recorder,
    /// Links at the beginning.
    links: usize,
}

impl Crawler {
    /// Works on a chunk that was asked for at `asked`.
    pub(super) async fn chunk(self: &Arc<Self>, chunk: ClaimedChunk, asked: Instant, store: &Store) -> Ended {
        let ClaimedChunk { id, token, links, .. } = chunk;
        let (sender, ended) = watch::channel(HashSet::new());
        let lease = self.keep_chunk(&id, &token, asked, sender);
        let folder = store.folder().map_or_else(std::env::temp_dir, std::path::Path::to_owned);
        let begun = Recorder::begin(&format!("chunk-{id}"), &token, &self.user_agent, &folder).await;
        let recorder = match begun {
            Ok(recorder) => recorder,
            Err(error) => return self.fail(&id, &token, &error).await,
        };
        let held = Arc::new(Held { id, token, lease, ended, recorder, links: links.len() });
        let ended = match self.fetch_all(&held, links).await {
            Ok(fetched) => self.complete(&held, fetched, store).await,
            Err(Halt::Trouble(Trouble::NoContact(error))) => {
                // No fetched page is lost: the rest returns to its queues.
                let _ = self.complete(&held, 0, store).await;
                Ended::Fatal(error.to_string())
            }
            Err(Halt::Trouble(Trouble::Record(error))) => self.fail(&held.id, &held.token, &error).await,
            Err(Halt::Lost(why)) => lost(&held.id, &why),
            Err(Halt::Server(error)) => lost(&held.id, &error.to_string()),
        };
        match &ended {
            Ended::Done => self.tally.done(),
            _ => self.tally.lost(),
        }
        ended
    }

    fn keep_chunk(&self, id: &str, token: &str, asked: Instant, ended: watch::Sender<HashSet<String>>) -> Lease {
        let (client, id, ended) = (self.client.clone(), id.to_owned(), Arc::new(ended));
        let lease_ms = self.config.lease_ms;
        let request = RenewChunkRequest { token: token.to_owned(), lease_ms };
        Lease::keep(asked, Duration::from_millis(lease_ms), move || {
            let (client, id, request, ended) = (client.clone(), id.clone(), request.clone(), Arc::clone(&ended));
            async move {
                let answer = client.renew_chunk(&id, &request).await?;
                if !answer.ended.is_empty() {
                    ended.send_modify(|links| links.extend(answer.ended));
                }
                Ok(())
            }
        })
    }

    /// Fetches and reports links until none is left. Returns how many were fetched.
    async fn fetch_all(self: &Arc<Self>, held: &Arc<Held>, links: Vec<Link>) -> Result<usize, Halt> {
        let mut waiting = VecDeque::from(links);
        let (mut reported, mut fetched) = (0, 0);
        let mut running: JoinSet<Result<Reported, Halt>> = JoinSet::new();
        loop {
            let stopping = self.stop.is_cancelled();
            while !stopping && running.len() < FETCHES_MAX.min(self.config.fetches) {
                let Some(link) = waiting.pop_front() else { break };
                let (crawler, held) = (Arc::clone(self), Arc::clone(held));
                let replace = reported + running.len() < held.links * REPLACED_MAX;
                running.spawn(async move { crawler.fetch_and_report(&held, &link, replace).await });
            }
            let next = tokio::select! {
                why = held.lease.lost() => return Err(Halt::Lost(why)),
                next = running.join_next() => next,
            };
            let Some(next) = next else { return Ok(fetched) };
            let done = next.map_err(|error| Halt::Trouble(Trouble::Record(error.into())))??;
            reported += 1;
            fetched += usize::from(done.fetched);
            waiting.extend(done.replacements);
        }
    }

    async fn fetch_and_report(&self, held: &Held, link: &Link, replace: bool) -> Result<Reported, Halt> {
        let mut ended = held.ended.clone();
        let visited = tokio::select! {
            // In this order: a link that has ended is not even begun.
            biased;
            Ok(_) = ended.wait_for(|links| links.contains(&link.url)) => {
                tracing::info!(chunk.id = held.id, "a link is no longer part of its chunk");
                return Ok(Reported { fetched: false, replacements: Vec::new() });
            }
            visited = self.visit((&link.url, &link.crawl, link.depth), Some(&held.recorder)) => visited.map_err(Halt::Trouble)?,
        };
        let replace = replace && !self.stop.is_cancelled();
        let request = ReportLinksRequest { token: held.token.clone(), results: vec![visited.result.clone()], replace };
        let passes = |error: &Error| is_full(error) || error.is_transient();
        let answer = match self.until_taken(passes, || self.client.report_links(&held.id, &request)).await {
            // The crawler is stopping.
            Err(error) if is_full(&error) => return Ok(Reported { fetched: false, replacements: Vec::new() }),
            answer => answer.map_err(Halt::Server)?,
        };
        let taken = !answer.ended.contains(&link.url);
        if taken {
            self.tally.result(&link.host, &visited);
        }
        Ok(Reported { fetched: taken && visited.result.outcome == Outcome::Fetched, replacements: answer.replacements })
    }

    /// Publishes the file if there is content, and completes the chunk. Links that were not reported return to their
    /// queues.
    async fn complete(&self, held: &Arc<Held>, fetched: usize, store: &Store) -> Ended {
        let mut artifact = None;
        if fetched > 0 {
            match held.recorder.clone().publish(store).await {
                Ok(published) => artifact = Some(published),
                Err(error) => return self.fail(&held.id, &held.token, &error).await,
            }
        }
        let request = CompleteChunkRequest { token: held.token.clone(), artifact: artifact.as_ref().map(described) };
        match self.client.complete_chunk(&held.id, &request).await {
            Ok(moved) => {
                if !moved.ended.is_empty() {
                    let (id, links) = (&held.id, moved.ended.len());
                    tracing::warn!(
                        chunk.id = id,
                        links,
                        "links left a chunk before it was complete: their pages are fetched again"
                    );
                }
                Ended::Done
            }
            Err(error) => {
                discard(store, artifact.as_ref(), &error).await;
                lost(&held.id, &error.to_string())
            }
        }
    }

    /// Gives the attempt up: this crawler cannot store what it fetched.
    async fn fail(&self, id: &str, token: &str, error: &recorder::Error) -> Ended {
        tracing::error!(chunk.id = id, error = %error, "the pages of a chunk cannot be stored");
        let reason: String = error.to_string().chars().take(200).collect();
        let request = FailChunkRequest { token: token.to_owned(), reason, input_lost: false };
        if let Err(error) = self.client.fail_chunk(id, &request).await {
            tracing::warn!(chunk.id = id, error = %error, "the chunk cannot be given back; its lease will end");
        }
        Ended::NotStored(error.to_string())
    }
}

fn lost(id: &str, why: &str) -> Ended {
    tracing::warn!(chunk.id = id, reason = why, "a chunk is lost, and will be offered again");
    Ended::Lost
}

/// An artifact as the API describes it.
pub(crate) fn described(artifact: &store::Artifact) -> Artifact {
    Artifact { location: artifact.location.to_string(), bytes: artifact.bytes, checksum: artifact.checksum.clone() }
}

/// Removes an artifact that the server calls garbage. After any other error a chunk may refer to it.
pub(crate) async fn discard(store: &Store, artifact: Option<&store::Artifact>, error: &Error) {
    let garbage = error.problem().is_some_and(|problem| problem.fields.contains_key("garbage"));
    let Some(artifact) = artifact.filter(|_| garbage) else { return };
    if let Err(error) = store.remove(&artifact.location).await {
        tracing::warn!(artifact.location = store::shown(&artifact.location), error = %error, "garbage cannot be removed");
    }
}
