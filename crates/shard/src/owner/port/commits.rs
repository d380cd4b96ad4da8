//! The commits of a shard, one after the other, each under the fence of its term.

use std::sync::{Arc, Weak};

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::{Changes, State};
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::{Batch, Commit, Engine, Error, Expect, Fence, Write};

use super::cycle::Cycle;
use super::hot_log::HotLog;
use super::read_only::ReadOnly;
use super::term::Term;
use crate::config::Config;
use crate::owner::run::OwnerContext;
use crate::routing::router::Router;
use crate::shared::readiness::Readiness;

/// What the services of a shard share.
pub(crate) struct Port {
    pub shard: ShardId,
    pub engine: Arc<dyn Engine>,
    pub config: Config,
    pub readiness: Arc<Readiness>,
    pub router: Weak<Router>,
    pub epoch: Epoch,
    pub cycle: Cycle,
    pub term: Arc<Term>,
    /// Set while the store refuses changes.
    pub(super) refusing: Option<ReadOnly>,
    seq: u64,
    log: HotLog,
}

impl Port {
    pub fn new(context: &OwnerContext, (epoch, seq): (Epoch, u64), log: HotLog) -> Self {
        Self {
            shard: context.shard,
            engine: context.engine.clone(),
            config: context.config.clone(),
            readiness: context.readiness.clone(),
            router: context.router.clone(),
            epoch,
            cycle: Cycle::default(),
            term: Arc::new(Term::new(epoch, seq)),
            refusing: None,
            seq,
            log,
        }
    }

    /// The time now; every await makes it out of date.
    pub fn now(&self) -> Time {
        self.engine.now()
    }

    /// Whether several nodes share the store.
    pub fn is_clustered(&self) -> bool {
        self.router.upgrade().is_some_and(|router| router.links.is_some())
    }

    /// Encodes rows and the changed hot rows as a fenced batch.
    pub fn seal(&mut self, mut rows: Vec<Write>, changes: &Changes, state: &State) -> Batch {
        self.seq += 1;
        rows.extend(self.log.add(self.seq, changes, state));
        self.batch(rows)
    }

    /// Commits a sealed batch; the answers of the call wait for it.
    pub fn commit(&mut self, batch: Batch) {
        let commit = self.engine.commit(batch);
        self.cycle.commit(self.seq, commit);
    }

    /// Commits rows, with no change of a hot row.
    pub fn commit_rows(&mut self, rows: Vec<Write>) {
        self.seq += 1;
        self.commit(self.batch(rows));
    }

    /// Writes hot rows out of the log, one slice.
    pub fn checkpoint(&mut self, state: &State) {
        let slice = self.log.next_slice(state, self.now());
        if !slice.is_empty() {
            self.commit_rows(slice);
        }
    }

    /// When the log has work of its own next.
    pub fn wake_at(&self) -> Option<Time> {
        if self.log.is_writing() { Some(Time::ZERO) } else { self.log.due() }
    }

    /// Waits until everything committed so far is durable.
    pub async fn flush(&mut self) -> Result<(), Error> {
        self.seq += 1;
        let outcome = self.engine.commit(self.batch(Vec::new())).await;
        if outcome.is_ok() {
            self.term.on_commit(self.seq, &outcome);
        }
        outcome
    }

    /// Commits rows outside the shard and waits until that is durable. It follows all commits made before. After a
    /// conflict nothing has changed.
    pub async fn commit_now(&mut self, expects: Vec<Expect>, writes: Vec<Write>) -> Result<(), Error> {
        self.seq += 1;
        let outcome = self.engine.commit(Batch { expects, ..self.batch(writes) }).await;
        match &outcome {
            Ok(()) => self.term.on_commit(self.seq, &outcome),
            Err(Error::Conflict) => self.take_back_seq(),
            Err(_) => {}
        }
        outcome
    }

    /// Takes back the last sequence number, which was not used.
    pub fn take_back_seq(&mut self) {
        self.seq -= 1;
    }

    /// Waits for a commit made together with another shard.
    pub async fn commit_both(&mut self, commit: Commit) -> Result<(), Error> {
        let outcome = commit.await;
        if outcome.is_ok() {
            self.term.on_commit(self.seq, &outcome);
        }
        outcome
    }

    /// Records that another owner has made the commit that this owner sealed for it.
    pub fn committed_for(&self) {
        self.term.on_commit(self.seq, &Ok(()));
    }

    /// If this node may have lost the shard, makes read-only answers wait for an empty, fenced commit: the state may be
    /// stale, and a stale owner must not even refuse.
    pub fn confirm(&mut self) {
        if !self.cycle.has_answers() || !self.readiness.is_unsure() {
            return;
        }
        self.cycle.set_unsure();
        if self.cycle.has_commits() {
            return;
        }
        match self.refusal() {
            Some(why) => self.cycle.refuse(&why),
            None => self.commit_rows(Vec::new()),
        }
    }

    fn batch(&self, writes: Vec<Write>) -> Batch {
        let fence = Fence { shard: self.shard, epoch: self.epoch, seq: self.seq };
        Batch { fences: vec![fence], expects: Vec::new(), writes }
    }

    /// Logs that rows cannot be read.
    pub fn log_damage(&self, cause: &str, what: &str) {
        if let Some(left_out) = self.readiness.log.damage.line() {
            let shard = self.shard.0;
            tracing::error!(shard, cause, left_out, "the store is damaged: {what}; all else goes on");
        }
    }

    /// Logs that a chunk cannot be read.
    pub fn log_chunk(&self, refusal: &Refusal) {
        if let Refusal::DamagedChunk { chunk, cause, .. } = refusal {
            self.log_damage(cause, &format!("chunk {chunk} cannot be read"));
        }
    }
}
