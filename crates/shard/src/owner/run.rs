//! Runs the owner of a shard: opens the shard, serves it turn by turn, and reloads it whenever its memory can no longer be
//! trusted, until this process is told to give it up or has lost it.
//!
//! A panic is a bug, and must not cost the shard. It is caught around the opening and around the turns. The memory is dropped with
//! whatever was being decided, so callers in that turn hear "outcome unknown". Commits that were handed to the store before the panic
//! may still be applied; the shard is therefore owned again, under a new epoch, and never resumed. What waits in the inbox stays
//! there. A panic that comes back is met with ever longer pauses.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::ShardId;
use wayleave_core::limits;
use wayleave_engine::{Engine, Error, Expect};

use crate::config::Config;
use crate::message::Message;
use crate::owner::cycle::{self, Cycle};
use crate::owner::inbox::Mail;
use crate::owner::open;
use crate::owner::owner_loop::Owner;
use crate::owner::term::Resume;
use crate::routing::router::Router;
use crate::shared::held_epochs::Hold;
use crate::shared::readiness::Readiness;

/// Between two tries to open a shard, and two probes whether the store takes changes again.
pub(crate) const TRY_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The longest pause between two panics of an owner. The first pause is [`TRY_AGAIN_AFTER`], and each is twice the one before.
const PANIC_PAUSE_MAX: Duration = Duration::from_secs(30);

/// An owner that has served for this long has recovered: its next panic counts as a first one.
const PANIC_FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// A store that refuses a second time within this takes changes only now and then: the next probe waits.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// What an owner is given.
pub(crate) struct Post {
    pub shard: ShardId,
    /// What must hold in the store for this process to own the shard.
    pub expects: Vec<Expect>,
    pub engine: Arc<dyn Engine>,
    pub config: Config,
    pub readiness: Arc<Readiness>,
    /// Weak: an owner ends when nobody can ask it any more.
    pub router: Weak<Router>,
}

/// How a term of ownership ended.
enum End {
    Stopped(Option<oneshot::Sender<()>>),
    /// The shard is to be owned again, or read again from where it stands.
    Failed(Option<Resume>),
    /// The owner panicked: the shard is to be owned again.
    Panicked(String),
}

/// The panics of an owner that come back.
#[derive(Default)]
struct Panics {
    last: Option<Instant>,
    pause: Duration,
}

impl Panics {
    /// How long to wait after one more panic.
    fn pause(&mut self, now: Instant) -> Duration {
        let recovered = self.last.is_none_or(|last| now - last > self.pause + PANIC_FORGOTTEN_AFTER);
        self.pause = if recovered { TRY_AGAIN_AFTER } else { (self.pause * 2).min(PANIC_PAUSE_MAX) };
        self.last = Some(now);
        self.pause
    }
}

/// Runs a shard until it is told to stop or is no longer this process's.
pub(crate) async fn run(post: Post, mut inbox: Mail) {
    let done = own(&post, &mut inbox).await;
    // What kept it from being opened here is no longer this process's trouble.
    post.readiness.set_trouble(post.shard, None);
    if let Some(router) = post.router.upgrade() {
        router.held.set(post.shard, Hold::Not);
        router.end_term(post.shard, inbox.term);
        if done.is_none() {
            router.miss();
        }
        let why = if router.links.is_some() { Refusal::Elsewhere } else { crate::routing::router::stopping() };
        for message in inbox.close().await {
            match message {
                Message::Put { items, sink } => router.put_again(post.shard, items, &sink),
                other => other.refuse(&why),
            }
        }
    }
    post.readiness.forget(post.shard);
    if let Some(done) = done {
        _ = done.send(());
    }
}

/// Tells the router's registry how this process holds the shard; movers of hosts look there.
fn hold(post: &Post, hold: Hold) {
    if let Some(router) = post.router.upgrade() {
        router.held.set(post.shard, hold);
    }
}

/// Owns a shard, term after term. Returns whom to tell that it is over.
async fn own(post: &Post, inbox: &mut Mail) -> Option<oneshot::Sender<()>> {
    let mut resume: Option<Resume> = None;
    let mut refused_at: Option<Instant> = None;
    let mut wait = Duration::ZERO;
    let mut panics = Panics::default();
    loop {
        if resume.is_none() {
            // Before the store is asked: from here on nobody in this process commits under an older epoch.
            hold(post, Hold::Opening);
        }
        let opened = tokio::select! {
            biased;
            opened = AssertUnwindSafe(begin(post, resume.as_ref())).catch_unwind() => opened,
            done = refuse_while_closed(inbox, post) => return done,
        };
        let panic = match opened {
            Err(panic) => {
                resume = None;
                words(&*panic)
            }
            Ok(Ok(mut owner)) => {
                post.readiness.set_trouble(post.shard, None);
                if let Some(resume) = resume.take() {
                    owner.refuse_changes(resume.why, wait);
                }
                match serve(owner, inbox).await {
                    End::Stopped(done) => return done,
                    End::Panicked(panic) => panic,
                    End::Failed(next) => {
                        let again = refused_at.is_some_and(|at| at.elapsed() < SETTLED_AFTER);
                        wait = if again { TRY_AGAIN_AFTER } else { Duration::ZERO };
                        refused_at = Some(Instant::now());
                        resume = next;
                        continue;
                    }
                }
            }
            Ok(Err(Error::Conflict)) => {
                tracing::info!(shard = post.shard.0, "the shard belongs to another node");
                return None;
            }
            Ok(Err(error)) => {
                if let Some(left_out) = post.readiness.log.opens.line() {
                    tracing::error!(shard = post.shard.0, %error, left_out, "a shard cannot be opened; trying again");
                }
                post.readiness
                    .set_trouble(post.shard, Some(format!("shard {} cannot be opened: {error}", post.shard.0)));
                let stopped = tokio::time::timeout(TRY_AGAIN_AFTER, refuse_while_closed(inbox, post)).await;
                if let Ok(done) = stopped {
                    return done;
                }
                continue;
            }
        };
        // Nobody here commits for the shard under the old epoch, from now until it is owned again.
        hold(post, Hold::Opening);
        let pause = panics.pause(Instant::now());
        let (shard, pause_ms) = (post.shard.0, pause.as_millis());
        tracing::error!(
            shard,
            panic,
            pause_ms,
            "the owner of a shard panicked, which is a bug; the shard is owned again"
        );
        post.readiness.set_trouble(post.shard, Some(format!("the owner of shard {shard} panicked: {panic}")));
        if let Ok(done) = tokio::time::timeout(pause, refuse_while_closed(inbox, post)).await {
            return done;
        }
    }
}

/// Opens a shard for a new owner.
async fn begin(post: &Post, resume: Option<&Resume>) -> Result<Owner, Error> {
    let opened = open::open(post, resume).await?;
    hold(post, Hold::Under(opened.epoch));
    Ok(Owner::new(post, opened))
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a word".to_owned())
}

/// Refuses what arrives while the shard is not open; returns when told to stop.
async fn refuse_while_closed(inbox: &mut Mail, post: &Post) -> Option<oneshot::Sender<()>> {
    loop {
        // While a shard opens normally its callers wait; only one that cannot be opened turns them away.
        let Some(trouble) = post.readiness.trouble_of(post.shard) else { std::future::pending().await };
        match inbox.recv().await {
            None => return None,
            Some(Message::Stop { done }) => return Some(done),
            Some(message) => message.refuse(&Refusal::Unavailable(trouble)),
        }
    }
}

async fn serve(mut owner: Owner, inbox: &mut Mail) -> End {
    let term = owner.term.clone();
    let (cycles, waiting) = mpsc::channel(limits::COMMITS_IN_FLIGHT_MAX);
    let answering = tokio::spawn(cycle::answer(waiting, term.clone(), owner.readiness.clone()));
    owner.tell_pulse();
    owner.set_open(true);
    let mut stop = None;
    let turns = AssertUnwindSafe(take_turns(&mut owner, inbox, cycles, &mut stop)).catch_unwind().await;
    // Whatever comes next must not begin before all that is in flight is resolved.
    let answered = answering.await;
    owner.set_open(false);
    let panic = turns.err().or_else(|| answered.err()?.try_into_panic().ok());
    match (stop, panic) {
        // Told to stop: nobody waits for the memory any more.
        (Some(done), _) => End::Stopped(Some(done)),
        (None, Some(panic)) => End::Panicked(words(&*panic)),
        (None, None) if term.is_failed() => End::Failed(term.resume()),
        (None, None) => End::Stopped(None),
    }
}

/// Takes turns until the owner is told to stop, its memory can no longer be trusted, or nobody can ask it any more.
async fn take_turns(
    owner: &mut Owner,
    inbox: &mut Mail,
    cycles: mpsc::Sender<Cycle>,
    stop: &mut Option<oneshot::Sender<()>>,
) {
    let term = owner.term.clone();
    let nudge = owner.readiness.pages.nudge_of(owner.shard);
    while stop.is_none() && !term.is_failed() {
        let nap = owner.nap();
        let first = tokio::select! {
            biased;
            () = term.told.notified() => break,
            message = inbox.recv() => match message {
                Some(message) => Some(message),
                None => break,
            },
            () = nudge.notified() => None,
            () = sleep(nap) => None,
        };
        if let Err(error) = owner.turn(first, inbox, stop).await {
            if let Some(left_out) = owner.readiness.log.reads.line() {
                let shard = owner.shard.0;
                tracing::warn!(shard, %error, left_out, "the store cannot be read; the shard reloads");
            }
            term.on_failure(&error);
        }
        owner.confirm();
        if !term.is_failed() {
            // What was decided in a turn that failed is in nobody's store: its pages are not to be had again.
            owner.share_totals();
        }
        owner.tell_pulse();
        let cycle = std::mem::take(&mut owner.cycle);
        if !cycle.is_empty() && cycles.send(cycle).await.is_err() {
            break;
        }
    }
}

async fn sleep(nap: Option<Duration>) {
    match nap {
        None => std::future::pending().await,
        Some(Duration::ZERO) => tokio::task::yield_now().await,
        Some(nap) => tokio::time::sleep(nap).await,
    }
}
