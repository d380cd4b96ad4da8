//! Machines, placements and the map through the real binary: what operators see and do, and a server that dies in between.

use crate::prelude::*;

const SUM: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// A call as a machine makes it: from loopback, with a body. Returns the answer of a 200.
fn call(server: &Server, method: &str, path: &str, body: &Value) -> Value {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let body = body.to_string();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let rest = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(format!("{head}{rest}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn register(server: &Server, id: &str, address: &str, row: u8) -> Value {
    let body = json!({"type": "server", "address": address, "row": row, "state": "online"});
    call(server, "PUT", &format!("/v1/fleet/{id}"), &body)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Crawls and builds a chunk of one page.
fn build(server: &Server, page: &str) -> String {
    server.run(&["put", page]).ok();
    let claim =
        |stage: &str| server.run(&["chunks", "claim", "--stage", stage, "--wait", "10s", "--json"]).json().remove(0);
    let complete = |chunk: &Value, location: &str| {
        let (id, token) = (text(&chunk["id"]), text(&chunk["token"]));
        let artifact = ["--location", location, "--bytes", "7000", "--checksum", SUM];
        server.run(&[&["chunks", "complete", id, "--token", token], &artifact[..]].concat()).ok();
    };
    let chunk = claim("crawl");
    let (id, token) = (text(&chunk["id"]), text(&chunk["token"]));
    server.run(&["chunks", "report", id, "--token", token, "--fetched", page]).ok();
    complete(&chunk, "s3://crawl/1");
    complete(&claim("build"), "s3://index/1");
    id.to_owned()
}

/// The copies, once there are so many.
fn placements(server: &Server, count: usize) -> Vec<Value> {
    loop {
        let copies = server.run(&["placements", "--json"]).json();
        if copies.len() == count {
            return copies;
        }
    }
}

#[test]
fn operators_see_drain_and_remove_machines_and_follow_the_map_although_the_server_dies() {
    let (_keep, data) = folder();
    let mut server = Server::start(&data);
    assert_eq!(server.run(&["fleet"]).ok().lines().count(), 1, "only the head");
    assert_eq!(server.run(&["placements"]).ok().lines().count(), 1, "only the head");
    let token = text(&register(&server, "index-1", "127.0.0.1:9", 0)["token"]).to_owned();
    register(&server, "index-2", "127.0.0.1:9", 1);
    let chunk = build(&server, "http://a.example/1");
    placements(&server, 2);

    let list = server.run(&["fleet", "--type", "server", "--judged", "healthy"]).ok();
    let line = list.lines().nth(1).unwrap();
    for part in ["index-1", "server", "127.0.0.1:9", "online", "healthy", "suspect if silent for"] {
        assert!(line.contains(part), "{part}\n{list}");
    }
    let all = [server.run(&["fleet", "--json"]).ok(), server.run(&["fleet", "show", "index-1", "--json"]).ok(), list];
    assert!(all.iter().all(|text| !text.contains(&token)), "a listing tells a token");
    assert_eq!(server.run(&["fleet", "--judged", "failed"]).ok().lines().count(), 1);

    let list = server.run(&["placements", "--row", "0", "--state", "assigned"]).ok();
    let line = list.lines().nth(1).unwrap();
    assert!(line.starts_with(&chunk) && line.contains("index-1") && line.contains("6.8 KiB"), "{list}");
    assert!(line.contains("the server has not begun to fetch it"), "{list}");
    let ready = |server: &Server, id: &str| {
        call(server, "POST", &format!("/v1/placements/{chunk}/{id}"), &json!({"state": "ready"}))
    };
    ready(&server, "index-1");
    server.kill();
    server = Server::start(&data);
    let map = server.run(&["map"]).ok();
    for part in ["1 copy missing", "serves 1 of 1 built chunks", "serves 0 of 1 built chunks", "MISSING CHUNK"] {
        assert!(map.contains(part), "{part}\n{map}");
    }
    ready(&server, "index-2");
    let map = server.run(&["map", "--json"]).json().remove(0);
    assert_eq!((&map["missing"], &map["rows"][1]["servers"][0]["chunks"]), (&json!([]), &json!([chunk])));
    let shown = server.run(&["chunks", "show", &chunk]).ok();
    assert!(shown.contains("copy on index-2") && shown.contains("row 1, ready: the server has it"), "{shown}");

    let early = server.run(&["fleet", "remove", "index-1"]);
    assert_eq!(early.code, 4);
    assert!(early.err.contains("drain it first"), "{}", early.err);
    let drained = server.run(&["fleet", "set", "index-1", "--desired", "drain"]);
    assert!(drained.out.contains("desired") && drained.err.contains("wayleave placements --on index-1"), "{drained:?}");
    server.kill();
    server = Server::start(&data);
    assert!(server.run(&["fleet", "show", "index-1"]).ok().contains("drain"), "the wish is durable");
    server.run(&["fleet", "remove", "index-1"]).ok();
    assert_eq!(server.run(&["fleet", "show", "index-1"]).code, 3);
    assert_eq!(placements(&server, 1)[0]["server"], "index-2");
}

#[test]
fn a_watcher_of_the_map_sees_every_change_and_a_wait_in_vain_has_a_code() {
    let (_keep, server) = Server::fresh();
    let mut command = wayleave(&["map", "--watch", "--json", "--server", &server.url]);
    let mut watcher = command.spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let first = next();
    assert_eq!(first["rows"], json!([]));
    register(&server, "index-1", "127.0.0.1:9", 5);
    let second = next();
    assert_eq!(second["rows"][0]["row"], 5);
    watcher.kill().unwrap();
    watcher.wait().unwrap();
    let (old, new) = (first["version"].to_string(), second["version"].to_string());
    assert_eq!(server.run(&["map", "--since", &old, "--wait", "1m", "--json"]).json()[0]["version"], second["version"]);
    let none = server.run(&["map", "--since", &new]);
    assert_eq!((none.code, none.err.contains("still has version")), (3, true), "{none:?}");
}

#[test]
fn the_reason_says_why_a_machine_is_not_probed() {
    let (_keep, data) = folder();
    let server = Server::start_with(&data, &["--allow-net", "10.0.0.0/8"]);
    register(&server, "metadata", "169.254.169.254:80", 0);
    register(&server, "elsewhere", "192.168.77.7:80", 0);
    for (id, why) in [
        ("metadata", "169.254.169.254 may not be called (an address of metadata services): --allow-net"),
        ("elsewhere", "192.168.77.7 may not be called (not the address that its reports come from): --allow-net"),
    ] {
        let told = loop {
            let machine = server.run(&["fleet", "show", id, "--json"]).json().remove(0);
            if text(&machine["reason"]).contains("not probed") || machine["judged"] != "healthy" {
                break machine;
            }
        };
        assert!(text(&told["reason"]).contains(why), "{told}");
    }
}

#[test]
fn who_errs_is_helped() {
    let (_keep, server) = Server::fresh();
    register(&server, "index-1", "127.0.0.1:9", 0);
    for (args, code, hint) in [
        (&["fleet", "show", "index-9"][..], 3, "machine 'index-9' is not known"),
        (&["fleet", "set", "index-9", "--desired", "drain"], 3, "machine 'index-9' is not known"),
        (&["fleet", "remove", "index-9"], 3, "machine 'index-9' is not known"),
        (&["fleet", "set", "index-1"], 2, "--desired"),
        (&["fleet", "set", "index-1", "--desired", "off"], 2, "online, paused, drain"),
        (&["fleet", "--type", "indexer"], 2, "crawler, builder, server"),
        (&["fleet", "--judged", "dead"], 2, "probation"),
        (&["placements", "--on", "index-9"], 3, "server 'index-9' is not known"),
        (&["placements", "--row", "64"], 2, "must be a whole number between 0 and 63, not '64'"),
        (&["placements", "--state", "gone"], 2, "draining"),
        (&["map", "--wait", "1s"], 2, "--since"),
    ] {
        let ended = server.run(args);
        assert!(ended.err.contains(hint), "{args:?}: {}", ended.err);
        assert_eq!(ended.code, code, "{args:?}: {}", ended.err);
    }
}
