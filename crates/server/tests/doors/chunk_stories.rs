//! The life of a chunk over HTTP: links claimed, reported and completed, an index built; what fails, what is repeated,
//! and what is refused.

use crate::prelude::*;

const SUM: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// A server with these URLs, each of a host of its own, which may be visited at any time.
pub async fn door(urls: &[&str]) -> Door {
    let door = Door::new();
    for url in urls {
        let host = url.split('/').nth(2).unwrap();
        door.put(&format!("/v1/hosts/{host}"), json!({"delay_ms": 0})).await.ok();
    }
    door.seed("news", urls).await;
    door
}

async fn claim(door: &Door, body: Value) -> Vec<Value> {
    door.post("/v1/chunks/claim", body).await.ok()["chunks"].as_array().unwrap().clone()
}

/// Claims until there is a chunk: links of one chunk are of one shard, so a claim may find nothing left to combine.
pub async fn claim_one(door: &Door, stage: &str) -> Value {
    let mut chunks = claim(door, json!({"stage": stage, "worker": "w1", "max": 1, "wait_ms": 5_000})).await;
    assert_eq!(chunks.len(), 1, "{chunks:?}");
    chunks.remove(0)
}

pub fn path(chunk: &Value, call: &str) -> String {
    format!("/v1/chunks/{}/{call}", chunk["id"].as_str().unwrap())
}

pub fn artifact(name: &str) -> Value {
    json!({"location": format!("s3://crawl/{name}"), "bytes": 48_213, "checksum": SUM})
}

fn results(chunk: &Value, outcome: &str) -> Value {
    let result = |link: &Value| json!({"url": link["url"], "outcome": outcome});
    chunk["links"].as_array().unwrap().iter().map(result).collect()
}

async fn report(door: &Door, chunk: &Value, outcome: &str) -> Value {
    let body = json!({"token": chunk["token"], "results": results(chunk, outcome)});
    door.post(&path(chunk, "links"), body).await.ok()
}

pub async fn crawl(door: &Door) -> Value {
    let chunk = claim_one(door, "crawl").await;
    report(door, &chunk, "fetched").await;
    let done = json!({"token": chunk["token"], "artifact": artifact("1.warc.gz")});
    assert_eq!(door.post(&path(&chunk, "complete"), done).await.ok()["state"], "crawled");
    chunk
}

pub async fn state(door: &Door, chunk: &Value) -> Value {
    door.get(&format!("/v1/chunks/{}", chunk["id"].as_str().unwrap())).await.ok()
}

#[tokio::test]
async fn a_chunk_is_crawled_and_built_and_says_where_it_is_all_the_way() {
    let door = door(&["http://a.example/1"]).await;
    let chunk = claim_one(&door, "crawl").await;
    assert_eq!((&chunk["stage"], &chunk["attempts"], &chunk["inputs"]), (&json!("crawl"), &json!(0), &json!([])));
    let link = json!({
        "url": "http://a.example/1", "crawl": "news", "host": "a.example", "depth": 0, "delay_ms": 0, "metadata": {},
    });
    assert_eq!(chunk["links"], json!([link]));
    let now = state(&door, &chunk).await;
    assert_eq!((&now["state"], &now["stage"], &now["worker"]), (&json!("crawling"), &json!("crawl"), &json!("w1")));
    assert_eq!(
        (&now["links"], &now["until"]),
        (&json!({"crawling": 1, "crawled": 0, "error": 0}), &chunk["expires_at"])
    );
    assert!(!now.to_string().contains(chunk["token"].as_str().unwrap()), "the chunk tells its secret");

    let found = json!([{"url": "http://a.example/2"}, {"url": "nonsense"}]);
    let body = json!({"token": chunk["token"], "results": [{"url": "http://a.example/1", "outcome": "fetched", "found": found}]});
    let told = door.post(&path(&chunk, "links"), body).await.ok();
    assert_eq!((&told["left"], &told["replacements"], &told["ended"]), (&json!(0), &json!([]), &json!([])));
    assert_eq!(told["found"]["counts"], json!({"added": 1, "known": 0, "rejected": 1, "failed": 0}));
    let stored = door.get("/v1/urls/lookup?url=http%3A%2F%2Fa.example%2F2&crawl=news").await.ok();
    assert_eq!((&stored["state"], &stored["depth"]), (&json!("queued"), &json!(1)), "one level deeper, in its crawl");

    let renewed = door.post(&path(&chunk, "renew"), json!({"token": chunk["token"], "lease_ms": 3_600_000})).await.ok();
    assert!(renewed["expires_at"].as_str() > chunk["expires_at"].as_str(), "{renewed}");
    assert_eq!(renewed["ended"], json!([]));
    let done = json!({"token": chunk["token"], "artifact": artifact("1.warc.gz")});
    assert_eq!(door.post(&path(&chunk, "complete"), done).await.ok(), json!({"id": chunk["id"], "state": "crawled"}));
    let crawled = state(&door, &chunk).await;
    assert_eq!((&crawled["stage"], &crawled["artifacts"]), (&json!("build"), &json!({"crawl": artifact("1.warc.gz")})));

    let build = claim_one(&door, "build").await;
    assert_eq!(build["inputs"], json!([{"chunk": chunk["id"], "artifact": artifact("1.warc.gz"), "from": null}]));
    assert_eq!((&build["id"], &build["links"]), (&chunk["id"], &json!([])));
    assert_ne!(build["token"], chunk["token"]);
    let done = json!({"token": build["token"], "artifact": artifact("1.index")});
    assert_eq!(door.post(&path(&build, "complete"), done).await.ok()["state"], "built");
    // A background task announces it to placement, and notes that.
    let built = loop {
        let built = state(&door, &chunk).await;
        if !built["reason"].as_str().unwrap().contains("about to be placed") {
            break built;
        }
        tokio::task::yield_now().await;
    };
    let both = json!({"crawl": artifact("1.warc.gz"), "build": artifact("1.index")});
    assert_eq!((&built["artifacts"], &built["reason"]), (&both, &json!("its index is built")));
}

#[tokio::test]
async fn a_call_that_is_repeated_is_answered_alike_and_changes_nothing() {
    let door = door(&["http://a.example/1"]).await;
    let ask = json!({"stage": "crawl", "worker": "w1", "request_id": "r1"});
    let chunk = claim(&door, ask.clone()).await.remove(0);
    assert_eq!(claim(&door, ask).await, std::slice::from_ref(&chunk));
    let other = json!({"stage": "crawl", "worker": "w1", "request_id": "r1", "links": 7});
    let answer = door.post("/v1/chunks/claim", other).await;
    assert_eq!(answer.problem(), (409, "request_reused".to_owned()));
    let first = report(&door, &chunk, "fetched").await;
    assert_eq!(report(&door, &chunk, "fetched").await, first);
    let changed = json!({"token": chunk["token"], "results": results(&chunk, "gone")});
    let answer = door.post(&path(&chunk, "links"), changed).await;
    assert_eq!(answer.problem(), (409, "already_reported".to_owned()));
    let done = json!({"token": chunk["token"], "artifact": artifact("1")});
    for _ in 0..2 {
        assert_eq!(door.post(&path(&chunk, "complete"), done.clone()).await.ok()["state"], "crawled");
    }
    let build = claim_one(&door, "build").await;
    let broken = json!({"token": build["token"], "reason": "no space"});
    for _ in 0..2 {
        assert_eq!(door.post(&path(&build, "fail"), broken.clone()).await.ok()["state"], "crawled");
    }
    assert_eq!(state(&door, &chunk).await["attempts"], 1, "counted once");
}

#[tokio::test]
async fn a_link_that_fails_is_replaced_and_a_chunk_without_content_is_skipped() {
    let door = Door::new();
    // Two hosts of one group-less shard cannot be told from outside: many, so that some share one.
    let urls: Vec<String> = (0..16).map(|n| format!("http://h{n}.example/")).collect();
    door.seed("news", &urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let ask = json!({"stage": "crawl", "worker": "w1", "links": 1});
    let chunk = claim(&door, ask).await.remove(0);
    let body = json!({"token": chunk["token"], "results": results(&chunk, "gone"), "replace": true});
    let told = door.post(&path(&chunk, "links"), body.clone()).await.ok();
    let fresh = told["replacements"].as_array().unwrap();
    assert_eq!((fresh.len(), &told["left"]), (1, &json!(1)), "{told}");
    assert_ne!(fresh[0]["host"], chunk["links"][0]["host"]);
    assert_eq!(door.post(&path(&chunk, "links"), body).await.ok(), told, "the same replacement again");
    let missing = json!({"token": chunk["token"], "artifact": artifact("1")});
    let answer = door.post(&path(&chunk, "complete"), missing).await;
    assert_eq!(answer.problem(), (422, "contradiction".to_owned()), "{}", answer.text);
    let done = door.post(&path(&chunk, "complete"), json!({"token": chunk["token"]})).await.ok();
    assert_eq!(done["state"], "skipped");
    let skipped = state(&door, &chunk).await;
    assert_eq!((&skipped["links"]["error"], &skipped["stage"]), (&json!(1), &json!("crawl")));
}

#[tokio::test]
async fn a_stale_token_is_refused_and_its_artifact_is_named_as_garbage() {
    let door = door(&["http://a.example/1"]).await;
    let ask = json!({"stage": "crawl", "worker": "slow", "lease_ms": 100});
    let slow = claim(&door, ask).await.remove(0);
    let again = claim_one(&door, "crawl").await;
    assert_eq!((&again["id"], &again["attempts"]), (&slow["id"], &json!(1)));
    let late = json!({"token": slow["token"], "artifact": artifact("late.warc.gz")});
    let answer = door.post(&path(&slow, "complete"), late).await;
    assert_eq!(answer.problem(), (409, "not_current".to_owned()));
    let told = answer.json();
    let detail = told["detail"].as_str().unwrap();
    assert!(detail.contains("s3://crawl/late.warc.gz") && detail.contains("'w1'"), "{detail}");
    assert_eq!((&told["chunk"], &told["garbage"]), (&slow["id"], &json!("s3://crawl/late.warc.gz")));
    for (call, body) in [
        ("renew", json!({"token": slow["token"]})),
        ("fail", json!({"token": slow["token"], "reason": "late"})),
        ("links", json!({"token": slow["token"], "results": results(&slow, "fetched")})),
    ] {
        assert_eq!(door.post(&path(&slow, call), body).await.problem(), (409, "not_current".to_owned()), "{call}");
    }
    assert_eq!(state(&door, &slow).await["worker"], "w1", "nothing was changed");
}

#[tokio::test]
async fn content_that_is_lost_sends_a_chunk_back_to_the_crawlers() {
    let door = door(&["http://a.example/1"]).await;
    let chunk = crawl(&door).await;
    let build = claim_one(&door, "build").await;
    let lost = json!({"token": build["token"], "reason": "404 from the store", "input_lost": true});
    assert_eq!(door.post(&path(&build, "fail"), lost).await.ok()["state"], "crawling");
    let back = state(&door, &chunk).await;
    assert_eq!(back["last_error"], "its content was lost: 404 from the store");
    let again = claim_one(&door, "crawl").await;
    assert_eq!((&again["id"], &again["links"]), (&chunk["id"], &chunk["links"]));
}

#[tokio::test]
async fn an_operator_skips_and_retries() {
    let door = door(&["http://a.example/1"]).await;
    let chunk = crawl(&door).await;
    let answer = door.post(&path(&chunk, "retry"), Value::Null).await;
    assert_eq!(answer.problem(), (409, "wrong_state".to_owned()));
    assert_eq!(answer.json()["state"], "crawled");
    for (call, state) in [("skip", "skipped"), ("skip", "skipped"), ("retry", "crawled")] {
        assert_eq!(door.post(&path(&chunk, call), Value::Null).await.ok()["state"], state, "{call}");
    }
    assert_eq!(claim_one(&door, "build").await["id"], chunk["id"]);
}

#[tokio::test]
async fn a_chunk_of_one_host_is_of_the_default_crawl_if_none_is_named() {
    let door = Door::new();
    door.seed("DEFAULT", &["http://a.example/1", "http://a.example/2", "http://b.example/1"]).await;
    door.seed("news", &["http://a.example/3"]).await;
    let ask = json!({"stage": "crawl", "worker": "w", "host": "A.example", "links": 10});
    let chunk = claim(&door, ask).await.remove(0);
    let urls: Vec<&Value> = chunk["links"].as_array().unwrap().iter().map(|link| &link["url"]).collect();
    assert_eq!(urls, ["http://a.example/1", "http://a.example/2"]);
    assert_eq!(chunk["links"][0]["delay_ms"], 1_000, "for the crawler to keep");
    assert_eq!(state(&door, &chunk).await["host"], "a.example");
    let answer = door.post("/v1/chunks/claim", json!({"stage": "crawl", "worker": "w", "host": "c.example"})).await;
    assert_eq!(answer.problem(), (404, "unknown_host".to_owned()));
    let answer = door.post("/v1/chunks/claim", json!({"stage": "build", "worker": "w", "host": "a.example"})).await;
    assert_eq!(answer.problem(), (422, "contradiction".to_owned()));
}

#[tokio::test]
async fn a_crawler_learns_that_its_crawl_is_finished() {
    let door = door(&["http://a.example/1"]).await;
    let ask = json!({"stage": "crawl", "worker": "w1", "crawl": "news"});
    let chunk = claim(&door, ask.clone()).await.remove(0);
    assert_eq!(door.post("/v1/chunks/claim", ask.clone()).await.ok(), json!({"chunks": []}));
    report(&door, &chunk, "gone").await;
    door.post(&path(&chunk, "complete"), json!({"token": chunk["token"]})).await.ok();
    assert_eq!(door.post("/v1/chunks/claim", ask).await.ok(), json!({"chunks": [], "finished": true}));
}

#[tokio::test]
async fn a_chunk_lists_its_links_and_says_which_failed_last_and_how() {
    let door = door(&["http://a.example/1"]).await;
    let chunk = claim_one(&door, "crawl").await;
    let link = |state: &str, url_state: &str, status: Value| json!([{"url": "http://a.example/1", "state": state, "url_state": url_state, "status": status, "attempts": 0}]);
    let shown = state(&door, &chunk).await;
    assert_eq!((&shown["link_list"], &shown["links_more"]), (&link("crawling", "reserved", Value::Null), &json!(0)));
    let result = json!({"url": "http://a.example/1", "outcome": "gone", "status": 404});
    door.post(&path(&chunk, "links"), json!({"token": chunk["token"], "results": [result]})).await.ok();
    assert_eq!(state(&door, &chunk).await["link_list"], link("error", "gone", json!(404)));
    door.post(&path(&chunk, "complete"), json!({"token": chunk["token"]})).await.ok();
    let shown = state(&door, &chunk).await;
    assert_eq!(
        shown["reason"],
        "it ended without a result: none of its links could be fetched; one of them, http://a.example/1, is gone \
         (status 404)"
    );
    assert_eq!(shown["link_list"], link("error", "gone", json!(404)));
    let listed = door.get("/v1/chunks").await.ok();
    assert_eq!(listed["chunks"][0].get("link_list"), None, "only where one chunk is shown");
}

/// A worker may be started before its crawl: as for reservations, there is nothing to hand out yet.
#[tokio::test]
async fn a_crawl_that_is_not_known_has_no_chunks_and_is_not_finished() {
    let door = Door::new();
    let ask = json!({"stage": "crawl", "worker": "w1", "crawl": "never"});
    assert_eq!(door.post("/v1/chunks/claim", ask).await.ok(), json!({"chunks": []}));
    let ask = json!({"holder": "w1", "crawl": "never"});
    assert_eq!(door.post("/v1/reservations", ask).await.ok(), json!({"reservations": []}));
    assert_eq!(door.get("/v1/chunks?crawl=never").await.ok(), json!({"chunks": [], "next": null}));
}

#[tokio::test]
async fn a_chunk_of_a_deleted_crawl_is_listed_and_cannot_be_crawled_again() {
    let door = door(&["http://a.example/1"]).await;
    let chunk = claim_one(&door, "crawl").await;
    door.delete("/v1/crawls/news").await.ok();
    let listed = door.get("/v1/chunks?crawl=news").await.ok();
    assert_eq!(listed["chunks"][0]["reason"], "it ended without a result: its crawl was deleted");
    let refused = door.post(&path(&chunk, "retry"), Value::Null).await;
    assert_eq!(refused.problem(), (409, "wrong_state".to_owned()));
    assert!(refused.json()["detail"].as_str().unwrap().contains("alone or with their crawl"), "{:?}", refused.json());
}

#[tokio::test]
async fn chunks_are_listed_by_stage_state_and_crawl_page_by_page() {
    let door = Door::new();
    let urls: Vec<String> = (0..12).map(|n| format!("http://h{n}.example/")).collect();
    door.seed("news", &urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let chunks = claim(&door, json!({"stage": "crawl", "worker": "w", "links": 1, "max": 12})).await;
    assert_eq!(chunks.len(), 12);
    report(&door, &chunks[0], "fetched").await;
    let location = "https://user:secret@store.example/1";
    let done = json!({"token": chunks[0]["token"], "artifact": {"location": location, "bytes": 0, "checksum": SUM}});
    door.post(&path(&chunks[0], "complete"), done).await.ok();
    let (mut listed, mut after) = (Vec::new(), String::new());
    loop {
        let page = door.get(&format!("/v1/chunks?limit=5&crawl=news{after}")).await.ok();
        listed.extend(page["chunks"].as_array().unwrap().iter().map(|chunk| chunk["id"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    let mut all: Vec<Value> = chunks.iter().map(|chunk| chunk["id"].clone()).collect();
    all.sort_by_key(|id| id.as_str().unwrap().parse::<u64>().unwrap());
    assert_eq!(listed, all);
    let count =
        async |query: &str| door.get(&format!("/v1/chunks?{query}")).await.ok()["chunks"].as_array().unwrap().len();
    assert_eq!(count("state=crawling").await, 11);
    assert_eq!(
        (count("stage=build").await, count("stage=crawl&state=crawled").await, count("crawl=other").await),
        (1, 0, 0)
    );
    let shown = door.get("/v1/chunks?state=crawled").await.text;
    assert!(shown.contains("https://***@store.example/1") && !shown.contains("secret"), "{shown}");
    assert!(!state(&door, &chunks[0]).await.to_string().contains("secret"));
    assert!(door.get("/v1/chunks?state=crawled&credentials=true").await.text.contains(location));
    let build = claim_one(&door, "build").await;
    assert_eq!(build["inputs"][0]["artifact"]["location"], location, "its reader needs it");
    let metrics = door.get("/metrics").await.text;
    for line in ["{state=\"crawling\"} 11", "{state=\"building\"} 1", "{state=\"crawled\"} 0", "{state=\"offered\"} 0"]
    {
        assert!(metrics.contains(&format!("wayleave_chunks{line}\n")), "{line}");
    }
}

#[tokio::test]
async fn bad_input_is_refused_with_its_field_and_changes_nothing() {
    let door = door(&["http://a.example/1", "http://b.example/1"]).await;
    let chunk = claim(&door, json!({"stage": "crawl", "worker": "w", "links": 1})).await.remove(0);
    let other = claim(&door, json!({"stage": "crawl", "worker": "w", "links": 1})).await.remove(0);
    report(&door, &chunk, "fetched").await;
    let before = state(&door, &chunk).await;
    let complete = |field: &str, value: Value| {
        let mut artifact = artifact("1");
        artifact[field] = value;
        json!({"token": chunk["token"], "artifact": artifact})
    };
    let without = json!({"token": chunk["token"], "artifact": {"location": "s3://b/1", "bytes": 1}});
    for (call, body, field, hint) in [
        ("complete", without, "artifact.checksum", "is missing"),
        ("complete", complete("checksum", json!("md5:1")), "artifact.checksum", "64 hexadecimal digits"),
        ("complete", complete("bytes", json!(-1)), "artifact.bytes", "between 0 and"),
        ("complete", complete("location", json!("chunks/1")), "artifact.location", "is not a URL"),
        ("complete", json!({"token": "x", "artifact": artifact("1")}), "token", "not a token"),
        ("fail", json!({"token": chunk["token"], "reason": " "}), "reason", "say what failed"),
        ("fail", json!({"token": chunk["token"], "reason": "r", "input_losd": true}), "input_losd", "'input_lost'"),
        ("renew", json!({"token": chunk["token"], "lease_ms": 1}), "lease_ms", "between 100 and 3600000"),
        (
            "links",
            json!({"token": chunk["token"], "results": [{"url": "u", "outcome": "ok"}]}),
            "results[0].outcome",
            "none of fetched",
        ),
    ] {
        let answer = door.post(&path(&chunk, call), body).await;
        assert_eq!(answer.problem(), (400, "bad_value".to_owned()), "{call} {field}: {}", answer.text);
        let told = answer.json();
        assert_eq!(told["field"], field, "{told}");
        assert!(told["detail"].as_str().unwrap().contains(hint), "{told}");
    }
    for (call, body, want) in [
        ("complete", json!({"token": other["token"], "artifact": artifact("1")}), (409, "not_current")),
        ("links", json!({"token": other["token"], "results": results(&chunk, "fetched")}), (409, "not_current")),
        ("links", json!({"token": chunk["token"], "results": results(&other, "fetched")}), (422, "foreign_result")),
        ("complete", json!({"token": chunk["token"]}), (422, "artifact_missing")),
        ("fail", json!({"token": chunk["token"], "reason": "r", "input_lost": true}), (422, "contradiction")),
    ] {
        assert_eq!(door.post(&path(&chunk, call), body).await.problem(), (want.0, want.1.to_owned()), "{call}");
    }
    for (body, field, hint) in [
        (json!({"stage": "serve", "worker": "w"}), "stage", "none of crawl, build"),
        (json!({"worker": "w"}), "stage", "is missing"),
        (json!({"stage": "crawl", "worker": ""}), "worker", "who claims"),
        (json!({"stage": "crawl", "worker": "w", "max": 101}), "max", "between 1 and 100"),
        (json!({"stage": "crawl", "worker": "w", "links": 0}), "links", "between 1 and 1000"),
        (json!({"stage": "crawl", "worker": "w", "linger_ms": 60_001}), "linger_ms", "between 0 and 60000"),
        (json!({"stage": "crawl", "worker": "w", "urls": 5}), "urls", "there is no such field"),
    ] {
        let answer = door.post("/v1/chunks/claim", body).await;
        assert_eq!((answer.problem().0, &answer.json()["field"]), (400, &json!(field)), "{}", answer.text);
        assert!(answer.text.contains(hint), "{}", answer.text);
    }
    for (path, want) in [
        ("/v1/chunks/x", (400, "bad_chunk")),
        ("/v1/chunks/77", (404, "unknown_chunk")),
        ("/v1/chunks/18446744073709551615", (404, "unknown_chunk")),
        ("/v1/chunks?after=x", (400, "bad_cursor")),
        ("/v1/chunks?state=done", (400, "bad_query")),
        ("/v1/chunks?stage=serve", (400, "bad_query")),
    ] {
        let answer = door.get(path).await;
        assert_eq!(answer.problem(), (want.0, want.1.to_owned()), "{path}");
        assert!(!path.contains("done") || answer.text.contains("crawling, crawled, building"), "{}", answer.text);
    }
    assert_eq!(state(&door, &chunk).await, before);
}
