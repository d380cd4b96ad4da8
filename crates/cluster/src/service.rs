//! The serving side: calls from other nodes, authenticated by the store's secret.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use subtle::ConstantTimeEq;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Response, Status};
use wayleave_api::node::node_server::{Node, NodeServer};
use wayleave_api::node::{Envelope, Hint};
use wayleave_core::ids::NodeId;
use wayleave_core::limits::NODE_MESSAGE_BYTES_MAX;
use wayleave_registry::Hints;
use wayleave_shard::{Frontier, Service};

use crate::dial::{PROTOCOL, SECRET, TO};
use crate::readiness_stream::readiness_stream;

struct NodeService {
    frontier: Frontier,
    hints: Hints,
}

/// Admits callers that have the store's secret, speak our version of the service that they call, and mean this node. Checked before a body is
/// read, so a stranger cannot make this node buffer large ones.
#[derive(Clone)]
pub struct CallerCheck {
    me: NodeId,
    secret: Arc<str>,
}

/// The service that other nodes call.
pub fn service(
    frontier: Frontier,
    me: NodeId,
    secret: u128,
    hints: Hints,
) -> InterceptedService<NodeServer<impl Node>, CallerCheck> {
    let service = NodeServer::new(NodeService { frontier, hints })
        .max_decoding_message_size(NODE_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(NODE_MESSAGE_BYTES_MAX);
    InterceptedService::new(service, CallerCheck { me, secret: format!("{secret:032x}").into() })
}

impl Interceptor for CallerCheck {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let header =
            |name: &str| request.metadata().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !bool::from(header(SECRET).as_bytes().ct_eq(self.secret.as_bytes())) {
            return Err(Status::unauthenticated("only nodes of the same store may call this"));
        }
        // Before the version, so that a refusal for the version proves that the node is here.
        if header(TO) != self.me.to_string() {
            return Err(Status::not_found(format!("node {} is here, not {}", self.me, header(TO))));
        }
        let service = Service::agree(header(PROTOCOL)).map_err(Status::failed_precondition)?;
        request.extensions_mut().insert(service);
        Ok(request)
    }
}

/// The service that a call was admitted for.
fn admitted<T>(request: &Request<T>, wanted: Option<Service>) -> Result<Service, Status> {
    let service = request.extensions().get().copied().filter(|service| wanted.is_none_or(|wanted| wanted == *service));
    service.ok_or_else(|| Status::failed_precondition("the call is not one of the service that it states"))
}

#[tonic::async_trait]
impl Node for NodeService {
    type ListenStream = BoxStream<'static, Result<Envelope, Status>>;

    async fn call(&self, request: Request<Envelope>) -> Result<Response<Envelope>, Status> {
        let service = admitted(&request, None)?;
        let body = self.frontier.answer(service, &request.get_ref().body).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(Envelope { body: body.into() }))
    }

    async fn listen(&self, request: Request<Envelope>) -> Result<Response<Self::ListenStream>, Status> {
        admitted(&request, Some(Service::Frontier))?;
        let envelopes = readiness_stream(&self.frontier).map(|body| Ok(Envelope { body: body.into() }));
        Ok(Response::new(envelopes.boxed()))
    }

    async fn changed(&self, request: Request<Hint>) -> Result<Response<Envelope>, Status> {
        admitted(&request, Some(Service::Registry))?;
        request.get_ref().keys.iter().for_each(|key| self.hints.wake(key));
        Ok(Response::new(Envelope::default()))
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn knock(secret: &str, protocol: &str, to: &str) -> Result<(), Code> {
        let mut keeper = CallerCheck { me: NodeId(7), secret: "s3cret".into() };
        let mut request = Request::new(());
        for (name, value) in [(SECRET, secret), (PROTOCOL, protocol), (TO, to)] {
            request.metadata_mut().insert(name, value.parse().unwrap());
        }
        keeper.call(request).map(drop).map_err(|status| status.code())
    }

    #[test]
    fn only_nodes_of_the_store_that_mean_this_one_come_in() {
        let (me, ours) = (NodeId(7).to_string(), Service::Frontier.stated());
        assert_eq!(knock("s3cret", &ours, &me), Ok(()));
        for secret in ["", "s3cre", "s3creT"] {
            assert_eq!(knock(secret, &ours, &me), Err(Code::Unauthenticated));
        }
        for other in ["999", "frontier/999", "unheard-of/1"] {
            assert_eq!(knock("s3cret", other, &me), Err(Code::FailedPrecondition), "{other}");
        }
        assert_eq!(knock("s3cret", &Service::Registry.stated(), &me), Ok(()), "each service by itself");
        for version in [&ours, "frontier/999"] {
            assert_eq!(
                knock("s3cret", version, &NodeId(8).to_string()),
                Err(Code::NotFound),
                "the call is for another node"
            );
        }
    }
}
