//! What calls about a long chunk write: a renewal or a report writes what it changes, not all links.

use wayleave_core::limits::CHUNK_LINKS_MAX;

use crate::faulty::Faulty;
use crate::prelude::*;
use crate::support::*;

/// The most that a renewal may write.
const RENEWAL_BYTES_MAX: usize = 4 << 10;
/// The most that the report of one link may write, with the rows of its URL, its host and its reservation.
const REPORT_BYTES_MAX: usize = 8 << 10;

/// Links that are reported, by position.
const REPORTED: [(usize, Outcome); 4] =
    [(0, Outcome::Fetched), (500, Outcome::Fetched), (501, Outcome::Failed), (999, Outcome::Gone)];

fn claim(links: usize, host: bool) -> Claim {
    let host = host.then(|| "h0.example".into());
    Claim {
        stage: Stage::Crawl,
        worker: "w".into(),
        crawl: host.is_some().then(|| "DEFAULT".into()),
        chunks: 1,
        links,
        links_min: links,
        host,
        lease: Millis(60_000),
        request: None,
    }
}

fn report(chunk: &Claimed, url: &str, outcome: Outcome) -> ReportLinks {
    ReportLinks { chunk: chunk.id, token: chunk.token, results: vec![UrlResult::new(url, outcome)], replace: false }
}

/// A chunk of this many links, of as many hosts or of one.
async fn long_chunk(store: &Arc<Faulty>, one_host: bool) -> (Frontier, Pipeline, Claimed) {
    let frontier = store.open(1).await;
    let path = "x".repeat(80);
    let url = |n: usize| {
        let host = if one_host { 0 } else { n };
        disc(&format!("http://h{host}.example/{path}/{n}"))
    };
    frontier.put((0..CHUNK_LINKS_MAX).map(url).collect()).await;
    let pipeline = Pipeline::new(frontier.clone());
    let chunk = pipeline.claim(claim(CHUNK_LINKS_MAX, one_host), Millis(0), Millis(0)).await.unwrap().remove(0);
    assert_eq!(chunk.links.len(), CHUNK_LINKS_MAX);
    (frontier, pipeline, chunk)
}

async fn renew(pipeline: &Pipeline, (chunk, token): (ChunkId, Token)) {
    pipeline.renew(chunk, token, Millis(60_000)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_and_a_report_write_what_they_change() {
    for one_host in [false, true] {
        let store = Faulty::new();
        let (_, pipeline, chunk) = long_chunk(&store, one_host).await;
        let written = || store.bytes.swap(0, Ordering::Relaxed);
        let claimed = written();
        // Otherwise the deadline would be the same, and nothing be written.
        pass(1_000).await;
        written();
        renew(&pipeline, (chunk.id, chunk.token)).await;
        let renewed = written();
        let mut reported = Vec::new();
        for (at, outcome) in REPORTED {
            pipeline.report(report(&chunk, &chunk.links[at].url.url, outcome), Vec::new()).await.unwrap();
            reported.push((outcome, written()));
        }
        println!("one host: {one_host}; bytes of the claim {claimed}, of a renewal {renewed}, of reports {reported:?}");
        assert!((1..=RENEWAL_BYTES_MAX).contains(&renewed), "{renewed} bytes");
        // What fails in a chunk of one host leaves its reservation, whose row has all URLs.
        let small = |(outcome, _): &&(Outcome, usize)| !one_host || *outcome == Outcome::Fetched;
        assert!(reported.iter().filter(small).all(|(_, bytes)| *bytes <= REPORT_BYTES_MAX), "{reported:?} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_chunk_is_the_same_after_a_restart_and_at_rest() {
    for one_host in [false, true] {
        let store = Faulty::new();
        let (frontier, pipeline, chunk) = long_chunk(&store, one_host).await;
        for (at, outcome) in REPORTED {
            pipeline.report(report(&chunk, &chunk.links[at].url.url, outcome), Vec::new()).await.unwrap();
        }
        let before = pipeline.chunk(chunk.id).await.unwrap();
        frontier.stop().await;
        let frontier = store.open(1).await;
        let pipeline = Pipeline::new(frontier.clone());
        assert_eq!(pipeline.chunk(chunk.id).await.unwrap(), before);
        renew(&pipeline, (chunk.id, chunk.token)).await;
        let last = report(&chunk, &chunk.links[700].url.url, Outcome::Fetched);
        assert_eq!(pipeline.report(last, Vec::new()).await.unwrap().0.left, CHUNK_LINKS_MAX as u64 - 5);
        let artifact = Artifact { location: "http://store/1".into(), bytes: 3, checksum: [1; 32], from: None };
        let ended = pipeline.end(chunk.id, chunk.token, EndChunk::Complete(Some(artifact))).await;
        assert_eq!(ended, Ok(ChunkState::Crawled));
        let crawled = pipeline.chunk(chunk.id).await.unwrap();
        assert_eq!((crawled.crawled, crawled.error), (3, 2));
        assert_eq!(pipeline.decide(chunk.id, OperatorAction::Skip).await, Ok(ChunkState::Skipped));
        let (listed, _, _) = pipeline.chunks(ChunkFilter::default(), None, 9).await.unwrap();
        assert_eq!((listed.len(), listed[0].crawled, listed[0].error), (1, 3, 2));
        assert_eq!(rows_of_links(&store).await, 0, "all links of a chunk at rest are in its row");
        assert_eq!(pipeline.decide(chunk.id, OperatorAction::Retry).await, Ok(ChunkState::Crawled));
        frontier.stop().await;
        let pipeline = Pipeline::new(store.open(1).await);
        let again = pipeline.chunk(chunk.id).await.unwrap();
        assert_eq!((again.state, again.crawled, again.error), (ChunkState::Crawled, 3, 2));
    }
}

async fn rows_of_links(store: &Faulty) -> usize {
    let (from, to) = key::range(ShardId(0), Kind::ChunkLinks, Kind::ChunkLinks);
    store.scan_many(&[Scan { from, to, limit: 1_000 }]).await.unwrap()[0].len()
}
