//! The answering side: what other nodes may ask of this one, once they have shown the store's secret.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use tonic::{Request, Response, Status};
use wayleave_api::node::node_server::{Node, NodeServer};
use wayleave_api::node::{Hint, Letter};
use wayleave_core::ids::NodeId;
use wayleave_shard::{Frontier, links};

use crate::beats::beats;
use crate::dial::{LETTER_BYTES_MAX, PROTOCOL, SECRET, TO};

/// Who is told of hints: the role that changed, or none for nodes and shards.
pub type Hints = Arc<dyn Fn(Option<&str>) + Send + Sync>;

struct Answering {
    frontier: Frontier,
    me: NodeId,
    secret: String,
    hints: Hints,
}

/// The service that other nodes call.
pub fn service(frontier: Frontier, me: NodeId, secret: u128, hints: Hints) -> NodeServer<impl Node> {
    let answering = Answering { frontier, me, secret: format!("{secret:032x}"), hints };
    NodeServer::new(answering).max_decoding_message_size(LETTER_BYTES_MAX).max_encoding_message_size(LETTER_BYTES_MAX)
}

impl Answering {
    fn check<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let said = |name: &str| request.metadata().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !same(said(SECRET), &self.secret) {
            return Err(Status::unauthenticated("only nodes of the same store may call this"));
        }
        if said(PROTOCOL) != links::PROTOCOL.to_string() {
            let (theirs, ours) = (said(PROTOCOL), links::PROTOCOL);
            return Err(Status::failed_precondition(format!(
                "this node speaks version {ours} of the words between nodes, the caller {theirs}: finish the upgrade"
            )));
        }
        if said(TO) != self.me.to_string() {
            return Err(Status::failed_precondition(format!("node {} lives here, not {}", self.me, said(TO))));
        }
        Ok(())
    }
}

/// Compares in a time that does not tell how much was right.
fn same(left: &str, right: &str) -> bool {
    left.len() == right.len() && left.bytes().zip(right.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[tonic::async_trait]
impl Node for Answering {
    type ListenStream = BoxStream<'static, Result<Letter, Status>>;

    async fn call(&self, request: Request<Letter>) -> Result<Response<Letter>, Status> {
        self.check(&request)?;
        let body = self.frontier.answer(&request.get_ref().body).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(Letter { body: body.into() }))
    }

    async fn listen(&self, request: Request<Letter>) -> Result<Response<Self::ListenStream>, Status> {
        self.check(&request)?;
        let letters = beats(self.frontier.clone()).map(|body| Ok(Letter { body: body.into() }));
        Ok(Response::new(letters.boxed()))
    }

    async fn nudge(&self, request: Request<Hint>) -> Result<Response<Letter>, Status> {
        self.check(&request)?;
        let role = request.get_ref().role.as_str();
        (self.hints)(Some(role).filter(|role| !role.is_empty()));
        Ok(Response::new(Letter::default()))
    }
}
