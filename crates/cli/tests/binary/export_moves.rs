//! Moves of a pipeline between kinds of stores, imports that are killed in the middle, and workers that claim during one.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Child, ChildStdin, Stdio};

use serde_json::{Value, json};
use wayleave_api::chunks::Stage;
use wayleave_testbed::Cluster;

use crate::export_pipeline::{Fleet, crawl_all, filled_and_exported, finish, ids};
use crate::support::{Server, folder, wayleave};

fn number(id: &str) -> u64 {
    id.parse::<u64>().unwrap() & ((1 << 48) - 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_moves_to_postgresql_and_back() {
    let ((keep, data), (_keep_other, other)) = (folder(), folder());
    let [out, back] = ["out.jsonl.gz", "back.jsonl.gz"].map(|name| keep.path().join(name));
    let from = Server::start(&data);
    let source = filled_and_exported(&from, &out).await;

    let engine = Cluster::shared().await.fresh_database().await;
    let makers = keep.path().join("makers");
    let serve = ["serve", "--insecure", "--listen", "127.0.0.1:0", "--shards", "4", "--engine", &engine];
    let database = Server::spawn(wayleave(&[&serve[..], &["--makers", makers.to_str().unwrap()]].concat()));
    database.run(&["import", out.to_str().unwrap()]).ok();
    let between = Fleet::of(&database);
    assert_eq!(between.chunks(), source.chunks());
    assert_eq!(between.machines(), source.machines());
    assert_eq!(between.copies(), source.copies());
    let again = database.run(&["import", "--json", out.to_str().unwrap()]).json().remove(0);
    assert_eq!((&again["chunks"], &again["chunks_known"], &again["rejected"]), (&json!(0), &json!(10), &json!(0)));
    database.run(&["export", "--partial", back.to_str().unwrap()]).ok();

    let to = Server::start(&other);
    to.run(&["import", back.to_str().unwrap()]).ok();
    let mut target = Fleet::of(&to);
    assert_eq!(target.chunks(), source.chunks());
    assert_eq!(target.machines(), source.machines());
    assert_eq!(target.copies(), source.copies());
    target.beat_servers().await;
    finish(&target, &source).await;
}

/// An import that waits for the rest of its file.
struct Import {
    child: Child,
    input: ChildStdin,
}

impl Import {
    fn begin(server: &Server, lines: &[String]) -> Self {
        let mut command = wayleave(&["import", "-"]);
        command.env("WAYLEAVE_SERVER", &server.url).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(lines.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes()).unwrap();
        Self { child, input }
    }

    fn kill(mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "it waits for the rest");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        drop(self.input);
    }
}

/// Killed while it restores machines, while it stores URLs, and between two calls for chunks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_is_killed_is_repeated_and_nothing_is_lost_or_twice() {
    const MORE: usize = 250;
    let ((keep, data), (_keep_other, other)) = (folder(), folder());
    let file = keep.path().join("all.jsonl");
    let from = Server::start(&data);
    let source = filled_and_exported(&from, &file).await;
    let whole = std::fs::read_to_string(&file).unwrap();
    let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    let end = lines.pop().unwrap();
    let parsed = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let crawled = parsed.into_iter().find(|line| line["chunk"]["state"] == "crawled").unwrap();
    for n in 0..MORE {
        let mut more = crawled.clone();
        more["chunk"]["id"] = (10_000 + n).to_string().into();
        lines.push(more.to_string());
    }
    lines.push(end);
    let first = |start: &str| lines.iter().position(|line| line.starts_with(start)).unwrap();

    let to = Server::start(&other);
    let target = Fleet::of(&to);
    let import = Import::begin(&to, &lines[..first("{\"url\"")]);
    while target.machines().len() < 4 {
        tokio::task::yield_now().await;
    }
    import.kill();
    assert!(target.chunks().is_empty());
    let import = Import::begin(&to, &lines[..first("{\"url\"") + 6]);
    import.kill();
    let import = Import::begin(&to, &lines[..first("{\"chunk\":") + 10 + 150]);
    while target.chunks().len() < 100 {
        tokio::task::yield_now().await;
    }
    import.kill();
    let some = target.chunks().len() as u64;
    assert!((100..260).contains(&some), "{some}");

    std::fs::write(&file, lines.join("\n")).unwrap();
    let imported = to.run(&["import", "--json", file.to_str().unwrap()]).json().remove(0);
    assert_eq!(imported["rejected"], 0, "{imported}");
    assert_eq!((&imported["chunks"], &imported["chunks_known"]), (&json!(260 - some), &json!(some)));
    let known = ids(&source.chunks());
    let ours: Vec<Value> =
        target.chunks().into_iter().filter(|chunk| ids(std::slice::from_ref(chunk)).is_subset(&known)).collect();
    assert_eq!(ours, source.chunks());
    assert_eq!(target.machines(), source.machines());
    assert_eq!(target.copies(), source.copies());
    assert_eq!(crawl_all(&target, &known).await.len(), 2);
}

/// A regression: numbers were raised call by call, so a worker that claimed before the chunks were sent got the number of one
/// of them, which was refused then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_claim_during_an_import_take_no_number_of_the_file() {
    let ((keep, data), (_keep_other, other)) = (folder(), folder());
    let file = keep.path().join("all.jsonl");
    let from = Server::start(&data);
    let source = filled_and_exported(&from, &file).await;
    let whole = std::fs::read_to_string(&file).unwrap();
    let greatest = ids(&source.chunks()).iter().map(|id| number(id)).max().unwrap();
    // As far as the first chunk; then workers come.
    let part: String =
        whole.lines().take_while(|line| !line.starts_with("{\"chunk\":")).map(|line| format!("{line}\n")).collect();
    let to = Server::start(&other);
    assert!(to.run_with(&["import", "-"], &part).err.contains("truncated"));
    let target = Fleet::of(&to);
    let mut early = BTreeSet::new();
    while let Some(chunk) = target.claim(Stage::Crawl).await {
        assert!(number(&chunk.id) > greatest, "{} may be in the file", chunk.id);
        early.insert(chunk.id);
    }
    assert!(early.len() >= 4, "in several shards: {early:?}");
    let imported = to.run(&["import", "--json", file.to_str().unwrap()]).json().remove(0);
    assert_eq!((&imported["chunks"], &imported["rejected"]), (&json!(10), &json!(0)), "{imported}");
    assert!(ids(&target.chunks()).is_superset(&ids(&source.chunks())));
}
