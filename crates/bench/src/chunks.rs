//! The load of the pipeline: chunks claimed, or claimed, reported and completed, over HTTP.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use crate::native::Native;
use crate::put::Done;

/// Links per chunk, as by default.
const LINKS: usize = 5;
/// Longer than any round: a chunk whose lease ends is offered again.
const LEASE_MS: u64 = 3_600_000;
/// Empty answers after which a round ends: there are no links left.
const EMPTY_MAX: u32 = 50;
/// The pause after an empty answer.
const PAUSE: Duration = Duration::from_millis(2);

#[derive(Deserialize)]
struct Claimed {
    chunks: Vec<Chunk>,
}

#[derive(Deserialize)]
struct Chunk {
    id: String,
    token: String,
    links: Vec<Link>,
}

#[derive(Deserialize)]
struct Link {
    url: String,
}

impl Native {
    /// Claims chunks for a time, `batch` per call; counts chunks. With `complete` each is reported and completed, which is
    /// part of the time, but the latency is that of the claims.
    pub async fn claim(&self, worker: &str, batch: usize, complete: bool, time: Duration) -> Result<Done> {
        let ask = json!({
            "stage": "crawl", "worker": worker, "crawl": self.crawl, "max": batch, "links": LINKS, "lease_ms": LEASE_MS,
        });
        let ask = ask.to_string();
        let mut done = Done::default();
        let (started, mut empty) = (Instant::now(), 0);
        while started.elapsed() < time && empty < EMPTY_MAX {
            let sent = Instant::now();
            let text = self.send(Method::POST, "chunks/claim", ask.clone()).await?;
            let claimed: Claimed = serde_json::from_slice(&text).context("cannot parse the chunks")?;
            if claimed.chunks.is_empty() {
                empty += 1;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            (empty, done.urls) = (0, done.urls + claimed.chunks.len() as u64);
            done.latency.add(sent.elapsed());
            for chunk in claimed.chunks.iter().filter(|_| complete) {
                self.complete(chunk).await?;
            }
        }
        done.took = started.elapsed();
        Ok(done)
    }

    async fn complete(&self, chunk: &Chunk) -> Result<()> {
        let results: Vec<_> =
            chunk.links.iter().map(|link| json!({"url": link.url, "outcome": "fetched", "status": 200})).collect();
        let report = json!({"token": chunk.token, "results": results}).to_string();
        self.send(Method::POST, &format!("chunks/{}/links", chunk.id), report).await?;
        let artifact = json!({
            "location": format!("http://store.example/{}.warc.gz", chunk.id),
            "bytes": 1,
            "checksum": format!("sha256:{}", "0".repeat(64)),
        });
        let end = json!({"token": chunk.token, "artifact": artifact}).to_string();
        self.send(Method::POST, &format!("chunks/{}/complete", chunk.id), end).await.map(drop)
    }
}
