//! Checks the answers about chunks that crawlers, index builders and operators got. It must not miss that
//!
//! - an id is used again, or a chunk is built twice, unless an operator asked for it;
//! - a call is accepted although another worker had the chunk when it was sent, its lease had ended by the store's time, or
//!   an operator had decided about the chunk, which no worker may have then;
//! - a call is refused although its lease lasts;
//! - a chunk that was built or skipped is handed out, though no operator asked for it again, or is something else at the end;
//! - a chunk is lost, or what it has crawled;
//! - a page counts in two chunks. An answer names which of a crawler's reported links do not count; all others do,
//!   until an index builder reports the content of the chunk as lost, whatever the answer. A call whose answer was
//!   lost is repeated, so that also its links are known, unless that answer is lost too;
//! - a link leaves its chunk although its host did not move;
//! - a call that is repeated is refused or answered in another way, before another one ends the same stage.
//!
//! It says nothing about calls whose answers were lost twice, about leases that a lost answer may have extended, and about a
//! token whose call was answered by another store than the one that was asked: a store that comes up after a crash may be
//! behind the time that the one before has shown. An operator's decision whose answer was lost may be carried out at any time:
//! it forbids nothing, and from then on little is promised of its chunk.

use std::collections::BTreeMap;

use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::invariants::{Broken, Verdict};
use wayleave_core::pipeline::request::{Claimed, OperatorAction, Stage};
use wayleave_core::pipeline::row::ChunkState;
use wayleave_core::time::Time;

use crate::oracle::Id;

/// All promises about chunks.
#[derive(Default)]
pub struct ChunkOracle {
    numbers: u64,
    /// Chunks that were claimed for the first time.
    made: BTreeMap<ChunkId, Token>,
    /// How often the content of chunks may have been lost: they begin anew.
    losses: BTreeMap<ChunkId, u64>,
    /// The links that count in chunks, and in which.
    crawled: BTreeMap<Id, ChunkId>,
    /// Chunks that are certainly built, by which lease.
    built: BTreeMap<ChunkId, Token>,
    /// Chunks that have certainly ended, and since when, in milliseconds of the run.
    ended: BTreeMap<ChunkId, (ChunkState, u64)>,
    /// All leases of chunks that workers were granted.
    leases: BTreeMap<ChunkId, Vec<Lease>>,
    /// What operators asked for, without what was refused.
    decisions: BTreeMap<ChunkId, Vec<Decision>>,
    pub calls: ChunkCalls,
}

/// Calls for chunks by what makes them worth judging. Without any, nothing says that they are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCalls {
    /// With a token that another one had superseded.
    pub superseded: u64,
    /// With a token whose lease had ended.
    pub expired: u64,
    /// Repeated, and accepted as before.
    pub repeated: u64,
    /// Completions that named links which had left before.
    pub left: u64,
    /// With a token whose chunk an operator had decided about since.
    pub overruled: u64,
    /// Chunks that operators skipped while a worker had them, while they waited for one, after they were set aside, and after
    /// they were built.
    pub skipped: [u64; 4],
    /// Chunks that operators had tried again: skipped ones, those set aside, and built ones.
    pub retried: [u64; 3],
}

impl ChunkCalls {
    /// Whether there was at least one call of every kind that no run of a hundred seeds does without.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        let [held, waiting, _, unwanted] = self.skipped;
        let [skipped, _, built] = self.retried;
        let decided = [held, waiting, unwanted, skipped, built];
        let all = [self.superseded, self.expired, self.repeated, self.left, self.overruled];
        all.iter().chain(&decided).all(|calls| *calls > 0)
    }
}

impl std::ops::AddAssign for ChunkCalls {
    fn add_assign(&mut self, other: Self) {
        self.superseded += other.superseded;
        self.expired += other.expired;
        self.repeated += other.repeated;
        self.left += other.left;
        self.overruled += other.overruled;
        self.skipped.iter_mut().zip(other.skipped).for_each(|(sum, calls)| *sum += calls);
        self.retried.iter_mut().zip(other.retried).for_each(|(sum, calls)| *sum += calls);
    }
}

/// What an operator asked for, and when it was asked and acknowledged, in milliseconds of the run; `None` if it may be carried
/// out at any time.
struct Decision {
    number: u64,
    action: OperatorAction,
    asked: u64,
    answered_at: Option<u64>,
    /// By which lease the chunk was built before, if that was certain.
    built: Option<Token>,
    /// As what it had ended.
    ended: Option<(ChunkState, u64)>,
}

/// A lease, and when it was asked for and granted, in milliseconds of the run, which never goes back.
struct Lease {
    token: Token,
    stage: Stage,
    asked: u64,
    answered_at: u64,
    /// Its end by the store's time; `None` if a lost answer may have granted a later one.
    until: Option<Time>,
    /// Whether it ends with its crawl, which is occasionally deleted.
    doomed: bool,
}

/// When a call with the token of a chunk was sent.
#[derive(Clone, Copy)]
pub struct Sent {
    /// In milliseconds of the run.
    pub elapsed: u64,
    /// The store's time; `None` if another store has answered.
    pub now: Option<Time>,
}

impl ChunkOracle {
    /// A number that was not drawn before.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A chunk was claimed: asked for at the first time and answered at the second.
    pub fn claimed(&mut self, chunk: &Claimed, (asked, answered_at): (u64, u64)) -> Verdict {
        let leases = self.leases.entry(chunk.id).or_default();
        if leases.iter().all(|lease| lease.token != chunk.token) {
            let (token, stage, until) = (chunk.token, chunk.stage, Some(chunk.expires_at));
            leases.push(Lease { token, stage, asked, answered_at, until, doomed: &*chunk.crawl == "doomed" });
        }
        if let Some((state, _)) = self.ended.get(&chunk.id).filter(|(_, since)| *since < asked) {
            return twice(format!("chunk {} was handed out though it had ended as {}", chunk.id, state.name()));
        }
        let retried = self.decisions(chunk.id).any(|decision| decision.action == OperatorAction::Retry);
        if chunk.stage != Stage::Crawl || chunk.attempts > 0 || self.losses(chunk.id) > 0 || retried {
            return Ok(());
        }
        match self.made.insert(chunk.id, chunk.token) {
            Some(before) if before != chunk.token => twice(format!("chunk {} was made twice", chunk.id)),
            _ => Ok(()),
        }
    }

    /// A lease was renewed; without a time it may have been.
    pub fn renewed(&mut self, id: ChunkId, token: Token, until: Option<Time>) {
        for lease in self.leases.entry(id).or_default().iter_mut().filter(|lease| lease.token == token) {
            lease.until = until;
        }
    }

    /// A call with this token was acknowledged or not. A lease that was asked for after this one was granted is a
    /// later one, and if it was granted before the call was sent, the call must have been refused.
    pub fn answered(&mut self, (id, token): (ChunkId, Token), sent: Sent, accepted: bool) -> Verdict {
        let leases = self.leases.get(&id).map_or(&[][..], Vec::as_slice);
        let Some(own) = leases.iter().find(|lease| lease.token == token) else { return Ok(()) };
        let superseded = leases.iter().any(|other| own.answered_at < other.asked && other.answered_at < sent.elapsed);
        let expired = own.until.zip(sent.now).is_some_and(|(until, now)| until <= now);
        // No worker has a chunk that an operator's decision about is carried out.
        let over = |decision: &Decision| {
            own.answered_at < decision.asked && decision.answered_at.is_some_and(|at| at < sent.elapsed)
        };
        let overruled = self.decisions(id).any(over);
        self.calls.superseded += u64::from(superseded);
        self.calls.expired += u64::from(expired);
        self.calls.overruled += u64::from(overruled);
        if accepted && superseded {
            return twice(format!("a call for chunk {id} was accepted whose token another one had superseded"));
        }
        if accepted && expired {
            return twice(format!("a call for chunk {id} was accepted though its lease had ended"));
        }
        if accepted && overruled {
            return twice(format!("a call for chunk {id} was accepted though an operator had decided about it"));
        }
        Ok(())
    }

    /// A token was refused as not current, not later than at this time of the store that granted the lease.
    pub fn refused(&self, (id, token): (ChunkId, Token), now: Time) -> Verdict {
        let leases = self.leases.get(&id).map_or(&[][..], Vec::as_slice);
        let Some(own) = leases.iter().find(|lease| lease.token == token) else { return Ok(()) };
        if !own.doomed && self.is_undisturbed(id, own.asked) && own.until.is_some_and(|until| now < until) {
            let what = format!("a token of chunk {id} that is good until {:?} was refused at {now:?}", own.until);
            return Err(Broken { law: 4, name: "a current token counts", what });
        }
        Ok(())
    }

    fn decisions(&self, id: ChunkId) -> impl Iterator<Item = &Decision> {
        self.decisions.get(&id).into_iter().flatten()
    }

    /// Whether no operator's decision about a chunk may have been carried out since then, in milliseconds of the run.
    pub fn is_undisturbed(&self, id: ChunkId, since: u64) -> bool {
        self.decisions(id).all(|decision| decision.answered_at.is_some_and(|answered_at| answered_at < since))
    }

    /// An operator is about to ask for something. Returns the number of that.
    pub fn deciding(&mut self, id: ChunkId, action: OperatorAction, asked: u64) -> u64 {
        let number = self.number();
        // Whatever the answer: from now on it may be something else.
        let ended = self.ended.remove(&id);
        let built = self.built.remove(&id);
        let decision = Decision { number, action, asked, answered_at: None, built, ended };
        self.decisions.entry(id).or_default().push(decision);
        number
    }

    /// An operator's decision was refused: nothing was changed.
    pub fn not_decided(&mut self, id: ChunkId, number: u64) {
        let Some(decisions) = self.decisions.get_mut(&id) else { return };
        let Some(at) = decisions.iter().position(|decision| decision.number == number) else { return };
        let decision = decisions.remove(at);
        if decisions.iter().any(|other| other.answered_at.is_none_or(|answered_at| answered_at >= decision.asked)) {
            // Another one was carried out meanwhile.
            return;
        }
        if let Some(built) = decision.built {
            self.built.entry(id).or_insert(built);
        }
        if let Some(ended) = decision.ended {
            self.ended.entry(id).or_insert(ended);
        }
    }

    /// An operator's decision was carried out, and the chunk was in this state then.
    pub fn decided(&mut self, id: ChunkId, number: u64, state: ChunkState, answered_at: u64) -> Verdict {
        let Some(decisions) = self.decisions.get_mut(&id) else { return Ok(()) };
        let Some(own) = decisions.iter_mut().find(|decision| decision.number == number) else { return Ok(()) };
        own.answered_at = Some(answered_at);
        let (action, asked) = (own.action, own.asked);
        let alone =
            decisions.iter().all(|other| other.number == number || other.answered_at.is_some_and(|at| at < asked));
        match (action, state) {
            (OperatorAction::Skip, ChunkState::Skipped) => {
                if alone {
                    self.ended.insert(id, (ChunkState::Skipped, answered_at));
                }
                Ok(())
            }
            // A waiting worker may have the chunk since.
            (OperatorAction::Retry, _) => Ok(()),
            (OperatorAction::Skip, _) => {
                let what = format!("a skip of chunk {id} was answered with {}", state.name());
                Err(Broken { law: 12, name: "answers are true", what })
            }
        }
    }

    /// Whether a call that ended a lease, sent at this time of the run, is the last one that may have ended that stage of
    /// the chunk: then its repetition is recognised.
    fn is_last(&self, id: ChunkId, token: Token, sent: u64) -> bool {
        let leases = self.leases.get(&id).map_or(&[][..], Vec::as_slice);
        let own = leases.iter().find(|lease| lease.token == token);
        let later = |other: &Lease| own.is_some_and(|own| other.stage == own.stage) && other.answered_at >= sent;
        self.is_undisturbed(id, sent) && !leases.iter().any(|other| other.token != token && later(other))
    }

    /// A call that was accepted before, sent at this time of the run, was repeated. `alike`: with the same answer; `None` if
    /// that was lost.
    pub fn repeated(&mut self, (id, token): (ChunkId, Token), sent: u64, alike: Option<bool>) -> Verdict {
        self.calls.repeated += u64::from(alike == Some(true));
        if alike == Some(false) && self.is_last(id, token, sent) {
            let what = format!("a repeated call for chunk {id} was not answered like the first one");
            return Err(Broken { law: 12, name: "answers are true", what });
        }
        Ok(())
    }

    /// The crawl stage of a chunk was completed, and these links count. The number is how often the content of the
    /// chunk may have been lost when that was asked for: if it was lost since, they may count no more.
    pub fn crawled(&mut self, id: ChunkId, losses: u64, links: &[Id]) -> Verdict {
        if self.losses(id) > losses {
            return Ok(());
        }
        // A crawl that is occasionally deleted promises nothing: its URLs may have been deleted and found again.
        for link in links.iter().filter(|link| link.0 != "doomed") {
            let before = self.crawled.insert(link.clone(), id);
            if let Some(before) = before.filter(|before| *before != id) {
                return twice(format!("{link:?} counts in the chunks {before} and {id}"));
            }
        }
        Ok(())
    }

    /// How often the content of a chunk may have been lost.
    pub fn losses(&self, id: ChunkId) -> u64 {
        self.losses.get(&id).copied().unwrap_or_default()
    }

    /// The content of a chunk may be lost; its links.
    pub fn lost(&mut self, id: ChunkId) -> Vec<Id> {
        *self.losses.entry(id).or_default() += 1;
        let links: Vec<Id> = self.crawled.iter().filter(|(_, of)| **of == id).map(|(link, _)| link.clone()).collect();
        self.crawled.retain(|_, of| *of != id);
        links
    }

    /// Whether the page of a link counts in a chunk.
    pub fn counts(&self, link: &Id) -> bool {
        self.crawled.contains_key(link)
    }

    /// A chunk was built: asked for at the first time and answered at the second.
    pub fn built(&mut self, id: ChunkId, token: Token, (sent, answered_at): (u64, u64)) -> Verdict {
        if !self.is_undisturbed(id, sent) {
            // It may be something else already.
            return Ok(());
        }
        self.ended.insert(id, (ChunkState::Built, answered_at));
        match self.built.insert(id, token) {
            Some(before) if before != token => twice(format!("chunk {id} was built twice")),
            _ => Ok(()),
        }
    }

    /// All chunks at the end, and which have what their crawl stage left behind.
    pub fn judge(&self, chunks: &BTreeMap<ChunkId, (ChunkState, bool)>) -> Verdict {
        let lost = |what: String| Err(Broken { law: 3, name: "nothing lost", what });
        if let Some(id) = self.leases.keys().find(|id| !chunks.contains_key(id)) {
            return lost(format!("chunk {id} was claimed and is not known"));
        }
        if let Some((id, (state, _))) = chunks.iter().find(|(_, (state, _))| !state.has_ended()) {
            return Err(Broken { law: 5, name: "everything ends", what: format!("chunk {id} is {}", state.name()) });
        }
        for (id, (ended, _)) in &self.ended {
            let state = chunks.get(id).map(|(state, _)| *state);
            if state != Some(*ended) {
                return lost(format!("chunk {id} had ended as {} and is {state:?}", ended.name()));
            }
        }
        let without = |id: &&ChunkId| chunks.get(id).is_none_or(|(_, crawled)| !crawled);
        match self.crawled.values().find(without) {
            Some(id) => lost(format!("pages count in chunk {id}, whose crawl stage left nothing behind")),
            None => Ok(()),
        }
    }
}

fn twice(what: String) -> Verdict {
    Err(Broken { law: 4, name: "nothing twice", what })
}
