//! The decisions of one turn about pools: rows to commit, and answers that wait for the commit.

use wayleave_core::frontier::refusal::Refusal;
use wayleave_engine::Write;

use crate::matches::call::MatchResponse;
use crate::message::{Deferred, MatchReply};
use crate::owner::owner_loop::Owner;
use crate::owner::pools::Pools;
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

impl Owner {
    /// Ends the turn for pools: what time has brought, orders for the polls that wait, and one commit for everything.
    pub fn finish_pools(&mut self) {
        let now = self.engine.now();
        if self.refusing.is_none() {
            self.pools.tick(now);
        }
        self.pools.hand_out(now);
        let Turn { writes, answers } = std::mem::take(&mut self.pools.turn);
        let mark = self.cycle.mark();
        if !writes.is_empty() {
            self.commit_all(Vec::new(), writes);
        }
        for send in answers {
            self.cycle.answer(mark, send);
        }
    }

    /// The turn failed before pools could commit: their state is dropped with the owner's.
    pub fn refuse_pools(&mut self, why: &Refusal) {
        self.pools.turn.refuse(why);
    }

    /// When pools have work of their own next.
    pub fn pools_due(&self) -> Option<wayleave_core::time::Time> {
        self.pools.next_due()
    }
}

impl Drop for Pools {
    /// However the owner ends, parked calls are told, and no poll waits in vain.
    fn drop(&mut self) {
        self.leave();
    }
}
