//! Messages in flight: calls arrive at the store and are answered, nodes receive responses, hosts move between nodes.

use wayleave_engine::Error;

use super::engine::Fencing;
use super::node::{Call, Desk, Is, Owner, Pass, StoreReply};
use super::{Message, Ownership, State, What};
use crate::prelude::*;

impl State {
    pub(super) fn arrive(&mut self, model: &Ownership, message: Message, answer_is_slow: bool) {
        let Message { node, sent, awaited, hidden, what } = message;
        let is = self.nodes[node].is;
        match what {
            What::Ask(call) => {
                let answer = self.answer(model, &call);
                self.send_back(
                    model,
                    Message { node, sent, awaited, hidden, what: answer_of(call, answer, self) },
                    answer_is_slow,
                );
            }
            What::Checked(call) => {
                self.apply(&call);
                self.send_back(
                    model,
                    Message { node, sent, awaited, hidden, what: answer_of(call, StoreReply::Done, self) },
                    false,
                );
            }
            What::StoreReply(call, answer, offset_ms) => {
                let known = &mut self.nodes[node].offset_ms;
                *known = (*known).max(offset_ms);
                self.hear(model, node, sent, call, answer);
            }
            _ if is == Is::Gone => {}
            what if is == Is::Paused => self.put_slow(Message { node, sent, awaited, hidden, what }),
            What::Hand(parcel) => {
                if !self.cut || parcel.giver.0 == node {
                    self.take_host(model, node, parcel);
                }
            }
            What::Handed { taker, giver, seq, done } => {
                if !self.cut || taker == node {
                    self.handed(model, node, giver, seq, done);
                }
            }
        }
    }

    /// Delivers a response to its waiter.
    fn send_back(&mut self, model: &Ownership, message: Message, slowly: bool) {
        if !message.awaited {
            return;
        }
        if slowly || self.nodes[message.node].is == Is::Paused {
            self.put_slow(message);
        } else {
            self.arrive(model, message, false);
        }
    }

    /// The giver learns the outcome of its host's move.
    fn handed(&mut self, model: &Ownership, index: usize, giver: NodeId, seq: u64, done: bool) {
        let node = &mut self.nodes[index];
        if node.id != giver {
            return;
        }
        if let Some(desk) = node.desk(ShardId(0)).filter(|desk| desk.handing == Some(seq)) {
            desk.handing = None;
            desk.failed |= !done;
            self.go_on(model, index);
        }
    }

    /// The store carries out a call.
    fn answer(&mut self, model: &Ownership, call: &Call) -> StoreReply {
        let asked = match call {
            Call::Own(shard, expects) => {
                return match self.store.own(*shard, std::slice::from_ref(expects)) {
                    Ok((epoch, seq)) => {
                        self.history.own(*shard, epoch);
                        StoreReply::Owned(epoch, seq)
                    }
                    Err(_) => StoreReply::Refused,
                };
            }
            Call::Beat(asked) | Call::Take(asked, ..) | Call::Give(asked, ..) => asked,
            Call::Commit(commit) => &commit.asked,
        };
        match self.store.check(asked, model.fencing) {
            Ok(()) => {
                self.apply(call);
                StoreReply::Done
            }
            Err(error) => {
                self.history.met.fenced |= matches!(error, Error::Fenced { .. });
                StoreReply::Refused
            }
        }
    }

    fn apply(&mut self, call: &Call) {
        match call {
            Call::Commit(commit) => {
                self.history.accept(commit, &self.store);
                self.store.apply(&commit.asked);
            }
            Call::Beat(asked) | Call::Take(asked, ..) | Call::Give(asked, ..) => self.store.apply(asked),
            Call::Own(..) => {}
        }
    }

    /// The store checks a commit, and stops before it writes.
    pub(super) fn stall(&mut self, model: &Ownership, message: Message) {
        let What::Ask(Call::Commit(commit)) = &message.what else { return };
        if self.store.check(&commit.asked, Fencing::ReadBefore).is_ok() {
            let call = Call::Commit(commit.clone());
            self.put_slow(Message { what: What::Checked(call), ..message });
        } else {
            self.arrive(model, message, false);
        }
    }

    /// A node receives the response to its call.
    fn hear(&mut self, model: &Ownership, index: usize, sent: u64, call: Call, answer: StoreReply) {
        let node = &mut self.nodes[index];
        match call {
            Call::Beat(_) => {
                // Its row was dead, or gone, or it had not noticed that its lease was over.
                let late = self.now >= node.sure_until;
                node.lapsed |= node.alive && (late || node.life != node.alive_since);
                node.life = node.alive_since;
                if answer == StoreReply::Done {
                    node.renewed(sent);
                }
            }
            Call::Take(_, takes, gives) => {
                if answer == StoreReply::Done {
                    takes.into_iter().for_each(|shard| self.open(index, shard, None));
                    self.give(model, index, gives);
                } else {
                    node.pass = Pass::Rest;
                }
            }
            Call::Give(_, shard, to_somebody) => {
                if let Pass::Giving(gives) = &mut node.pass {
                    gives.retain(|(given, ..)| *given != shard);
                    if gives.is_empty() {
                        node.pass = Pass::Rest;
                    }
                }
                if answer == StoreReply::Done {
                    self.history.met.handed_over |= to_somebody;
                    self.nudge(index);
                }
            }
            Call::Own(shard, _) => self.owned(model, index, shard, answer),
            Call::Commit(commit) => {
                let desk = node.desk(commit.parts[0].shard).expect("an owner waits for its commits");
                let flying = desk.flying.iter_mut().find(|flying| flying.commit == commit);
                flying.expect("a commit under way").done = Some(answer == StoreReply::Done);
            }
        }
        self.go_on(model, index);
    }

    fn owned(&mut self, model: &Ownership, index: usize, shard: ShardId, answer: StoreReply) {
        let post = self.nodes[index].post(shard);
        let Owner::Owning { kept } = post.owner.clone() else { return };
        post.owner = match answer {
            StoreReply::Owned(epoch, seq) => {
                self.history.met.found |= kept.as_ref().is_some_and(|kept| kept != self.store.shard(shard));
                let opened = match kept.filter(|_| !model.reloads) {
                    Some(kept) => Owner::Open(Desk::open(epoch, seq, kept)),
                    None => Owner::Reading { epoch, seq, read: None },
                };
                let flying = self.fresh.iter_mut().chain(&mut self.slow).filter(|message| message.node == index);
                flying.for_each(|message| message.hidden |= 1 << shard.0);
                opened
            }
            StoreReply::Unknown if !post.stopping => return self.open(index, shard, kept),
            _ => Owner::Absent,
        };
        post.stopping &= post.owner != Owner::Absent;
    }

    /// The others are notified of a change, unless they are unreachable.
    fn nudge(&mut self, index: usize) {
        let cut = self.cut;
        let others = self.nodes.iter_mut().enumerate().filter(|(other, _)| *other != index && !cut);
        others.filter(|(_, node)| node.is == Is::Running).for_each(|(_, node)| node.look_due = true);
    }

    pub(super) fn give_up(&mut self, model: &Ownership, index: usize) {
        let message = self.slow[index].clone();
        match message.what {
            What::Ask(call) | What::Checked(call) => {
                self.slow[index].awaited = false;
                self.hear(model, message.node, message.sent, call, StoreReply::Unknown);
            }
            What::StoreReply(call, ..) => {
                self.slow.remove(index);
                self.hear(model, message.node, message.sent, call, StoreReply::Unknown);
            }
            What::Hand(_) | What::Handed { .. } => {}
        }
    }

    /// All connections break: messages in flight are lost, with unknown outcomes.
    pub(super) fn restart_store(&mut self, model: &Ownership) {
        let (between, lost) = std::mem::take(&mut self.slow)
            .into_iter()
            .partition(|message| matches!(message.what, What::Hand(_) | What::Handed { .. }));
        self.slow = between;
        let lost: Vec<Message> = lost;
        for Message { node, sent, awaited, hidden, what } in lost {
            let (What::Ask(call) | What::Checked(call) | What::StoreReply(call, ..)) = what else { continue };
            if self.nodes[node].is != Is::Gone {
                let what = What::StoreReply(call, StoreReply::Unknown, 0);
                self.send_back(model, Message { node, sent, awaited, hidden, what }, false);
            }
        }
    }
}

fn answer_of(call: Call, answer: StoreReply, state: &State) -> What {
    What::StoreReply(call, answer, state.store.offset_ms)
}
