//! The network for real: gRPC to other nodes, on the port that everything else uses.

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
use wayleave_api::node::{Hint, Letter};
use wayleave_core::ids::NodeId;
use wayleave_core::limits::FORWARDS_MAX;
use wayleave_shard::{LinkError, Links, links};

use crate::network::Network;

/// A node that does not take a connection in this time cannot be reached.
const CONNECT_TIME: Duration = Duration::from_secs(1);
/// A silent connection is asked for a sign of life this often, and given up after as long again.
const PING: Duration = Duration::from_secs(1);
/// Bytes of one call or answer: a batch of URLs with long metadata is large.
pub(crate) const LETTER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Names of what every call carries.
pub(crate) const SECRET: &str = "wayleave-secret";
pub(crate) const PROTOCOL: &str = "wayleave-protocol";
pub(crate) const TO: &str = "wayleave-to";

struct Peer {
    address: Box<str>,
    client: NodeClient<Channel>,
    room: Arc<Semaphore>,
}

/// Reaches other nodes by gRPC.
pub struct Dial {
    secret: String,
    peers: Mutex<BTreeMap<NodeId, Peer>>,
}

impl Dial {
    /// For the nodes that share this secret.
    #[must_use]
    pub fn new(secret: u128) -> Arc<Self> {
        Arc::new(Self { secret: format!("{secret:032x}"), peers: Mutex::default() })
    }

    fn peer(&self, node: NodeId) -> Result<(NodeClient<Channel>, Arc<Semaphore>), LinkError> {
        let peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let peer = peers.get(&node).ok_or_else(|| LinkError::NotSent(format!("node {node} is not known")))?;
        Ok((peer.client.clone(), peer.room.clone()))
    }

    fn request<T>(&self, node: NodeId, body: T) -> Result<Request<T>, LinkError> {
        let mut request = Request::new(body);
        let head = [(SECRET, self.secret.clone()), (PROTOCOL, links::PROTOCOL.to_string()), (TO, node.to_string())];
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
    Ok(client.max_decoding_message_size(LETTER_BYTES_MAX).max_encoding_message_size(LETTER_BYTES_MAX))
}

impl Links for Dial {
    fn call(&self, node: NodeId, call: Vec<u8>, within: Duration) -> BoxFuture<'static, Result<Vec<u8>, LinkError>> {
        let ready = self.peer(node).and_then(|peer| Ok((peer, self.request(node, Letter { body: call.into() })?)));
        async move {
            let ((mut client, room), request) = ready?;
            let Ok(_place) = room.try_acquire() else {
                return Err(LinkError::NotSent(format!("too many calls to node {node} are under way")));
            };
            match tokio::time::timeout(within, client.call(request)).await {
                Ok(Ok(answer)) => Ok(answer.into_inner().body.into()),
                Ok(Err(status)) => Err(lost(node, &status)),
                Err(_) => Err(LinkError::Lost(format!("node {node} did not answer in time"))),
            }
        }
        .boxed()
    }
}

/// Whether a call that failed can have been done.
fn lost(node: NodeId, status: &Status) -> LinkError {
    let why = format!("node {node}: {}", status.message());
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return LinkError::NotSent(why);
        }
        cause = error.source();
    }
    match status.code() {
        // These are the other node's own refusals, made before it looked at the call.
        Code::FailedPrecondition | Code::Unauthenticated | Code::Unimplemented => LinkError::NotSent(why),
        _ => LinkError::Lost(why),
    }
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
                Err(error) => tracing::error!(node = %node, node.address = %address, %error, "no address of a node"),
            }
        }
    }

    fn listen(&self, node: NodeId) -> BoxStream<'static, Vec<u8>> {
        let ready = self.peer(node).and_then(|peer| Ok((peer, self.request(node, Letter::default())?)));
        let stream = async move {
            let ((mut client, _), request) = ready.ok()?;
            let beats = client.listen(request).await.ok()?.into_inner();
            let whole = beats.map(Result::ok).take_while(|letter| std::future::ready(letter.is_some()));
            Some(whole.filter_map(|letter| std::future::ready(letter.map(|letter| letter.body.to_vec()))))
        };
        futures::stream::once(stream).filter_map(std::future::ready).flatten().boxed()
    }

    fn nudge(&self, node: NodeId, role: Option<&str>) {
        let hint = Hint { role: role.unwrap_or_default().to_owned() };
        let Ok((mut client, _)) = self.peer(node) else { return };
        let Ok(request) = self.request(node, hint) else { return };
        tokio::spawn(async move {
            // Only a hint: whoever misses it looks by itself soon.
            _ = tokio::time::timeout(CONNECT_TIME, client.nudge(request)).await;
        });
    }
}
