//! Reconciles the chunks of an index server with its placements.
//!
//! Interleavings:
//! - The server dies after it has fetched a chunk and before it has reported it ready: the file has its name, so the next
//!   start opens it, and reports it.
//! - A chunk is reported ready, and its file is lost or malformed: it is reported gone, and placed anew. A malformed one that is
//!   placed here again is reported gone again; after a few such reports the server has it built anew.
//! - The system has no descriptor, memory map or space for a chunk: that is tried for a while, and then reported as the server's own
//!   inability, which says nothing of the index. A file that is here stays, and is used if the chunk is placed here again.
//! - A chunk drains while readers have an older map: it is served for a grace period before it is removed.
//! - A chunk is no longer listed (its machine was deleted, or the chunk is another's now): it is removed after the same
//!   time. Only a complete listing counts; one that fails changes nothing. Its file stays while it is the present index of the
//!   chunk and no other server of the row has that ready: it may be the last good one.
//! - The answer to a report that a chunk is gone is lost: it is not repeated, because the chunk may be placed here again by then. The
//!   next listing shows what became of it.
//! - A chunk that is here was never listed to this process: it may have moved away while the server was down, or the fleet
//!   is being moved to another store, which names its chunks last. It is kept for a day.
//! - A chunk cannot be fetched: at once if its file is gone or is another one, else after a while, it is reported gone.
//!   After a few such reports the server has it built anew. One in a place that this server cannot read is not
//!   reported: its fetch becomes overdue, and another server may have the store.
//! - A chunk is placed, cancelled and placed again while it is being fetched: what is fetched is used if its checksum is
//!   the one that is asked for.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use tokio::time::Instant;
use url::Url;
use wayleave_api::chunks::{Artifact as ArtifactView, ChunkState};
use wayleave_api::fleet::MachineType;
use wayleave_api::placements::{CopyState, ListPlacementsQuery, Placement, SaidOfCopy};
use wayleave_client::{Client, Error};
use wayleave_outgoing::Policy;

use super::Config;
use super::chunk_files::{ChunkFiles, is_bad_block};
use crate::fleet::{self, MachineToken};
use crate::index::Fault;
use crate::limits::{COPIES_AT_ONCE_MAX, COPY_PAUSE_MAX, NEVER_LISTED_GRACE};
use crate::store::{self, Artifact, Store};

/// Where index servers report from, by their addresses.
type Servers = HashMap<String, Vec<IpAddr>>;

/// The first pause after a chunk could not be fetched.
const COPY_PAUSE: Duration = Duration::from_millis(500);

/// Once the pause after a failure is so long, a chunk is given up: half a minute after the first attempt.
const COPY_PAUSE_GONE: Duration = Duration::from_secs(16);

/// Why a chunk could not be fetched or served, and what that says of it.
struct Unfetched {
    why: String,
    loss: Loss,
}

/// Of several attempts the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    /// It is lost: another attempt would be pointless.
    Certain,
    /// It is lost if this lasts.
    IfLasting,
    /// Nothing: it is where this server cannot or must not read, and the next index of it would be too. Reported
    /// gone, it would be built anew without end.
    Unknown,
    /// Nothing: the fault is this server's own, which cannot keep or open files. Reported as that if it lasts.
    Own,
}

impl Loss {
    fn by(error: &store::Error) -> Self {
        match error {
            store::Error::Location(_) | store::Error::Refused { .. } => Self::Unknown,
            // Perhaps of the file that is read.
            store::Error::File { cause, .. } if is_bad_block(cause) => Self::IfLasting,
            store::Error::File { .. } => Self::Own,
            store::Error::Transfer { .. } => Self::IfLasting,
            _ => Self::Certain,
        }
    }

    /// What is reported of a chunk, once it lasts or before.
    fn report(self, lasts: bool) -> Option<SaidOfCopy> {
        match self {
            Self::Certain => Some(SaidOfCopy::Gone),
            Self::IfLasting => lasts.then_some(SaidOfCopy::Gone),
            Self::Own => lasts.then_some(SaidOfCopy::Unable),
            Self::Unknown => None,
        }
    }
}

impl From<Fault> for Unfetched {
    fn from(fault: Fault) -> Self {
        let loss = if fault.is_of_system() { Loss::Own } else { Loss::Certain };
        Self { loss, why: fault.to_string() }
    }
}

/// The chunks of one server, and when to do what with them.
pub(super) struct Copies {
    pub client: Client,
    pub id: String,
    row: u8,
    pub token: MachineToken,
    pub chunk_files: Arc<ChunkFiles>,
    /// Only to fetch with.
    pub store: Store,
    pub grace: Duration,
    policy: Policy,
    /// Chunks that have been listed, and may be here.
    known: HashSet<String>,
    /// When a chunk that drains or is not listed was first seen so.
    leaving: HashMap<String, Instant>,
    /// When a chunk that could not be fetched is tried again, and the pause after that.
    failed: HashMap<String, (Instant, Duration)>,
    /// Whether the missing store was logged.
    logged_store: AtomicBool,
}

impl Copies {
    pub fn new(
        client: Client,
        token: MachineToken,
        chunk_files: Arc<ChunkFiles>,
        store: Store,
        Config { id, row, grace, policy, .. }: Config,
    ) -> Self {
        let (known, leaving, failed) = (HashSet::new(), HashMap::new(), HashMap::new());
        let logged_store = AtomicBool::new(false);
        Self { client, id, row, token, chunk_files, store, grace, policy, known, leaving, failed, logged_store }
    }

    /// One round: reads the placements, fetches, removes, reports.
    pub async fn round(&mut self) -> Result<(), Error> {
        let query = ListPlacementsQuery {
            server: Some(self.id.clone()),
            limit: Some(1_000),
            credentials: Some(true),
            ..ListPlacementsQuery::default()
        };
        let listed: Vec<Placement> = self.client.all_placements(query).try_collect().await?;
        let now = Instant::now();
        self.forget(&listed, now).await?;
        self.failed.retain(|chunk, _| listed.iter().any(|placement| placement.chunk == *chunk));
        let wanted: Vec<Placement> = listed.into_iter().filter(|placement| self.is_due(placement, now)).collect();
        // Sources are addresses of index servers, which may each be called where it reports from.
        let servers = match wanted.iter().any(|placement| !placement.sources.is_empty()) {
            true => fleet::reporting(&self.client, MachineType::Server).await?,
            false => HashMap::new(),
        };
        let (this, servers) = (&*self, &servers);
        let ended: Vec<(String, Result<bool, Error>)> = futures::stream::iter(wanted)
            .map(|placement| async move { (placement.chunk.clone(), this.copy(&placement, servers).await) })
            .buffer_unordered(COPIES_AT_ONCE_MAX)
            .collect()
            .await;
        let mut unsaid = None;
        for (chunk, ended) in ended {
            let is_here = ended.unwrap_or_else(|error| {
                unsaid = Some(error);
                false
            });
            if is_here {
                self.failed.remove(&chunk);
            } else {
                let pause = self.failed.get(&chunk).map_or(COPY_PAUSE, |(_, pause)| (*pause * 2).min(COPY_PAUSE_MAX));
                self.failed.insert(chunk, (Instant::now() + pause, pause));
            }
        }
        unsaid.map_or(Ok(()), Err)
    }

    fn is_due(&self, placement: &Placement, now: Instant) -> bool {
        let here = |placement: &Placement| {
            placement
                .artifact
                .as_ref()
                .is_some_and(|artifact| self.chunk_files.has(&placement.chunk, &artifact.checksum))
        };
        match placement.state {
            CopyState::Ready if here(placement) => false,
            CopyState::Draining => false,
            CopyState::Assigned | CopyState::Fetching | CopyState::Ready => {
                self.failed.get(&placement.chunk).is_none_or(|(at, _)| *at <= now)
            }
        }
    }

    /// Brings one chunk here. False if it is not.
    async fn copy(&self, placement: &Placement, servers: &Servers) -> Result<bool, Error> {
        let chunk = &placement.chunk;
        let Some(artifact) = &placement.artifact else { return Ok(false) };
        let of = Some(artifact.checksum.as_str());
        if placement.state == CopyState::Ready {
            let loss = match self.reopen(chunk, &artifact.checksum).await {
                Ok(true) => return Ok(true),
                Ok(false) => Loss::Certain,
                Err(fault) => Unfetched::from(fault).loss,
            };
            if let Some(report) = loss.report(self.is_long_gone(chunk)) {
                tracing::warn!(chunk.id = chunk, "a chunk is no longer served here");
                self.say(chunk, report, None).await?;
            }
            return Ok(loss == Loss::Certain);
        }
        if !self.chunk_files.has(chunk, &artifact.checksum) {
            if placement.state == CopyState::Assigned && !self.say(chunk, SaidOfCopy::Fetching, of).await? {
                return Ok(true);
            }
            if let Err(Unfetched { why, loss }) = self.bring(placement, artifact, servers).await {
                tracing::warn!(chunk.id = chunk, reason = why, "a chunk cannot be fetched or served");
                if let Some(report) = loss.report(self.is_long_gone(chunk)) {
                    self.say(chunk, report, of).await?;
                }
                return Ok(false);
            }
        }
        self.say(chunk, SaidOfCopy::Ready, of).await?;
        Ok(true)
    }

    /// Whether a chunk has failed for so long that it is given up.
    fn is_long_gone(&self, chunk: &str) -> bool {
        self.failed.get(chunk).is_some_and(|(_, pause)| *pause >= COPY_PAUSE_GONE)
    }

    /// Serves a chunk whose file is here already. False if it is not.
    async fn reopen(&self, chunk: &str, checksum: &str) -> Result<bool, Fault> {
        let (chunk_files, chunk, checksum) = (Arc::clone(&self.chunk_files), chunk.to_owned(), checksum.to_owned());
        let work = tokio::task::spawn_blocking(move || chunk_files.reopen(&chunk, &checksum));
        work.await.map_err(|error| Fault::of_chunk(error.to_string()))?
    }

    /// Serves a chunk from its file, which is fetched if it is not here, in the place of another build of it.
    async fn bring(&self, placement: &Placement, artifact: &ArtifactView, servers: &Servers) -> Result<(), Unfetched> {
        let before = self.chunk_files.checksum(&placement.chunk).filter(|before| *before != artifact.checksum);
        if !self.reopen(&placement.chunk, &artifact.checksum).await? {
            self.fetch(placement, artifact, servers).await?;
        }
        if let Some(before) = before {
            let (chunk_files, chunk) = (Arc::clone(&self.chunk_files), placement.chunk.clone());
            let _ = tokio::task::spawn_blocking(move || chunk_files.discard(&chunk, &before)).await;
        }
        Ok(())
    }

    /// Reports, perhaps of an index by its checksum; false if that is no longer to be here, which the next listing shows.
    async fn say(&self, chunk: &str, report: SaidOfCopy, of: Option<&str>) -> Result<bool, Error> {
        let token = self.token.now();
        match self.client.report_placement(chunk, &self.id, (report, of), token.as_deref()).await {
            Ok(_) => Ok(true),
            Err(error) if error.problem().is_some_and(|problem| matches!(problem.status, 404 | 409)) => {
                tracing::info!(chunk.id = chunk, error = %error, "a report of a chunk was refused");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// From where the builder left it, else from another server that has it.
    async fn fetch(&self, placement: &Placement, wanted: &ArtifactView, servers: &Servers) -> Result<(), Unfetched> {
        let lasting = |why: String| Unfetched { why, loss: Loss::Certain };
        let place = self.chunk_files.place(&placement.chunk, &wanted.checksum);
        let own = (wanted.location.clone(), self.policy.named(fleet::vouched([&placement.from])));
        let others = placement.sources.iter().map(|source| {
            let from = servers.get(source).into_iter().flatten().copied();
            (format!("http://{source}/chunks/{}", placement.chunk), self.policy.named(from))
        });
        let mut unfetched = lasting("there is nowhere to fetch it from".to_owned());
        for (location, rule) in std::iter::once(own).chain(others) {
            let Ok(location) = location.parse::<Url>() else { continue };
            let artifact = Artifact { location, bytes: wanted.bytes, checksum: wanted.checksum.clone() };
            match self.store.get(&artifact, &rule, &place).await {
                Ok(()) => {
                    let (chunk_files, chunk, checksum) =
                        (Arc::clone(&self.chunk_files), placement.chunk.clone(), wanted.checksum.clone());
                    let kept = tokio::task::spawn_blocking(move || chunk_files.keep(&chunk, &checksum)).await;
                    return Ok(kept.map_err(|error| lasting(error.to_string()))??);
                }
                Err(error) => {
                    if let Some(advice) = needs_store(&error)
                        && !self.logged_store.swap(true, Ordering::Relaxed)
                    {
                        tracing::warn!(chunk.id = placement.chunk, "{advice}");
                    }
                    unfetched = Unfetched { why: error.to_string(), loss: unfetched.loss.max(Loss::by(&error)) };
                }
            }
        }
        Err(unfetched)
    }

    /// Removes what drains or is not listed, once its time is over.
    async fn forget(&mut self, listed: &[Placement], now: Instant) -> Result<(), Error> {
        let state = |chunk: &str| listed.iter().find(|placement| placement.chunk == chunk).map(|found| found.state);
        let mut leaving: Vec<String> = self
            .chunk_files
            .chunks()
            .into_iter()
            .filter(|chunk| matches!(state(chunk), None | Some(CopyState::Draining)))
            .collect();
        // A draining chunk that is not here any more was removed before its report.
        let drains = listed.iter().filter(|placement| placement.state == CopyState::Draining);
        leaving.extend(drains.map(|placement| placement.chunk.clone()));
        leaving.sort();
        leaving.dedup();
        self.leaving.retain(|chunk, _| leaving.contains(chunk));
        self.known.extend(listed.iter().map(|placement| placement.chunk.clone()));
        for chunk in leaving {
            let since = *self.leaving.entry(chunk.clone()).or_insert(now);
            let grace = if self.known.contains(&chunk) { self.grace } else { self.grace.max(NEVER_LISTED_GRACE) };
            if now < since + grace {
                continue;
            }
            let spare = self.is_spare(&chunk).await;
            if spare {
                let (chunk_files, removed) = (Arc::clone(&self.chunk_files), chunk.clone());
                let _ = tokio::task::spawn_blocking(move || chunk_files.remove(&removed)).await;
            }
            if state(&chunk).is_some() {
                self.say(&chunk, SaidOfCopy::Gone, None).await?;
            }
            self.leaving.remove(&chunk);
            if spare {
                self.known.remove(&chunk);
            }
        }
        Ok(())
    }

    /// Whether the file of a chunk that is not placed here is of no use: it is malformed, it is not the present index of the chunk, or
    /// another server of the row has that ready. Not if that cannot be known now.
    async fn is_spare(&self, chunk: &str) -> bool {
        let Some(held) = self.chunk_files.sound(chunk) else { return true };
        let view = match self.client.chunk(chunk).await {
            Err(error) if error.problem().is_some_and(|problem| problem.status == 404) => return true,
            Err(error) => {
                tracing::info!(chunk.id = chunk, error = %error, "a chunk that is not placed here is kept for now");
                return false;
            }
            Ok(view) => view,
        };
        let built = view.artifacts.build.filter(|_| view.state == ChunkState::Built);
        let mut others =
            view.placements.into_iter().flatten().filter(|copy| copy.row == self.row && copy.server != self.id);
        built.is_none_or(|built| built.checksum != held) || others.any(|copy| copy.state == CopyState::Ready)
    }
}

/// What an operator does about chunks in a store that this server cannot read. The same for all of them.
fn needs_store(error: &store::Error) -> Option<String> {
    let store::Error::Location(location) = error else { return None };
    let location = store::shown(location);
    Some(format!(
        "its location is {location}, which this server can read only with the --store of the builders: it serves no chunk \
         from there until it is started with that"
    ))
}

#[cfg(test)]
#[path = "copies_tests.rs"]
mod tests;
