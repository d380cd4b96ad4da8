//! The handle: every call is one update of a role, decided by the core.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::ids::{Epoch, Token};
use wayleave_core::invariants::lawful_step;
use wayleave_core::names::{RoleName, Slot, Uuid};
use wayleave_core::roles::{
    self as core, Decided, Facts, HeartbeatCall, HeartbeatReply, Outcome, Refusal, Released, RoleChanges, RoleRow,
    RoleView, Was, Writes,
};
use wayleave_core::settings::Change;
use wayleave_core::time::Millis;
use wayleave_engine::{Engine, Entropy, Look};
use wayleave_registry::{Decision, News, Registry};

use crate::config::Config;
use crate::counters::{Counters, raise};
use crate::store;

/// All that callers may ask of roles; cheap to clone.
#[derive(Clone)]
pub struct Roles(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub registry: Registry,
    counters: Counters,
    entropy: Entropy,
    /// One reference more than calls wait.
    waiting: Arc<()>,
}

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// A primary of at least this epoch.
    Primary(Epoch),
    /// That there is no primary, or one of at least this epoch, if one is named.
    Vacancy(Option<Epoch>),
}

/// What to wait for, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What.
    pub what: WaitFor,
    /// How long; zero answers at once.
    pub time: Millis,
}

impl WaitFor {
    fn is_met(self, facts: &Facts) -> bool {
        let live = facts.row.as_ref().and_then(|row| row.live(facts.now)).map(|term| term.epoch);
        match self {
            Self::Primary(least) => live.is_some_and(|epoch| epoch >= least),
            Self::Vacancy(least) => live.is_none_or(|epoch| least.is_some_and(|least| epoch >= least)),
        }
    }

    /// Whether a view that was made for this shows what is waited for.
    #[must_use]
    pub fn is_met_by(self, view: &RoleView) -> bool {
        let epoch = view.primary.as_ref().map(|primary| primary.epoch);
        match self {
            Self::Primary(_) => epoch.is_some(),
            Self::Vacancy(least) => epoch.is_none_or(|epoch| least.is_some_and(|least| epoch >= least)),
        }
    }

    /// The role as one sees it who asked for this: a primary that was superseded is none.
    fn view(self, facts: &Facts) -> RoleView {
        let mut view = core::view(facts);
        if let (Self::Primary(least), Some(primary)) = (self, &view.primary)
            && primary.epoch < least
        {
            view.reason = format!("{}, which is lower than epoch {}, the least asked for", view.reason, least.0);
            view.primary = None;
        }
        view
    }
}

impl Roles {
    /// The roles of a store.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self::with(engine, Config::default())
    }

    /// The roles of a store, run in another way than usual.
    #[must_use]
    pub fn with(engine: Arc<dyn Engine>, config: Config) -> Self {
        let Config { registry } = config;
        let (counters, waiting, entropy) = (Counters::default(), Arc::default(), registry.entropy.clone());
        let registry = Registry::with(engine, registry);
        Self(Arc::new(Inner { registry, counters, entropy, waiting }))
    }

    /// What became of calls, since the start of the process.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Decisions retried because of a concurrent update, since the start of the process.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.0.registry.conflicts()
    }

    /// How many wait for a change of a role.
    #[must_use]
    pub fn waiting(&self) -> usize {
        Arc::strong_count(&self.0.waiting) - 1
    }

    /// Acquires a role, renews its term, or stands by for it. Fails as the core refuses it, or if the store cannot
    /// serve it.
    pub async fn heartbeat(&self, role: RoleName, ask: HeartbeatCall) -> Result<HeartbeatReply, Refusal> {
        let entropy = (self.0.entropy)();
        let minted = Token(entropy.to_be_bytes());
        let answer = self.change(role, move |facts, _| {
            // The token shows whether a write of this very call, whose answer was lost, was applied.
            if store::term_is(facts, minted) {
                let ask = HeartbeatCall { token: Some(minted), ..ask.clone() };
                let mut decided = core::heartbeat(facts, &ask, entropy)?;
                decided.answer.outcome = Outcome::Acquired;
                return Ok(decided);
            }
            core::heartbeat(facts, &ask, entropy)
        });
        let answer = answer.await;
        self.0.counters.on_heartbeat(&answer);
        answer
    }

    /// Gives a term back, or leaves the line of standbys. Fails if the role is not known, the token is not that of the
    /// present term, or the store cannot serve it.
    pub async fn release(&self, role: RoleName, uuid: Uuid, token: Option<Token>) -> Result<Released, Refusal> {
        self.release_after(role, uuid, token, None).await
    }

    /// The same, and the role remembers the slot that was run in the term. Fails if the role is not known, the token is
    /// not that of the present term, or the store cannot serve it.
    pub async fn release_after(
        &self,
        role: RoleName,
        uuid: Uuid,
        token: Option<Token>,
        slot: Option<Slot>,
    ) -> Result<Released, Refusal> {
        let mut last = None;
        let answer = self.change(role, move |facts, unknown| match core::release(facts, &uuid, token, slot.as_ref()) {
            // The term is over in any case: the first attempt arrived, or another candidate has taken over without
            // it. Whether a slot was recorded is for the row alone to say.
            Err(Refusal::NotTheTerm { .. })
                if unknown
                    && slot.is_none()
                    && let Some(answer) = last =>
            {
                Ok(Decided { writes: Writes::default(), answer })
            }
            decided => {
                last = decided.as_ref().ok().map(|decided| decided.answer);
                decided
            }
        });
        let answer = answer.await?;
        if answer.was == Was::Primary {
            raise(&self.0.counters.released);
        }
        Ok(answer)
    }

    /// Sets a role up, or changes how it is. Fails if a candidate could not keep up, there are too many roles, or the
    /// store cannot serve it.
    pub async fn set(&self, role: RoleName, changes: RoleChanges) -> Result<RoleView, Refusal> {
        self.change(role.clone(), move |facts, _| core::set(facts, &changes)).await?;
        self.after_change(&role).await
    }

    /// Raises a role's epoch above one that another store has granted. Fails if there are too many roles, or the
    /// store cannot serve it.
    pub async fn raise_epoch(&self, role: RoleName, least: Epoch) -> Result<RoleView, Refusal> {
        self.change(role.clone(), move |facts, _| core::raise_epoch(facts, least)).await?;
        self.after_change(&role).await
    }

    /// Asks the primary to step down; the answer to its next heartbeat says so. Fails if the role is not known or has
    /// no primary, or the store cannot serve it.
    pub async fn step_down(&self, role: RoleName) -> Result<RoleView, Refusal> {
        self.change(role.clone(), |facts, _| core::step_down(facts)).await?;
        self.after_change(&role).await
    }

    /// Deletes a role without a primary and without standbys. If it is created again, it continues above its epochs.
    /// Fails if it is in use or not known, or the store cannot serve it.
    pub async fn delete(&self, role: RoleName) -> Result<(), Refusal> {
        self.change(role, |facts, unknown| match core::delete(facts) {
            Err(Refusal::UnknownRole(_)) if unknown => Ok(Decided { writes: Writes::default(), answer: () }),
            decided => decided,
        })
        .await
    }

    /// A role as it is now.
    pub async fn now(&self, role: &RoleName) -> Result<RoleView, Refusal> {
        Ok(core::view(&self.0.look(role).await?))
    }

    /// A role that this call has just changed: where it cannot be read, that is no word on the change.
    async fn after_change(&self, role: &RoleName) -> Result<RoleView, Refusal> {
        let unread = |refusal| Refusal::OutcomeUnknown(format!("the role was changed, but cannot be read: {refusal}"));
        self.now(role).await.map_err(unread)
    }

    /// A role, at once if what is waited for is so, else when it becomes so or the time is up.
    pub async fn primary(&self, role: &RoleName, wait: Wait) -> Result<RoleView, Refusal> {
        let facts = self.0.look(role).await?;
        if wait.time.0 == 0 || wait.what.is_met(&facts) {
            return Ok(wait.what.view(&facts));
        }
        let deadline = Instant::now() + Duration::from_millis(wait.time.0);
        let _waiting = Arc::clone(&self.0.waiting);
        let mut watch = self.0.registry.watch(&store::subject(role));
        loop {
            // Changes before the watch began are seen here; it reports later ones.
            let sight = match tokio::time::timeout_at(deadline, watch.next()).await {
                Ok(sight) => sight.map_err(store::refusal)?,
                Err(_) => return Ok(wait.what.view(&self.0.look(role).await?)),
            };
            let facts = Facts { now: sight.now(), ..store::read(role, sight.look())? };
            if wait.what.is_met(&facts) {
                return Ok(wait.what.view(&facts));
            }
        }
    }

    /// Changes a role. `decide` learns whether an earlier write of this call may have been applied without an answer.
    async fn change<A, D>(&self, role: RoleName, mut decide: D) -> Result<A, Refusal>
    where
        A: Send + 'static,
        D: FnMut(&Facts, bool) -> Result<Decided<A>, Refusal> + Send + 'static,
    {
        let (inner, subject) = (self.0.clone(), store::subject(&role));
        let decide = move |look: &Look, unknown: bool| {
            let decided = store::read(&role, look).and_then(|facts| inner.decision(&facts, decide(&facts, unknown)?));
            decided.unwrap_or_else(|refusal| Decision::keep(Err(refusal)))
        };
        self.0.registry.update(subject, decide).await.map_err(store::refusal)?
    }
}

impl Inner {
    /// Reads a role, after the writes of this process that are in flight.
    pub async fn look(&self, role: &RoleName) -> Result<Facts, Refusal> {
        let look = self.registry.look_at(&store::subject(role)).await.map_err(store::refusal)?;
        store::read(role, &look)
    }

    /// What the core decided, as rows to write. Other nodes are notified of a new holder only.
    fn decision<A>(&self, facts: &Facts, decided: Decided<A>) -> Result<Decision<Result<A, Refusal>>, Refusal> {
        let Decided { writes, answer } = decided;
        self.check_law(facts, &writes)?;
        let news = if changes_holder(facts, &writes) { News::EVERYWHERE } else { News::HERE };
        Ok(Decision::write(store::rows(&facts.role, writes), news, Ok(answer)))
    }

    fn check_law(&self, facts: &Facts, writes: &Writes) -> Result<(), Refusal> {
        let verdict = match &writes.row {
            Change::Keep => Ok(()),
            Change::Clear => lawful_step(facts.row.as_ref(), None, facts.now),
            Change::Set(row) => lawful_step(facts.row.as_ref(), Some(row), facts.now),
        };
        verdict.map_err(|broken| {
            raise(&self.counters.unlawful);
            tracing::error!(role.name = %facts.role, law.broken = %broken, "a decision was not written");
            Refusal::Corrupt(broken.to_string())
        })
    }
}

/// Whether others may find another holder, or none, where there was one.
fn changes_holder(facts: &Facts, writes: &Writes) -> bool {
    let term = |row: &RoleRow| row.term.as_ref().map(|_| row.epoch);
    match &writes.row {
        Change::Keep => false,
        Change::Clear => true,
        Change::Set(row) => facts.row.as_ref().and_then(term) != term(row),
    }
}
