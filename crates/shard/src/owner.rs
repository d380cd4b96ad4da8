//! The owner of a shard: receive → stamp now → read facts → decide → commit → reply.
//!
//! It is the only one who changes the shard. It drains what waits, decides it in order and commits it; the answers wait
//! for their commits while the next cycle is decided. After a commit that failed, or whose outcome is not known, it drops
//! its memory and reads the store again: it never guesses.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use wayleave_core::frontier::State;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::row::Write;
use wayleave_core::frontier::view::CrawlView;
use wayleave_core::ids::{Epoch, QueueId, ShardId};
use wayleave_core::limits;
use wayleave_core::names::CrawlName;
use wayleave_core::time::Time;
use wayleave_engine::{Batch, Engine, Error, Expect, Fence, rows};

use crate::config::Config;
use crate::cycle::{self, Cycle, Failure};
use crate::filter::Filter;
use crate::heads::Heads;
use crate::hot_log::HotLog;
use crate::inbox::Mail;
use crate::mark::Marker;
use crate::message::Message;
use crate::open::{self, Opened};
use crate::pulse::Pulse;
use crate::recent::Recent;
use crate::router::Router;
use crate::seen::Seen;

/// Between two tries to open a shard.
const REOPEN_AFTER: Duration = Duration::from_millis(500);

/// Between two slices of the filter's learning while nothing else happens.
const LEARN_EVERY: Duration = Duration::from_millis(1);

/// After a visit was asked for, so many turns are kept short: the next one would wait for a long one.
const AWAITED_TURNS: u32 = 64;

/// What an owner is given.
pub(crate) struct Post {
    pub shard: ShardId,
    /// What must hold in the store for this process to own the shard.
    pub expects: Vec<Expect>,
    pub engine: Arc<dyn Engine>,
    pub config: Config,
    pub pulse: Arc<Pulse>,
    /// Weak: an owner ends when nobody can ask it any more.
    pub router: Weak<Router>,
}

/// A shard in the hands of its owner.
pub(crate) struct Owner {
    pub shard: ShardId,
    pub engine: Arc<dyn Engine>,
    pub config: Config,
    pub pulse: Arc<Pulse>,
    pub router: Weak<Router>,
    pub state: State,
    pub heads: Heads,
    pub recent: Recent,
    pub filter: Filter,
    pub seen: Seen,
    /// Makes the marks in the two above.
    pub marker: Marker,
    pub jobs: VecDeque<QueueId>,
    pub cycle: Cycle,
    /// Turns for which a visit is likely to be asked for, as it was shortly before.
    awaited: u32,
    epoch: Epoch,
    seq: u64,
    log: HotLog,
}

/// How a term of ownership ended.
enum End {
    Stopped(Option<oneshot::Sender<()>>),
    Failed,
}

/// Runs a shard until it is told to stop or is no longer this process's, reopening it whenever its memory can no longer
/// be trusted.
pub(crate) async fn run(post: Post, mut inbox: Mail) {
    let done = own(&post, &mut inbox).await;
    // What kept it from being opened here is no longer this process's trouble.
    post.pulse.set_trouble(post.shard, None);
    if let Some(router) = post.router.upgrade() {
        router.end_term(post.shard, inbox.term);
        if done.is_none() {
            router.miss();
        }
        let why = if router.links.is_some() { Refusal::Elsewhere } else { crate::router::stopping() };
        for message in inbox.close().await {
            match message {
                Message::Put { items, sink } => router.put_again(post.shard, items, &sink),
                other => other.refuse(&why),
            }
        }
    }
    post.pulse.forget(post.shard);
    if let Some(done) = done {
        _ = done.send(());
    }
}

/// Owns a shard, term after term. Returns whom to tell that it is over.
async fn own(post: &Post, inbox: &mut Mail) -> Option<oneshot::Sender<()>> {
    loop {
        let opened = tokio::select! {
            biased;
            opened = open::open(&*post.engine, post.shard, &post.expects, &post.config) => opened,
            done = refuse_while_closed(inbox, post) => return done,
        };
        match opened {
            Ok(opened) => {
                let owner = Owner::new(post, opened);
                post.pulse.set_trouble(post.shard, None);
                if let End::Stopped(done) = serve(owner, inbox).await {
                    return done;
                }
            }
            Err(Error::Conflict) => {
                tracing::info!(shard = post.shard.0, "the shard belongs to another node");
                return None;
            }
            Err(error) => {
                tracing::error!(shard = post.shard.0, error = %error, "a shard cannot be opened");
                post.pulse.set_trouble(post.shard, Some(format!("shard {} cannot be opened: {error}", post.shard.0)));
                let stopped = tokio::time::timeout(REOPEN_AFTER, refuse_while_closed(inbox, post)).await;
                if let Ok(done) = stopped {
                    return done;
                }
            }
        }
    }
}

/// Refuses what arrives while the shard is not open; returns when told to stop.
async fn refuse_while_closed(inbox: &mut Mail, post: &Post) -> Option<oneshot::Sender<()>> {
    loop {
        // While a shard opens normally its callers wait; only one that cannot be opened turns them away.
        if post.pulse.trouble_of(post.shard).is_none() {
            std::future::pending::<()>().await;
        }
        match inbox.recv().await {
            None => return None,
            Some(Message::Stop { done }) => return Some(done),
            Some(message) => message.refuse(&Refusal::Unavailable("the store cannot be read".to_owned())),
        }
    }
}

async fn serve(mut owner: Owner, inbox: &mut Mail) -> End {
    let failure = Arc::new(Failure::default());
    let (cycles, waiting) = mpsc::channel(limits::COMMITS_IN_FLIGHT_MAX);
    let answering = tokio::spawn(cycle::answer(waiting, failure.clone()));
    let beat = |open: bool| {
        if let Some(beat) = owner.pulse.beats.get(usize::from(owner.shard.0)) {
            beat.open.store(open, Ordering::Release);
        }
    };
    beat(true);
    owner.tell_pulse();
    let mut stop = None;
    while stop.is_none() && !failure.is_set() {
        let nap = owner.nap();
        let first = tokio::select! {
            biased;
            () = failure.told.notified() => break,
            message = inbox.recv() => match message {
                Some(message) => Some(message),
                None => break,
            },
            () = sleep(nap) => None,
        };
        if let Err(error) = owner.turn(first, inbox, &mut stop).await {
            tracing::warn!(shard = owner.shard.0, error = %error, "the store cannot be read; the shard reloads");
            owner.cycle.answers.drain(..).for_each(|answer| answer(Err(cycle::refusal(&error))));
            failure.set();
        }
        owner.confirm();
        owner.share_totals();
        owner.tell_pulse();
        let cycle = std::mem::take(&mut owner.cycle);
        if !cycle.is_empty() && cycles.send(cycle).await.is_err() {
            break;
        }
    }
    drop(cycles);
    _ = answering.await;
    if let Some(beat) = owner.pulse.beats.get(usize::from(owner.shard.0)) {
        beat.open.store(false, Ordering::Release);
    }
    match stop {
        None if failure.is_set() => End::Failed,
        stop => End::Stopped(stop),
    }
}

async fn sleep(nap: Option<Duration>) {
    match nap {
        None => std::future::pending().await,
        Some(Duration::ZERO) => tokio::task::yield_now().await,
        Some(nap) => tokio::time::sleep(nap).await,
    }
}

impl Owner {
    fn new(post: &Post, opened: Opened) -> Self {
        let Opened { state, epoch, seq, log, jobs } = opened;
        // What was said before was said of a memory that is gone.
        post.pulse.crawls.forget(post.shard);
        let owner = Self {
            shard: post.shard,
            engine: post.engine.clone(),
            config: post.config.clone(),
            pulse: post.pulse.clone(),
            router: post.router.clone(),
            heads: post.config.heads(state.host_count()),
            recent: Recent::new(post.config.recent_rows_max),
            filter: Filter::new(post.config.share(post.config.filter_bytes_max)),
            seen: Seen::new(post.config.share(post.config.seen_bytes_max)),
            marker: Marker::new((post.config.entropy)() as u64),
            state,
            jobs,
            cycle: Cycle::default(),
            awaited: 0,
            epoch,
            seq,
            log,
        };
        owner.note_switches();
        owner
    }

    /// Tells the others whether the paced form serves, and whether a crawl is bounded as a whole: then counts are
    /// exchanged.
    pub fn note_switches(&self) {
        self.pulse.active.store(self.state.shard_row().active, Ordering::Release);
        let bounded = |crawl: &CrawlView| {
            let limits = &crawl.settings.limits;
            limits.urls.is_some() || limits.pages.is_some()
        };
        if self.state.crawl_views().iter().any(bounded) {
            self.pulse.bounded.store(true, Ordering::Release);
        }
    }

    /// How long until the shard has something to do by itself; none if only a message can change anything.
    fn nap(&self) -> Option<Duration> {
        if !self.jobs.is_empty() || self.log.is_writing() {
            return Some(Duration::ZERO);
        }
        let timer = self.state.next_wake().map(|at| Duration::from_millis(at.since(self.engine.now()).0));
        let learning = self.filter.is_learning().then_some(LEARN_EVERY);
        timer.into_iter().chain(learning).min()
    }

    /// One turn: what is due by itself, then all that waits, up to a bound.
    async fn turn(
        &mut self,
        first: Option<Message>,
        inbox: &mut Mail,
        stop: &mut Option<oneshot::Sender<()>>,
    ) -> Result<(), Error> {
        self.sweep().await?;
        let hosts = self.state.host_count();
        self.heads.set_room(self.config.head_bytes(hosts), hosts);
        self.share_totals();
        let mut puts = crate::put::Puts::default();
        let mut next = first;
        let mut left = if self.awaited > 0 { limits::SHARD_BATCH_AWAITED } else { limits::SHARD_BATCH_MAX };
        self.awaited = self.awaited.saturating_sub(1);
        while let Some(message) = next {
            left = left.saturating_sub(message.weight());
            match message {
                Message::Put { items, sink } => puts.add(items, sink),
                Message::Stop { done } => {
                    // What waits in the other line came before and is still done.
                    *stop = Some(done);
                    left = usize::from(u16::MAX);
                }
                Message::Ask { ask, reply } => {
                    if ask.is_visit() {
                        self.awaited = AWAITED_TURNS;
                    }
                    self.put_all(std::mem::take(&mut puts)).await?;
                    self.handle(ask, reply).await?;
                }
            }
            next = if left > 0 { inbox.try_recv() } else { None };
        }
        self.put_all(puts).await?;
        self.tidy().await
    }

    /// What needs doing but can wait: writing out the log, removing rows of deleted queues, learning the filter.
    async fn tidy(&mut self) -> Result<(), Error> {
        let slice = self.log.next_slice(&self.state);
        if !slice.is_empty() {
            self.commit_rows(slice);
        }
        self.run_job().await?;
        self.learn_filter().await
    }

    fn tell_pulse(&mut self) {
        // Of crawls first: whoever looks meanwhile finds what has become ready there, or that something is due.
        self.state.take_crawls_ready(|crawl, ready| self.pulse.crawls.tell(crawl, self.shard, ready));
        self.pulse.tell(self.shard.0.into(), self.state.readiness());
        self.pulse.wake(self.state.take_newly_ready());
    }

    /// Whoever asked for a crawl alone, and found nothing, is to know it the next time.
    pub fn tell_crawl(&self, crawl: Option<&CrawlName>) {
        if let Some(crawl) = crawl {
            self.pulse.crawls.tell(crawl, self.shard, self.state.crawl_ready(crawl));
        }
    }

    /// Exchanges the counts of crawls that are bounded as a whole: before a turn to hear of the others, and after it, before
    /// its answers, so that whoever is answered finds them counted everywhere.
    fn share_totals(&mut self) {
        if !self.pulse.bounded.load(Ordering::Relaxed) {
            return;
        }
        let now = self.engine.now();
        for crawl in self.state.crawl_views() {
            let bounded = crawl.settings.limits.urls.is_some() || crawl.settings.limits.pages.is_some();
            if bounded {
                let others = self.pulse.share(&crawl.crawl, self.shard.0.into(), crawl.counts);
                self.state.set_elsewhere(&crawl.crawl, others, now);
            }
        }
    }

    /// The time of the decisions that follow.
    pub fn now(&mut self) -> Time {
        let now = self.engine.now();
        self.state.wake(now);
        now
    }

    /// Commits what was decided; the cycle's answers wait for it.
    pub fn commit(&mut self, writes: Vec<Write>) {
        if let Some(batch) = self.seal(writes) {
            let commit = self.engine.commit(batch);
            self.cycle.commits.push(commit);
        }
    }

    /// What was decided, as a fenced batch; none if nothing changes.
    pub fn seal(&mut self, writes: Vec<Write>) -> Option<Batch> {
        let changes = self.state.take_changes();
        if writes.is_empty() && changes.is_empty() {
            return None;
        }
        self.recent.follow(&writes);
        self.seen.follow(&self.marker, &writes);
        let mut rows: Vec<_> = writes.iter().map(|write| rows::encode(self.shard, write)).collect();
        self.heads.begin(&changes.begun);
        self.heads.follow(&writes, &rows);
        self.seq += 1;
        rows.extend(self.log.add(self.seq, &changes, &self.state));
        Some(self.batch(rows))
    }

    /// Commits rows that change nothing in memory.
    pub fn commit_rows(&mut self, rows: Vec<wayleave_engine::Write>) {
        self.seq += 1;
        let commit = self.engine.commit(self.batch(rows));
        self.cycle.commits.push(commit);
    }

    /// Waits until all that was committed so far is durable.
    pub async fn flush(&mut self) -> Result<(), Error> {
        self.seq += 1;
        self.engine.commit(self.batch(Vec::new())).await
    }

    /// Lets answers that change nothing wait for an empty commit where this node may have lost the shard: what it knows
    /// may be old, and an old owner must not even refuse.
    fn confirm(&mut self) {
        if self.cycle.commits.is_empty() && !self.cycle.answers.is_empty() && self.pulse.is_unsure() {
            self.commit_rows(Vec::new());
        }
    }

    fn batch(&self, writes: Vec<wayleave_engine::Write>) -> Batch {
        let fence = Fence { shard: self.shard, epoch: self.epoch, seq: self.seq };
        Batch { fences: vec![fence], expects: Vec::new(), writes }
    }
}
