//! Self-check: recounts everything from scratch, and checks what must always hold.

use std::collections::{BTreeMap, BTreeSet};

use super::row::{MatchState, WorkerNo};
use super::state::{Match, State};
use crate::names::ClientName;

impl State {
    /// Checks the state; the error names what does not hold, which is a bug.
    pub fn self_check(&self) -> Result<(), String> {
        let mut booked: BTreeMap<WorkerNo, BTreeSet<&ClientName>> = BTreeMap::new();
        let mut asked: BTreeMap<WorkerNo, u32> = BTreeMap::new();
        let mut tokens = BTreeSet::new();
        for (client, known) in &self.matches {
            let row = &known.row;
            for booking in row.booked() {
                let fresh = booked.entry(booking.worker).or_default().insert(client);
                hold(fresh, || format!("'{client}' has two slots of worker {}", booking.worker.0))?;
                hold(tokens.insert(booking.token), || format!("'{client}' has the token of another slot"))?;
            }
            if let MatchState::Making(booking) = &row.state {
                *asked.entry(booking.worker).or_default() += 1;
            }
            let queued = self
                .queue
                .iter()
                .filter(|(queue_number, name)| *name == client && *queue_number == row.queue_number)
                .count();
            hold(queued == usize::from(row.is_queued()), || format!("'{client}' is {queued} times in the queue"))?;
            hold(self.timers.contains(&(known.timer, client.clone())), || format!("'{client}' has no timer"))?;
            let ended = matches!(row.state, MatchState::Ended) && row.leftovers.is_empty();
            hold(!ended || self.more, || format!("'{client}' is kept for nothing"))?;
            hold(!row.reason.is_empty(), || format!("'{client}' has no reason"))?;
        }
        hold(self.timers.len() == self.matches.len(), || "a timer has no match".to_owned())?;
        let queued = self.matches.values().filter(|known| known.row.is_queued()).count();
        hold(queued == self.queue.len(), || "the queue is miscounted".to_owned())?;
        let asking = self.matches.values().filter(|known| matches!(known.row.state, MatchState::Making(_))).count();
        hold(asking == self.asking, || "calls to workers are miscounted".to_owned())?;
        let matched = |known: &&Match| matches!(known.row.state, MatchState::Matched { .. });
        let matched = self.matches.values().filter(matched).count();
        hold(matched == self.matched, || "matched clients are miscounted".to_owned())?;
        for (no, worker) in &self.workers {
            let own = booked.remove(no).unwrap_or_default();
            hold(own.iter().copied().eq(&worker.clients), || format!("worker {} miscounts its clients", no.0))?;
            let asked = asked.remove(no).unwrap_or_default();
            hold(asked == worker.asked, || format!("worker {} miscounts the clients that it is asked for", no.0))?;
            let (used, slots, phase) = (worker.clients.len(), worker.row.slots as usize, worker.row.phase);
            hold(used <= slots, || format!("worker {} has {used} clients in {slots} slots", no.0))?;
            hold(used == 0 || phase.is_serving(), || format!("worker {} has clients and is {phase:?}", no.0))?;
            let idle = worker.row.idle_since.is_some();
            hold(idle == (used == 0), || format!("worker {} has {used} clients, idle: {idle}", no.0))?;
            let instance = worker.row.instance.is_some();
            hold(instance || !phase.is_serving(), || format!("worker {} serves and is nowhere", no.0))?;
            hold(no.0 < self.pool.next_worker, || format!("worker {} has a number that is not given out", no.0))?;
        }
        hold(booked.is_empty(), || format!("slots are booked on workers that are gone: {booked:?}"))
    }
}

fn hold(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
