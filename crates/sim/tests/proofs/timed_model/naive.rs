//! A naive election, with traps a1, a2 and a7 of docs/laws.md: a term counts from the last successful *read*, expiry
//! from the last *write*; there is no epoch; T > 2 I. The checker must break it.

use crate::prelude::*;
use crate::timed_model::budget::Budget;

/// Seconds.
const I: u64 = 1;
const T: u64 = 5;

#[derive(Clone, Debug)]
pub struct Naive {
    pub until: u64,
    pub budget: Budget,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub now: u64,
    pub clients: [Client; 2],
    /// The heartbeat entry.
    entry: Option<(usize, u64)>,
    left: Budget,
    /// Who ran already in this second.
    ran: [bool; 2],
    /// A write of a client that is not primary by the entry was accepted.
    pub stale_write: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    pub primary: bool,
    /// When a read was last answered.
    read_at: u64,
    paused: bool,
    link: Link,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Link {
    #[default]
    Whole,
    /// `UpdateHeartBeat` is lost, `GetPrimary` works.
    ReadsOnly,
    Cut,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Run(usize),
    Pass,
    Pause(usize),
    Resume(usize),
    Join(usize, Link),
}

pub const ONE_PRIMARY: &str = "no two running clients are primary at once";
pub const NO_STALE_WRITE: &str = "no write of a replaced primary is taken";

impl Model for Naive {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let clients = [Client::default(); 2];
        vec![State { now: 0, clients, entry: None, left: self.budget, ran: [false; 2], stale_write: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, client) in state.clients.iter().enumerate() {
            if client.paused {
                actions.push(Action::Resume(index));
            } else if !state.ran[index] {
                actions.push(Action::Run(index));
            }
            if state.left.cuts > 0 {
                let links = [Link::ReadsOnly, Link::Cut].into_iter().filter(|link| *link != client.link);
                actions.extend(links.map(|link| Action::Join(index, link)));
            }
            if state.left.pauses > 0 && !client.paused {
                actions.push(Action::Pause(index));
            }
        }
        if state.clients.iter().zip(state.ran).all(|(client, ran)| ran || client.paused) {
            actions.push(Action::Pass);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Run(index) => {
                state.ran[index] = true;
                state.run(index);
            }
            Action::Pass => (state.now, state.ran) = (state.now + 1, [false; 2]),
            Action::Pause(index) => {
                state.left.pauses -= 1;
                state.clients[index].paused = true;
            }
            Action::Resume(index) => {
                // It was paused between the check that it is primary and the write.
                state.clients[index].paused = false;
                state.stale_write |= state.clients[index].primary && state.get_primary() != Some(index);
            }
            Action::Join(index, link) => {
                state.left.cuts -= 1;
                state.clients[index].link = link;
            }
        }
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.now <= self.until
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_PRIMARY, |_, state: &State| {
                !state.clients.iter().all(|client| client.primary && !client.paused)
            }),
            Property::always(NO_STALE_WRITE, |_, state: &State| !state.stale_write),
        ]
    }
}

impl State {
    /// A line for people: when, what the store says, and who works as primary.
    pub fn line(&self) -> String {
        let name = |index: usize| ["A", "B"][index];
        let works = |index: &usize| self.clients[*index].primary;
        let working: Vec<&str> = (0..2).filter(works).map(name).collect();
        let entry = self.get_primary().map_or("nobody", name);
        format!("{:>3} s  primary by the table: {entry}, at work: {}", self.now, working.join(" and "))
    }

    fn get_primary(&self) -> Option<usize> {
        self.entry.filter(|(_, timestamp)| self.now - timestamp <= T).map(|(uuid, _)| uuid)
    }

    fn update_heartbeat(&mut self, uuid: usize) {
        if self.entry.is_none_or(|(old, timestamp)| old == uuid || self.now - timestamp > T) {
            self.entry = Some((uuid, self.now));
        }
    }

    /// Steps 2 to 5, once every I.
    fn run(&mut self, index: usize) {
        let Client { primary, read_at, link, .. } = self.clients[index];
        if primary && link == Link::Whole {
            self.update_heartbeat(index);
        }
        let answer = (link != Link::Cut).then(|| self.get_primary());
        let client = &mut self.clients[index];
        match answer {
            Some(answer) => {
                client.read_at = self.now;
                client.primary = answer == Some(index);
                if answer.is_none() && link == Link::Whole {
                    self.update_heartbeat(index);
                }
            }
            // 5a: "or didn't return for (T-I) secs".
            None => client.primary = primary && self.now - read_at < T - I,
        }
    }
}
