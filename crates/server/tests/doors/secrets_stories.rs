//! Credentials in URLs: only the worker that fetches the URL gets them.

use crate::prelude::*;
use crate::urlfrontier::{discovered, info, world};

const URL: &str = "http://user:hush@a.example/page";
const SHOWN: &str = "http://***@a.example/page";

#[track_caller]
fn without_secret(answer: &Response) -> Value {
    assert!(!answer.text.contains("hush") && !answer.text.contains("user:"), "{}", answer.text);
    answer.json()
}

/// Adds the URL and reserves it: what every test begins with.
async fn reserved(door: &Door) -> Value {
    let told = door.post("/v1/urls", json!({"urls": [{"url": URL}]})).await;
    assert_eq!(without_secret(&told)["results"][0]["url"], SHOWN);
    door.reserve_one(json!({"holder": "w"})).await
}

#[tokio::test]
async fn a_worker_is_handed_the_whole_url_and_releases_it_by_that() {
    let door = Door::new();
    let held = reserved(&door).await;
    assert_eq!(held["urls"][0]["url"], URL);
    door.release_all(&held, "fetched").await;
    let found = door.get("/v1/urls/lookup?url=http://user%3Ahush@a.example/page").await;
    assert_eq!(without_secret(&found)["state"], "fetched");
}

#[tokio::test]
async fn listings_show_no_credentials_unless_they_are_asked_for() {
    let door = Door::new();
    reserved(&door).await;
    assert_eq!(without_secret(&door.get("/v1/urls").await)["urls"][0]["url"], SHOWN);
    let whole = door.get("/v1/urls?credentials=true").await.ok();
    assert_eq!(whole["urls"][0]["url"], URL);
    for (query, shown) in [("", SHOWN), ("?credentials=true", URL)] {
        let request = Request::get(format!("/v1/urls{query}")).header(header::ACCEPT, "application/x-ndjson");
        let lines = door.send(request.body(Body::empty()).unwrap()).await.lines();
        assert_eq!(lines[0]["url"], shown);
    }
}

#[tokio::test]
async fn what_a_host_has_handed_out_is_shown_without_credentials() {
    let door = Door::new();
    reserved(&door).await;
    assert_eq!(without_secret(&door.get("/v1/hosts/a.example").await)["in_hand"][0]["url"], SHOWN);
}

#[tokio::test]
async fn refusals_and_results_show_no_credentials() {
    let door = Door::new();
    let held = reserved(&door).await;
    for text in [
        "http://user:hush@:80/",
        "http:user:hush@a.example/",
        "http:///user:hush@a.example/",
        "user:hush@a.example/",
        "gopher://user:hush@a.example/",
        "http://user:hush@a..b/",
        "http://user:hu'sh@a..b/",
    ] {
        let told = door.post("/v1/urls", json!({"urls": [{"url": text}]})).await;
        assert!(!told.text.contains("sh@"), "{}", told.text);
        assert_eq!(without_secret(&told)["results"][0]["status"], "rejected", "{text}");
        let line = json!({"url": text}).to_string();
        assert!(!door.lines("/v1/urls", line).await.text.contains("sh@"), "{text}");
        without_secret(&door.get(&format!("/v1/urls/lookup?url={}", text.replace(':', "%3A"))).await);
    }
    let path = format!("/v1/reservations/{}/release", held["token"].as_str().unwrap());
    let foreign = json!({"results": [{"url": "http://user:hush@other.example/", "outcome": "fetched"}]});
    let answer = door.post(&path, foreign).await;
    assert_eq!(answer.problem(), (422, "foreign_result".to_owned()));
    without_secret(&answer);
    let found = json!({"results": [{"url": URL, "outcome": "fetched", "found": [
        {"url": "http://user:hush@b.example/"}, {"url": "http://user:hush@:1/"}
    ]}]});
    let released = without_secret(&door.post(&path, found).await);
    assert_eq!(released["found"]["results"][0]["url"], "http://***@b.example/");
}

#[tokio::test]
async fn the_reason_of_a_back_off_shows_no_credentials() {
    let door = Door::new();
    let held = reserved(&door).await;
    let path = format!("/v1/reservations/{}/release", held["token"].as_str().unwrap());
    let results = json!({"results": [{"url": URL, "outcome": "retry", "status": 503, "retry_after_ms": 60000}]});
    door.post(&path, results).await.ok();
    for path in ["/v1/hosts/a.example", "/v1/groups/a.example", "/v1/hosts"] {
        let answer = door.get(path).await;
        without_secret(&answer);
        assert!(answer.text.contains(SHOWN), "{}", answer.text);
    }
}

#[tokio::test]
async fn the_other_door_names_no_credentials_in_an_error() {
    let mut world = world().await;
    world.put_one(discovered(info(URL, "", "DEFAULT"))).await;
    let request = wayleave_api::urlfrontier::UrlStatusRequest {
        url: "http://user:hush@unknown.example/".into(),
        key: String::new(),
        crawl_id: "DEFAULT".into(),
    };
    let refused = world.client.get_url_status(request).await.unwrap_err();
    assert!(!refused.message().contains("hush"), "{}", refused.message());
}
