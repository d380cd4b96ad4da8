//! Runs the owner of a shard: opens the shard, serves it turn by turn, and reloads it whenever its in-memory state can
//! no longer be trusted, until this process gives the shard up or loses it.
//!
//! A panic is a bug but must not cost the shard. It is caught around opening and around each turn. In-memory state is
//! dropped with whatever was being decided, so callers of that turn are told "outcome unknown". Commits handed to the
//! store before the panic may still be applied; therefore the shard is owned again under a new epoch, never resumed.
//! Messages stay in the inbox. Repeated panics are met with exponential back-off.

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
use crate::owner::inbox::InboxReceiver;
use crate::owner::open;
use crate::owner::owner_loop::Owner;
use crate::owner::port::cycle::{self, Cycle};
use crate::owner::port::term::Resume;
use crate::routing::router::Router;
use crate::shared::owned_epochs::EpochState;
use crate::shared::readiness::Readiness;

/// Retry interval for opening a shard, and for probing a store that refuses changes.
pub(crate) const TRY_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Maximum pause between two panics of an owner, or between two tries to read damaged rows. The first pause is
/// [`TRY_AGAIN_AFTER`]; each following one doubles.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// An owner that has served this long has recovered: its next failure counts as the first.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// A store that refuses again within this time only accepts changes now and then: delay the next probe.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// Everything an owner is started with.
pub(crate) struct OwnerContext {
    pub shard: ShardId,
    /// What must hold in the store for this process to own the shard.
    pub expects: Vec<Expect>,
    pub engine: Arc<dyn Engine>,
    pub config: Config,
    pub readiness: Arc<Readiness>,
    /// Weak, so that the owner ends when no handle is left.
    pub router: Weak<Router>,
}

/// How a term ended.
enum End {
    Stopped(Option<oneshot::Sender<()>>),
    /// Own the shard again, or resume from its present state.
    Failed(Option<Resume>),
    /// The owner panicked: own the shard again.
    Panicked(String),
    /// Rows that the owner cannot do without cannot be read: own the shard again, after a pause.
    Damaged(String),
}

/// Exponential back-off of an owner that fails again and again.
#[derive(Default)]
struct BackOff {
    last: Option<Instant>,
    pause: Duration,
}

impl BackOff {
    /// The pause after one more failure.
    fn pause(&mut self, now: Instant) -> Duration {
        let recovered = self.last.is_none_or(|last| now - last > self.pause + FORGOTTEN_AFTER);
        self.pause = if recovered { TRY_AGAIN_AFTER } else { (self.pause * 2).min(PAUSE_MAX) };
        self.last = Some(now);
        self.pause
    }
}

/// Runs a shard until it is stopped or this process loses it.
pub(crate) async fn run(context: OwnerContext, mut inbox: InboxReceiver) {
    let done = own(&context, &mut inbox).await;
    // The reason why it could not be opened here no longer concerns this process.
    context.readiness.troubles.set(context.shard, None);
    if let Some(router) = context.router.upgrade() {
        router.epochs.set(context.shard, EpochState::Not);
        router.end_term(context.shard, inbox.term);
        if done.is_none() {
            router.note_misroute();
        }
        let why = if router.links.is_some() { Refusal::Elsewhere } else { crate::routing::router::stopping() };
        for message in inbox.close().await {
            match message {
                Message::Put { items, sink } => router.put_again(context.shard, items, &sink),
                other => other.refuse(&why),
            }
        }
    }
    context.readiness.forget(context.shard);
    if let Some(done) = done {
        _ = done.send(());
    }
}

/// Registers how this process holds the shard; moves of hosts check it.
fn hold(context: &OwnerContext, hold: EpochState) {
    if let Some(router) = context.router.upgrade() {
        router.epochs.set(context.shard, hold);
    }
}

/// What an owner remembers from one term to the next.
#[derive(Default)]
struct Terms {
    resume: Option<Resume>,
    /// When the store refused changes last, and how long the next probe waits then.
    refused_at: Option<Instant>,
    wait: Duration,
    panics: BackOff,
    damages: BackOff,
}

/// What `own` returns when it is stopped.
type Stopped = Option<oneshot::Sender<()>>;

/// Owns a shard, term after term. Returns the channel to notify when it has stopped.
async fn own(context: &OwnerContext, inbox: &mut InboxReceiver) -> Stopped {
    let mut terms = Terms::default();
    loop {
        if terms.resume.is_none() {
            // Before the store is asked: from here on no task of this process commits under an older epoch.
            hold(context, EpochState::Opening);
        }
        let opened = tokio::select! {
            biased;
            opened = AssertUnwindSafe(begin(context, terms.resume.as_ref())).catch_unwind() => opened,
            done = refuse_while_closed(inbox, context) => return done,
        };
        let end = match opened {
            Err(panic) => End::Panicked(words(&*panic)),
            Ok(Ok(owner)) => terms.serve(context, owner, inbox).await,
            Ok(Err(Error::Conflict)) => {
                tracing::info!(shard = context.shard.0, "another node owns the shard");
                return None;
            }
            Ok(Err(Error::Corrupt(cause))) => End::Damaged(cause),
            Ok(Err(error)) => {
                if let Some(done) = pause_unopened(context, inbox, &error).await {
                    return done;
                }
                continue;
            }
        };
        let stopped = match end {
            End::Stopped(done) => return done,
            End::Failed(next) => {
                terms.on_failure(next);
                continue;
            }
            End::Panicked(panic) => terms.pause_for_panic(context, inbox, &panic).await,
            End::Damaged(cause) => terms.pause_for_damage(context, inbox, &cause).await,
        };
        if let Some(done) = stopped {
            return done;
        }
    }
}

impl Terms {
    async fn serve(&mut self, context: &OwnerContext, mut owner: Owner, inbox: &mut InboxReceiver) -> End {
        if context.readiness.troubles.is_damaged(context.shard) {
            // Not ready before a turn has succeeded: the damage may be met there.
            owner.is_settling = true;
            if let Some(router) = context.router.upgrade() {
                // While it was closed, nobody could ask it which of its hosts live elsewhere.
                router.mark_hints_stale();
            }
        } else {
            context.readiness.troubles.set(context.shard, None);
        }
        if let Some(resume) = self.resume.take() {
            owner.port.refuse_changes(resume.why, self.wait);
        }
        serve(owner, inbox).await
    }

    fn on_failure(&mut self, next: Option<Resume>) {
        let again = self.refused_at.is_some_and(|at| at.elapsed() < SETTLED_AFTER);
        self.wait = if again { TRY_AGAIN_AFTER } else { Duration::ZERO };
        self.refused_at = Some(Instant::now());
        self.resume = next;
    }

    async fn pause_for_panic(
        &mut self,
        context: &OwnerContext,
        inbox: &mut InboxReceiver,
        panic: &str,
    ) -> Option<Stopped> {
        self.resume = None;
        // No task of this process commits for the shard under the old epoch until it is owned again.
        hold(context, EpochState::Opening);
        let pause = self.panics.pause(Instant::now());
        let (shard, pause_ms) = (context.shard.0, pause.as_millis());
        tracing::error!(
            shard,
            panic,
            pause_ms,
            "the owner of a shard panicked, which is a bug; owning the shard again"
        );
        context.readiness.troubles.set_closed(
            context.shard,
            format!("the owner of shard {shard} panicked: {panic}"),
            false,
        );
        tokio::time::timeout(pause, refuse_while_closed(inbox, context)).await.ok()
    }

    /// Keeps the shard closed for a while, because rows that it needs cannot be read.
    async fn pause_for_damage(
        &mut self,
        context: &OwnerContext,
        inbox: &mut InboxReceiver,
        cause: &str,
    ) -> Option<Stopped> {
        self.resume = None;
        hold(context, EpochState::Opening);
        let pause = self.damages.pause(Instant::now());
        let (shard, pause_ms) = (context.shard.0, pause.as_millis());
        if let Some(left_out) = context.readiness.log.opens.line() {
            tracing::error!(
                shard,
                cause,
                pause_ms,
                left_out,
                "shard closed: rows that it needs cannot be read; retrying"
            );
        }
        let remedy = "run `wayleave check` on the stopped store, and `wayleave salvage` or a restore to replace it";
        let why = format!("shard {shard} is closed, the store is damaged: {cause}; {remedy}");
        context.readiness.troubles.set_closed(context.shard, why, true);
        tokio::time::timeout(pause, refuse_while_closed(inbox, context)).await.ok()
    }
}

/// Keeps a shard closed for a while that could not be opened.
async fn pause_unopened(context: &OwnerContext, inbox: &mut InboxReceiver, error: &Error) -> Option<Stopped> {
    if let Some(left_out) = context.readiness.log.opens.line() {
        tracing::error!(shard = context.shard.0, %error, left_out, "cannot open shard; retrying");
    }
    let why = format!("shard {} cannot be opened: {error}", context.shard.0);
    context.readiness.troubles.set_closed(context.shard, why, false);
    tokio::time::timeout(TRY_AGAIN_AFTER, refuse_while_closed(inbox, context)).await.ok()
}

/// Opens a shard for a new owner.
async fn begin(context: &OwnerContext, resume: Option<&Resume>) -> Result<Owner, Error> {
    let opened = open::open(context, resume).await?;
    hold(context, EpochState::Under(opened.epoch));
    Ok(Owner::new(context, opened))
}

/// The message of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a word".to_owned())
}

/// Refuses messages while the shard is not open; returns when told to stop.
async fn refuse_while_closed(inbox: &mut InboxReceiver, context: &OwnerContext) -> Option<oneshot::Sender<()>> {
    loop {
        // While a shard opens normally its callers wait; only one that cannot be opened refuses them.
        let Some(trouble) = context.readiness.troubles.of(context.shard) else { std::future::pending().await };
        match inbox.recv().await {
            None => return None,
            Some(Message::Stop { done }) => return Some(done),
            Some(message) => message.refuse(&Refusal::Unavailable(trouble)),
        }
    }
}

async fn serve(mut owner: Owner, inbox: &mut InboxReceiver) -> End {
    let term = owner.port.term.clone();
    let (cycles, waiting) = mpsc::channel(limits::COMMITS_IN_FLIGHT_MAX);
    let answering = tokio::spawn(cycle::answer(waiting, term.clone(), owner.port.readiness.clone()));
    owner.publish();
    owner.set_open(true);
    let mut stop = None;
    let turns = AssertUnwindSafe(take_turns(&mut owner, inbox, cycles, &mut stop)).catch_unwind().await;
    // The next term must not begin before everything in flight is resolved.
    let answered = answering.await;
    owner.set_open(false);
    let panic = turns.err().or_else(|| answered.err()?.try_into_panic().ok());
    match (stop, panic) {
        // Stopped: the in-memory state is no longer needed.
        (Some(done), _) => End::Stopped(Some(done)),
        (None, Some(panic)) => End::Panicked(words(&*panic)),
        (None, None) if term.damage().is_some() => End::Damaged(term.damage().unwrap_or_default()),
        (None, None) if term.is_failed() => End::Failed(term.resume()),
        (None, None) => End::Stopped(None),
    }
}

/// Runs turns until the owner is stopped, its state can no longer be trusted, or no handle is left.
async fn take_turns(
    owner: &mut Owner,
    inbox: &mut InboxReceiver,
    cycles: mpsc::Sender<Cycle>,
    stop: &mut Option<oneshot::Sender<()>>,
) {
    let term = owner.port.term.clone();
    let waiter = owner.port.readiness.pages.news_of(owner.port.shard);
    while stop.is_none() && !term.is_failed() {
        let idle = owner.idle_for();
        let first = tokio::select! {
            biased;
            () = term.told.notified() => break,
            message = inbox.recv() => match message {
                Some(message) => Some(message),
                None => break,
            },
            () = waiter.notified() => None,
            () = sleep(idle) => None,
        };
        // In every turn: while calls keep coming, `notified` is never looked at, and other shards would lack this one's pages.
        owner.hear_of_pages();
        let done = owner.turn(first, inbox, stop).await;
        if done.is_ok() && owner.is_settling {
            owner.is_settling = false;
            owner.port.readiness.troubles.set(owner.port.shard, None);
        }
        if let Err(error) = done {
            if let Some(left_out) = owner.port.readiness.log.reads.line() {
                let shard = owner.port.shard.0;
                tracing::warn!(shard, %error, left_out, "cannot read the store; reloading the shard");
            }
            term.on_failure(&error);
        }
        owner.port.confirm();
        if !term.is_failed() {
            // Do not publish a failed turn: what it decided is not in the store, and pages it gave back must not be
            // granted again.
            owner.share_limits();
        }
        owner.publish();
        let cycle = std::mem::take(&mut owner.port.cycle);
        if !cycle.is_empty() && cycles.send(cycle).await.is_err() {
            break;
        }
    }
}

async fn sleep(idle: Option<Duration>) {
    match idle {
        None => std::future::pending().await,
        Some(Duration::ZERO) => tokio::task::yield_now().await,
        Some(idle) => tokio::time::sleep(idle).await,
    }
}
