//! The null server: the same protocol on the same stack without a store. The upper bound for a server on this machine.

use std::net::SocketAddr;

use anyhow::Result;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};
use wayleave_api::urlfrontier as wire;
use wayleave_api::urlfrontier::url_frontier_server::{UrlFrontier, UrlFrontierServer};
use wayleave_api::urlfrontier::{get_params, url_item};

use crate::null_native;

type GrpcResult<T> = Result<Response<T>, Status>;
type GrpcStream<T> = BoxStream<'static, Result<T, Status>>;

/// A null server that is listening.
pub struct NullServer {
    incoming: TcpIncoming,
}

impl NullServer {
    /// Listens on an address; port 0 takes a free one.
    pub fn bind(address: SocketAddr) -> Result<Self> {
        Ok(Self { incoming: TcpIncoming::bind(address)?.with_nodelay(Some(true)) })
    }

    /// Its address.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.incoming.local_addr()?)
    }

    /// Serves until it is dropped.
    pub async fn serve(self) -> Result<()> {
        let grpc = Routes::new(UrlFrontierServer::new(Null)).into_axum_router();
        let routes = Routes::from(grpc.merge(null_native::routes()));
        Ok(Server::builder().accept_http1(true).add_routes(routes).serve_with_incoming(self.incoming).await?)
    }
}

/// Runs a null server, and prints its address on standard output.
#[expect(clippy::print_stdout, reason = "who started it reads the address there")]
pub async fn serve_null(address: SocketAddr) -> Result<()> {
    let server = NullServer::bind(address)?;
    println!("null server on {}", server.address()?);
    server.serve().await
}

struct Null;

fn answer<T>(message: T) -> GrpcResult<T> {
    Ok(Response::new(message))
}

fn made_up(params: &wire::GetParams) -> impl Iterator<Item = wire::UrlInfo> + Send + use<> {
    let crawl = match &params.item {
        Some(get_params::Item::CrawlId(crawl)) => crawl.clone(),
        _ => "DEFAULT".to_owned(),
    };
    let (queues, urls) = (params.max_queues.clamp(1, 10_000), params.max_urls_per_queue.clamp(1, 1_000));
    (0..queues).flat_map(move |queue| {
        let crawl = crawl.clone();
        (0..urls).map(move |no| wire::UrlInfo {
            url: format!("https://h{queue}.example/0/{no:x}/page.html"),
            key: format!("h{queue}.example"),
            metadata: Default::default(),
            crawl_id: crawl.clone(),
        })
    })
}

fn ack(item: wire::UrlItem) -> wire::AckMessage {
    let info = match item.item {
        Some(url_item::Item::Discovered(discovered)) => discovered.info,
        Some(url_item::Item::Known(known)) => known.info,
        None => None,
    };
    let id = if item.id.is_empty() { info.unwrap_or_default().url } else { item.id };
    wire::AckMessage { id, status: wire::ack_message::Status::Ok.into() }
}

#[tonic::async_trait]
impl UrlFrontier for Null {
    type GetURLsStream = GrpcStream<wire::UrlInfo>;
    type PutURLsStream = GrpcStream<wire::AckMessage>;
    type PutDiscoveredStream = GrpcStream<wire::BatchAck>;
    type ListURLsStream = GrpcStream<wire::UrlItem>;

    async fn get_urls(&self, request: Request<wire::GetParams>) -> GrpcResult<Self::GetURLsStream> {
        answer(stream::iter(made_up(request.get_ref()).map(Ok)).boxed())
    }

    async fn put_urls(&self, request: Request<Streaming<wire::UrlItem>>) -> GrpcResult<Self::PutURLsStream> {
        answer(request.into_inner().map(|item| item.map(ack)).boxed())
    }

    async fn put_discovered(
        &self,
        request: Request<Streaming<wire::DiscoveredBatch>>,
    ) -> GrpcResult<Self::PutDiscoveredStream> {
        let ack = |batch: wire::DiscoveredBatch| wire::BatchAck { statuses: vec![0; batch.items.len()], id: batch.id };
        answer(request.into_inner().map(move |batch| batch.map(ack)).boxed())
    }

    async fn list_nodes(&self, _: Request<wire::Empty>) -> GrpcResult<wire::StringList> {
        answer(wire::StringList::default())
    }

    async fn list_crawls(&self, _: Request<wire::Local>) -> GrpcResult<wire::StringList> {
        answer(wire::StringList::default())
    }

    async fn delete_crawl(&self, _: Request<wire::DeleteCrawlMessage>) -> GrpcResult<wire::Long> {
        answer(wire::Long::default())
    }

    async fn list_queues(&self, _: Request<wire::Pagination>) -> GrpcResult<wire::QueueList> {
        answer(wire::QueueList::default())
    }

    async fn get_stats(&self, _: Request<wire::QueueWithinCrawlParams>) -> GrpcResult<wire::Stats> {
        answer(wire::Stats::default())
    }

    async fn delete_queue(&self, _: Request<wire::QueueWithinCrawlParams>) -> GrpcResult<wire::Long> {
        answer(wire::Long::default())
    }

    async fn block_queue_until(&self, _: Request<wire::BlockQueueParams>) -> GrpcResult<wire::Empty> {
        answer(wire::Empty {})
    }

    async fn set_active(&self, _: Request<wire::Active>) -> GrpcResult<wire::Empty> {
        answer(wire::Empty {})
    }

    async fn get_active(&self, _: Request<wire::Local>) -> GrpcResult<wire::Boolean> {
        answer(wire::Boolean { state: true })
    }

    async fn set_delay(&self, _: Request<wire::QueueDelayParams>) -> GrpcResult<wire::Empty> {
        answer(wire::Empty {})
    }

    async fn set_log_level(&self, _: Request<wire::LogLevelParams>) -> GrpcResult<wire::Empty> {
        answer(wire::Empty {})
    }

    async fn set_crawl_limit(&self, _: Request<wire::CrawlLimitParams>) -> GrpcResult<wire::Empty> {
        answer(wire::Empty {})
    }

    async fn get_url_status(&self, _: Request<wire::UrlStatusRequest>) -> GrpcResult<wire::UrlItem> {
        Err(Status::not_found("the null server keeps nothing"))
    }

    async fn list_urls(&self, _: Request<wire::ListUrlParams>) -> GrpcResult<Self::ListURLsStream> {
        answer(stream::empty().boxed())
    }

    async fn count_urls(&self, _: Request<wire::CountUrlParams>) -> GrpcResult<wire::Long> {
        answer(wire::Long::default())
    }

    async fn purge_urls(&self, _: Request<wire::PurgeUrlParams>) -> GrpcResult<wire::Long> {
        answer(wire::Long::default())
    }
}
