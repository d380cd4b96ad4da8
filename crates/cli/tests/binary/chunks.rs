//! Chunks through the real binary: what operators see and do, what scripts do, and a server that dies in between.

use crate::prelude::*;

const SUM: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn claim(server: &Server, stage: &str) -> Value {
    let claim = ["chunks", "claim", "--stage", stage, "--worker", "w1", "--lease", "1h", "--wait", "10s", "--json"];
    server.run(&claim).json().remove(0)
}

fn complete(server: &Server, chunk: &Value, name: &str) -> Value {
    let location = format!("s3://crawl/{name}");
    let (id, token) = (text(&chunk["id"]), text(&chunk["token"]));
    let artifact = ["--location", &location, "--bytes", "7", "--checksum", SUM];
    server.run(&[&["chunks", "complete", id, "--token", token], &artifact[..], &["--json"]].concat()).json().remove(0)
}

#[test]
fn a_chunk_goes_through_both_stages_although_the_server_dies_at_every_step() {
    let (_keep, data) = folder();
    let mut server = Server::start(&data);
    let restart = |server: Server| {
        server.kill();
        Server::start(&data)
    };
    server.run(&["put", "http://a.example/1"]).ok();
    let chunk = claim(&server, "crawl");
    server = restart(server);
    let (id, token, url) = (text(&chunk["id"]), text(&chunk["token"]), text(&chunk["links"][0]["url"]));
    let report = ["chunks", "report", id, "--token", token, "--fetched", url, "--json"];
    assert_eq!(server.run(&report).json()[0]["left"], 0);
    server = restart(server);
    assert_eq!(server.run(&report).json()[0]["left"], 0, "again, after its answer might have been lost");
    assert_eq!(complete(&server, &chunk, "1.warc.gz")["state"], "crawled");
    server = restart(server);
    assert_eq!(complete(&server, &chunk, "1.warc.gz")["state"], "crawled", "again");
    let build = claim(&server, "build");
    assert_eq!(build["inputs"][0]["artifact"]["location"], "s3://crawl/1.warc.gz");
    server = restart(server);
    assert_eq!(complete(&server, &build, "1.index")["state"], "built");
    server = restart(server);
    let shown = server.run(&["chunks", "show", id]).ok();
    for part in ["its index is built", "1 fetched", "s3://crawl/1.warc.gz (7 bytes, sha256:9f86", "s3://crawl/1.index"]
    {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    assert_eq!(server.run(&["urls", "lookup", "http://a.example/1", "--json"]).json()[0]["state"], "fetched");
    let deleted = server.run(&["crawls", "delete", "DEFAULT", "--yes"]);
    assert!(deleted.err.contains("1 built chunk of it can still be searched"), "{}", deleted.err);
    assert!(deleted.err.contains("`wayleave chunks skip ID`"), "{}", deleted.err);
}

#[test]
fn operators_list_show_skip_and_retry_and_are_helped_where_they_err() {
    let (keep, data) = folder();
    let store = keep.path().join("indexes");
    let store = store.to_str().unwrap();
    let server = Server::start(&data);
    assert_eq!(server.run(&["chunks"]).ok().lines().count(), 1, "only the head");
    let none = server.run(&["chunks", "claim"]);
    assert_eq!(none.code, 3);
    assert!(none.err.contains("there is no chunk to claim"), "{}", none.err);
    assert_eq!(server.run(&["chunks", "claim", "--crawl", "nwes"]).code, 3, "a crawl that is not known");
    server.run(&["put", "http://a.example/1", "--crawl", "news"]).ok();
    let chunk = claim(&server, "crawl");
    let id = text(&chunk["id"]);

    let list = server.run(&["chunks", "--state", "crawling", "--crawl", "news"]).ok();
    let line = list.lines().nth(1).unwrap();
    assert!(line.starts_with(id) && line.contains("1 open") && line.ends_with("'w1' is fetching its links"), "{list}");
    assert_eq!(server.run(&["chunks", "--state", "built"]).ok().lines().count(), 1);
    let listed = server.run(&["chunks", "list", "--stage", "crawl", "--json"]).json();
    assert_eq!((listed.len(), &listed[0]["id"], &listed[0]["worker"]), (1, &chunk["id"], &Value::from("w1")));
    assert!(server.run(&["chunks", "get", id]).ok().contains("'w1' is fetching its links"));

    let busy = server.run(&["chunks", "retry", id]);
    assert_eq!(busy.code, 4);
    assert!(busy.err.contains("wait for its lease to end"), "{}", busy.err);
    assert_eq!(server.run(&["chunks", "skip", id]).ok(), format!("chunk {id} is skipped\n"));
    let late = server.run(&["chunks", "fail", id, "--token", text(&chunk["token"]), "--reason", "late"]);
    assert_eq!(late.code, 4, "{}", late.err);
    assert_eq!(server.run(&["chunks", "retry", id]).ok(), format!("chunk {id} is crawling\n"));

    server.run(&["crawls", "delete", "news", "--yes"]).ok();
    let deleted = server.run(&["chunks", "--crawl", "news"]).ok();
    assert!(deleted.contains("its crawl was deleted"), "{deleted}");
    for (args, code, hint) in [
        (&["chunks", "retry", id][..], 4, "none of its URLs can be taken back"),
        (&["chunks", "--crawl", "nwes"], 3, "nwes"),
        (&["chunks", "--limit", "0"], 2, "must be a whole number from 1 on, not '0'"),
        (&["placements", "--row", "64"], 2, "must be a whole number between 0 and 63, not '64'"),
        (&["crawl", "--crawl", "nwes", "--single", "--until-idle"], 3, "crawl 'nwes' is not known"),
        (&["build", "--crawl", "nwes", "--store", store, "--until-idle"], 3, "crawl 'nwes' is not known"),
        (&["crawl", "--crawl", "nwes", "--single", "--once"], 3, "crawl 'nwes' does not exist: waiting"),
        (&["chunks", "show", "x"], 2, "`wayleave chunks` lists them"),
        (&["chunks", "show", "77"], 3, "chunk '77' is not known"),
        (&["chunks", "--state", "done"], 2, "set-aside"),
        (&["chunks", "complete", id, "--token", "x"], 2, "not a token"),
        (&["chunks", "complete", id, "--token", "x", "--location", "s3://a/1"], 2, "--checksum"),
    ] {
        let ended = server.run(args);
        assert!(ended.err.contains(hint), "{args:?}: {}", ended.err);
        assert_eq!(ended.code, code, "{args:?}: {}", ended.err);
    }
}
