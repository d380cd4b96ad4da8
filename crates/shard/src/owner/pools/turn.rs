//! The decisions of one turn about pools: rows to commit, and answers that wait for the commit.

use wayleave_core::frontier::refusal::Refusal;
use wayleave_engine::Write;

use crate::matches::call::MatchResponse;
use crate::message::{Deferred, MatchReply};
use crate::owner::pools::Pools;
use crate::owner::port::Port;
use crate::routing::router::CallResult;

/// The decisions of a turn.
#[derive(Default)]
pub(super) struct Turn {
    pub writes: Vec<Write>,
    pub answers: Vec<Deferred>,
}

impl Turn {
    /// Queues an answer. If the answer is dropped, so is the reply, and its caller learns that the outcome is unknown.
    pub fn answer<T: Into<MatchResponse>>(&mut self, reply: MatchReply, answer: CallResult<T>) {
        let answer = answer.map(T::into);
        self.answers.push(Box::new(move |durable| _ = reply.send(durable.and(answer))));
    }

    /// Refuses every call of the turn, which has committed nothing.
    fn refuse(&mut self, why: &Refusal) {
        self.answers.drain(..).for_each(|send| send(Err(why.clone())));
    }
}

impl Pools {
    /// Ends the turn: what time has brought, and one commit for everything.
    pub fn finish(&mut self, port: &mut Port) {
        let now = port.now();
        if port.refusal().is_none() {
            if self.look_for_sites_at().is_some_and(|at| at <= now) {
                self.look_for_sites(port.readiness.pools.live_sites(), now);
            }
            self.tick(now);
        }
        let Turn { writes, answers } = std::mem::take(&mut self.turn);
        let mark = port.cycle.mark();
        if !writes.is_empty() {
            port.commit_rows(writes);
        }
        for send in answers {
            port.cycle.answer(mark, send);
        }
    }

    /// The turn failed before it could commit: this state is dropped with the owner's.
    pub fn refuse(&mut self, why: &Refusal) {
        self.turn.refuse(why);
    }

    /// Publishes for which sites orders wait.
    pub fn publish(&mut self, port: &Port) {
        if let Some(sites) = self.sites.take_changed() {
            port.readiness.pools.tell(port.shard, sites);
        }
    }
}

impl Drop for Pools {
    /// However the owner ends, calls that wait are told.
    fn drop(&mut self) {
        self.leave();
    }
}
