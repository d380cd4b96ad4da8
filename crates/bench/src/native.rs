//! The load of the native API: batches of URLs in, reservations taken and released.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use reqwest::Client;
use serde::Deserialize;

use crate::put::Done;
use crate::source::Source;

/// URLs per body.
const BATCH: usize = 100;
/// Groups per reservation call.
const GROUPS: usize = 10;
/// The pause after an empty response.
const PAUSE: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Added {
    counts: Counts,
}

#[derive(Deserialize)]
struct Counts {
    failed: u64,
}

#[derive(Deserialize)]
pub(crate) struct Reserved {
    pub(crate) reservations: Vec<Reservation>,
}

#[derive(Deserialize)]
pub(crate) struct Reservation {
    pub(crate) token: String,
    pub(crate) group: String,
    urls: Vec<Page>,
}

#[derive(Deserialize)]
struct Page {
    url: String,
}

/// A connection to a server's native API.
#[derive(Clone)]
pub struct Native {
    client: Client,
    base: String,
    pub(crate) crawl: String,
}

impl Native {
    /// A client of a crawl.
    pub fn new(address: SocketAddr, crawl: &str) -> Result<Self> {
        let client = Client::builder().timeout(PATIENCE).no_proxy().tcp_nodelay(true).build()?;
        Ok(Self { client, base: format!("http://{address}/v1"), crawl: crawl.to_owned() })
    }

    pub(crate) async fn send(&self, method: reqwest::Method, path: &str, body: String) -> Result<bytes::Bytes> {
        let url = format!("{}/{path}", self.base);
        let request = self.client.request(method, &url).header("content-type", "application/json").body(body);
        let answer = request.send().await.with_context(|| format!("no answer from {url}"))?;
        let status = answer.status();
        let text = answer.bytes().await?;
        if !status.is_success() {
            bail!("{url} answered {status}: {}", String::from_utf8_lossy(&text).chars().take(200).collect::<String>());
        }
        Ok(text)
    }

    /// Disables politeness for the crawl.
    pub async fn without_delay(&self) -> Result<()> {
        let path = format!("crawls/{}", self.crawl);
        self.send(reqwest::Method::PUT, &path, r#"{"delay_ms":0}"#.to_owned()).await.map(drop)
    }

    /// Sends a batch; returns how many of its URLs could not be stored.
    async fn put_batch(&self, source: &Mutex<Source>) -> Result<u64> {
        let mut body = format!(r#"{{"crawl":"{}","urls":["#, self.crawl);
        {
            let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
            for no in 0..BATCH {
                // Writing to memory cannot fail.
                let _ = write!(body, r#"{}{{"url":"{}"}}"#, if no > 0 { "," } else { "" }, source.next_text());
            }
        }
        body.push_str("]}");
        let text = self.send(reqwest::Method::POST, "urls", body).await?;
        let added: Added = serde_json::from_slice(&text).context("cannot parse the results of the URLs")?;
        Ok(added.counts.failed)
    }

    /// Sends batches of URLs for a time, at most `urls_max` URLs.
    pub async fn put(&self, source: Arc<Mutex<Source>>, time: Duration, urls_max: u64) -> Result<Done> {
        let mut done = Done::default();
        let started = Instant::now();
        while started.elapsed() < time && done.urls < urls_max {
            let sent = Instant::now();
            done.failed += self.put_batch(&source).await?;
            done.latency.add(sent.elapsed());
            done.urls += BATCH as u64;
        }
        done.took = started.elapsed();
        Ok(done)
    }

    /// Reserves and releases for a time; counts reservations.
    pub async fn cycle(&self, holder: &str, time: Duration) -> Result<Done> {
        let ask =
            format!(r#"{{"holder":"{holder}","groups":{GROUPS},"urls":1,"crawl":"{}","lease_ms":60000}}"#, self.crawl);
        let mut done = Done::default();
        let started = Instant::now();
        while started.elapsed() < time {
            let sent = Instant::now();
            let text = self.send(reqwest::Method::POST, "reservations", ask.clone()).await?;
            let reserved: Reserved = serde_json::from_slice(&text).context("cannot parse the reservations")?;
            if reserved.reservations.is_empty() {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            done.latency.add(sent.elapsed());
            for reservation in &reserved.reservations {
                self.release(reservation).await?;
                done.urls += 1;
            }
        }
        done.took = started.elapsed();
        Ok(done)
    }

    async fn release(&self, reservation: &Reservation) -> Result<()> {
        let result = |page: &Page| serde_json::json!({"url": page.url, "outcome": "fetched"});
        let results: Vec<_> = reservation.urls.iter().map(result).collect();
        let body = serde_json::json!({"results": results}).to_string();
        let path = format!("reservations/{}/release", reservation.token);
        self.send(reqwest::Method::POST, &path, body).await.map(drop)
    }
}
