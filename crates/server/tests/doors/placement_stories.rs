//! Built chunks on index servers over HTTP: placed, fetched, served, drained; and the map that readers wait for.

use crate::chunk_stories::{artifact, claim_one, crawl, door, path, state};
use crate::fleet_stories::server;
use crate::prelude::*;

/// Builds a chunk that is crawled, and waits until it is placed on a server. There must be one.
pub async fn build(door: &Door) -> String {
    let chunk = claim_one(door, "build").await;
    let done = json!({"token": chunk["token"], "artifact": artifact("1.index")});
    assert_eq!(door.post(&path(&chunk, "complete"), done).await.ok()["state"], "built");
    while state(door, &chunk).await["placements"].as_array().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    chunk["id"].as_str().unwrap().to_owned()
}

async fn placements(door: &Door, query: &str) -> Vec<Value> {
    door.get(&format!("/v1/placements{query}")).await.ok()["placements"].as_array().unwrap().clone()
}

async fn report(door: &Door, chunk: &str, server: &str, word: &str) -> Value {
    door.post(&format!("/v1/placements/{chunk}/{server}"), json!({"state": word})).await.ok()
}

/// Servers `i1` and `i2` in rows 0 and 1, and a chunk that is placed on both.
async fn placed() -> (Door, String) {
    let door = door(&["http://a.example/1"]).await;
    for (n, row) in [(1, 0), (2, 1)] {
        let mut body = server(n);
        body.as_object_mut().unwrap().insert("row".to_owned(), json!(row));
        door.put(&format!("/v1/fleet/i{n}"), body).await.ok();
    }
    crawl(&door).await;
    let chunk = build(&door).await;
    while placements(&door, "").await.len() < 2 {
        tokio::task::yield_now().await;
    }
    (door, chunk)
}

#[tokio::test]
async fn a_built_chunk_is_placed_in_every_row_fetched_served_and_told_with_the_chunk() {
    let (door, chunk) = placed().await;
    let all = placements(&door, "").await;
    assert_eq!(all.iter().map(|copy| &copy["server"]).collect::<Vec<_>>(), [&json!("i1"), &json!("i2")]);
    for (copy, row) in all.iter().zip([0, 1]) {
        assert_eq!((&copy["chunk"], &copy["row"], &copy["state"]), (&json!(chunk), &json!(row), &json!("assigned")));
        assert_eq!((&copy["artifact"], &copy["sources"]), (&artifact("1.index"), &json!([])));
        assert!(!copy["reason"].as_str().unwrap().is_empty());
    }
    let map = door.get("/v1/map").await.ok();
    assert_eq!((&map["missing_count"], &map["rows"][0]["complete"]), (&json!(2), &json!(0.0)), "{map}");
    assert_eq!(map["missing"][0], json!({"chunk": chunk, "row": 0, "also_in": []}));
    assert!(map["rows"][0]["reason"].as_str().unwrap().contains("serves 0 of 1"), "{map}");

    assert_eq!(report(&door, &chunk, "i1", "fetching").await["state"], "fetching");
    let told = report(&door, &chunk, "i1", "ready").await;
    let want = json!({"chunk": chunk, "server": "i1", "state": "ready", "reason": "the server has it"});
    assert_eq!(told, want);
    assert_eq!(report(&door, &chunk, "i1", "ready").await, want, "repeating it is harmless");
    let map = door.get("/v1/map").await.ok();
    assert_eq!(
        map["rows"][0]["servers"],
        json!([{"server": "i1", "address": "10.0.0.1:9000", "chunks": [chunk]}]),
        "current when the answer has arrived"
    );
    assert_eq!((&map["rows"][0]["serving"], &map["rows"][1]["serving"]), (&json!(true), &json!(false)));
    assert_eq!(map["missing"], json!([{"chunk": chunk, "row": 1, "also_in": [0]}]));
    assert_eq!(placements(&door, "?server=i2").await[0]["sources"], json!(["10.0.0.1:9000"]));
    assert_eq!(placements(&door, "?state=ready").await.len(), 1);
    assert_eq!(placements(&door, "?row=1&state=ready").await.len(), 0);
    report(&door, &chunk, "i2", "ready").await;

    let told = door.get(&format!("/v1/chunks/{chunk}")).await.ok();
    let copies = told["placements"].as_array().unwrap();
    assert_eq!(copies.iter().map(|copy| &copy["state"]).collect::<Vec<_>>(), ["ready", "ready"]);
    assert_eq!(*copies, placements(&door, "").await);
    assert!(door.get("/v1/chunks").await.ok()["chunks"][0].get("placements").is_none(), "absent in listings");

    let refused = door.delete("/v1/fleet/i1").await;
    assert_eq!(refused.problem(), (409, "has_placements".to_owned()));
    assert!(refused.text.contains("drain it first"), "{}", refused.text);
    door.patch("/v1/fleet/i1", json!({"desired": "drain"})).await.ok();
    assert_eq!(door.delete("/v1/fleet/i1").await.status, 204, "its row is being dismantled");
}

#[tokio::test]
async fn a_built_chunk_that_is_skipped_leaves_the_servers_and_the_map() {
    let (door, chunk) = placed().await;
    report(&door, &chunk, "i1", "ready").await;
    door.delete("/v1/crawls/news").await.ok();
    let shown = || async { door.get(&format!("/v1/chunks/{chunk}")).await.ok()["state"].clone() };
    assert_eq!(shown().await, "built", "a deleted crawl leaves what is built");
    let skip = format!("/v1/chunks/{chunk}/skip");
    for again in [false, true] {
        assert_eq!(door.post(&skip, Value::Null).await.ok()["state"], "skipped", "again: {again}");
    }
    assert_eq!(shown().await, "skipped");
    let map = door.get("/v1/map").await.ok();
    assert_eq!((&map["rows"][0]["servers"][0]["chunks"], &map["missing_count"]), (&json!([]), &json!(0)), "{map}");
    let left = placements(&door, "").await;
    assert!(left.iter().all(|copy| copy["state"] == "draining"), "the server deletes it: {left:?}");
}

#[tokio::test]
async fn a_page_of_placements_goes_on_where_the_last_one_ended() {
    let (door, chunk) = placed().await;
    let first = door.get("/v1/placements?limit=1").await.ok();
    assert_eq!(first["placements"][0]["server"], "i1");
    let next = first["next"].as_str().unwrap();
    let second = door.get(&format!("/v1/placements?limit=1&after={next}")).await.ok();
    assert_eq!((&second["placements"][0]["server"], &second["placements"][0]["chunk"]), (&json!("i2"), &json!(chunk)));
    let after = second["next"].as_str().map(|next| format!("/v1/placements?after={next}"));
    if let Some(after) = after {
        assert_eq!(door.get(&after).await.ok(), json!({"placements": [], "next": null}));
    }
}

#[tokio::test]
async fn what_a_server_may_not_say_of_a_copy_is_named_and_changes_nothing() {
    let (door, chunk) = placed().await;
    report(&door, &chunk, "i1", "ready").await;
    let (placed, map) = (placements(&door, "").await, door.get("/v1/map").await.ok());
    for (chunk, server, body, want, hint) in [
        (chunk.as_str(), "i9", json!({"state": "ready"}), (404, "unknown_machine"), "'i9' is not known"),
        ("77", "i1", json!({"state": "ready"}), (404, "unknown_chunk"), "chunk 77 is not known"),
        ("x", "i1", json!({"state": "ready"}), (400, "bad_chunk"), "'x' is not the id of a chunk"),
        (chunk.as_str(), "a%07", json!({"state": "ready"}), (400, "bad_machine"), "control"),
        (chunk.as_str(), "i1", json!({"state": "fetching"}), (409, "wrong_state"), "reported gone first"),
        (chunk.as_str(), "i1", json!({"state": "draining"}), (400, "bad_value"), "none of fetching, ready, gone"),
        (chunk.as_str(), "i1", json!({}), (400, "bad_value"), "state: is missing"),
    ] {
        let answer = door.post(&format!("/v1/placements/{chunk}/{server}"), body).await;
        assert_eq!(answer.problem(), (want.0, want.1.to_owned()), "{}", answer.text);
        assert!(answer.text.contains(hint), "{hint}: {}", answer.text);
    }
    for (query, want, hint) in [
        ("?server=i9", (404, "unknown_machine"), "'i9' is not known"),
        ("?row=64", (400, "bad_value"), "row: 64 is not between 0 and 63"),
        ("?row=-1", (400, "bad_query"), "between 0 and 63"),
        ("?state=gone", (400, "bad_query"), "none of assigned, fetching, ready, draining"),
        ("?after=nonsense", (400, "bad_cursor"), "start again without it"),
        ("?limit=1001", (400, "bad_value"), "between 1 and 1000"),
    ] {
        let answer = door.get(&format!("/v1/placements{query}")).await;
        assert_eq!(answer.problem(), (want.0, want.1.to_owned()), "{query}");
        assert!(answer.text.contains(hint), "{hint}: {}", answer.text);
    }
    for query in ["?since=x", "?since=-1", "?wait_ms=x"] {
        assert_eq!(door.get(&format!("/v1/map{query}")).await.problem(), (400, "bad_query".to_owned()), "{query}");
    }
    assert_eq!(door.get("/v1/map?since=1&wait_ms=60001").await.problem(), (400, "bad_value".to_owned()));
    assert_eq!((placements(&door, "").await, door.get("/v1/map").await.ok()), (placed, map));
}

#[tokio::test]
async fn credentials_in_the_location_of_an_artifact_are_shown_to_the_server_that_asks_for_them() {
    let door = door(&["http://a.example/1"]).await;
    door.put("/v1/fleet/i1", server(1)).await.ok();
    crawl(&door).await;
    let chunk = claim_one(&door, "build").await;
    let mut secret = artifact("x");
    secret["location"] = json!("https://user:hush@store.example/1.index");
    door.post(&path(&chunk, "complete"), json!({"token": chunk["token"], "artifact": secret})).await.ok();
    while placements(&door, "").await.is_empty() {
        tokio::task::yield_now().await;
    }
    let id = chunk["id"].as_str().unwrap();
    for path in ["/v1/placements".to_owned(), format!("/v1/chunks/{id}")] {
        let answer = door.get(&path).await;
        assert!(answer.text.contains("***@store.example") && !answer.text.contains("hush"), "{}", answer.text);
    }
    let whole = placements(&door, "?server=i1&credentials=true").await;
    assert_eq!(whole[0]["artifact"], secret);
}

#[tokio::test]
async fn readers_of_the_map_wait_for_a_change_and_a_bounded_number_may() {
    let door = Door::with(Config { held_bytes_max: 3 * 2 * WAIT_BYTES, ..Config::default() });
    door.put("/v1/fleet/i1", server(1)).await.ok();
    let version = door.get("/v1/map").await.ok()["version"].as_u64().unwrap();
    let unchanged = door.get(&format!("/v1/map?since={version}")).await;
    assert_eq!((unchanged.status.as_u16(), unchanged.text.as_str()), (204, ""));
    let older = door.get(&format!("/v1/map?since={}&wait_ms=60000", version + 7)).await.ok();
    assert_eq!(older["version"], version, "a version that this store never had is answered with the present one");

    let ask = format!("/v1/map?since={version}&wait_ms=60000");
    let asking = (0..4).map(|_| {
        let (door, ask) = (door.clone(), ask.clone());
        tokio::spawn(async move { door.get(&ask).await })
    });
    // Nothing changes, so the first answer is the refusal, of whichever came last.
    let (refused, _, waiting) = futures::future::select_all(asking).await;
    let refused = refused.unwrap();
    assert_eq!(refused.problem(), (429, "overloaded".to_owned()));
    assert_eq!(refused.headers["retry-after"], "5");
    assert_eq!(door.get("/v1/map").await.ok()["version"], version, "who does not wait is answered");
    door.put("/v1/fleet/i2", server(2)).await.ok();
    for reader in waiting {
        let map = reader.await.unwrap().ok();
        assert!(map["version"].as_u64() > Some(version), "{map}");
        assert_eq!(map["rows"][0]["servers"][1]["server"], "i2");
    }
    let version = door.get("/v1/map").await.ok()["version"].as_u64().unwrap();
    let late = door.get(&format!("/v1/map?since={version}&wait_ms=1")).await;
    assert_eq!(late.status, 204, "their places are free again");
}

#[tokio::test]
async fn a_reader_that_waits_is_answered_when_the_server_stops() {
    let door = Door::new();
    let version = door.get("/v1/map").await.ok()["version"].as_u64().unwrap();
    door.app.stopping.cancel();
    let answer = door.get(&format!("/v1/map?since={version}&wait_ms=60000")).await;
    assert_eq!(answer.status, 204);
}
