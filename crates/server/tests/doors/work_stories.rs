//! A worker's life over HTTP: URLs in, reservations out, results back.

use crate::prelude::*;

/// No delay between visits, so that a scenario need not wait.
async fn at_once(door: &Door, host: &str) {
    door.put(&format!("/v1/hosts/{host}"), json!({"delay_ms": 0})).await.ok();
}

fn lookup(url: &str, crawl: &str) -> String {
    let encoded: String = url.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("/v1/urls/lookup?url={encoded}&crawl={crawl}")
}

fn path(reservation: &Value, call: &str) -> String {
    format!("/v1/reservations/{}/{call}", reservation["token"].as_str().unwrap())
}

#[tokio::test]
async fn a_url_is_added_reserved_fetched_and_known_for_ever() {
    let door = Door::new();
    let url = json!({"url": "HTTP://A.example/x#part", "priority": 7, "depth": 2, "metadata": {"from": "seed", "tags": ["a", "b"]}});
    let told = door
        .post("/v1/urls", json!({"crawl": "news", "urls": [url, {"url": "mailto:x@y"}, {"url": "http://a.example/x"}]}))
        .await
        .ok();
    assert_eq!(told["counts"], json!({"added": 1, "known": 1, "rejected": 1, "failed": 0}));
    let statuses: Vec<&Value> = told["results"].as_array().unwrap().iter().map(|result| &result["status"]).collect();
    assert_eq!(statuses, ["added", "rejected", "known"]);

    let queued = door.get(&lookup("http://a.example/x", "news")).await.ok();
    assert_eq!(
        (&queued["state"], &queued["host"], &queued["last"]),
        (&json!("queued"), &json!("a.example"), &Value::Null)
    );

    let reservation = door.reserve_one(json!({"holder": "w1", "crawl": "news"})).await;
    assert_eq!((&reservation["group"], &reservation["host"]), (&json!("a.example"), &json!("a.example")));
    assert_eq!(reservation["delay_ms"], 1000);
    let want = json!([{
        "url": "http://a.example/x", "crawl": "news", "priority": 7, "depth": 2, "attempts": 0,
        "metadata": {"from": "seed", "tags": ["a", "b"]},
    }]);
    assert_eq!(reservation["urls"], want);
    let reserved = door.get(&lookup("http://a.example/x", "news")).await.ok();
    assert_eq!((&reserved["state"], &reserved["held_until"]), (&json!("reserved"), &reservation["expires_at"]));

    let released = door.release_all(&reservation, "fetched").await;
    assert_eq!(released["group"], "a.example");
    let fetched = door.get(&lookup("http://a.example/x", "news")).await.ok();
    assert_eq!((&fetched["state"], &fetched["due_at"]), (&json!("fetched"), &Value::Null));
    assert_eq!(fetched["last"]["status"], 200);
    for (name, value) in [("priority", json!(7)), ("depth", json!(2)), ("metadata", want[0]["metadata"].clone())] {
        assert_eq!((&reserved[name], &fetched[name]), (&value, &value), "{name} is kept: it may be queued anew");
    }
    let again = door.seed("news", &["http://a.example/x"]).await;
    assert_eq!(again["counts"]["known"], 1);
    assert_eq!(door.get("/v1/stats").await.ok()["urls"]["fetched"], 1);
}

#[tokio::test]
async fn between_two_visits_lies_the_delay_and_the_host_says_so() {
    let door = Door::new();
    door.put("/v1/hosts/a.example", json!({"delay_ms": 3_600_000})).await.ok();
    door.seed("DEFAULT", &["http://a.example/1", "http://a.example/2"]).await;
    let first = door.reserve_one(json!({"holder": "w1"})).await;
    assert_eq!(first["delay_ms"], 3_600_000);
    assert_eq!(door.get("/v1/hosts/a.example").await.ok()["state"], "busy");
    assert_eq!(door.post("/v1/reservations", json!({"holder": "w2"})).await.ok(), json!({"reservations": []}));

    let released = door.release_all(&first, "fetched").await;
    let host = door.get("/v1/hosts/a.example").await.ok();
    assert_eq!((&host["state"], &host["ready_at"]), (&json!("waiting"), &released["ready_at"]));
    assert_eq!((&host["delay_in_force_ms"], &host["counts"]["queued"]), (&json!(3_600_000), &json!(1)));
    assert!(!host["reason"].as_str().unwrap().is_empty() && host["last_visit_at"] != Value::Null, "{host}");
    assert_eq!(door.post("/v1/reservations", json!({"holder": "w2"})).await.ok(), json!({"reservations": []}));
}

#[tokio::test]
async fn a_token_that_is_not_current_changes_nothing() {
    let door = Door::new();
    at_once(&door, "a.example").await;
    door.seed("DEFAULT", &["http://a.example/1"]).await;
    let reservation = door.reserve_one(json!({"holder": "w1"})).await;
    let results =
        json!({"results": [{"url": "http://a.example/1", "outcome": "retry", "next_at": "2020-01-01T00:00:00Z"}]});
    door.post(&path(&reservation, "release"), results).await.ok();

    let gone =
        json!({"results": [{"url": "http://a.example/1", "outcome": "gone", "found": [{"url": "http://b.example/"}]}]});
    assert_eq!(door.post(&path(&reservation, "release"), gone).await.problem(), (409, "not_current".to_owned()));
    assert_eq!(door.post(&path(&reservation, "renew"), json!({})).await.problem(), (409, "not_current".to_owned()));
    let never = format!("/v1/reservations/{}/renew", "A".repeat(22));
    assert_eq!(door.post(&never, json!({})).await.problem(), (409, "not_current".to_owned()));
    assert_eq!(door.get(&lookup("http://a.example/1", "DEFAULT")).await.ok()["state"], "queued");
    let missing = door.get(&lookup("http://b.example/", "DEFAULT")).await;
    assert_eq!(missing.problem(), (404, "unknown_url".to_owned()));
}

#[tokio::test]
async fn a_renewal_moves_the_deadline() {
    let door = Door::new();
    door.seed("DEFAULT", &["http://a.example/1"]).await;
    let reservation = door.reserve_one(json!({"holder": "w1", "lease_ms": 5_000})).await;
    let renewed = door.post(&path(&reservation, "renew"), json!({"lease_ms": 3_600_000})).await.ok();
    assert!(renewed["expires_at"].as_str() > reservation["expires_at"].as_str(), "{renewed} {reservation}");
    let list = door.get("/v1/reservations").await.ok();
    let listed = &list["reservations"][0];
    assert_eq!(
        (&listed["holder"], &listed["expires_at"], &listed["urls"]),
        (&json!("w1"), &renewed["expires_at"], &json!(1))
    );
    assert!(!list.to_string().contains(reservation["token"].as_str().unwrap()), "the listing tells the secret");
}

/// Without a release the work returns by itself and the attempt is counted.
#[tokio::test]
async fn the_work_of_a_lost_worker_returns() {
    let door = Door::new();
    at_once(&door, "a.example").await;
    door.seed("DEFAULT", &["http://a.example/1"]).await;
    let lost = door.reserve_one(json!({"holder": "w1", "lease_ms": 100})).await;
    let again = door.reserve_one(json!({"holder": "w2", "wait_ms": 10_000})).await;
    assert_eq!((&again["urls"][0]["url"], &again["urls"][0]["attempts"]), (&json!("http://a.example/1"), &json!(1)));
    assert_eq!(door.post(&path(&lost, "release"), json!({})).await.problem(), (409, "not_current".to_owned()));
}

#[tokio::test]
async fn a_page_comes_back_when_the_worker_says_so() {
    let door = Door::new();
    at_once(&door, "a.example").await;
    let url = json!({"url": "http://a.example/1", "priority": 8, "depth": 3, "metadata": {"from": "seed"}});
    door.post("/v1/urls", json!({ "urls": [url] })).await.ok();
    let first = door.reserve_one(json!({"holder": "w1"})).await;
    let later = json!({"results": [{"url": "http://a.example/1", "outcome": "fetched", "status": 200, "next_at": "2099-01-01T00:00:00+01:00"}]});
    door.post(&path(&first, "release"), later).await.ok();
    let url = door.get(&lookup("http://a.example/1", "DEFAULT")).await.ok();
    assert_eq!((&url["state"], &url["due_at"]), (&json!("queued"), &json!("2098-12-31T23:00:00.000Z")));
    assert_eq!((&url["priority"], &url["depth"], &url["metadata"]), (&json!(8), &json!(3), &json!({"from": "seed"})));
    let host = door.get("/v1/hosts/a.example").await.ok();
    assert_eq!((&host["state"], &host["ready_at"]), (&json!("waiting"), &json!("2098-12-31T23:00:00.000Z")));
}

#[tokio::test]
async fn a_long_poll_is_answered_when_work_arrives() {
    let door = Door::new();
    let waiting = tokio::spawn({
        let door = door.clone();
        async move { door.reserve_one(json!({"holder": "w1", "wait_ms": 30_000})).await }
    });
    tokio::task::yield_now().await;
    door.seed("DEFAULT", &["http://a.example/1"]).await;
    let reservation = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("long before 30 s").unwrap();
    assert_eq!(reservation["host"], "a.example");
}

#[tokio::test]
async fn what_is_found_follows_a_page_that_has_a_key_of_its_own() {
    let door = Door::new();
    let page = json!({"url": "http://a.example/1", "key": "big", "depth": 4});
    door.post("/v1/urls", json!({"crawl": "news", "urls": [page]})).await.ok();
    let reservation = door.reserve_one(json!({"holder": "w"})).await;
    let results = json!({"results": [{"url": "http://a.example/1", "outcome": "fetched", "found": [{"url": "http://b.example/"}]}]});
    door.post(&path(&reservation, "release"), results).await.ok();
    assert_eq!(door.get(&lookup("http://b.example/", "news")).await.ok()["depth"], 5);
    assert_eq!(door.get(&lookup("http://b.example/", "DEFAULT")).await.problem().0, 404);
}

#[tokio::test]
async fn what_is_found_on_a_page_of_a_deleted_crawl_is_rejected() {
    let door = Door::new();
    door.post("/v1/urls", json!({"crawl": "news", "urls": [{"url": "http://a.example/1"}]})).await.ok();
    let reservation = door.reserve_one(json!({"holder": "w"})).await;
    door.delete("/v1/crawls/news").await.ok();
    let found = json!([{"url": "http://b.example/"}, {"url": "http://c.example/", "crawl": "other", "depth": 0}]);
    let results = json!({"results": [{"url": "http://a.example/1", "outcome": "fetched", "found": found}]});
    let released = door.post(&path(&reservation, "release"), results).await.ok();
    assert_eq!(released["found"]["counts"], json!({"added": 1, "known": 0, "rejected": 1, "failed": 0}));
    let reason = released["found"]["results"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("http://a.example/1") && reason.contains("crawl"), "{reason}");
    door.get(&lookup("http://c.example/", "other")).await.ok();
}

#[tokio::test]
async fn a_result_that_is_not_the_reservations_stores_nothing_of_what_was_found() {
    let door = Door::new();
    door.post("/v1/urls", json!({"crawl": "news", "urls": [{"url": "http://a.example/1"}]})).await.ok();
    let reservation = door.reserve_one(json!({"holder": "w", "lease_ms": 1000})).await;
    let found = json!([{"url": "http://b.example/"}]);
    let results = json!({"results": [
        {"url": "http://a.example/1", "outcome": "fetched", "found": found},
        {"url": "http://other.example/", "outcome": "fetched"},
    ]});
    let refused = door.post(&path(&reservation, "release"), results).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert_eq!(door.get(&lookup("http://b.example/", "news")).await.problem().0, 404);
    let live = door.get("/v1/reservations").await.ok();
    assert_eq!(live["reservations"][0]["expires_at"], reservation["expires_at"], "its deadline is where it was");
}

#[tokio::test]
async fn what_is_found_belongs_to_the_page_it_was_found_on() {
    let door = Door::new();
    let seed = json!({"crawl": "news", "urls": [{"url": "http://a.example/1", "depth": 3}]});
    door.post("/v1/urls", seed).await.ok();
    let reservation = door.reserve_one(json!({"holder": "w1"})).await;
    let found = json!([{"url": "http://b.example/"}, {"url": "nonsense"}, {"url": "http://c.example/", "crawl": "other", "depth": 9}]);
    let results = json!({"results": [{"url": "http://a.example/1", "outcome": "fetched", "found": found}]});
    let released = door.post(&path(&reservation, "release"), results).await.ok();
    assert_eq!(released["found"]["counts"], json!({"added": 2, "known": 0, "rejected": 1, "failed": 0}));
    assert_eq!(released["found"]["results"][1]["status"], "rejected");
    assert_eq!(door.get(&lookup("http://b.example/", "news")).await.ok()["depth"], 4);
    assert_eq!(door.get(&lookup("http://c.example/", "other")).await.ok()["depth"], 9);
}

#[tokio::test]
async fn a_result_for_a_url_of_another_reservation_is_refused() {
    let door = Door::new();
    door.seed("DEFAULT", &["http://a.example/1"]).await;
    let reservation = door.reserve_one(json!({"holder": "w1"})).await;
    let results = json!({"results": [{"url": "http://a.example/2", "outcome": "fetched"}]});
    let answer = door.post(&path(&reservation, "release"), results).await;
    assert_eq!(answer.problem(), (422, "foreign_result".to_owned()));
    door.release_all(&reservation, "fetched").await;
}

#[tokio::test]
async fn urls_that_are_not_named_go_back_untouched() {
    let door = Door::new();
    at_once(&door, "a.example").await;
    door.seed("DEFAULT", &["http://a.example/1", "http://a.example/2"]).await;
    let both = door.reserve_one(json!({"holder": "w1", "urls": 10})).await;
    assert_eq!(both["urls"].as_array().unwrap().len(), 2);
    let results = json!({"results": [{"url": "http://a.example/1", "outcome": "fetched"}]});
    door.post(&path(&both, "release"), results).await.ok();
    let rest = door.reserve_one(json!({"holder": "w1", "urls": 10})).await;
    let urls = rest["urls"].as_array().unwrap();
    assert_eq!((urls.len(), &urls[0]["url"], &urls[0]["attempts"]), (1, &json!("http://a.example/2"), &json!(0)));
}

#[tokio::test]
async fn one_call_reserves_every_ready_group_up_to_the_number_asked() {
    let door = Door::new();
    let urls: Vec<String> = (0..40).map(|i| format!("http://h{i}.example/")).collect();
    door.seed("DEFAULT", &urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let some = door.post("/v1/reservations", json!({"holder": "w1", "groups": 30})).await.ok();
    assert_eq!(some["reservations"].as_array().unwrap().len(), 30);
    let rest = door.post("/v1/reservations", json!({"holder": "w1", "groups": 30})).await.ok();
    assert_eq!(rest["reservations"].as_array().unwrap().len(), 10);
    let page = door.get("/v1/reservations?limit=25").await.ok();
    let next = page["next"].as_str().unwrap();
    let last = door.get(&format!("/v1/reservations?limit=25&after={next}")).await.ok();
    let count = |page: &Value| page["reservations"].as_array().unwrap().len();
    assert_eq!((count(&page), count(&last), &last["next"]), (25, 15, &Value::Null));
}

#[tokio::test]
async fn known_urls_are_requeued_and_deleted_by_name_and_by_jobs() {
    let door = Door::new();
    door.seed("news", &["http://a.example/1", "http://a.example/2", "http://b.example/1"]).await;
    door.put("/v1/hosts/a.example", json!({"delay_ms": 0})).await.ok();
    for _ in 0..3 {
        let reservation = door.reserve_one(json!({"holder": "w"})).await;
        door.release_all(&reservation, "failed").await;
    }
    let lookup = |url: &str| format!("/v1/urls/lookup?crawl=news&url={}", url.replace(':', "%3A").replace('/', "%2F"));
    let one = json!({"crawl": "news", "urls": ["http://a.example/1", "http://a.example/none"]});
    let told = door.post("/v1/urls/requeue", one.clone()).await.ok();
    assert_eq!(told, json!({"done": 1, "reserved": 0, "unknown": 1}));
    assert_eq!(door.get(&lookup("http://a.example/1")).await.ok()["state"], "queued");

    let answer = door.post("/v1/urls/requeue", json!({"crawl": "news", "state": "failed"})).await;
    assert_eq!(answer.status, 202);
    assert!(answer.headers["location"].to_str().unwrap().starts_with("/v1/jobs/"));
    let job = answer.json()["job"].as_str().unwrap().to_owned();
    let ended = door.job_ended(&job).await;
    assert_eq!((&ended["kind"], &ended["state"], &ended["done"]), (&json!("requeue"), &json!("done"), &json!(2)));
    assert_eq!(door.get("/v1/jobs").await.ok()["jobs"][0]["id"], json!(job));

    let again = json!({"crawl": "news", "urls": [{"url": "http://b.example/1", "again": true}]});
    let told = door.post("/v1/urls", again).await.ok();
    assert_eq!((&told["counts"]["requeued"], &told["results"][0]["status"]), (&json!(1), &json!("requeued")));

    assert_eq!(door.post("/v1/urls/delete", one).await.ok()["done"], 1);
    assert_eq!(door.get(&lookup("http://a.example/1")).await.problem(), (404, "unknown_url".to_owned()));
    let job = door.post("/v1/urls/delete", json!({"contains": ".example/"})).await.json()["job"].clone();
    assert_eq!(door.job_ended(job.as_str().unwrap()).await["done"], 2);
    assert_eq!(door.get("/v1/urls").await.ok()["urls"], json!([]));

    for (body, word) in [
        (json!({}), "urls"),
        (json!({"state": "reserved"}), "state"),
        (json!({"older_than_ms": 9_007_199_254_740_993_u64}), "older_than_ms"),
    ] {
        let answer = door.post("/v1/urls/delete", body.clone()).await;
        assert_eq!(answer.problem(), (400, "bad_value".to_owned()), "{body}");
        assert_eq!(answer.json()["field"], word, "{body}");
    }
    let both = door.post("/v1/urls/delete", json!({"urls": ["http://a.example/"], "contains": "x"})).await;
    assert_eq!(both.problem(), (422, "contradiction".to_owned()));
    assert_eq!(door.get("/v1/jobs/AAAAAAAAAAAAAAAAAAAAAA").await.problem(), (404, "unknown_job".to_owned()));
    assert_eq!(door.get("/v1/jobs/nonsense").await.problem(), (400, "bad_job".to_owned()));
}

#[tokio::test]
async fn an_operator_sees_what_is_handed_out_and_takes_it_back() {
    let door = Door::new();
    door.seed("news", &["http://a.example/1", "http://a.example/2"]).await;
    let reservation = door.reserve_one(json!({"holder": "w", "urls": 2})).await;
    let host = door.get("/v1/hosts/a.example").await.ok();
    let in_hand: Vec<&str> = host["in_hand"].as_array().unwrap().iter().map(|u| u["url"].as_str().unwrap()).collect();
    assert_eq!(in_hand, ["http://a.example/1", "http://a.example/2"]);
    assert_eq!(host["in_hand"][0]["until"], reservation["expires_at"]);
    let told = door.post("/v1/reservations/revoke", json!({"holder": "w"})).await.ok();
    assert_eq!(told, json!({"reservations": 1, "holds": 0}));
    let path = format!("/v1/reservations/{}/release", reservation["token"].as_str().unwrap());
    assert_eq!(door.post(&path, json!({"results": []})).await.problem(), (409, "not_current".to_owned()));
    assert_eq!(door.get("/v1/hosts/a.example").await.ok().get("in_hand"), None);
    assert_eq!(door.post("/v1/reservations/revoke", json!({})).await.problem(), (400, "bad_value".to_owned()));
    let stale = door.post("/v1/reservations/revoke", json!({"token": reservation["token"]})).await;
    assert_eq!(stale.problem(), (409, "not_current".to_owned()));
}

/// A regression: a release with links keeps the group until they are stored, for 30 seconds at most; if the client
/// disconnected meanwhile, the release was aborted midway, and the group stayed busy long after the requested lease.
#[tokio::test]
async fn a_release_is_carried_out_although_its_client_goes_away_in_the_middle() {
    let door = Door::new();
    door.seed("DEFAULT", &["http://a.example/"]).await;
    let reservation = door.reserve_one(json!({"holder": "w", "lease_ms": 1_000})).await;
    let found = json!([{"url": "http://b.example/found"}]);
    let results = json!([{"url": "http://a.example/", "outcome": "fetched", "found": found}]);
    let path = format!("/v1/reservations/{}/release", reservation["token"].as_str().unwrap());
    let mut release = Box::pin(door.post(&path, json!({ "results": results })));
    assert!(futures::poll!(release.as_mut()).is_pending(), "its first question is under way");
    // This request reaches the same owner after that one.
    door.get("/v1/reservations").await.ok();
    drop(release);
    let state = async || door.get("/v1/urls/lookup?url=http://a.example/").await.ok()["state"].clone();
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while state().await != "fetched" {
        assert!(std::time::Instant::now() < patience, "{}", door.get("/v1/reservations").await.text);
        tokio::task::yield_now().await;
    }
    assert_eq!(door.get("/v1/urls/lookup?url=http://b.example/found").await.ok()["depth"], 1);
    assert_eq!(door.get("/v1/reservations").await.ok()["reservations"], json!([]));
}

#[tokio::test]
async fn a_worker_is_told_when_its_crawl_is_finished_and_others_can_wait_for_it() {
    let door = Door::new();
    door.seed("news", &["http://a.example/"]).await;
    let wish = json!({"holder": "w", "crawl": "news"});
    let visit = door.reserve_one(wish.clone()).await;
    let told = door.post("/v1/reservations", wish.clone()).await.ok();
    assert_eq!(told, json!({"reservations": []}), "a visit goes on");
    let waiting = tokio::spawn({
        let door = door.clone();
        async move { door.get("/v1/crawls/news?wait_for=finished&wait_ms=60000").await.ok() }
    });
    door.release_all(&visit, "fetched").await;
    assert_eq!(waiting.await.unwrap()["finished"], true);
    assert_eq!(door.post("/v1/reservations", wish).await.ok(), json!({"reservations": [], "finished": true}));
    let any = door.post("/v1/reservations", json!({"holder": "w"})).await.ok();
    assert_eq!(any, json!({"reservations": []}), "no crawl was named");
    let unknown = door.post("/v1/reservations", json!({"holder": "w", "crawl": "nowhere"})).await.ok();
    assert_eq!(unknown, json!({"reservations": []}), "nobody has begun it");
    for bad in ["wait_for=started", "wait_for=finished&wait_ms=60001", "wait_ms=x", "wait=1"] {
        assert_eq!(door.get(&format!("/v1/crawls/news?{bad}")).await.problem().0, 400, "{bad}");
    }
    assert_eq!(door.get("/v1/crawls/nowhere?wait_for=finished&wait_ms=60000").await.problem().0, 404);
}
