//! The handle: every call reads, lets the core decide, writes if nothing has changed meanwhile, and else begins again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use wayleave_core::ids::{Epoch, Token};
use wayleave_core::invariants::lawful_step;
use wayleave_core::limits;
use wayleave_core::names::{RoleName, Slot, Uuid};
use wayleave_core::roles::{
    self as core, Answer, Ask, Decided, Facts, Outcome, Refusal, Released, RoleChanges, RoleRow, RoleView, Was, Writes,
};
use wayleave_core::settings::Change;
use wayleave_core::time::Millis;
use wayleave_engine::{Engine, Error};

use crate::config::Config;
use crate::counters::{Counters, raise};
use crate::locks::Locks;
use crate::store::{self, Seen};
use crate::watch::Watchers;

/// All that callers may ask of roles; cheap to clone.
#[derive(Clone)]
pub struct Roles(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub engine: Arc<dyn Engine>,
    pub config: Config,
    pub counters: Counters,
    pub watchers: Watchers,
    pub places: Semaphore,
    pub locks: Locks,
}

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// A primary of at least this epoch.
    Primary(Epoch),
    /// That nobody is primary, or somebody of at least this epoch, if one is named.
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
        let places = Semaphore::new(config.waiters_max);
        let (counters, watchers, locks) = (Counters::default(), Watchers::default(), Locks::default());
        Self(Arc::new(Inner { engine, config, counters, watchers, places, locks }))
    }

    /// What became of calls, since the start of the process.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// How many wait for a change of a role.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.config.waiters_max.saturating_sub(self.0.places.available_permits())
    }

    /// A hint that a role has changed, as by another node: those who wait here look at once.
    pub fn nudge(&self, role: &str) {
        self.0.watchers.nudge(role);
    }

    /// Acquires a role, renews its term, or stands by for it.
    ///
    /// # Errors
    /// As the core refuses it, or if the store cannot serve it.
    pub async fn heartbeat(&self, role: RoleName, ask: Ask) -> Result<Answer, Refusal> {
        let entropy = (self.0.config.entropy)();
        let minted = Token(entropy.to_be_bytes());
        let answer = self.change(role, move |seen, _| {
            // The token tells whether a write of this very call has arrived, whose answer was lost.
            if seen.term_is(minted) {
                let ask = Ask { token: Some(minted), ..ask.clone() };
                let mut decided = core::heartbeat(&seen.facts, &ask, entropy)?;
                decided.answer.outcome = Outcome::Acquired;
                return Ok(decided);
            }
            core::heartbeat(&seen.facts, &ask, entropy)
        });
        let answer = answer.await;
        self.0.counters.on_heartbeat(&answer);
        answer
    }

    /// Gives a term back, or leaves the line of standbys.
    ///
    /// # Errors
    /// If the role is not known, the token is not that of the present term, or the store cannot serve it.
    pub async fn release(&self, role: RoleName, uuid: Uuid, token: Option<Token>) -> Result<Released, Refusal> {
        self.release_after(role, uuid, token, None).await
    }

    /// The same, and the role remembers the slot that was run in the term.
    ///
    /// # Errors
    /// If the role is not known, the token is not that of the present term, or the store cannot serve it.
    pub async fn release_after(
        &self,
        role: RoleName,
        uuid: Uuid,
        token: Option<Token>,
        slot: Option<Slot>,
    ) -> Result<Released, Refusal> {
        let mut last = None;
        let answer =
            self.change(role, move |seen, unknown| match core::release(&seen.facts, &uuid, token, slot.as_ref()) {
                // The term is over in any case: the first attempt arrived, or somebody has taken over without it. Whether a slot
                // was recorded is for the row alone to say.
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

    /// Sets a role up, or changes how it is.
    ///
    /// # Errors
    /// If a candidate could not keep up, there are too many roles, or the store cannot serve it.
    pub async fn set(&self, role: RoleName, changes: RoleChanges) -> Result<RoleView, Refusal> {
        self.change(role.clone(), move |seen, _| core::set(&seen.facts, &changes)).await?;
        self.after_change(&role).await
    }

    /// Lets a role go on above an epoch that another store has granted.
    ///
    /// # Errors
    /// If there are too many roles, or the store cannot serve it.
    pub async fn raise_epoch(&self, role: RoleName, least: Epoch) -> Result<RoleView, Refusal> {
        self.change(role.clone(), move |seen, _| core::raise_epoch(&seen.facts, least)).await?;
        self.after_change(&role).await
    }

    /// Asks the primary to let go; it is told with its next heartbeat.
    ///
    /// # Errors
    /// If the role is not known or has no primary, or the store cannot serve it.
    pub async fn step_down(&self, role: RoleName) -> Result<RoleView, Refusal> {
        self.change(role.clone(), |seen, _| core::step_down(&seen.facts)).await?;
        self.after_change(&role).await
    }

    /// Deletes a role that nobody has and nobody stands by for. Should it come again, it goes on above its epochs.
    ///
    /// # Errors
    /// If it is in use or not known, or the store cannot serve it.
    pub async fn delete(&self, role: RoleName) -> Result<(), Refusal> {
        self.change(role, |seen, unknown| match core::delete(&seen.facts) {
            Err(Refusal::UnknownRole(_)) if unknown => Ok(Decided { writes: Writes::default(), answer: () }),
            decided => decided,
        })
        .await
    }

    /// A role as it is now.
    ///
    /// # Errors
    /// If the store cannot serve it.
    pub async fn now(&self, role: &RoleName) -> Result<RoleView, Refusal> {
        Ok(core::view(&self.0.look(role).await?.facts))
    }

    /// A role that this call has just changed: where it cannot be read, that is no word on the change.
    async fn after_change(&self, role: &RoleName) -> Result<RoleView, Refusal> {
        let unread = |refusal| Refusal::OutcomeUnknown(format!("the role was changed, but cannot be read: {refusal}"));
        self.now(role).await.map_err(unread)
    }

    /// A role, at once if what is waited for is so, else when it becomes so or the time is up.
    ///
    /// # Errors
    /// If too many wait, or the store cannot serve it.
    pub async fn primary(&self, role: &RoleName, wait: Wait) -> Result<RoleView, Refusal> {
        let seen = self.0.look(role).await?;
        if wait.time.0 == 0 || wait.what.is_met(&seen.facts) {
            return Ok(wait.what.view(&seen.facts));
        }
        let deadline = Instant::now() + Duration::from_millis(wait.time.0);
        let _place = self.0.places.try_acquire().map_err(|_| Refusal::Overloaded)?;
        let mut news = Watchers::subscribe(&self.0, role);
        loop {
            // What came before the subscription is seen here, what comes after it is told.
            let facts = match tokio::time::timeout_at(deadline, news.next()).await {
                Ok(facts) => facts?,
                Err(_) => return Ok(wait.what.view(&self.0.look(role).await?.facts)),
            };
            if wait.what.is_met(&facts) {
                return Ok(wait.what.view(&facts));
            }
        }
    }

    /// Runs a change to its end, also if the caller has gone away: a write that nobody waits for could be seen before it is
    /// durable.
    async fn change<A, D>(&self, role: RoleName, decide: D) -> Result<A, Refusal>
    where
        A: Send + 'static,
        D: FnMut(&Seen, bool) -> Result<Decided<A>, Refusal> + Send + 'static,
    {
        let inner = self.0.clone();
        let runtime = self.0.config.runtime.clone().unwrap_or_else(tokio::runtime::Handle::current);
        let done = runtime.spawn(async move { inner.change(&role, decide).await }).await;
        done.unwrap_or_else(|error| Err(Refusal::OutcomeUnknown(format!("the change was cut off: {error}"))))
    }
}

impl Inner {
    /// Reads a role, after the writes of this process that are under way.
    pub async fn look(&self, role: &RoleName) -> Result<Seen, Refusal> {
        let _settled = self.locks.read(role).await;
        store::look(&*self.engine, role).await.map_err(|error| store::refusal(error, false))
    }

    /// Changes a role, and tells those who wait for it, here and on other nodes, once they could see the change. A write whose
    /// outcome is unknown may be seen: whoever waits looks for itself, and a hint too many costs one look.
    async fn change<A>(
        &self,
        role: &RoleName,
        decide: impl FnMut(&Seen, bool) -> Result<Decided<A>, Refusal>,
    ) -> Result<A, Refusal> {
        let mut seen = Visible::Nothing;
        let answer = self.write(role, decide, &mut seen).await;
        if seen >= Visible::Something {
            self.watchers.nudge(role);
        }
        if let Some(changed) = self.config.changed.as_ref().filter(|_| seen == Visible::Holder) {
            changed(role);
        }
        answer
    }

    /// Reads, decides and writes until a write counts. `decide` is told whether an earlier write of this call may have
    /// counted without our knowing.
    async fn write<A>(
        &self,
        role: &RoleName,
        mut decide: impl FnMut(&Seen, bool) -> Result<Decided<A>, Refusal>,
        visible: &mut Visible,
    ) -> Result<A, Refusal> {
        let _turn = self.locks.write(role).await;
        let mut unknown: Option<String> = None;
        for attempt in 0..limits::ROLE_TRIES_MAX {
            self.pause(attempt).await;
            let looked = store::look(&*self.engine, role).await;
            let seen = looked.map_err(|error| store::refusal(error, unknown.is_some()))?;
            let Decided { writes, answer } = decide(&seen, unknown.is_some())?;
            if writes == Writes::default() {
                return Ok(answer);
            }
            self.check_law(&seen.facts, &writes)?;
            let news = if changes_holder(&seen.facts, &writes) { Visible::Holder } else { Visible::Something };
            match self.engine.commit(seen.batch(writes)).await {
                Ok(()) => {
                    *visible = news.max(*visible);
                    return Ok(answer);
                }
                Err(Error::Conflict) => raise(&self.counters.conflicts),
                Err(Error::OutcomeUnknown(what)) => {
                    *visible = news.max(*visible);
                    unknown = Some(what);
                }
                Err(error) => return Err(store::refusal(error, unknown.is_some())),
            }
        }
        Err(unknown.map_or_else(|| store::refusal(Error::Conflict, false), Refusal::OutcomeUnknown))
    }

    /// Those whom another node overtook come back at different times.
    async fn pause(&self, attempt: usize) {
        if attempt > 1 {
            let most = 1_u128 << attempt.min(6);
            let ms = (self.config.entropy)() % most;
            tokio::time::sleep(Duration::from_millis(u64::try_from(ms).unwrap_or(0))).await;
        }
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

/// What others may see of a change, surely or perhaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Visible {
    Nothing,
    Something,
    /// Another holder, or none where there was one.
    Holder,
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
