//! Callers that wait in line for groups of another node, as `wayleave_shard` has them wait: a group that becomes ready wakes the
//! first in line, who owes that wake-up until it has looked, and passes it on if it leaves before, or takes another group while
//! there is more. Wake-ups travel with beats, and any caller may go at any moment. The product has a second line of defence that is not
//! modelled: the first in line looks by itself once a second.

use crate::prelude::*;

/// Which safeguard is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    Nothing,
    /// A caller that goes takes the wake-up that it owes with it.
    PassingOnWhenItGoes,
    /// One that leaves with a group does.
    PassingOnWhenItTakes,
    /// A caller lines up only once it has looked.
    LiningUpFirst,
}

#[derive(Clone, Debug)]
pub struct Waiting {
    pub callers: usize,
    /// Groups that become ready, one after the other.
    pub groups: u8,
    /// Callers that go without a group.
    pub gone: u8,
    pub lacks: Lacks,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// In the order in which they come.
    callers: Vec<Caller>,
    /// Groups that are ready, and those to come.
    ready: u8,
    to_come: u8,
    /// Wake-ups that are on their way from the other node.
    beats: u8,
    may_go: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Caller {
    has_come: bool,
    has_left: bool,
    in_line: bool,
    /// Was woken and has not noticed.
    woken: bool,
    /// Was woken and has not looked since.
    owes: bool,
    /// Its question is on its way.
    looks: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Come(usize),
    Notice(usize),
    Look(usize),
    LineUp(usize),
    Go(usize),
    Ready,
    Beat,
}

pub const NO_ONE_SLEEPS: &str = "no caller sleeps beside a ready group";
pub const SOME_SERVED: &str = "all groups are taken";

impl Model for Waiting {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let callers = vec![Caller::default(); self.callers];
        vec![State { callers, ready: 0, to_come: self.groups, beats: 0, may_go: self.gone }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let came = state.callers.iter().position(|caller| !caller.has_come);
        actions.extend(came.map(Action::Come));
        for (n, caller) in state.callers.iter().enumerate().filter(|(_, caller)| caller.has_come && !caller.has_left) {
            if caller.looks {
                actions.push(Action::Look(n));
            } else if caller.woken {
                actions.push(Action::Notice(n));
            } else if !caller.in_line {
                actions.push(Action::LineUp(n));
            }
            if state.may_go > 0 {
                actions.push(Action::Go(n));
            }
        }
        if state.to_come > 0 {
            actions.push(Action::Ready);
        }
        if state.beats > 0 {
            actions.push(Action::Beat);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Come(n) => {
                let in_line = self.lacks != Lacks::LiningUpFirst;
                state.callers[n] = Caller { has_come: true, in_line, looks: true, ..Caller::default() };
            }
            Action::Notice(n) => {
                let caller = &mut state.callers[n];
                let owed = caller.owes;
                (caller.woken, caller.in_line, caller.owes, caller.looks) = (false, true, true, true);
                state.wake(owed.into());
            }
            Action::Look(n) if state.ready > 0 => {
                state.ready -= 1;
                let owed = state.leave(n);
                if self.lacks != Lacks::PassingOnWhenItTakes && state.ready > 0 {
                    state.wake(owed);
                }
            }
            Action::Look(n) => {
                let caller = &mut state.callers[n];
                (caller.owes, caller.looks) = (false, false);
            }
            Action::LineUp(n) => state.callers[n].in_line = true,
            Action::Go(n) => {
                state.may_go -= 1;
                let owed = state.leave(n);
                if self.lacks != Lacks::PassingOnWhenItGoes {
                    state.wake(owed);
                }
            }
            Action::Ready => {
                (state.to_come, state.ready, state.beats) = (state.to_come - 1, state.ready + 1, state.beats + 1);
            }
            Action::Beat => {
                state.wake(1);
                state.beats -= 1;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_ONE_SLEEPS, |_, state: &State| {
                let waits = |caller: &Caller| caller.has_come && !caller.has_left;
                let awake = |caller: &Caller| waits(caller) && (caller.looks || caller.woken || !caller.in_line);
                let is_quiet = state.beats == 0 && !state.callers.iter().any(awake);
                !is_quiet || state.ready == 0 || !state.callers.iter().any(waits)
            }),
            Property::sometimes(SOME_SERVED, |_, state: &State| state.ready == 0 && state.to_come == 0),
        ]
    }
}

impl State {
    /// Wakes as many as there are in line.
    fn wake(&mut self, wake_ups: u8) {
        for _ in 0..wake_ups {
            if let Some(first) = self.callers.iter_mut().find(|caller| caller.in_line) {
                (first.in_line, first.woken) = (false, true);
            }
        }
    }

    /// Takes a caller out of the line; returns the wake-ups that it owes.
    fn leave(&mut self, n: usize) -> u8 {
        let caller =
            std::mem::replace(&mut self.callers[n], Caller { has_come: true, has_left: true, ..Caller::default() });
        u8::from(caller.owes) + u8::from(caller.woken)
    }

    pub fn line(&self) -> String {
        let caller = |caller: &Caller| match caller {
            Caller { has_come: false, .. } => "-",
            Caller { has_left: true, .. } => "left",
            Caller { looks: true, .. } => "looks",
            Caller { woken: true, .. } => "woken",
            _ => "sleeps",
        };
        let callers: Vec<&str> = self.callers.iter().map(caller).collect();
        format!("{} ready, {} beats, {callers:?}", self.ready, self.beats)
    }
}
