//! Bounds of the API: numbers that JSON parsers round, words that paths use, and the maximum of each kind of thing.

use crate::prelude::*;

/// The first integer that a parser with 64-bit floats cannot distinguish from its neighbour.
const PAST: u64 = (1 << 53) + 1;

#[tokio::test]
async fn a_number_past_2_to_the_53_is_refused_with_its_field() {
    let door = Door::new();
    door.seed("DEFAULT", &["http://a.example/"]).await;
    let held = door.reserve_one(json!({"holder": "w"})).await;
    let release = format!("/v1/reservations/{}/release", held["token"].as_str().unwrap());
    let result = |field: &str| json!({"results": [{"url": "http://a.example/", "outcome": "fetched", field: PAST}]});
    let beat = |field: &str, value: Value| json!({"uuid": "u", field: value});
    for (path, body, field) in [
        ("/v1/hosts/a.example", json!({"limit": PAST}), "limit"),
        ("/v1/hosts/a.example", json!({"delay_ms": PAST}), "delay_ms"),
        ("/v1/groups/g", json!({"hosts": ["a.example"], "limit": PAST}), "limit"),
        ("/v1/crawls/c", json!({"limits": {"urls": PAST}}), "limits.urls"),
        ("/v1/crawls/c", json!({"limits": {"pages": PAST}}), "limits.pages"),
        ("/v1/crawls/c", json!({"limits": {"urls_per_host": PAST}}), "limits.urls_per_host"),
        ("/v1/crawls/c", json!({"limits": {"pages_per_host": PAST}}), "limits.pages_per_host"),
        ("/v1/crawls/c", json!({"limits": {"hosts": PAST}}), "limits.hosts"),
    ] {
        let answer = door.put(path, body).await;
        assert_eq!(answer.problem(), (400, "bad_value".to_owned()), "{path} {field}");
        assert_eq!(answer.json()["field"], field, "{}", answer.text);
    }
    for field in ["duration_ms", "bytes", "crawl_delay_ms", "retry_after_ms"] {
        let answer = door.post(&release, result(field)).await;
        assert_eq!(answer.problem(), (400, "bad_value".to_owned()), "{field}");
        assert_eq!(answer.json()["field"], format!("results[0].{field}"));
    }
    for (field, value, named) in [
        ("heard", json!(PAST), "heard"),
        ("take_over", json!({"epoch": PAST, "expires_at_ms": 1}), "take_over.epoch"),
        ("take_over", json!({"epoch": 1, "expires_at_ms": PAST}), "take_over.expires_at_ms"),
    ] {
        let answer = door.post("/v1/roles/r/heartbeat", beat(field, value)).await;
        assert_eq!(answer.problem(), (400, "bad_value".to_owned()), "{named}");
        assert_eq!(answer.json()["field"], named);
    }
    for (path, field) in [("/v1/crawls/DEFAULT/purge?older_than_ms=", "older_than_ms")] {
        let answer = door.post(&format!("{path}{PAST}"), Value::Null).await;
        assert_eq!((answer.problem().0, &answer.json()["field"]), (400, &json!(field)), "{}", answer.text);
    }
    let answer = door.get(&format!("/v1/roles/r?min_epoch={PAST}")).await;
    assert_eq!((answer.problem().0, &answer.json()["field"]), (400, &json!("min_epoch")), "{}", answer.text);
    // The greatest exact one is accepted.
    let told = door.put("/v1/crawls/c", json!({"limits": {"urls": PAST - 1}})).await.ok();
    assert_eq!(told["limits"]["urls"], PAST - 1);
}

/// A uuid appears in paths beside words of the API; the document says which.
#[tokio::test]
async fn no_uuid_may_be_a_word_of_the_paths() {
    let door = Door::new();
    let document = door.get("/openapi.json").await.ok();
    let paths = document["paths"].as_object().unwrap().keys();
    let words: Vec<&str> = paths
        .filter_map(|path| path.strip_prefix("/v1/roles/{utype}/"))
        .filter(|word| !word.starts_with('{'))
        .collect();
    assert!(words.len() >= 3, "{words:?}");
    for word in words {
        let answer = door.post("/v1/roles/r/heartbeat", json!({"uuid": word})).await;
        assert_eq!(answer.problem(), (400, "bad_value".to_owned()), "{word}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("a word of the API"), "{}", answer.text);
    }
}

/// Existing settings count as well: a first wait over the longest one would never be used.
#[tokio::test]
async fn a_first_wait_over_the_longest_that_is_set_is_refused_with_both() {
    let door = Door::new();
    door.put("/v1/crawls/c", json!({"retry": {"max_ms": 60_000}})).await.ok();
    let answer = door.patch("/v1/crawls/c", json!({"retry": {"first_ms": 120_000}})).await;
    assert_eq!(answer.problem(), (422, "contradiction".to_owned()));
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("retry.first_ms would be 120000") && detail.contains("retry.max_ms 60000"), "{detail}");
    let told = door.get("/v1/crawls/c").await.ok();
    assert_eq!(told["retry"]["max_ms"], 60_000);
    door.patch("/v1/crawls/c", json!({"retry": {"first_ms": 120_000, "max_ms": 240_000}})).await.ok();
    let answer = door.patch("/v1/crawls/c", json!({"retry": {"max_ms": 60_000}})).await;
    assert_eq!(answer.problem(), (422, "contradiction".to_owned()));
    // PUT clears what it does not name, so nothing conflicts.
    door.put("/v1/crawls/c", json!({"retry": {"max_ms": 60_000}})).await.ok();
    // Other settings can be changed whatever the waits are.
    door.patch("/v1/crawls/c", json!({"weight": 2})).await.ok();
    let both = json!({"retry": {"first_ms": 2, "max_ms": 1}});
    assert_eq!(door.patch("/v1/crawls/c", both).await.problem(), (422, "contradiction".to_owned()));
}

/// A regression: an invalid crawl name was ignored where the body named another.
#[tokio::test]
async fn the_crawl_of_a_query_is_checked_also_where_the_body_names_one() {
    let door = Door::new();
    let body = || json!({"crawl": "news", "urls": []});
    let answer = door.post("/v1/urls?crawl=%C2%84", body()).await;
    assert_eq!(answer.problem(), (400, "bad_value".to_owned()));
    assert_eq!(answer.json()["field"], "crawl");
    door.post("/v1/urls?crawl=other", body()).await.ok();
}
