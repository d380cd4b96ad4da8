//! An operator's work over HTTP: hosts, groups and crawls are set, paused, listed and deleted.

use crate::prelude::*;

async fn reserved_hosts(door: &Door) -> Vec<String> {
    let told = door.post("/v1/reservations", json!({"holder": "w", "groups": 100})).await.ok();
    let list = told["reservations"].as_array().unwrap();
    list.iter().map(|reservation| reservation["host"].as_str().unwrap().to_owned()).collect()
}

/// All rows of a listing, page by page.
async fn all_pages(door: &Door, path: &str, rows: &str, name: &str) -> Vec<String> {
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = door.get(&format!("{path}{after}")).await.ok();
        seen.extend(page[rows].as_array().unwrap().iter().map(|row| row[name].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return seen,
        }
    }
}

#[tokio::test]
async fn hosts_of_one_alias_are_visited_one_at_a_time() {
    let door = Door::new();
    let group = door.put("/v1/groups/big", json!({"hosts": ["A.example", "b.example"], "delay_ms": 0})).await.ok();
    assert_eq!((&group["group"], &group["hosts"]), (&json!("big"), &json!(["a.example", "b.example"])));
    assert_eq!((&group["parallel"], &group["delay_in_force_ms"]), (&json!(1), &json!(0)));
    door.seed("DEFAULT", &["http://a.example/", "http://b.example/", "http://c.example/"]).await;
    let told = door.post("/v1/reservations", json!({"holder": "w", "groups": 10})).await.ok();
    let list = told["reservations"].as_array().unwrap();
    let groups: BTreeSet<&str> = list.iter().map(|reservation| reservation["group"].as_str().unwrap()).collect();
    assert_eq!((list.len(), groups), (2, BTreeSet::from(["big", "c.example"])));
    assert_eq!(door.get("/v1/groups/big").await.ok()["state"], "busy");
    let first = list.iter().find(|reservation| reservation["group"] == "big").unwrap();
    door.release_all(first, "fetched").await;
    let second = door.reserve_one(json!({"holder": "w"})).await;
    assert_eq!(second["group"], "big");
    assert_ne!(second["host"], first["host"]);
}

#[tokio::test]
async fn a_host_belongs_to_one_alias_until_that_lets_it_go() {
    let door = Door::new();
    door.put("/v1/groups/one", json!({"hosts": ["a.example", "b.example"]})).await.ok();
    let answer = door.put("/v1/groups/two", json!({"hosts": ["b.example"]})).await;
    assert_eq!(answer.problem(), (409, "host_taken".to_owned()));
    assert_eq!((&answer.json()["host"], &answer.json()["alias"]), (&json!("b.example"), &json!("one")));
    door.put("/v1/groups/one", json!({"hosts": ["a.example"]})).await.ok();
    door.put("/v1/groups/two", json!({"hosts": ["b.example"]})).await.ok();
    assert_eq!(door.get("/v1/hosts/b.example").await.ok()["group"], "two");
    assert_eq!(door.delete("/v1/groups/two").await.status.as_u16(), 204);
    assert_eq!(door.get("/v1/hosts/b.example").await.ok()["group"], "b.example");
    assert_eq!(door.get("/v1/groups/two").await.problem(), (404, "unknown_group".to_owned()));
    assert_eq!(door.delete("/v1/groups/two").await.problem(), (404, "unknown_group".to_owned()));
}

#[tokio::test]
async fn a_pause_or_a_block_does_not_hide_a_visit_that_goes_on() {
    let door = Door::new();
    door.put("/v1/groups/big", json!({"hosts": ["a.example", "b.example"]})).await.ok();
    door.seed("DEFAULT", &["http://a.example/"]).await;
    let held = door.reserve_one(json!({"holder": "w-7"})).await;
    let visit = json!([{"host": "a.example", "holder": "w-7", "expires_at": held["expires_at"]}]);
    for (path, changes, state) in [
        ("/v1/hosts/a.example", json!({}), "busy"),
        ("/v1/hosts/b.example", json!({"blocked_until": "2099-01-01T00:00:00Z"}), "blocked"),
        ("/v1/hosts/a.example", json!({"paused": true}), "paused"),
        ("/v1/groups/big", json!({"paused": true}), "paused"),
    ] {
        let told = door.patch(path, changes).await.ok();
        assert_eq!((&told["state"], &told["visits"]), (&json!(state), &visit), "{path}: {told}");
        let reason = told["reason"].as_str().unwrap();
        assert!(reason.contains("'w-7' is") && reason.contains("visiting host 'a.example'"), "{path}: {reason}");
    }
    door.release_all(&held, "fetched").await;
    let told = door.get("/v1/hosts/a.example").await.ok();
    assert_eq!((&told["state"], &told["visits"]), (&json!("paused"), &json!([])), "{told}");
    assert!(!told["reason"].as_str().unwrap().contains("w-7"), "{told}");
}

#[tokio::test]
async fn what_is_held_is_not_handed_out_and_says_why() {
    let door = Door::new();
    door.seed("DEFAULT", &["http://a.example/", "http://b.example/", "http://c.example/"]).await;
    door.patch("/v1/hosts/a.example", json!({"paused": true, "blocked_until": "2099-01-01T00:00:00Z"})).await.ok();
    door.patch("/v1/hosts/b.example", json!({"blocked_until": "2099-01-01T00:00:00Z"})).await.ok();
    assert_eq!(reserved_hosts(&door).await, ["c.example"]);
    for (host, state) in [("a.example", "paused"), ("b.example", "blocked"), ("c.example", "busy")] {
        let told = door.get(&format!("/v1/hosts/{host}")).await.ok();
        assert_eq!(told["state"], state, "{told}");
        assert!(!told["reason"].as_str().unwrap().is_empty(), "{told}");
    }
    assert_eq!(door.get("/v1/hosts/b.example").await.ok()["ready_at"], "2099-01-01T00:00:00.000Z");
    let paused = door.get("/v1/hosts?state=paused").await.ok();
    assert_eq!(paused["hosts"].as_array().unwrap().len(), 1);
    door.patch("/v1/hosts/a.example", json!({"paused": null, "blocked_until": null})).await.ok();
    assert_eq!(reserved_hosts(&door).await, ["a.example"]);
}

#[tokio::test]
async fn a_paused_crawl_is_passed_over() {
    let door = Door::new();
    door.seed("slow", &["http://a.example/"]).await;
    door.patch("/v1/crawls/slow", json!({"paused": true})).await.ok();
    assert!(reserved_hosts(&door).await.is_empty());
    let host = door.get("/v1/hosts/a.example").await.ok();
    assert!(host["state"] != "ready" && host["reason"] != "", "{host}");
    door.patch("/v1/crawls/slow", json!({"paused": false})).await.ok();
    assert_eq!(reserved_hosts(&door).await, ["a.example"]);
}

#[tokio::test]
async fn a_host_without_urls_is_visited_at_its_time() {
    let door = Door::new();
    let host = door.put("/v1/hosts/192.0.2.7", json!({"ready_at": "2020-01-01T00:00:00Z", "delay_ms": 0})).await.ok();
    assert_eq!((&host["host"], &host["state"]), (&json!("192.0.2.7"), &json!("ready")));
    let reservation = door.reserve_one(json!({"holder": "w", "urls": 0})).await;
    assert_eq!((&reservation["host"], &reservation["urls"]), (&json!("192.0.2.7"), &json!([])));
    let path = format!("/v1/reservations/{}/release", reservation["token"].as_str().unwrap());
    door.post(&path, json!({"ready_at": "2099-01-01T00:00:00Z"})).await.ok();
    let host = door.get("/v1/hosts/192.0.2.7").await.ok();
    assert_eq!((&host["state"], &host["queued_at"]), (&json!("waiting"), &json!("2099-01-01T00:00:00.000Z")));
    assert_eq!(host["ready_at"], "2099-01-01T00:00:00.000Z");
}

#[tokio::test]
async fn put_replaces_and_patch_changes() {
    let door = Door::new();
    let set =
        json!({"delay_ms": 5, "delay_factor": 2.5, "delay_ms_min": 1, "delay_ms_max": 9, "limit": 3, "paused": true});
    let host = door.put("/v1/hosts/a.example", set).await.ok();
    assert_eq!((&host["delay_ms"], &host["delay_factor"], &host["paused"]), (&json!(5), &json!(2.5), &json!(true)));
    let host = door.patch("/v1/hosts/a.example", json!({"delay_ms": 7, "limit": null})).await.ok();
    assert_eq!((&host["delay_ms"], &host["limit"], &host["delay_ms_max"]), (&json!(7), &Value::Null, &json!(9)));
    let host = door.put("/v1/hosts/a.example", json!({"limit": 4})).await.ok();
    assert_eq!((&host["delay_ms"], &host["limit"], &host["paused"]), (&Value::Null, &json!(4), &json!(false)));

    let set = json!({"weight": 5, "limits": {"depth": 2, "urls": 100}, "revisit": {"fixed_ms": 1000}, "delay_ms": 8});
    let crawl = door.put("/v1/crawls/news", set).await.ok();
    assert_eq!((&crawl["weight"], &crawl["revisit"]), (&json!(5), &json!({"fixed_ms": 1000})));
    let crawl = door.patch("/v1/crawls/news", json!({"limits": {"depth": null}})).await.ok();
    assert_eq!(
        (&crawl["limits"]["depth"], &crawl["limits"]["urls"], &crawl["weight"]),
        (&Value::Null, &json!(100), &json!(5))
    );
    let crawl = door.put("/v1/crawls/news", json!({})).await.ok();
    assert_eq!((&crawl["weight"], &crawl["revisit"], &crawl["delay_ms"]), (&json!(1), &json!("never"), &Value::Null));
    assert_eq!(crawl["limits"]["urls"], Value::Null);
}

#[tokio::test]
async fn the_limits_of_a_crawl_are_told_with_the_rejection() {
    let door = Door::new();
    door.put("/v1/crawls/flat", json!({"limits": {"depth": 1}})).await.ok();
    let urls = json!([{"url": "http://a.example/1", "depth": 1}, {"url": "http://a.example/2", "depth": 2}]);
    let told = door.post("/v1/urls", json!({"crawl": "flat", "urls": urls})).await.ok();
    assert_eq!(told["counts"], json!({"added": 1, "known": 0, "rejected": 1, "failed": 0}));
    assert!(told["results"][1]["reason"].as_str().unwrap().contains("depth"), "{told}");
}

#[tokio::test]
async fn listings_page_through_everything_once() {
    let door = Door::new();
    let urls: Vec<String> = (0..50).map(|i| format!("http://h{}.example/{i}", i % 10)).collect();
    door.seed("DEFAULT", &urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    door.put("/v1/groups/pair", json!({"hosts": ["h0.example", "h1.example"]})).await.ok();
    let as_set = |rows: Vec<String>, want: usize| {
        let set: BTreeSet<String> = rows.iter().cloned().collect();
        assert_eq!((rows.len(), set.len()), (want, want), "{rows:?}");
        set
    };
    as_set(all_pages(&door, "/v1/hosts?limit=3", "hosts", "host").await, 10);
    let groups = as_set(all_pages(&door, "/v1/groups?limit=4", "groups", "group").await, 9);
    assert!(groups.contains("pair") && !groups.contains("h0.example"), "{groups:?}");
    let listed = as_set(all_pages(&door, "/v1/urls?limit=7", "urls", "url").await, 50);
    assert_eq!(listed, urls.into_iter().collect());
    as_set(all_pages(&door, "/v1/urls?limit=2&host=h3.example", "urls", "url").await, 5);
    as_set(all_pages(&door, "/v1/urls?limit=2&contains=example/4", "urls", "url").await, 11);
    as_set(all_pages(&door, "/v1/urls?limit=9&state=fetched", "urls", "url").await, 0);
    assert_eq!(door.get("/v1/hosts?after=nonsense").await.problem(), (400, "bad_cursor".to_owned()));
}

#[tokio::test]
async fn a_deleted_crawl_takes_its_urls_with_it_and_no_others() {
    let door = Door::new();
    door.seed("old", &["http://a.example/1", "http://a.example/2", "http://b.example/1"]).await;
    door.seed("new", &["http://a.example/1"]).await;
    assert_eq!(door.delete("/v1/crawls/old").await.ok(), json!({"deleted": 3}));
    assert_eq!(door.get("/v1/crawls/old").await.problem(), (404, "unknown_crawl".to_owned()));
    let lookup = "/v1/urls/lookup?url=http%3A%2F%2Fa.example%2F1&crawl=";
    assert_eq!(door.get(&format!("{lookup}old")).await.problem(), (404, "unknown_url".to_owned()));
    assert_eq!(door.get(&format!("{lookup}new")).await.ok()["state"], "queued");
    let crawls = door.get("/v1/crawls").await.ok();
    let names: Vec<&str> = crawls["crawls"].as_array().unwrap().iter().map(|c| c["crawl"].as_str().unwrap()).collect();
    assert!(names.contains(&"new") && !names.contains(&"old"), "{names:?}");
    let again = door.seed("old", &["http://a.example/1"]).await;
    assert_eq!(again["counts"]["added"], 1);
}

#[tokio::test]
async fn queues_are_deleted_and_old_urls_purged() {
    let door = Door::new();
    door.seed("c", &["http://a.example/1", "http://a.example/2", "http://b.example/1"]).await;
    let host = door.get("/v1/hosts/a.example").await.ok();
    assert_eq!((&host["crawls"][0]["crawl"], &host["crawls"][0]["counts"]["queued"]), (&json!("c"), &json!(2)));
    let young = door.post("/v1/crawls/c/purge?older_than_ms=3600000", json!({})).await.ok();
    assert_eq!(young, json!({"deleted": 0}));
    assert_eq!(door.delete("/v1/hosts/a.example/queues/c").await.ok(), json!({"deleted": 2}));
    assert_eq!(door.delete("/v1/hosts/a.example/queues/c").await.ok(), json!({"deleted": 0}));
    let crawl = door.get("/v1/crawls/c").await.ok();
    assert_eq!(
        (&crawl["counts"]["queued"], &crawl["hosts"], &crawl["active_hosts"]),
        (&json!(1), &json!(1), &json!(1))
    );
}

#[tokio::test]
async fn what_is_not_known_is_not_found() {
    let door = Door::new();
    for (path, code) in [
        ("/v1/hosts/nowhere.example", "unknown_host"),
        ("/v1/groups/nobody", "unknown_group"),
        ("/v1/crawls/never", "unknown_crawl"),
        ("/v1/urls/lookup?url=http%3A%2F%2Fnowhere.example%2F", "unknown_url"),
    ] {
        assert_eq!(door.get(path).await.problem(), (404, code.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn totals_are_on_the_page_of_numbers() {
    let door = Door::new();
    door.seed("DEFAULT", &["http://a.example/1", "http://b.example/1"]).await;
    assert_eq!(reserved_hosts(&door).await.len(), 2);
    let stats = door.get("/v1/stats").await.ok();
    assert_eq!(
        (&stats["hosts"], &stats["reservations"], &stats["urls"]["reserved"]),
        (&json!(2), &json!(2), &json!(2))
    );
    let page = door.get("/metrics").await.text;
    for line in [
        "wayleave_hosts 2\n",
        "wayleave_urls{state=\"reserved\"} 2\n",
        "wayleave_http_urls_total{result=\"added\"} 2\n",
    ] {
        assert!(page.contains(line), "{line}{page}");
    }
}
