//! A crawler without a network: gets URLs, completes them, waits for the acknowledgements, gets more.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures::StreamExt;
use prost::Message;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Streaming};
use wayleave_api::urlfrontier::{AckMessage, GetParams, UrlInfo, UrlItem, get_params};

use crate::codec::{Manner, Wire, path, ready};
use crate::put::Done;
use crate::wire;

/// The hold time of URLs in seconds; longer than any round.
const HOLD_SECS: u32 = 300;
/// The pause after an empty response.
const PAUSE: Duration = Duration::from_millis(2);
/// The timeout of a call.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a crawler requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appetite {
    /// Queues per call.
    pub queues: u32,
    /// URLs per queue.
    pub urls: u32,
}

struct Crawler {
    channel: Channel,
    params: Bytes,
    complete: UnboundedSender<Bytes>,
    results: Option<UnboundedReceiverStream<Bytes>>,
    acks: Option<Streaming<Bytes>>,
    scratch: Vec<u8>,
    manner: Manner,
}

impl Crawler {
    fn new(channel: Channel, crawl: &str, (appetite, manner): (Appetite, Manner)) -> Self {
        let params = GetParams {
            max_urls_per_queue: appetite.urls,
            max_queues: appetite.queues,
            key: String::new(),
            delay_requestable: HOLD_SECS,
            item: Some(get_params::Item::CrawlId(crawl.to_owned())),
        };
        let (complete, results) = unbounded_channel();
        Self {
            channel,
            params: params.encode_to_vec().into(),
            complete,
            results: Some(UnboundedReceiverStream::new(results)),
            acks: None,
            scratch: Vec::new(),
            manner,
        }
    }

    async fn get(&self) -> Result<Vec<Bytes>> {
        let mut grpc = ready(self.channel.clone()).await?;
        let request = Request::new(self.params.clone());
        let answer = grpc
            .server_streaming(
                request,
                path("/urlfrontier.URLFrontier/GetURLs"),
                Wire::<GetParams, UrlInfo>::new(self.manner),
            )
            .await?;
        let mut urls = answer.into_inner();
        let mut got = Vec::new();
        while let Some(url) = urls.next().await {
            got.push(url?);
        }
        Ok(got)
    }

    /// Completes URLs and waits for the acknowledgement; returns how many failed.
    async fn complete(&mut self, urls: &[Bytes]) -> Result<u64> {
        for url in urls {
            self.scratch.clear();
            wire::completed(&mut self.scratch, url);
            self.complete.send(Bytes::copy_from_slice(&self.scratch)).context("the put stream ended")?;
        }
        if let Some(results) = self.results.take() {
            // Some servers answer the call only with its first acknowledgement, so results must be in flight before.
            let mut grpc = ready(self.channel.clone()).await?;
            let answer = grpc
                .streaming(
                    Request::new(results),
                    path("/urlfrontier.URLFrontier/PutURLs"),
                    Wire::<UrlItem, AckMessage>::new(self.manner),
                )
                .await?;
            self.acks = Some(answer.into_inner());
        }
        let acks = self.acks.as_mut().context("the put stream is not open")?;
        let mut failed = 0;
        for _ in urls {
            let ack = acks.next().await.context("the put stream ended early")??;
            failed += wire::ack(&ack).failed as u64;
        }
        Ok(failed)
    }

    async fn cycle(&mut self, done: &mut Done) -> Result<()> {
        let started = Instant::now();
        let got = self.get().await?;
        if got.is_empty() {
            tokio::time::sleep(PAUSE).await;
            return Ok(());
        }
        done.latency.add(started.elapsed());
        done.failed += self.complete(&got).await?;
        done.urls += got.len() as u64;
        Ok(())
    }
}

/// Gets and completes URLs of a crawl for a time.
pub async fn get(channel: Channel, crawl: &str, how: (Appetite, Manner), time: Duration) -> Result<Done> {
    let mut crawler = Crawler::new(channel, crawl, how);
    let mut done = Done::default();
    let started = Instant::now();
    while started.elapsed() < time {
        match tokio::time::timeout(PATIENCE, crawler.cycle(&mut done)).await {
            Ok(cycle) => cycle?,
            Err(_) => bail!("a cycle of GetURLs and PutURLs did not end in {} s", PATIENCE.as_secs()),
        }
    }
    done.took = started.elapsed();
    Ok(done)
}
