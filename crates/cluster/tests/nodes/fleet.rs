//! Fleet and placement over several nodes: any node takes any call, and when the node that keeps them is killed, the
//! next owner of the control shard continues from its rows.

use std::collections::BTreeMap;

use wayleave_core::fleet::{Filter, Judged, Kind, Report, ReportReply, Reported};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Outcome, UrlResult};
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::pipeline::request::{Claim, EndChunk, ReportLinks, Stage};
use wayleave_core::pipeline::row::{Artifact, ChunkState};
use wayleave_core::placement::{self, CopyReport, Map, PlacementState};
use wayleave_shard::fleet::Fleet;
use wayleave_shard::pipeline::Pipeline;

use crate::prelude::*;
use crate::support::{refs, urls};

const CONTROL: ShardId = ShardId(0);
const SERVERS: [(&str, u64); 3] = [("a0", 0), ("a1", 0), ("b0", 1)];
const NOW: Millis = Millis(0);

fn claim(stage: Stage) -> Claim {
    let (crawl, host, request) = (None, None, None);
    Claim { stage, worker: "w".into(), crawl, chunks: 1, links: 1, links_min: 1, host, lease: Millis(60_000), request }
}

fn artifact(chunk: ChunkId) -> Artifact {
    Artifact { location: format!("http://store/{chunk}").into(), bytes: 10, checksum: [1; 32], from: None }
}

async fn crawl(node: &Node, chunks: usize) -> BTreeSet<ChunkId> {
    let pipeline = Pipeline::new(node.frontier.clone());
    node.put(&refs(&urls(chunks))).await;
    let mut ids = BTreeSet::new();
    for _ in 0..chunks {
        let chunk = pipeline.claim(claim(Stage::Crawl), Millis(5_000), NOW).await.unwrap().remove(0);
        let results = chunk.links.iter().map(|link| UrlResult::new(&*link.url.url, Outcome::Fetched)).collect();
        let report = ReportLinks { chunk: chunk.id, token: chunk.token, results, replace: false };
        pipeline.report(report, Vec::new()).await.unwrap();
        pipeline.end(chunk.id, chunk.token, EndChunk::Complete(Some(artifact(chunk.id)))).await.unwrap();
        ids.insert(chunk.id);
    }
    ids
}

async fn build(node: &Node, chunks: usize) {
    let pipeline = Pipeline::new(node.frontier.clone());
    for _ in 0..chunks {
        let chunk = pipeline.claim(claim(Stage::Build), Millis(5_000), NOW).await.unwrap().remove(0);
        let end = EndChunk::Complete(Some(artifact(chunk.id)));
        assert_eq!(pipeline.end(chunk.id, chunk.token, end).await, Ok(ChunkState::Built));
    }
}

/// Servers that report to a node and do what their placements say.
struct Servers {
    tokens: BTreeMap<&'static str, Token>,
}

impl Servers {
    async fn report(&mut self, fleet: &Fleet, id: &'static str, row: u64) -> Result<ReportReply, Refusal> {
        let report = Report {
            kind: Kind::Server,
            address: format!("{id}:80").into(),
            from: None,
            capacity: 1,
            row: Some(row),
            state: Reported::Online,
            version: None,
            token: self.tokens.get(id).copied(),
        };
        let answer = fleet.report(id.into(), report).await?;
        self.tokens.insert(id, answer.token);
        Ok(answer)
    }

    /// All servers report and work, as far as the nodes let them.
    async fn round(&mut self, fleet: &Fleet) -> Result<(), Refusal> {
        for (id, row) in SERVERS {
            self.report(fleet, id, row).await?;
            let filter = placement::Filter { server: Some(id.into()), ..placement::Filter::default() };
            for copy in fleet.placements(filter, None, 1_000).await?.placements {
                if matches!(copy.state, PlacementState::Assigned | PlacementState::Fetching) {
                    let token = self.tokens.get(id).copied();
                    fleet.report_copy(copy.chunk, id.into(), (CopyReport::Ready, None), token).await?;
                }
            }
        }
        Ok(())
    }

    /// Rounds every second until the map is complete with this many chunks.
    async fn fill(&mut self, fleet: &Fleet, chunks: usize) -> Arc<Map> {
        for _ in 0..120 {
            pass(Duration::from_secs(1)).await;
            // While a dead node is replaced, calls are refused.
            if self.round(fleet).await.is_err() {
                continue;
            }
            let Ok(Some(map)) = fleet.map(None, NOW).await else { continue };
            if map.missing_count == 0 && map.rows.len() == 2 && map.rows.iter().all(|row| row.chunks == chunks) {
                return map;
            }
        }
        panic!("never complete: {:?}", fleet.map(None, NOW).await);
    }
}

fn served(map: &Map) -> BTreeSet<ChunkId> {
    map.rows.iter().flat_map(|row| &row.servers).flat_map(|server| server.chunks.iter().copied()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_fleet_survives_the_death_of_its_owner_node() {
    let (world, nodes) = World::with::<3>().await;
    let mut nodes = Vec::from(nodes);
    pass(Duration::from_millis(500)).await;
    let keeper = nodes.iter().position(|node| node.frontier.owns(CONTROL)).expect("an owner");
    let mut keeper = nodes.remove(keeper);
    let (a, b) = (Fleet::new(nodes[0].frontier.clone()), Fleet::new(nodes[1].frontier.clone()));
    let mut servers = Servers { tokens: BTreeMap::new() };
    servers.round(&a).await.unwrap();
    let ids = crawl(&nodes[0], 24).await;
    let homes: BTreeSet<ShardId> = ids.iter().map(|id| id.shard()).collect();
    assert!(homes.iter().any(|shard| keeper.frontier.owns(*shard)) && homes.len() > 6, "chunks of all nodes");
    build(&nodes[0], 12).await;
    let before = servers.fill(&b, 12).await;
    // A reader waits at a node that does not keep the map, and sees a change soon.
    let waits = tokio::spawn({
        let (b, since) = (b.clone(), before.version);
        async move { b.map(Some(since), Millis(60_000)).await.unwrap().unwrap().version }
    });
    pass(Duration::from_secs(1)).await;
    let begin = tokio::time::Instant::now();
    build(&nodes[1], 1).await;
    assert!(waits.await.unwrap() > before.version);
    assert!(begin.elapsed() < Duration::from_millis(400), "{:?}", begin.elapsed());
    // The others are built and the keeper is killed before they are announced.
    build(&nodes[0], 11).await;
    keeper.kill(&world);
    let after = servers.fill(&b, 24).await;
    assert!(after.version > before.version);
    assert_eq!(served(&after), ids, "every chunk is placed");
    assert!(after.rows.iter().all(|row| row.served == 24), "once in every row");
    assert!(served(&before).is_subset(&ids));
    let failed = a.machines(Filter { judged: Some(Judged::Failed), kind: None }, None, 10).await.unwrap();
    assert!(failed.machines.is_empty(), "only the node died: {failed:?}");
    for id in ids {
        let view = Pipeline::new(nodes[1].frontier.clone()).chunk(id).await.unwrap();
        assert_eq!((view.state, view.reason.as_str()), (ChunkState::Built, "its index is built"));
    }
}
