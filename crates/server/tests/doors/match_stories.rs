//! Matches at the door: a client asks, waits, confirms, cancels; and every kind of bad input.

use wayleave_core::matches::Verdict;

use crate::prelude::*;
use crate::support::net;

struct Story {
    door: Door,
    site: Site,
}

impl Story {
    /// A pool `p` with these settings, at a site that is there.
    async fn new(settings: Value) -> Self {
        let services = services();
        let site = Site::of(&services.matches);
        let door = Door::serving(Config::default(), services);
        let mut body = json!({"command": ["./w"]});
        body.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        door.put("/v1/pools/p", body).await.ok();
        Self { door, site }
    }

    async fn ask(&self, client: &str, wait_ms: u64) -> Response {
        put(&self.door, &format!("/v1/matches/{client}?pool=p&wait_ms={wait_ms}")).await
    }
}

async fn put(door: &Door, path: &str) -> Response {
    door.send(Request::builder().method(Method::PUT).uri(path).body(Body::empty()).unwrap()).await
}

fn retry_after(answer: &Response) -> u64 {
    answer.headers.get("retry-after").expect("Retry-After").to_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_client_is_matched_confirms_it_and_gives_its_worker_back() {
    let story = Story::new(json!({})).await;
    let matched = story.ask("a%2Fb%20%C3%A4", 10_000).await;
    let found = matched.ok();
    assert_eq!((matched.status.as_u16(), &found["state"], &found["client"]), (200, &json!("matched"), &json!("a/b ä")));
    assert_eq!((&found["address"], &found["verified"]), (&json!("127.0.0.1:9"), &json!(true)));
    assert_eq!(matched.headers["cache-control"], "no-store");
    let again = story.ask("a%2Fb%20%C3%A4", 0).await.ok();
    assert_eq!((&again["token"], &again["worker"]), (&found["token"], &found["worker"]), "one match per client");
    let look = story.door.get("/v1/matches/a%2Fb%20%C3%A4?pool=p").await.ok();
    assert_eq!(look["token"], found["token"]);
    let shown = story.door.get("/v1/matches/a%2Fb%20%C3%A4?pool=p&confirm=false").await.ok();
    assert_eq!((&shown["state"], shown.get("token")), (&json!("matched"), None), "an operator cannot use the worker");
    let listed = story.door.get("/v1/matches?pool=p").await;
    assert_eq!(listed.ok()["matches"][0]["client"], "a/b ä");
    assert!(!listed.text.contains("token"), "{}", listed.text);
    let other = story.door.delete("/v1/matches/a%2Fb%20%C3%A4?pool=p&token=AA4utexP3RVtyJo6TRewUQ").await;
    assert_eq!(other.problem(), (409, "not_current".to_owned()), "{}", other.text);
    let token = found["token"].as_str().unwrap();
    let ended = story.door.delete(&format!("/v1/matches/a%2Fb%20%C3%A4?pool=p&token={token}")).await;
    assert_eq!(ended.status, 204, "{}", ended.text);
    let gone = story.door.get("/v1/matches/a%2Fb%20%C3%A4?pool=p").await;
    assert_eq!(gone.problem(), (404, "unknown_match".to_owned()));
}

#[tokio::test]
async fn a_client_that_waits_is_told_why_where_and_when_to_ask_again() {
    let story = Story::new(json!({"max": 1, "queue_max": 1})).await;
    story.ask("first", 10_000).await.ok();
    let waits = story.ask("second", 0).await;
    let found = waits.json();
    assert_eq!((waits.status.as_u16(), &found["state"], &found["position"]), (202, &json!("queued"), &json!(1)));
    assert!(found["reason"].as_str().unwrap().contains("no slot is free"), "{found}");
    let told = retry_after(&waits);
    assert!(told >= 1 && told == found["retry_after_ms"].as_u64().unwrap().div_ceil(1_000), "{found}");
    assert_eq!(found.get("token"), None);
    let full = story.ask("third", 0).await;
    assert_eq!(full.problem(), (429, "queue_full".to_owned()), "{}", full.text);
    assert!(retry_after(&full) >= 1);
    assert_eq!(story.door.get("/v1/matches/third?pool=p").await.problem(), (404, "unknown_match".to_owned()));
    let queued = story.door.get("/v1/matches?pool=p&state=queued").await.ok();
    assert_eq!(queued["matches"].as_array().unwrap().len(), 1, "{queued}");
    // The slot that is given back goes to who waits, and its call that waits is answered.
    let waiting = story.ask("second", 30_000);
    let freed = async { story.door.delete("/v1/matches/first?pool=p").await };
    let (matched, freed) = tokio::join!(waiting, freed);
    assert_eq!((matched.status.as_u16(), freed.status.as_u16()), (200, 204), "{}", matched.text);
}

#[tokio::test]
async fn only_a_plain_no_of_the_worker_takes_a_match_away() {
    let story = Story::new(json!({})).await;
    let first = story.ask("c", 10_000).await.ok();
    story.site.manners.lock().unwrap().check = Verdict::Unknown("status 500".into());
    // A yes is believed for a second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let unclear = story.ask("c", 0).await.ok();
    assert_eq!((&unclear["verified"], &unclear["token"]), (&json!(false), &first["token"]));
    story.site.manners.lock().unwrap().check = Verdict::No;
    let after = story.ask("c", 10_000).await;
    let again = after.json();
    assert!(again["token"] != first["token"], "{again}");
}

#[tokio::test]
async fn a_match_that_fails_is_told_once_as_a_problem_and_is_queued_again_later() {
    let story = Story::new(json!({"match_ms_max": 100})).await;
    story.site.manners.lock().unwrap().create = Some("no such file: ./w");
    let failed = story.ask("c", 30_000).await;
    assert_eq!(failed.problem(), (503, "match_failed".to_owned()), "{}", failed.text);
    let problem = failed.json();
    assert_eq!(problem["state"], "failed");
    assert!(problem["reason"].as_str().unwrap().contains("no such file: ./w"), "{problem}");
    assert!(retry_after(&failed) >= 1);
    let shown = story.door.get("/v1/matches/c?pool=p&confirm=false").await.ok();
    assert_eq!(shown["state"], "failed", "operators see it, and it is no error");
    let pool = story.door.get("/v1/pools/p").await.ok();
    assert!(pool["reason"].as_str().unwrap().contains("no such file: ./w"), "{pool}");
}

#[tokio::test]
async fn names_that_are_none_and_pools_that_are_not_there_are_refused_clearly() {
    let story = Story::new(json!({})).await;
    for name in ["a%0Ab", "a%00b", "%FF", "%2E%2E", ".", &"a".repeat(256), &"%C3%A4".repeat(128)] {
        let answer = story.ask(name, 0).await;
        assert_eq!(answer.problem(), (400, "bad_client".to_owned()), "{name}: {}", answer.text);
    }
    let empty = put(&story.door, "/v1/matches/?pool=p").await;
    assert_eq!(empty.problem(), (400, "bad_client".to_owned()));
    assert_eq!(story.ask(&"%C3%A4".repeat(127), 0).await.status.as_u16() / 100, 2, "254 bytes are fine");
    for path in ["/v1/matches/c", "/v1/matches/c?pool=p&wait=1", "/v1/matches/c?pool=p&wait_ms=soon"] {
        assert_eq!(put(&story.door, path).await.problem(), (400, "bad_query".to_owned()), "{path}");
    }
    let long = put(&story.door, "/v1/matches/c?pool=p&wait_ms=60001").await;
    assert_eq!((long.problem().0, &long.json()["field"]), (400, &json!("wait_ms")));
    assert_eq!(put(&story.door, "/v1/matches/c?pool=a%20b").await.problem(), (400, "bad_pool".to_owned()));
    for answer in [
        put(&story.door, "/v1/matches/c?pool=q").await,
        story.door.get("/v1/matches/c?pool=q").await,
        story.door.get("/v1/matches/c?pool=q&confirm=false").await,
        story.door.delete("/v1/matches/c?pool=q").await,
        story.door.get("/v1/matches?pool=q").await,
    ] {
        assert_eq!(answer.problem(), (404, "unknown_pool".to_owned()), "{}", answer.text);
        assert_eq!(answer.json()["pool"], "q");
    }
    assert_eq!(story.door.delete("/v1/matches/c?pool=p&token=x").await.json()["field"], "token");
    assert_eq!(story.door.get("/v1/matches?state=waiting").await.problem(), (400, "bad_query".to_owned()));
    assert_eq!(story.door.get("/v1/matches?after=x").await.problem(), (400, "bad_cursor".to_owned()));
}

#[tokio::test]
async fn a_pool_that_closes_takes_no_new_clients() {
    let story = Story::new(json!({})).await;
    story.ask("c", 10_000).await.ok();
    story.door.delete("/v1/pools/p").await;
    let refused = story.ask("d", 0).await;
    assert_eq!(refused.problem(), (409, "pool_closing".to_owned()), "{}", refused.text);
    assert_eq!(story.ask("c", 0).await.ok()["state"], "matched", "who has a worker keeps it");
    story.door.delete("/v1/matches/c?pool=p").await;
    for _ in 0..200 {
        if story.door.get("/v1/pools/p").await.status == 404 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the pool never went: {}", story.door.get("/v1/pools/p").await.text);
}

#[tokio::test]
async fn matches_of_all_pools_are_listed_page_by_page() {
    let story = Story::new(json!({"max": 3, "slots": 2})).await;
    story.door.put("/v1/pools/a", json!({"command": ["./w"], "slots": 5})).await.ok();
    story.door.put("/v1/pools/b", json!({"command": ["./w"]})).await.ok();
    for (pool, client) in [("a", "x/1"), ("a", "x/2"), ("p", "y1"), ("p", "y2"), ("p", "y3")] {
        let client = client.replace('/', "%2F");
        put(&story.door, &format!("/v1/matches/{client}?pool={pool}&wait_ms=10000")).await.ok();
    }
    for limit in 1..=6 {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let page = story.door.get(&format!("/v1/matches?limit={limit}{after}")).await.ok();
            let found = page["matches"].as_array().unwrap();
            assert!(found.len() <= limit);
            seen.extend(found.iter().map(|found| format!("{}:{}", found["pool"], found["client"]).replace('"', "")));
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={}", next.replace('/', "%2F"));
        }
        assert_eq!(seen, ["a:x/1", "a:x/2", "p:y1", "p:y2", "p:y3"], "limit {limit}");
    }
}

#[tokio::test]
async fn as_many_calls_wait_as_may_and_the_others_are_answered_at_once() {
    let services = services();
    let door = Door::serving(Config { held_bytes_max: 2 * WAIT_BYTES, ..Config::default() }, services);
    // Nobody can start a worker here.
    door.put("/v1/pools/p", json!({"command": ["./w"]})).await.ok();
    let waits = put(&door, "/v1/matches/a?pool=p&wait_ms=60000");
    let answered = async {
        loop {
            // Until the other call has the only place.
            let answer = tokio::time::timeout(Duration::from_secs(1), put(&door, "/v1/matches/b?pool=p&wait_ms=60000"));
            if let Ok(answer) = answer.await {
                return answer;
            }
        }
    };
    tokio::select! {
        biased;
        waited = waits => panic!("it did not wait: {}", waited.text),
        answer = answered => assert_eq!(answer.status, 202, "{}", answer.text),
    }
    // The call that was dropped has given its place back.
    let waits = put(&door, "/v1/matches/a?pool=p&wait_ms=300");
    assert!(tokio::time::timeout(Duration::from_millis(100), waits).await.is_err());
}

#[tokio::test]
async fn a_server_that_stops_answers_calls_that_wait() {
    let services = services();
    let matches = services.matches.clone();
    let running = net::serve(Config::default(), services).await;
    let settings = serde_json::from_value::<wayleave_api::pools::SetPoolRequest>(json!({"command": ["./w"]})).unwrap();
    matches.set_pool("p".into(), settings.settings().unwrap()).await.unwrap();
    let request = "PUT /v1/matches/c?pool=p&wait_ms=60000 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    let mut stream = running.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    while matches.why("p".into(), "c".into()).await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.stop.send(()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
}
