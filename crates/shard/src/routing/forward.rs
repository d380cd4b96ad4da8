//! Forwarding: puts on their way to owners on this and other nodes, and the serving side of calls between nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hashbrown::HashSet;
use tokio::sync::mpsc;
use tokio::time::Instant;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Put, PutOutcome};
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::limits::HAND_OVER_WAIT;

use crate::ask::{Ask, Response};
use crate::handle::frontier::Frontier;
use crate::message::{Message, Outcomes};
use crate::routing::links::{LinkError, NodeCall, decode, encode};
use crate::routing::protocol::Service;
use crate::routing::router::{OwnerLocation, Router, changed_before, never_answered, stopping};

/// Items for one shard, each with its tag.
pub(crate) type Part = (ShardId, Vec<(u64, Put)>);
type Sink = mpsc::UnboundedSender<Outcomes>;

impl Router {
    /// Sends puts to the owners of their shards. Returns when all are queued here or on their way.
    pub async fn put_parts(self: &Arc<Self>, parts: Vec<Part>, sink: &Sink) {
        let deadline = Instant::now() + Duration::from_millis(HAND_OVER_WAIT.0);
        self.put_until(parts, sink, deadline).await;
    }

    async fn put_until(self: &Arc<Self>, parts: Vec<Part>, sink: &Sink, deadline: Instant) {
        let mut away: BTreeMap<NodeId, Vec<Part>> = BTreeMap::new();
        let mut lost = Vec::new();
        for (shard, items) in parts {
            match self.location(shard) {
                OwnerLocation::Local(inbox) => {
                    if let Err(back) = inbox.send(Message::Put { items, sink: sink.clone() }).await
                        && let Message::Put { items, .. } = back.0
                    {
                        lost.push((shard, items));
                    }
                }
                OwnerLocation::Remote(node) => away.entry(node).or_default().push((shard, items)),
                OwnerLocation::Unowned => lost.push((shard, items)),
            }
        }
        for (node, parts) in away {
            // The permit is acquired before the task starts: a slow node gives back-pressure.
            let Ok(room) = self.forwarded_puts.clone().acquire_owned().await else { continue };
            let (router, sink) = (self.clone(), sink.clone());
            tokio::spawn(async move {
                router.put_away(node, parts, &sink, deadline).await;
                drop(room);
            });
        }
        self.put_later(lost, sink, deadline);
    }

    /// Puts that found no owner wait for the next one, and are refused at the deadline.
    pub fn put_later(self: &Arc<Self>, lost: Vec<Part>, sink: &Sink, deadline: Instant) {
        if lost.is_empty() {
            return;
        }
        if self.links.is_none() {
            return fail(lost, sink, &stopping());
        }
        let (router, sink) = (self.clone(), sink.clone());
        self.note_misroute();
        tokio::spawn(async move {
            let mut changes = router.changes();
            if changed_before(&mut changes, deadline).await {
                // Boxed, because the call is recursive.
                Box::pin(router.put_until(lost, &sink, deadline)).await;
            } else {
                fail(lost, &sink, &Refusal::Elsewhere);
            }
        });
    }

    /// Passes puts that a closing owner left undone to the next owner.
    pub fn put_again(self: &Arc<Self>, shard: ShardId, items: Vec<(u64, Put)>, sink: &Sink) {
        self.put_later(vec![(shard, items)], sink, Instant::now() + Duration::from_millis(HAND_OVER_WAIT.0));
    }

    async fn put_away(self: &Arc<Self>, node: NodeId, parts: Vec<Part>, sink: &Sink, deadline: Instant) {
        let Some(links) = &self.links else { return fail(parts, sink, &stopping()) };
        match links.say::<(Outcomes, Vec<ShardId>)>(node, &NodeCall::Put { parts: parts.clone() }).await {
            Ok((outcomes, back)) => {
                let told: HashSet<u64> = outcomes.iter().map(|(tag, _)| *tag).collect();
                // The host has moved without this node's knowledge: a retry must find it.
                if outcomes.iter().any(|(_, outcome)| *outcome == PutOutcome::Moved) {
                    self.mark_hints_stale();
                }
                _ = sink.send(outcomes);
                let (lost, mut done): (Vec<Part>, Vec<Part>) =
                    parts.into_iter().partition(|(shard, _)| back.contains(shard));
                self.put_later(lost, sink, deadline);
                // Every item is answered exactly once, even if its owner accepted it and never answered.
                done.iter_mut().for_each(|(_, items)| items.retain(|(tag, _)| !told.contains(tag)));
                fail(done, sink, &never_answered());
            }
            Err(LinkError::NotSent(_)) => self.put_later(parts, sink, deadline),
            Err(LinkError::Lost(why)) => fail(parts, sink, &Refusal::OutcomeUnknown(why)),
        }
    }
}

fn fail(parts: Vec<Part>, sink: &Sink, why: &Refusal) {
    let failed = |tag| (tag, PutOutcome::Failed(Box::new(why.clone())));
    let outcomes: Outcomes = parts.into_iter().flat_map(|(_, items)| items).map(|(tag, _)| failed(tag)).collect();
    if !outcomes.is_empty() {
        _ = sink.send(outcomes);
    }
}

impl Frontier {
    /// Serves a call of another node, with this node's own shards only. Fails if the call cannot be read or the service
    /// takes none: nothing was done.
    pub async fn answer(&self, service: Service, call: &[u8]) -> Result<Vec<u8>, String> {
        self.readiness.messages.calls.fetch_add(1, Ordering::Relaxed);
        match service {
            Service::Frontier => self.answer_frontier(call).await,
            Service::Pipeline => self.answer_pipeline(call).await,
            Service::Fleet => self.answer_fleet(call).await,
            Service::Matches => self.answer_matches(call).await,
            Service::Registry => Err("the registry takes hints, not calls".to_owned()),
        }
    }

    async fn answer_frontier(&self, call: &[u8]) -> Result<Vec<u8>, String> {
        let ask_here =
            async |shard, ask: Ask| self.router.call_here(shard, ask).await.unwrap_or(Err(Refusal::Elsewhere));
        match decode(call)? {
            NodeCall::Ask { shard, ask } => encode(&ask_here(shard, ask).await),
            NodeCall::AskAll { shards, ask } => {
                let answers = shards.into_iter().map(|shard| ask_here(shard, ask.clone()));
                encode(&futures::future::join_all(answers).await)
            }
            NodeCall::Put { parts } => encode(&self.put_here(parts).await),
            NodeCall::Take(take) => encode(&self.take_here(take).await),
            NodeCall::Requested { holder, request, shards } => {
                encode(&self.granted_here(holder, request, &shards).await.map(Response::from))
            }
            NodeCall::SetGroup(change) => encode(&self.set_group_here(change).await.map(Response::from)),
            NodeCall::DeleteGroup(alias) => encode(&self.delete_group_here(alias).await.map(Response::from)),
        }
    }

    async fn put_here(&self, parts: Vec<Part>) -> (Outcomes, Vec<ShardId>) {
        let (sink, mut told) = mpsc::unbounded_channel();
        let mut back = Vec::new();
        let mut outcomes = Vec::new();
        for (shard, items) in parts {
            let OwnerLocation::Local(inbox) = self.router.location(shard) else {
                back.push(shard);
                continue;
            };
            if inbox.send(Message::Put { items, sink: sink.clone() }).await.is_err() {
                back.push(shard);
            }
        }
        drop(sink);
        while let Some(part) = told.recv().await {
            outcomes.extend(part);
        }
        (outcomes, back)
    }
}
