//! The gRPC services: one line per method of the protocol, and their routes.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use wayleave_api::urlfrontier as wire;
use wayleave_api::urlfrontier::url_frontier_server::{UrlFrontier, UrlFrontierServer};
use wayleave_core::limits;
use wayleave_core::time::Millis;
use wayleave_shard::Frontier;

use super::get_urls::HandedOut;
use super::metrics::GrpcMetrics;
use super::put_discovered::BatchAcks;
use super::put_stream::{PutStream, SHARE_STEP};
use super::put_urls::ItemAcks;
use super::{delete, get_stats, get_urls, health, list_queues, list_urls, pace, switches, url_status};
use crate::Peers;
use crate::http::App;
use wayleave_listen::Budget;

type GrpcResult<T> = Result<Response<T>, Status>;

/// The addresses of this node and the others, as announced to clients.
pub struct Nodes {
    /// The address of this node.
    pub advertised: String,
    /// The other nodes, if there are any.
    pub peers: Option<Peers>,
}

/// The gRPC services of a server: URLFrontier, health and reflection.
#[must_use]
pub fn routes(app: App, metrics: Arc<GrpcMetrics>, nodes: Nodes) -> Routes {
    let (frontier, budget, hold_max) = (app.frontier.clone(), app.budget.clone(), app.config.hold_max);
    let service = Service { frontier, budget, metrics, nodes, hold_max };
    let urlfrontier = UrlFrontierServer::new(service)
        .max_decoding_message_size(limits::MESSAGE_BYTES_MAX)
        .max_encoding_message_size(limits::MESSAGE_BYTES_MAX);
    let routes = Routes::new(urlfrontier).add_service(health::health(app));
    with_reflection(routes).prepare()
}

fn with_reflection(routes: Routes) -> Routes {
    let schema = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(wire::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    match (schema().build_v1(), schema().build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => routes.add_service(v1).add_service(v1alpha),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "gRPC reflection is disabled: cannot read the schema");
            routes
        }
    }
}

struct Service {
    frontier: Frontier,
    budget: Arc<Budget>,
    metrics: Arc<GrpcMetrics>,
    nodes: Nodes,
    hold_max: Option<Millis>,
}

impl Service {
    /// All nodes, or only this one if the caller asks for that. Crawls are always listed for all: a client that dumps
    /// them asks one node.
    fn scope(&self, local: bool) -> Frontier {
        if local { self.frontier.only_here() } else { self.frontier.clone() }
    }
}

fn empty((): ()) -> Response<wire::Empty> {
    Response::new(wire::Empty {})
}

#[tonic::async_trait]
impl UrlFrontier for Service {
    type GetURLsStream = HandedOut;
    type PutURLsStream = PutStream<Streaming<wire::UrlItem>, ItemAcks>;
    type PutDiscoveredStream = PutStream<Streaming<wire::DiscoveredBatch>, BatchAcks>;
    type ListURLsStream = BoxStream<'static, Result<wire::UrlItem, Status>>;

    async fn list_nodes(&self, _: Request<wire::Empty>) -> GrpcResult<wire::StringList> {
        Ok(Response::new(list_queues::list_nodes(&self.nodes)))
    }

    async fn list_crawls(&self, _: Request<wire::Local>) -> GrpcResult<wire::StringList> {
        list_queues::list_crawls(&self.frontier).await.map(Response::new)
    }

    async fn delete_crawl(&self, request: Request<wire::DeleteCrawlMessage>) -> GrpcResult<wire::Long> {
        delete::delete_crawl(&self.frontier, request.get_ref()).await.map(Response::new)
    }

    async fn list_queues(&self, request: Request<wire::Pagination>) -> GrpcResult<wire::QueueList> {
        list_queues::list_queues(&self.scope(request.get_ref().local), request.into_inner()).await.map(Response::new)
    }

    async fn get_urls(&self, request: Request<wire::GetParams>) -> GrpcResult<Self::GetURLsStream> {
        let asked = get_urls::request(request.get_ref(), self.hold_max);
        get_urls::get_urls(&self.frontier, &self.metrics, self.budget.share(1), asked).await.map(Response::new)
    }

    async fn put_urls(&self, request: Request<Streaming<wire::UrlItem>>) -> GrpcResult<Self::PutURLsStream> {
        self.metrics.on_put_urls();
        let (intake, metrics) = (Box::new(self.frontier.clone()), Arc::clone(&self.metrics));
        let keeps_known = request.metadata().contains_key(wire::KEEP_KNOWN);
        Ok(Response::new(PutStream::new(
            request.into_inner(),
            ItemAcks::new(self.budget.share(SHARE_STEP), keeps_known),
            intake,
            metrics,
        )))
    }

    async fn put_discovered(
        &self,
        request: Request<Streaming<wire::DiscoveredBatch>>,
    ) -> GrpcResult<Self::PutDiscoveredStream> {
        self.metrics.on_put_discovered();
        let (intake, metrics) = (Box::new(self.frontier.clone()), Arc::clone(&self.metrics));
        Ok(Response::new(PutStream::new(
            request.into_inner(),
            BatchAcks::new(self.budget.share(SHARE_STEP)),
            intake,
            metrics,
        )))
    }

    async fn get_stats(&self, request: Request<wire::QueueWithinCrawlParams>) -> GrpcResult<wire::Stats> {
        get_stats::get_stats(&self.scope(request.get_ref().local), request.into_inner()).await.map(Response::new)
    }

    async fn delete_queue(&self, request: Request<wire::QueueWithinCrawlParams>) -> GrpcResult<wire::Long> {
        delete::delete_queue(&self.frontier, request.get_ref()).await.map(Response::new)
    }

    async fn block_queue_until(&self, request: Request<wire::BlockQueueParams>) -> GrpcResult<wire::Empty> {
        pace::block_queue_until(&self.frontier, request.get_ref()).await.map(empty)
    }

    async fn set_active(&self, request: Request<wire::Active>) -> GrpcResult<wire::Empty> {
        switches::set_active(&self.frontier, request.into_inner()).await.map(empty)
    }

    async fn get_active(&self, request: Request<wire::Local>) -> GrpcResult<wire::Boolean> {
        switches::get_active(&self.scope(request.get_ref().local)).await.map(Response::new)
    }

    async fn set_delay(&self, request: Request<wire::QueueDelayParams>) -> GrpcResult<wire::Empty> {
        pace::set_delay(&self.frontier, request.get_ref()).await.map(empty)
    }

    async fn set_log_level(&self, request: Request<wire::LogLevelParams>) -> GrpcResult<wire::Empty> {
        switches::set_log_level(request.get_ref());
        Ok(empty(()))
    }

    async fn set_crawl_limit(&self, request: Request<wire::CrawlLimitParams>) -> GrpcResult<wire::Empty> {
        pace::set_crawl_limit(&self.frontier, request.get_ref()).await.map(empty)
    }

    async fn get_url_status(&self, request: Request<wire::UrlStatusRequest>) -> GrpcResult<wire::UrlItem> {
        url_status::get_url_status(&self.frontier, request.into_inner()).await.map(Response::new)
    }

    async fn list_urls(&self, request: Request<wire::ListUrlParams>) -> GrpcResult<Self::ListURLsStream> {
        Ok(Response::new(list_urls::list_urls(&self.frontier, self.budget.share(1), request.get_ref()).boxed()))
    }

    async fn count_urls(&self, request: Request<wire::CountUrlParams>) -> GrpcResult<wire::Long> {
        let frontier = self.scope(request.get_ref().local());
        let value = list_urls::count_urls(&frontier, request.get_ref()).await?;
        Ok(Response::new(wire::Long { value }))
    }

    async fn purge_urls(&self, request: Request<wire::PurgeUrlParams>) -> GrpcResult<wire::Long> {
        delete::purge_urls(&self.frontier, request.get_ref()).await.map(Response::new)
    }
}
