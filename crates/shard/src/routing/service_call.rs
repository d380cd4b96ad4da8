//! Calls to the owner of one shard, wherever it is. A service says how its calls become messages of an inbox and of the
//! network; how an owner is found is the same for all.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::time::Instant;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::limits::{FORWARD_TIME, HAND_OVER_WAIT};

use super::links::{LinkError, decode};
use super::protocol::Service;
use super::router::{CallResult, OwnerLocation, Router, changed_before, never_answered, stopping};
use crate::message::Message;

/// A call to the owner of a shard.
pub(crate) trait ServiceCall: Clone {
    type Response: DeserializeOwned;
    const SERVICE: Service;

    /// Whether the call is read-only and therefore safe to retry when its answer is lost.
    fn is_read_only(&self) -> bool;

    /// Whether a worker is blocked on this call; admission control then favours it over puts.
    fn is_visit(&self) -> bool {
        false
    }

    /// Whether it needs a permit for slices that read the store.
    fn takes_permit(&self) -> bool {
        false
    }

    /// As a message in the inbox of the owner.
    fn message(self, reply: oneshot::Sender<CallResult<Self::Response>>) -> Message;

    /// As a message to another node.
    fn encode(&self, shard: ShardId) -> Result<Vec<u8>, String>;
}

/// Generates the enum of a service's answers, and the conversions between each answer type and the enum.
macro_rules! responses {
    ($(#[$about:meta])* $responses:ident { $($name:ident($kind:ty),)+ }) => {
        $(#[$about])*
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        pub(crate) enum $responses { $($name($kind),)+ }

        $(
            impl From<$kind> for $responses {
                fn from(value: $kind) -> Self {
                    Self::$name(value)
                }
            }

            impl TryFrom<$responses> for $kind {
                type Error = Refusal;

                fn try_from(response: $responses) -> Result<Self, Refusal> {
                    match response {
                        $responses::$name(value) => Ok(value),
                        _ => Err(Refusal::Internal("a node's answer does not match the call".to_owned())),
                    }
                }
            }
        )+
    };
}

pub(crate) use responses;

impl Router {
    /// Asks the owner of a shard and waits for its answer; during a hand-over, for its next owner.
    pub async fn call<C, T>(&self, shard: ShardId, call: C) -> CallResult<T>
    where
        C: ServiceCall,
        T: TryFrom<C::Response, Error = Refusal>,
    {
        self.answer_of(shard, call, Duration::from_millis(HAND_OVER_WAIT.0)).await.and_then(T::try_from)
    }

    /// The same, waiting up to `patience` for an owner.
    pub async fn answer_of<C: ServiceCall>(
        &self,
        shard: ShardId,
        call: C,
        patience: Duration,
    ) -> CallResult<C::Response> {
        let looks = call.is_read_only();
        match self.call_owner(shard, call, patience).await {
            // A read-only call has no unknown outcome.
            Err(Refusal::OutcomeUnknown(why)) if looks => Err(Refusal::Unavailable(why)),
            answer => answer,
        }
    }

    async fn call_owner<C: ServiceCall>(&self, shard: ShardId, call: C, patience: Duration) -> CallResult<C::Response> {
        if shard.0 >= self.shards() {
            return Err(Refusal::NotCurrent);
        }
        if self.links.is_none() {
            return self.call_here(shard, call).await.unwrap_or_else(|| Err(stopping()));
        }
        let deadline = Instant::now() + patience;
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            let answer = match self.location(shard) {
                OwnerLocation::Local(_) => self.call_here(shard, call.clone()).await.unwrap_or(Err(Refusal::Elsewhere)),
                OwnerLocation::Remote(node) => {
                    let sent = call.encode(shard).map_err(Refusal::Internal)?;
                    self.call_node(node, C::SERVICE, sent, call.is_read_only()).await
                }
                OwnerLocation::Unowned => Err(Refusal::Elsewhere),
            };
            if !matches!(answer, Err(Refusal::Elsewhere)) {
                return answer;
            }
            self.note_misroute();
            if !changed_before(&mut changes, deadline).await {
                return Err(Refusal::Unavailable(format!("shard {}: {}", shard.0, self.why_no_owner())));
            }
        }
    }

    /// Asks a shard of this process; `None` if it has no owner here.
    pub async fn call_here<C: ServiceCall>(&self, shard: ShardId, call: C) -> Option<CallResult<C::Response>> {
        let OwnerLocation::Local(inbox) = self.location(shard) else { return None };
        let _awaited = call.is_visit().then(|| self.admission.await_visit());
        let _slice = if call.takes_permit() { self.slices.acquire().await.ok() } else { None };
        let (reply, answer) = oneshot::channel();
        let looks = call.is_read_only();
        inbox.send(call.message(reply)).await.ok()?;
        Some(answer.await.unwrap_or_else(|_| Err(if looks { stopping() } else { never_answered() })))
    }

    /// Makes an encoded call to another node; `looks` if it is read-only.
    pub async fn call_node<R: DeserializeOwned>(
        &self,
        node: NodeId,
        service: Service,
        sent: Vec<u8>,
        looks: bool,
    ) -> CallResult<R> {
        let Some(links) = &self.links else { return Err(Refusal::Elsewhere) };
        let answer = links.call(node, service, sent, Duration::from_millis(FORWARD_TIME.0)).await;
        let answer = answer.and_then(|bytes| decode(&bytes).map_err(LinkError::Lost));
        answer.unwrap_or_else(|error: LinkError| Err(error.refusal(looks)))
    }
}
