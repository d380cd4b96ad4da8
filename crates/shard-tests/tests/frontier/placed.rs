//! Built chunks on index servers: each is placed once in every row, whatever ends in between; servers that fail or are
//! drained are replaced; the map's version only grows. Every step is followed by a restart.

use wayleave_core::fleet::{self, Desired, Judged, RowNo};
use wayleave_core::placement::{self, CopyReport, Filter, Map, PlacementState};

use crate::fleet::{Machines, NOW};
use crate::prelude::*;
use crate::support::*;

fn claim(stage: Stage) -> Claim {
    let (crawl, host, request) = (None, None, None);
    Claim { stage, worker: "w".into(), crawl, chunks: 1, links: 1, links_min: 1, host, lease: Millis(60_000), request }
}

fn artifact(chunk: ChunkId) -> Artifact {
    Artifact { location: format!("http://store/{chunk}").into(), bytes: 100, checksum: [1; 32], from: None }
}

impl Machines {
    fn pipeline(&self) -> Pipeline {
        Pipeline::new(self.world.frontier.clone())
    }

    /// Crawls a page of each of these hosts as a chunk of its own.
    async fn crawl(&self, hosts: std::ops::Range<usize>) -> Vec<ChunkId> {
        let urls: Vec<String> = hosts.clone().map(|n| format!("http://h{n}.example/")).collect();
        self.world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let (pipeline, mut ids) = (self.pipeline(), Vec::new());
        for _ in hosts {
            let chunk = pipeline.claim(claim(Stage::Crawl), NOW, NOW).await.unwrap().remove(0);
            let results = chunk.links.iter().map(|link| UrlResult::new(&*link.url.url, Outcome::Fetched)).collect();
            let report = ReportLinks { chunk: chunk.id, token: chunk.token, results, replace: false };
            pipeline.report(report, Vec::new()).await.unwrap();
            pipeline.end(chunk.id, chunk.token, EndChunk::Complete(Some(artifact(chunk.id)))).await.unwrap();
            ids.push(chunk.id);
        }
        ids
    }

    /// Builds one chunk that is crawled.
    async fn build(&self) -> ChunkId {
        let pipeline = self.pipeline();
        let chunk = pipeline.claim(claim(Stage::Build), NOW, NOW).await.unwrap().remove(0);
        let end = EndChunk::Complete(Some(artifact(chunk.id)));
        assert_eq!(pipeline.end(chunk.id, chunk.token, end).await, Ok(ChunkState::Built));
        chunk.id
    }

    /// These servers do what their placements say; how many copies they changed.
    async fn work(&self, servers: &[&str]) -> usize {
        let mut changed = 0;
        for server in servers {
            let filter = Filter { server: Some((*server).into()), ..Filter::default() };
            for copy in self.fleet.placements(filter, None, 10_000).await.unwrap().placements {
                let report = match copy.state {
                    PlacementState::Assigned | PlacementState::Fetching => CopyReport::Ready,
                    PlacementState::Ready => continue,
                    PlacementState::Draining => CopyReport::Gone,
                };
                // The chunk of one that is to be deleted may be gone.
                assert!(copy.artifact.is_none_or(|known| known == artifact(copy.chunk)));
                self.say(copy.chunk, server, report).await.unwrap();
                changed += 1;
            }
        }
        changed
    }

    async fn say(&self, chunk: ChunkId, server: &str, report: CopyReport) -> Result<Option<PlacementState>, Refusal> {
        self.fleet.report_copy(chunk, server.into(), (report, None), self.tokens.get(server).copied()).await
    }

    async fn map(&self) -> std::sync::Arc<Map> {
        self.fleet.map(None, NOW).await.unwrap().unwrap()
    }

    /// Where each chunk is served, by row. No row serves a chunk twice.
    async fn homes(&self) -> BTreeMap<(RowNo, ChunkId), String> {
        let mut homes = BTreeMap::new();
        for row in &self.map().await.rows {
            for server in &row.servers {
                for chunk in server.chunks.iter() {
                    let before = homes.insert((row.row, *chunk), server.server.to_string());
                    assert_eq!(before, None, "chunk {chunk} is served twice in row {}", row.row.0);
                }
            }
        }
        homes
    }

    /// Servers `a0`, `a1` in row 0 and `b0` in row 1, which all have all chunks ready.
    async fn filled(chunks: usize) -> Self {
        let mut machines = Self::new(3).await;
        for id in SERVERS {
            machines.beat(id).await;
        }
        machines.crawl(0..chunks).await;
        for _ in 0..chunks {
            machines.build().await;
        }
        machines.pass(5_000, &SERVERS).await;
        assert_eq!(machines.work(&SERVERS).await, 2 * chunks);
        let homes = machines.homes().await;
        assert_eq!((homes.len(), machines.map().await.missing_count), (2 * chunks, 0));
        let on_a0 = homes.values().filter(|home| *home == "a0").count();
        assert_eq!(on_a0, chunks / 2, "spread evenly");
        machines
    }
}

const SERVERS: [&str; 3] = ["a0", "a1", "b0"];

#[tokio::test(start_paused = true)]
async fn every_built_chunk_is_placed_once_in_every_row_wherever_the_owner_ends() {
    // The restart comes after this many steps of the tasks that announce, place and note.
    for steps in 0..40 {
        let mut machines = Machines::new(3).await;
        for id in SERVERS {
            machines.beat(id).await;
        }
        let ids: BTreeSet<ChunkId> = machines.crawl(0..6).await.into_iter().collect();
        for _ in 0..3 {
            machines.build().await;
            machines.build().await;
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            machines.reopen().await;
        }
        machines.pass(5_000, &SERVERS).await;
        assert_eq!(machines.work(&SERVERS).await, 12, "after {steps} steps");
        let placed: BTreeSet<ChunkId> = machines.homes().await.into_keys().map(|(_, chunk)| chunk).collect();
        assert_eq!(placed, ids);
        let map = machines.map().await;
        assert_eq!((map.rows.len(), map.missing_count), (2, 0));
        assert!(map.rows.iter().all(|row| row.serving && row.served == 6 && row.chunks == 6));
        for id in &ids {
            let view = machines.pipeline().chunk(*id).await.unwrap();
            assert_eq!((view.state, view.reason.as_str()), (ChunkState::Built, "its index is built"));
            let copies: Vec<_> = view.placements.unwrap().iter().map(|copy| (copy.row, copy.state)).collect();
            assert_eq!(copies, [(RowNo(0), PlacementState::Ready), (RowNo(1), PlacementState::Ready)]);
        }
        machines.reopen().await;
        machines.pass(5_000, &SERVERS).await;
        assert_eq!(machines.version().await, map.version, "nothing is announced again");
    }
}

#[tokio::test(start_paused = true)]
async fn chunks_built_before_any_server_exists_wait_and_a_new_row_gets_them() {
    let mut machines = Machines::new(2).await;
    let crawled = machines.crawl(0..6).await[0];
    assert_eq!(machines.pipeline().chunk(crawled).await.unwrap().placements, Some(Vec::new()));
    for _ in 0..5 {
        let built = machines.build().await;
        assert_eq!(machines.pipeline().chunk(built).await.unwrap().placements, Some(Vec::new()));
    }
    pass(100).await;
    machines.reopen().await;
    let mut version = machines.version().await;
    for (servers, id) in [(1, "a0"), (2, "b0")] {
        machines.beat(id).await;
        pass(10).await;
        machines.reopen().await;
        assert_eq!(machines.work(&[id]).await, 5);
        assert_eq!(machines.homes().await.len(), 5 * servers);
        let now = machines.version().await;
        assert!(now > version);
        version = now;
    }
    let unknown = machines.fleet.copies_of(ChunkId(77)).await;
    assert_eq!(unknown, Err(placement::Refusal::UnknownChunk(77).into()));
}

#[tokio::test(start_paused = true)]
async fn a_failed_server_leaves_the_map_and_is_replaced_across_restarts() {
    let mut machines = Machines::filled(8).await;
    let mut version = machines.version().await;
    let alive = ["a0", "b0"];
    machines.pass(35_000, &alive).await;
    assert_eq!(machines.judged("a1").await, Judged::Failed);
    let map = machines.map().await;
    assert!(map.version > version);
    version = map.version;
    assert_eq!((map.missing_count, map.missing.len()), (4, 4));
    assert!(map.missing.iter().all(|missing| missing.row == RowNo(0) && missing.also_in == [RowNo(1)]));
    assert!(!map.rows[0].serving && map.rows[1].serving, "a row serves only when it is nearly complete");
    machines.pass(45_000, &alive).await;
    assert_eq!(machines.work(&alive).await, 0, "not before the delay of a minute");
    machines.reopen().await;
    machines.pass(20_000, &alive).await;
    machines.reopen().await;
    assert_eq!(machines.work(&alive).await, 4, "only what was lost moves");
    machines.reopen().await;
    let map = machines.map().await;
    assert!(map.missing_count == 0 && map.version > version);
    assert!(machines.homes().await.values().all(|home| home != "a1"));
    machines.beat("a1").await;
    machines.pass(5_000, &SERVERS).await;
    assert_eq!(machines.work(&["a1"]).await, 4, "its copies are surplus, and it deletes them");
}

#[tokio::test(start_paused = true)]
async fn a_drained_server_serves_until_its_chunks_moved_and_can_be_deleted() {
    let mut machines = Machines::filled(8).await;
    machines.fleet.set_desired("a1".into(), Desired::Drain).await.unwrap();
    machines.reopen().await;
    pass(10).await;
    assert_eq!(machines.homes().await.len(), 16, "it serves until the others are ready");
    let early = machines.fleet.delete("a1".into()).await;
    assert!(matches!(early, Err(Refusal::Fleet(fleet::Refusal::HasPlacements { needed: 4, .. }))), "{early:?}");
    assert_eq!(machines.work(&["a0"]).await, 4);
    machines.reopen().await;
    assert_eq!(machines.homes().await.len(), 16);
    assert!(machines.homes().await.values().all(|home| home != "a1"));
    machines.fleet.delete("a1".into()).await.unwrap();
    machines.reopen().await;
    pass(10).await;
    let late = machines.say(ChunkId(1), "a1", CopyReport::Ready).await;
    assert_eq!(late, Err(placement::Refusal::UnknownServer("a1".into()).into()));
    let servers: Vec<String> = machines.map().await.rows[0].servers.iter().map(|s| s.server.to_string()).collect();
    assert_eq!(servers, ["a0"]);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_is_forgotten_leaves_the_map_and_its_servers() {
    let mut machines = Machines::filled(4).await;
    let (_, gone) = machines.homes().await.into_keys().next().unwrap();
    machines.fleet.forget_chunk(gone).await.unwrap();
    machines.reopen().await;
    assert_eq!(machines.homes().await.len(), 6);
    let filter = Filter { state: Some(PlacementState::Draining), ..Filter::default() };
    let draining = machines.fleet.placements(filter.clone(), None, 10).await.unwrap().placements;
    assert_eq!(draining.iter().map(|copy| copy.chunk).collect::<Vec<_>>(), [gone, gone]);
    for copy in draining {
        machines.say(gone, &copy.server, CopyReport::Gone).await.unwrap();
    }
    machines.reopen().await;
    assert!(machines.fleet.placements(filter, None, 10).await.unwrap().placements.is_empty());
    assert!(machines.fleet.copies_of(gone).await.is_err() && machines.fleet.forget_chunk(gone).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_has_presented_its_token_must_present_it_with_its_copies() {
    let machines = Machines::filled(2).await;
    let (_, chunk) = machines.homes().await.into_keys().next().unwrap();
    let say = |token| machines.fleet.report_copy(chunk, "b0".into(), (CopyReport::Ready, None), token);
    let missing = say(None).await;
    assert!(matches!(missing, Err(Refusal::Fleet(fleet::Refusal::TokenMissing(_)))), "{missing:?}");
    let foreign = say(machines.tokens.get("a0").copied()).await;
    assert!(matches!(foreign, Err(Refusal::Fleet(fleet::Refusal::AnothersToken(_)))), "{foreign:?}");
    assert_eq!(machines.say(chunk, "b0", CopyReport::Ready).await, Ok(Some(PlacementState::Ready)));
}

/// The restart comes after this many steps of the tasks that give back, announce, place and note.
#[tokio::test(start_paused = true)]
async fn an_index_that_no_server_can_fetch_is_rebuilt_once_across_owners() {
    for steps in 0..30 {
        let mut machines = Machines::new(3).await;
        machines.beat("a0").await;
        let ids = machines.crawl(0..3).await;
        for _ in &ids {
            machines.build().await;
        }
        machines.pass(5_000, &["a0"]).await;
        for id in &ids {
            for _ in 0..3 {
                machines.say(*id, "a0", CopyReport::Gone).await.unwrap();
            }
        }
        for _ in 0..3 {
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            machines.reopen().await;
        }
        machines.pass(5_000, &["a0"]).await;
        for id in &ids {
            let view = machines.pipeline().chunk(*id).await.unwrap();
            assert_eq!(
                (view.state, view.attempts, view.build_artifact),
                (ChunkState::Crawled, 1, None),
                "{steps} steps"
            );
            let error = view.last_error.unwrap();
            assert!(
                error.contains("its index was given up: index servers could not fetch it in 3 attempts"),
                "{error}"
            );
            // The same artifact as before, as a builder may make it.
            machines.build().await;
        }
        machines.reopen().await;
        machines.pass(5_000, &["a0"]).await;
        assert_eq!(machines.work(&["a0"]).await, 3);
        assert_eq!(machines.work(&["a0"]).await, 0);
        for id in &ids {
            assert_eq!(machines.pipeline().chunk(*id).await.unwrap().state, ChunkState::Built);
        }
        assert_eq!(machines.map().await.missing_count, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_index_that_is_lost_again_and_again_is_set_aside() {
    let mut machines = Machines::new(2).await;
    machines.beat("a0").await;
    let id = machines.crawl(0..1).await[0];
    for lost in 1..=5 {
        machines.build().await;
        machines.pass(5_000, &["a0"]).await;
        for _ in 0..3 {
            machines.say(id, "a0", CopyReport::Gone).await.unwrap();
        }
        machines.pass(5_000, &["a0"]).await;
        let state = machines.pipeline().chunk(id).await.unwrap().state;
        assert_eq!(state, if lost == 5 { ChunkState::SetAside } else { ChunkState::Crawled }, "lost {lost} times");
    }
    assert_eq!(machines.pipeline().decide(id, OperatorAction::Retry).await, Ok(ChunkState::Crawled));
    machines.build().await;
    machines.pass(5_000, &["a0"]).await;
    assert_eq!(machines.work(&["a0"]).await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_operator_has_a_built_chunk_built_anew_also_if_placement_forgot_it() {
    for forgotten in [false, true] {
        let mut machines = Machines::filled(2).await;
        let (_, id) = machines.homes().await.into_keys().next().unwrap();
        if forgotten {
            machines.fleet.forget_chunk(id).await.unwrap();
        }
        let pipeline = machines.pipeline();
        assert_eq!(pipeline.decide(id, OperatorAction::Retry).await, Ok(ChunkState::Crawled));
        machines.reopen().await;
        machines.pass(5_000, &SERVERS).await;
        assert_eq!(machines.homes().await.len(), 2, "its copies are not served any more");
        assert_eq!(machines.work(&SERVERS).await, 2, "and deleted");
        assert_eq!(machines.build().await, id);
        machines.pass(5_000, &SERVERS).await;
        assert_eq!(machines.work(&SERVERS).await, 2);
        assert_eq!(machines.homes().await.len(), 4);
    }
}
