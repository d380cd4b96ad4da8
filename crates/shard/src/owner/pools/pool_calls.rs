//! Calls of operators, workers and Makers, and the dispatch of all calls about pools.

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::limits::{LISTING_LOOKS, MAKER_REPORTS_MAX, POOLS_MAX, SITES_EVERY};
use wayleave_core::matches::{self, Answer, Asker, Call, Input, MatchStage, RuntimeKind, Settings, State};
use wayleave_core::names::{ClientName, PoolName, SiteName};
use wayleave_core::time::Time;

use super::client_calls::odd_answer;
use super::decide::Pools;
use super::parked::ClientCall;
use crate::matches::call::{MatchCall, MatchPage, MatchResponse, PoolPage, QueuedBefore, Waited};
use crate::matches::readiness::LiveSite;
use crate::matches::{Orders, WorkerReport};
use crate::message::MatchReply;
use crate::owner::port::Port;
use crate::routing::router::CallResult;
use crate::routing::service_call::ServiceCall;

impl Pools {
    /// Decides a call. Its answer waits for the turn's commit; see `finish`.
    pub fn handle(&mut self, call: MatchCall, reply: MatchReply, port: &Port) {
        if call.is_listing() && reply.is_closed() {
            return;
        }
        let now = port.now();
        match (port.refusal(), call) {
            // A match can be shown, but not confirmed.
            (Some(_), MatchCall::Look { pool, asker, .. }) => self.show(&pool, &asker, reply, now),
            (Some(why), call) if !call.is_read_only() || matches!(call, MatchCall::Orders(_)) => {
                _ = reply.send(Err(why));
            }
            (_, call) => self.decide(call, reply, now),
        }
    }

    pub(super) fn decide(&mut self, call: MatchCall, reply: MatchReply, now: Time) {
        match call {
            MatchCall::Put { pool, asker, wait, before } => {
                let call = ClientCall::new(pool, asker, (Call::Put, now.after(wait)), reply);
                match before {
                    QueuedBefore::No => self.client_call(call, now),
                    before => self.call_again(call, before, now),
                }
            }
            MatchCall::Look { pool, asker, wait } => {
                self.client_call(ClientCall::new(pool, asker, (Call::Look, now.after(wait)), reply), now);
            }
            MatchCall::Cancel { pool, asker, token } => {
                self.cancel(&pool, Input::Cancel { asker, token }, reply, now);
            }
            MatchCall::SetPool { pool, settings, paused } => {
                let set = self.set_pool(&pool, *settings, paused, now);
                self.turn.answer(reply, set);
            }
            MatchCall::PausePool { pool, paused } => {
                let answer = self.apply(&pool, Input::Pause(paused), now);
                let told = answer.ok_or_else(|| self.unknown(&pool)).and_then(pool_told);
                self.turn.answer(reply, told);
            }
            MatchCall::DeletePool(pool) => {
                let answer = self.apply(&pool, Input::Delete, now);
                let deleted = answer.ok_or_else(|| self.unknown(&pool)).and_then(pool_told);
                self.turn.answer(reply, deleted);
            }
            MatchCall::Report { pool, report } => {
                let told = self.report(&pool, report, now);
                self.turn.answer(reply, told);
            }
            MatchCall::Orders(LiveSite { site, runtime, .. }) if self.sites.is_other(&site, runtime, now) => {
                self.turn.answer(reply, Err::<Orders, _>(shared_name(&site, runtime)));
            }
            // The orders of a caller that has left would be ordered again later.
            MatchCall::Orders(_) if reply.is_closed() => {}
            MatchCall::Orders(live) => {
                self.site_alive(&live, now);
                let orders = self.sites.take(&live.site, now);
                self.turn.answer(reply, Ok(orders));
            }
            MatchCall::Tell(told) => {
                self.tell(told, now);
                self.turn.answer(reply, Ok(()));
            }
            looks => {
                let answer = self.answer_look(looks, now);
                self.turn.answer(reply, answer);
            }
        }
        self.take_news(now);
    }

    /// Calls that change nothing. Ages and remaining times are told as of now, not as of the last decision.
    fn answer_look(&mut self, call: MatchCall, now: Time) -> CallResult<MatchResponse> {
        self.states.values_mut().for_each(|state| state.look_at(now));
        let known = |pool: &PoolName| self.states.get(pool).ok_or_else(|| self.unknown(pool));
        Ok(match call {
            MatchCall::Why { pool, client } => {
                let state = known(&pool)?;
                let mut view = state.view(&client).map(Box::new);
                if view.is_none() && state.is_closing() {
                    return Err(matches::Refusal::Closing(pool.to_string()).into());
                }
                // An operator may look, but must not be able to use a client's worker.
                let matched = view.iter_mut().filter_map(|view| view.matched.as_mut());
                matched.for_each(|matched| matched.token = None);
                view.into()
            }
            MatchCall::Matches { pool, stage, after, most } => page(known(&pool)?, stage, after.as_ref(), most).into(),
            MatchCall::Pool(pool) => Box::new(known(&pool)?.pool_view()).into(),
            MatchCall::Pools { after, most } => self.page(after.as_ref(), most).into(),
            MatchCall::Workers(pool) => known(&pool)?.workers().into(),
            MatchCall::Removed(pool) => known(&pool)?.removed_workers().into(),
            _ => return Err(odd_answer()),
        })
    }

    fn page(&self, after: Option<&PoolName>, most: usize) -> PoolPage {
        use std::ops::Bound::{Excluded, Unbounded};
        let most = most.clamp(1, LISTING_LOOKS);
        let mut rest = self.states.range::<PoolName, _>((after.map_or(Unbounded, Excluded), Unbounded));
        let pools: Vec<_> = rest.by_ref().take(most).collect();
        let next = pools.last().map(|(name, _)| (*name).clone()).filter(|_| rest.next().is_some());
        (pools.into_iter().map(|(_, state)| state.summary()).collect(), next)
    }

    /// Shows a match while the store refuses changes.
    fn show(&mut self, pool: &PoolName, asker: &Asker, reply: MatchReply, now: Time) {
        self.states.get_mut(pool).into_iter().for_each(|state| state.look_at(now));
        let known = self.states.get(pool).ok_or_else(|| self.unknown(pool));
        let view = known.and_then(|state| Ok(state.show(asker)?));
        self.turn.answer(reply, view.map(|view| Waited::Now(view.map(Box::new))));
    }

    fn set_pool(
        &mut self,
        pool: &PoolName,
        settings: Settings,
        paused: Option<bool>,
        now: Time,
    ) -> CallResult<Box<matches::PoolView>> {
        if !self.states.contains_key(pool) {
            if self.states.len() >= POOLS_MAX {
                return Err(matches::Refusal::TooManyPools(self.states.len()).into());
            }
            let (label, generation) = (self.label(), (self.entropy)() as u64);
            let state = State::create(self.shard, pool.clone(), label, settings.clone(), generation, now);
            self.states.insert(pool.clone(), state);
            self.removed.retain(|removed| removed != pool);
            self.pause_pool(pool, paused.filter(|paused| *paused), now);
            for (site, runtime, lack) in self.sites.alive(now) {
                self.apply(pool, Input::SiteAlive { site, runtime, lack }, now);
            }
            // The first pool of a shard has nobody who looked before it.
            self.sites_at = Time::ZERO;
        }
        // It is paused before anything can follow from its settings, and resumed after that.
        self.pause_pool(pool, paused.filter(|paused| *paused), now);
        let answer = self.apply(pool, Input::Set(Box::new(settings)), now);
        let told = answer.ok_or_else(|| self.unknown(pool)).and_then(pool_told)?;
        let resumed = self.pause_pool(pool, paused.filter(|paused| !*paused), now);
        resumed.map_or(Ok(told), pool_told)
    }

    fn pause_pool(&mut self, pool: &PoolName, paused: Option<bool>, now: Time) -> Option<Answer> {
        self.apply(pool, Input::Pause(paused?), now)
    }

    fn report(&mut self, pool: &PoolName, report: WorkerReport, now: Time) -> CallResult<()> {
        let WorkerReport { worker, address, from, free, run, secret } = report;
        let state = self.states.get(pool).ok_or_else(|| self.unknown(pool))?;
        let known = state.worker_no(&worker);
        let worker = known.ok_or_else(|| matches::Refusal::WrongSecret { worker: worker.to_string() })?;
        match self.apply(pool, Input::Report { worker, address, from, free, run, secret }, now) {
            None => Err(self.unknown(pool)),
            Some(Answer::Refused(refusal)) => Err(refusal.into()),
            Some(_) => Ok(()),
        }
    }

    /// When the pools look for sites next.
    pub(super) fn look_for_sites_at(&self) -> Option<Time> {
        (!self.states.is_empty()).then_some(self.sites_at)
    }

    /// The pools look which sites are alive.
    pub(super) fn look_for_sites(&mut self, sites: Vec<LiveSite>, now: Time) {
        self.sites_at = now.after(SITES_EVERY);
        for live in sites {
            if !self.sites.is_other(&live.site, live.runtime, now) {
                self.site_alive(&live, now);
            }
        }
        self.take_news(now);
    }

    /// A Maker is there: every pool of the shard is told, now and then. Most of them only note it, because a sign of life
    /// must not cost a decision per pool.
    fn site_alive(&mut self, LiveSite { site, runtime, lack }: &LiveSite, now: Time) {
        let (runtime, lack) = (*runtime, lack.as_ref());
        if !self.sites.heard(site, runtime, lack, now) {
            return;
        }
        let concerned = |(pool, state): (&PoolName, &mut State)| {
            (!state.note_alive(site, runtime, lack, now)).then(|| pool.clone())
        };
        let concerned: Vec<PoolName> = self.states.iter_mut().filter_map(concerned).collect();
        for pool in concerned {
            self.apply(&pool, Input::SiteAlive { site: site.clone(), runtime, lack: lack.cloned() }, now);
        }
    }

    /// Applies what Makers report. Reports about a removed pool are ignored.
    fn tell(&mut self, told: Vec<(PoolName, Input)>, now: Time) {
        for (pool, input) in told.into_iter().take(MAKER_REPORTS_MAX) {
            match input {
                Input::Checked { .. } => self.checked(&pool, input, now),
                Input::Reserved { .. }
                | Input::Released { .. }
                | Input::Made { .. }
                | Input::Listening { .. }
                | Input::Stopped { .. }
                | Input::Removed { .. }
                | Input::Exited { .. }
                | Input::Listed { .. } => _ = self.apply(&pool, input, now),
                // Not from Makers: these arrive by calls of their own.
                Input::Put(_)
                | Input::Look(_)
                | Input::Cancel { .. }
                | Input::SiteAlive { .. }
                | Input::Report { .. }
                | Input::Set(_)
                | Input::Pause(_)
                | Input::Delete
                | Input::Tick => {}
            }
            self.take_news(now);
        }
    }
}

/// Two nodes announce one site with different runtimes: orders for one would go to the other.
fn shared_name(site: &SiteName, runtime: RuntimeKind) -> Refusal {
    let runtime = runtime.name();
    Refusal::Contradiction(format!(
        "site {site} is announced by another node with another runtime than '{runtime}': give each node a folder of its own \
         (`serve --makers`), and remove the file `site` of the one that was copied"
    ))
}

fn pool_told(answer: Answer) -> CallResult<Box<matches::PoolView>> {
    match answer {
        Answer::Pool(view) => Ok(view),
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(odd_answer()),
    }
}

/// A slice of a pool's matches. It may be short or empty: then none of those it looked at is in that stage.
fn page(state: &State, stage: Option<MatchStage>, after: Option<&ClientName>, most: usize) -> MatchPage {
    let mut seen = state.matches(after, most.clamp(1, LISTING_LOOKS));
    let next = seen.last().map(|(client, _)| client.clone());
    let more = next.as_ref().is_some_and(|last| !state.matches(Some(last), 1).is_empty());
    seen.retain(|(_, view)| stage.is_none_or(|stage| view.stage == stage));
    (seen, next.filter(|_| more))
}
