//! The real network: gRPC to other nodes, on the port that serves everything else.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::sync::Semaphore;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use wayleave_api::node::node_client::NodeClient;
use wayleave_api::node::{Envelope, Hint};
use wayleave_core::ids::NodeId;
use wayleave_core::limits::FORWARDS_MAX;
use wayleave_core::limits::NODE_MESSAGE_BYTES_MAX;
use wayleave_engine::Key;
use wayleave_shard::{LinkError, Links, Service};

use crate::network::Network;

/// The connect timeout.
const CONNECT_TIME: Duration = Duration::from_secs(1);
/// The keep-alive interval and timeout of a connection.
const PING: Duration = Duration::from_secs(1);

/// The metadata keys of every call.
pub(crate) const SECRET: &str = "wayleave-secret";
pub(crate) const PROTOCOL: &str = "wayleave-protocol";
pub(crate) const TO: &str = "wayleave-to";

#[derive(Clone)]
struct Peer {
    address: Box<str>,
    client: NodeClient<Channel>,
    room: Arc<Semaphore>,
}

/// Connects to other nodes by gRPC.
pub struct Dial {
    secret: String,
    peers: Mutex<BTreeMap<NodeId, Peer>>,
}

impl Dial {
    /// For nodes that share this secret.
    #[must_use]
    pub fn new(secret: u128) -> Arc<Self> {
        Arc::new(Self { secret: format!("{secret:032x}"), peers: Mutex::default() })
    }

    fn peer(&self, node: NodeId) -> Result<Peer, LinkError> {
        let peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.get(&node).cloned().ok_or_else(|| LinkError::NotSent(format!("node {node} is unknown")))
    }

    fn request<T>(&self, node: NodeId, service: Service, body: T) -> Result<Request<T>, LinkError> {
        let mut request = Request::new(body);
        let head = [(SECRET, self.secret.clone()), (PROTOCOL, service.stated()), (TO, node.to_string())];
        for (name, value) in head {
            let value = MetadataValue::try_from(value).map_err(|error| LinkError::NotSent(error.to_string()))?;
            request.metadata_mut().insert(name, value);
        }
        Ok(request)
    }
}

fn connect(address: &str) -> Result<NodeClient<Channel>, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(address.to_owned())?
        .connect_timeout(CONNECT_TIME)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20);
    let client = NodeClient::new(endpoint.connect_lazy());
    Ok(client.max_decoding_message_size(NODE_MESSAGE_BYTES_MAX).max_encoding_message_size(NODE_MESSAGE_BYTES_MAX))
}

impl Links for Dial {
    fn call(
        &self,
        node: NodeId,
        service: Service,
        call: Vec<u8>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Vec<u8>, LinkError>> {
        let envelope = Envelope { body: call.into() };
        let ready = self.peer(node).and_then(|peer| Ok((peer, self.request(node, service, envelope)?)));
        async move {
            let (Peer { address, mut client, room }, request) = ready?;
            let Ok(_place) = room.try_acquire() else {
                return Err(LinkError::NotSent(format!("too many concurrent calls to node {node}")));
            };
            match tokio::time::timeout(within, client.call(request)).await {
                Ok(Ok(answer)) => Ok(answer.into_inner().body.into()),
                Ok(Err(status)) => Err(lost(node, &address, &status)),
                Err(_) => Err(LinkError::Lost(silent(node, &address, &format!("no response within {within:?}")))),
            }
        }
        .boxed()
    }
}

/// Classifies a failed call by whether it may have been applied, with a message for people who do not know the
/// protocol.
fn lost(node: NodeId, address: &str, status: &Status) -> LinkError {
    let (mut cause, mut innermost) = (status.source(), None);
    let mut unconnected = false;
    while let Some(error) = cause {
        unconnected |= error.is::<tonic::ConnectError>();
        innermost = Some(error.to_string());
        cause = error.source();
    }
    let why = innermost.unwrap_or_else(|| status.message().to_owned());
    if unconnected {
        return LinkError::NotSent(format!("node {node} at {address} accepts no connection ({why})"));
    }
    match status.code() {
        // The other node's own refusals, made before it processed the call.
        Code::FailedPrecondition | Code::NotFound | Code::Unauthenticated | Code::Unimplemented => {
            LinkError::NotSent(format!("node {node} at {address} refused the call: {}", status.message()))
        }
        _ => LinkError::Lost(silent(node, address, &why)),
    }
}

/// The message for a node that received the call and did not respond.
fn silent(node: NodeId, address: &str, why: &str) -> String {
    format!("node {node} at {address} did not answer ({why}): it is paused, has ended or is partitioned")
}

impl Network for Dial {
    fn meet(&self, nodes: &[(NodeId, Box<str>)]) {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.retain(|id, peer| nodes.iter().any(|(node, address)| node == id && *address == peer.address));
        for (node, address) in nodes {
            if peers.contains_key(node) {
                continue;
            }
            match connect(address) {
                Ok(client) => {
                    let room = Arc::new(Semaphore::new(FORWARDS_MAX));
                    peers.insert(*node, Peer { address: address.clone(), client, room });
                }
                Err(error) => tracing::error!(node = %node, node.address = %address, %error, "invalid node address"),
            }
        }
    }

    fn listen(&self, node: NodeId) -> BoxStream<'static, Vec<u8>> {
        let ready =
            self.peer(node).and_then(|peer| Ok((peer, self.request(node, Service::Frontier, Envelope::default())?)));
        let stream = async move {
            let (Peer { mut client, .. }, request) = ready.ok()?;
            let beats = client.listen(request).await.ok()?.into_inner();
            let whole = beats.map(Result::ok).take_while(|envelope| std::future::ready(envelope.is_some()));
            Some(whole.filter_map(|envelope| std::future::ready(envelope.map(|envelope| envelope.body.to_vec()))))
        };
        futures::stream::once(stream).filter_map(std::future::ready).flatten().boxed()
    }

    fn answers(&self, node: NodeId) -> BoxFuture<'static, bool> {
        let ready =
            self.peer(node).and_then(|peer| Ok((peer, self.request(node, Service::Frontier, Envelope::default())?)));
        async move {
            let Ok((Peer { mut client, .. }, request)) = ready else { return false };
            match client.listen(request).await {
                Ok(beats) => matches!(beats.into_inner().message().await, Ok(Some(_))),
                // It is the node that was meant, and speaks another version.
                Err(status) => status.code() == Code::FailedPrecondition,
            }
        }
        .boxed()
    }

    fn hint(&self, node: NodeId, keys: &[Key]) {
        let hint = Hint { keys: keys.iter().cloned().map(Into::into).collect() };
        let Ok(Peer { mut client, .. }) = self.peer(node) else { return };
        let Ok(first) = self.request(node, Service::Registry, hint.clone()) else { return };
        let second = self.request(node, Service::Registry, hint);
        tokio::spawn(async move {
            // Only a hint: a node that misses it polls by itself soon. A connection that turns out to be broken is
            // reopened, and deserves a second attempt; a duplicate hint costs one read.
            let sent = async {
                if client.changed(first).await.is_err()
                    && let Ok(second) = second
                {
                    _ = client.changed(second).await;
                }
            };
            _ = tokio::time::timeout(CONNECT_TIME, sent).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn fails(address: &str, within: Duration) -> LinkError {
        let dial = Dial::new(7);
        dial.meet(&[(NodeId(1), format!("http://{address}").into())]);
        dial.call(NodeId(1), Service::Frontier, b"question".to_vec(), within).await.unwrap_err()
    }

    #[tokio::test]
    async fn a_failed_call_names_the_node_and_the_cause() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        // It accepts the connection and does not respond, like a process that is stopped; the next one closes it.
        let standing = tokio::spawn(async move {
            let first = listener.accept().await.unwrap();
            let (mut second, _) = listener.accept().await.unwrap();
            _ = second.read(&mut [0; 512]).await;
            drop(second);
            (listener, first)
        });
        let still = fails(&address, Duration::from_secs(30)).await;
        let broken = fails(&address, Duration::from_secs(30)).await;
        for error in [still, broken] {
            let LinkError::Lost(why) = error else { panic!("{error:?}") };
            assert!(why.contains(&address) && why.contains("did not answer") && !why.contains("http2 error"), "{why}");
        }
        drop(standing.await.unwrap());
        let LinkError::NotSent(why) = fails(&address, Duration::from_secs(1)).await else {
            panic!("sent without a node")
        };
        assert!(why.contains(&address) && why.contains("accepts no connection"), "{why}");
    }
}
