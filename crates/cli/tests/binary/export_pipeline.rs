//! Export and import of the pipeline and the fleet: chunks in every stage, machines, copies, the map.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use wayleave_api::Code;
use wayleave_api::carry::{ExportChunksQuery, ImportChunksRequest};
use wayleave_api::chunks::{
    Artifact, ClaimChunksRequest, ClaimedChunk, CompleteChunkRequest, FailChunkRequest, ReportLinksRequest, Stage,
};
use wayleave_api::fleet::{MachineType, ReportMachineRequest};
use wayleave_api::map::GetMapQuery;
use wayleave_api::placements::SaidOfCopy;
use wayleave_api::reservations::{Outcome, UrlResult};
use wayleave_client::Client;

use crate::support::{Server, folder, wayleave};

const SERVERS: [(&str, u64); 3] = [("i0", 0), ("i1", 0), ("j0", 1)];

fn artifact(name: &str) -> Artifact {
    let checksum = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".to_owned();
    Artifact { location: format!("https://user:hush@store.example/{name}"), bytes: 7, checksum }
}

/// A server, a client of it, and the tokens of its machines.
pub struct Fleet<'a> {
    pub server: &'a Server,
    pub client: Client,
    tokens: BTreeMap<String, String>,
}

impl<'a> Fleet<'a> {
    pub fn of(server: &'a Server) -> Self {
        Self { server, client: Client::new(&server.url).unwrap(), tokens: BTreeMap::new() }
    }

    pub async fn claim(&self, stage: Stage) -> Option<ClaimedChunk> {
        let claim =
            ClaimChunksRequest { links: 1, max: Some(1), lease_ms: 3_600_000, ..ClaimChunksRequest::new(stage, "w") };
        self.client.claim_chunks(&claim).await.unwrap().chunks.pop()
    }

    async fn fetch(&self, chunk: &ClaimedChunk) {
        let fetched = |url: &str| UrlResult::new(url, Outcome::Fetched);
        let results = chunk.links.iter().map(|link| fetched(&link.url)).collect();
        let report = ReportLinksRequest { token: chunk.token.clone(), results, replace: false };
        self.client.report_links(&chunk.id, &report).await.unwrap();
    }

    async fn complete(&self, chunk: &ClaimedChunk, name: &str) {
        let (token, artifact) = (chunk.token.clone(), Some(artifact(name)));
        self.client.complete_chunk(&chunk.id, &CompleteChunkRequest { token, artifact }).await.unwrap();
    }

    async fn fail(&self, chunk: &ClaimedChunk) {
        let (token, reason) = (chunk.token.clone(), "the disk is full".to_owned());
        self.client.fail_chunk(&chunk.id, &FailChunkRequest { token, reason, input_lost: false }).await.unwrap();
    }

    async fn beat(&mut self, id: &str, kind: MachineType, row: Option<u64>) -> String {
        let report = ReportMachineRequest {
            row,
            token: self.tokens.get(id).cloned(),
            version: Some("1.2.3".to_owned()),
            ..ReportMachineRequest::new(kind, "127.0.0.1:9")
        };
        let answer = self.client.report_machine(id, &report, Duration::from_secs(5)).await.unwrap();
        self.tokens.insert(id.to_owned(), answer.token);
        serde_json::to_value(answer.judged).unwrap().as_str().unwrap().to_owned()
    }

    pub async fn beat_servers(&mut self) -> BTreeSet<String> {
        let mut judged = BTreeSet::new();
        for (id, row) in SERVERS {
            judged.insert(self.beat(id, MachineType::Server, Some(row)).await);
        }
        judged
    }

    /// Each server says that it has what it should have, until nothing is left to say.
    async fn work(&self) {
        loop {
            let copies = self.copies();
            let mut said = 0;
            for copy in copies.iter().filter(|copy| copy["state"] != "ready") {
                let text = |name: &str| copy[name].as_str().unwrap().to_owned();
                let token = self.tokens.get(&text("server")).map(String::as_str);
                let what = if copy["state"] == "draining" { SaidOfCopy::Gone } else { SaidOfCopy::Ready };
                self.client.report_placement(&text("chunk"), &text("server"), (what, None), token).await.unwrap();
                said += 1;
            }
            if said == 0 {
                return;
            }
        }
    }

    async fn version(&self) -> u64 {
        self.client.map(&GetMapQuery::default()).await.unwrap().unwrap().version
    }

    fn list(&self, what: &str, fields: &[&str]) -> Vec<Value> {
        let args = if what == "fleet" { vec![what, "--json"] } else { vec![what, "--all", "--json"] };
        let rows = self.server.run(&args).json();
        let keep = |row: &Value| fields.iter().map(|name| ((*name).to_owned(), row[name].clone())).collect::<Value>();
        rows.iter().map(keep).collect()
    }

    /// Chunks as a move must keep them. One that an index builder works on is offered to index builders again.
    pub fn chunks(&self) -> Vec<Value> {
        let fields = ["id", "crawl", "stage", "state", "attempts", "created_at", "links", "artifacts", "last_error"];
        let mut chunks = self.list("chunks", &fields);
        for chunk in &mut chunks {
            if chunk["state"] == "building" {
                chunk["state"] = "crawled".into();
            }
            if chunk["state"] == "crawling" {
                let open = ["crawling", "crawled"].iter().map(|name| chunk["links"][name].as_u64().unwrap());
                chunk["links"] = json!({"open": open.sum::<u64>()});
            }
        }
        chunks.sort_by_key(|chunk| chunk["id"].to_string());
        chunks
    }

    pub fn machines(&self) -> Vec<Value> {
        let fields = ["id", "type", "address", "capacity", "row", "version", "desired", "state"];
        self.list("fleet", &fields)
    }

    pub fn copies(&self) -> Vec<Value> {
        self.list("placements", &["chunk", "server", "row", "state", "artifact"])
    }

    fn states(&self) -> BTreeMap<String, usize> {
        let mut states = BTreeMap::new();
        for chunk in self.list("chunks", &["state"]) {
            *states.entry(chunk["state"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        states
    }
}

/// A server with everything that [`fill`] makes, and an export of it.
pub async fn filled_and_exported<'a>(server: &'a Server, file: &Path) -> Fleet<'a> {
    let mut fleet = Fleet::of(server);
    fill(&mut fleet).await;
    server.run(&["export", "--partial", file.to_str().unwrap()]).ok();
    fleet
}

/// Chunks in every stage, each of one link; two rows of index servers; a crawler that the operator has paused. Returns the
/// chunks that someone holds.
pub async fn fill(fleet: &mut Fleet<'_>) -> Vec<ClaimedChunk> {
    fleet.server.run(&["crawls", "set", "news", "--delay", "0"]).ok();
    let urls: Vec<String> = (0..12).map(|n| format!("http://user:hush@h{n}.example/{n}")).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    fleet.server.run(&[&["put", "--crawl", "news"], &urls[..]].concat()).ok();
    fleet.beat("crawler", MachineType::Crawler, None).await;
    fleet.server.run(&["fleet", "set", "crawler", "--desired", "paused"]).ok();
    assert_eq!(fleet.beat_servers().await.len(), 1);
    let mut set_aside = BTreeSet::new();
    for _ in 0..5 {
        let chunk = fleet.claim(Stage::Crawl).await.unwrap();
        fleet.fail(&chunk).await;
        set_aside.insert(chunk.id);
    }
    assert_eq!(set_aside.len(), 1, "one chunk is offered again and again");
    for name in ["1", "2", "3"] {
        let chunk = fleet.claim(Stage::Crawl).await.unwrap();
        fleet.fetch(&chunk).await;
        fleet.complete(&chunk, &format!("{name}.warc.gz")).await;
        let chunk = fleet.claim(Stage::Build).await.unwrap();
        fleet.complete(&chunk, &format!("{name}.index")).await;
    }
    while fleet.copies().len() < 6 {
        tokio::task::yield_now().await;
    }
    fleet.work().await;
    // This one is placed, and is not there yet.
    let chunk = fleet.claim(Stage::Crawl).await.unwrap();
    fleet.fetch(&chunk).await;
    fleet.complete(&chunk, "4.warc.gz").await;
    let building = fleet.claim(Stage::Build).await.unwrap();
    let chunk = fleet.claim(Stage::Crawl).await.unwrap();
    fleet.fetch(&chunk).await;
    fleet.complete(&chunk, "5.warc.gz").await;
    let skipped = fleet.claim(Stage::Crawl).await.unwrap();
    fleet.server.run(&["chunks", "skip", &skipped.id]).ok();
    let crawling = fleet.claim(Stage::Crawl).await.unwrap();
    let reported = fleet.claim(Stage::Crawl).await.unwrap();
    fleet.fetch(&reported).await;
    let failed = fleet.claim(Stage::Crawl).await.unwrap();
    fleet.fail(&failed).await;
    let states = [("built", 3), ("building", 1), ("crawled", 1), ("crawling", 3), ("set_aside", 1), ("skipped", 1)];
    assert_eq!(fleet.states(), states.map(|(state, count)| (state.to_owned(), count)).into());
    vec![building, crawling, reported]
}

/// Every URL that is not finished is handed out once, and no chunk has a number of the other store. Returns the new chunks.
pub async fn crawl_all(fleet: &Fleet<'_>, known: &BTreeSet<String>) -> Vec<String> {
    let (mut urls, mut fresh) = (BTreeSet::new(), Vec::new());
    while let Some(chunk) = fleet.claim(Stage::Crawl).await {
        for link in &chunk.links {
            assert!(urls.insert(link.url.clone()), "{} was handed out twice", link.url);
        }
        fleet.fetch(&chunk).await;
        fleet.complete(&chunk, &format!("{}.warc.gz", chunk.id)).await;
        if !known.contains(&chunk.id) {
            fresh.push(chunk.id);
        }
    }
    assert_eq!(urls.len(), 5, "three of chunks that are offered again, and two that wait: {urls:?}");
    fresh
}

pub fn ids(chunks: &[Value]) -> BTreeSet<String> {
    chunks.iter().map(|chunk| chunk["id"].as_str().unwrap().to_owned()).collect()
}

/// Cut short at several places and followed by a `kill -9` each time, then whole, then again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_and_its_fleet_go_on_in_another_store() {
    let ((keep, data), (_keep_other, other)) = (folder(), folder());
    let file = keep.path().join("all.jsonl");
    let from = Server::start(&data);
    let mut source = Fleet::of(&from);
    let held = fill(&mut source).await;
    // The leases of workers cannot be carried: the user must know.
    let refused = from.run(&["export", file.to_str().unwrap()]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("the leases of 3 chunks, to be offered again"), "{}", refused.err);
    assert!(!refused.err.contains("reservations and holds"), "chunks take their URLs along: {}", refused.err);
    let exported = from.run(&["export", "--partial", file.to_str().unwrap()]);
    assert!(exported.err.contains("10 chunks, 4 machines"), "{}", exported.err);
    let whole = std::fs::read_to_string(&file).unwrap();
    assert!(whole.contains("\"format\":4") && !whole.contains(&held[1].token), "no token is in the file");

    let lines: Vec<&str> = whole.lines().collect();
    let mut to = Server::start(&other);
    let first_chunk = lines.iter().position(|line| line.starts_with("{\"chunk\":")).unwrap();
    for cut in [first_chunk - 3, first_chunk + 1, first_chunk + 5, lines.len() - 1] {
        let part: String = lines[..cut].iter().map(|line| format!("{line}\n")).collect();
        let imported = to.run_with(&["import", "-"], &part);
        assert_eq!(imported.code, 1, "{}{}", imported.out, imported.err);
        assert!(imported.err.contains("truncated"), "{}", imported.err);
        to.kill();
        to = Server::start(&other);
    }
    let imported = to.run(&["import", "--json", file.to_str().unwrap()]).json().remove(0);
    assert_eq!(
        (&imported["chunks"], &imported["chunks_known"], &imported["rejected"]),
        (&json!(0), &json!(10), &json!(0))
    );
    let mut target = Fleet::of(&to);
    assert_eq!(target.chunks(), source.chunks());
    assert_eq!(target.machines(), source.machines());
    assert_eq!(target.copies(), source.copies());
    for machine in to.run(&["fleet", "--json"]).json() {
        let reason = machine["reason"].as_str().unwrap();
        assert!(machine["judged"] == "suspect" && reason.contains("has not reported here yet"), "{machine}");
    }
    assert!(target.version().await > source.version().await, "the map does not go back");
    // Tokens have not survived.
    for chunk in &held {
        let ended = to.run(&["chunks", "fail", &chunk.id, "--token", &chunk.token, "--reason", "late"]);
        assert_eq!(ended.code, 4, "{}", ended.err);
    }
    // The machines come with what they know: one has its old token, the others have none.
    target.tokens.insert("i0".to_owned(), source.tokens["i0"].clone());
    let report = ReportMachineRequest {
        token: target.tokens.remove("i0"),
        ..ReportMachineRequest::new(MachineType::Server, "127.0.0.1:9")
    };
    let foreign = target.client.report_machine("i0", &report, Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(foreign.code(), Some(Code::NotCurrent), "a worker then reports without it: {foreign}");
    assert_eq!(target.beat_servers().await, BTreeSet::from(["healthy".to_owned()]));
    assert_eq!(target.copies(), source.copies(), "nothing moves");
    finish(&target, &source).await;
}

/// The other store goes on to the end: what is left is crawled, built and served, with new ids for what is new.
pub async fn finish(target: &Fleet<'_>, source: &Fleet<'_>) {
    let known = ids(&source.chunks());
    let fresh = crawl_all(target, &known).await;
    assert_eq!(fresh.len(), 2);
    while let Some(chunk) = target.claim(Stage::Build).await {
        assert!(chunk.inputs[0].artifact.location.ends_with(".warc.gz"));
        target.complete(&chunk, &format!("{}.index", chunk.id)).await;
    }
    let states = [("built", 10), ("set_aside", 1), ("skipped", 1)];
    assert_eq!(target.states(), states.map(|(state, count)| (state.to_owned(), count)).into());
    while target.copies().len() < 20 {
        tokio::task::yield_now().await;
    }
    target.work().await;
    let map = target.client.map(&GetMapQuery::default()).await.unwrap().unwrap();
    assert_eq!((map.missing_count, map.rows.len()), (0, 2), "{map:?}");
}

/// A regression: a file calls URLs fetched whose chunks went back to the crawl stage after they were read. The first import
/// gives them to their chunks; the second one completed them there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_import_takes_no_link_away_from_its_chunk() {
    let ((keep, data), (_keep_other, other)) = (folder(), folder());
    let file = keep.path().join("all.jsonl");
    let from = Server::start(&data);
    let source = filled_and_exported(&from, &file).await;
    let whole = std::fs::read_to_string(&file).unwrap();
    let mut lines: Vec<Value> = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let crawling = lines.iter().filter(|line| line["chunk"]["state"] == "crawling");
    let links: BTreeSet<String> = crawling
        .flat_map(|line| line["chunk"]["links"].as_array().unwrap().clone())
        .map(|link| link["url"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(links.len(), 3);
    for line in &mut lines {
        if line["url"]["url"].as_str().is_some_and(|url| links.contains(url)) {
            line["url"]["state"] = "fetched".into();
        }
    }
    let text = |lines: &[Value]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let mut to = Server::start(&other);
    // An import that is killed in the middle of the chunks.
    let cut = lines.iter().position(|line| line["chunk"]["state"] == "crawling").unwrap() + 1;
    assert_eq!(to.run_with(&["import", "-"], &text(&lines[..cut])).code, 1);
    to.kill();
    to = Server::start(&other);
    for known in [false, true] {
        let imported = to.run_with(&["import", "--json", "-"], &text(&lines)).json().remove(0);
        assert_eq!((&imported["stored"], &imported["known"]), (&json!(0), &json!(12)), "{imported}");
        assert_eq!(imported["chunks"] == json!(0), known, "{imported}");
        assert_eq!(Fleet::of(&to).chunks(), source.chunks());
    }
    crawl_all(&Fleet::of(&to), &ids(&source.chunks())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_with_another_number_of_shards_keeps_every_chunk_and_every_url() {
    let (keep, data) = folder();
    let file = keep.path().join("all.jsonl.gz");
    let from = Server::start(&data);
    let source = filled_and_exported(&from, &file).await;
    for shards in ["1", "3", "9"] {
        let (_keep, other) = folder();
        let serve = ["serve", "--data", other.to_str().unwrap(), "--listen", "127.0.0.1:0", "--shards", shards];
        let to = Server::spawn(wayleave(&serve));
        to.run(&["import", file.to_str().unwrap()]).ok();
        let mut target = Fleet::of(&to);
        let (ours, theirs) = (target.chunks(), source.chunks());
        assert_eq!(ids(&ours), ids(&theirs));
        let mut skipped = 0;
        for (our, their) in ours.iter().zip(&theirs) {
            if our["state"] == "skipped" && their["state"] == "crawling" {
                let why = our["last_error"].as_str().unwrap();
                assert!(why.contains("none of its links could be taken over"), "{why}");
                skipped += 1;
            } else {
                assert_eq!(our, their);
            }
            let shown = to.run(&["chunks", "show", our["id"].as_str().unwrap(), "--json"]).json().remove(0);
            assert_eq!(shown["id"], our["id"]);
        }
        assert!(shards != "1" || skipped < 3, "all hosts are in one shard");
        assert_eq!(target.copies(), source.copies());
        target.beat_servers().await;
        let fresh = crawl_all(&target, &ids(&theirs)).await;
        assert_eq!(fresh.len(), 2 + skipped);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_lines_and_chunks_of_another_store_are_refused_by_line_and_change_nothing() {
    let ((keep, data), (_keep_other, other)) = (folder(), folder());
    let file = keep.path().join("all.jsonl");
    let from = Server::start(&data);
    _ = filled_and_exported(&from, &file).await;
    let whole = std::fs::read_to_string(&file).unwrap();
    let built = whole.lines().find(|line| line.contains("\"state\":\"built\"")).unwrap();
    let good: Value = serde_json::from_str(built).unwrap();
    let change = |name: &str, value: Value| {
        let mut line = good.clone();
        line["chunk"][name] = value;
        line.to_string()
    };
    let to = Server::start(&other);
    let lines = [
        change("build_artifact", Value::Null),
        change("id", "x".into()),
        change("id", u64::MAX.to_string().into()),
        change("id", ((1_u64 << 47) - 1).to_string().into()),
        change("crawl_artifact", json!({"location": "x", "bytes": 1, "checksum": "md5:1"})),
        change("strange", 1.into()),
        built.to_owned(),
    ];
    let imported = to.run_with(&["import", "-"], &lines.join("\n"));
    assert_eq!(imported.code, 6, "{}{}", imported.out, imported.err);
    for part in [
        "line 1: chunk",
        "it is built and has no artifact of its build stage; take the line as `wayleave export` wrote it",
        "line 2: ",
        "line 3: chunk '18446744073709551615' cannot be restored",
        "line 4: chunk '140737488355327' cannot be restored: its number 140737488355327 is",
        "line 5: ",
        "line 6: ",
    ] {
        assert!(imported.err.contains(part), "{part}\n{}", imported.err);
    }
    let target = Fleet::of(&to);
    assert_eq!(ids(&target.chunks()).len(), 1, "the others are not there, in no part");
    // A chunk of this store has the same id.
    let clash = change("created_at", "2020-01-01T00:00:00Z".into());
    let imported = from.run_with(&["import", "-"], &clash);
    assert_eq!(imported.code, 4, "{}", imported.err);
    assert!(imported.err.contains("import into a store without chunks"), "{}", imported.err);
    assert_eq!(target.chunks()[0]["created_at"], good["chunk"]["created_at"]);
}

/// A deletion that was cut short leaves chunks of a crawl that is not known any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crawl_that_is_gone_is_deleted_again_with_the_chunks_that_it_left() {
    let ((_keep, data), (_keep_other, other)) = (folder(), folder());
    let from = Server::start(&data);
    from.run(&["put", "http://a.example/1"]).ok();
    let source = Fleet::of(&from);
    let chunk = source.claim(Stage::Crawl).await.unwrap();
    source.fetch(&chunk).await;
    source.complete(&chunk, "a").await;
    let chunks = source.client.export_chunks(&ExportChunksQuery::default()).await.unwrap().chunks;
    let to = Server::start(&other);
    let target = Fleet::of(&to);
    target.client.import_chunks(&ImportChunksRequest { chunks }).await.unwrap();
    let state = || to.run(&["chunks", "show", &chunk.id, "--json"]).json().remove(0)["state"].clone();
    assert_eq!(state(), "crawled");
    let told = to.run(&["crawls", "delete", "DEFAULT", "--yes"]);
    assert_eq!(told.code, 3, "{}", told.err);
    assert!(told.err.contains("have ended") && told.err.contains("crawl 'DEFAULT' is not known"), "{}", told.err);
    assert_eq!(state(), "skipped");
}
