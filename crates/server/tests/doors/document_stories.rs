//! The document and the server agree on every body: each field of a complete request in turn is omitted, emptied, given
//! another type and moved past its bounds; what the document accepts the server must accept, and what it rejects the
//! server must refuse.
//!
//! 422 is excluded: it is the response to fields or settings that contradict each other, which no schema can express.

use crate::prelude::*;
use crate::support::schema::takes;

const TOKEN: &str = "AA4y2WNEMwp2OTlfiBlOkA";

/// A body with every field for every call that has one; for some calls several, where fields exclude each other. Long
/// polls have no `wait_ms`: the test would wait as well.
fn bodies() -> Vec<(&'static str, &'static str, Value)> {
    let at = "2026-11-15T03:04:05.678Z";
    let found = json!({"url": "https://example.com/", "key": "k", "crawl": "news", "at": at, "priority": 5, "depth": 0, "again": false, "metadata": {"a": "b"}});
    let host = json!({"delay_ms": 1, "delay_factor": 2.5, "delay_ms_min": 1, "delay_ms_max": 2, "limit": 5, "paused": false, "blocked_until": at, "crawl_delay_ms": 1, "ready_at": at});
    let group = json!({"hosts": ["a.example"], "parallel": 1, "delay_ms": 1, "delay_factor": 2.5, "delay_ms_min": 1, "delay_ms_max": 2, "limit": 5, "paused": false, "blocked_until": at});
    let crawl = json!({
        "weight": 1, "paused": false, "delay_ms": 1, "revisit": {"adaptive": {"min_ms": 1, "max_ms": 2}}, "retry": {"attempts": 3, "first_ms": 1, "max_ms": 2},
        "limits": {"urls": 1, "pages": 1, "urls_per_host": 1, "pages_per_host": 1, "depth": 1, "attempts": 1, "hosts": 1},
    });
    let role = json!({"ttl_ms": 15_000, "mode": "strict", "continue_for_ms": 60_000});
    let filter = json!({"crawl": "news", "host": "a.example", "state": "failed", "contains": "x", "older_than_ms": 1});
    let named = json!({"crawl": "news", "host": "a.example", "urls": ["https://a.example/"]});
    let result = json!({
        "url": "https://a.example/", "outcome": "fetched", "status": 200, "duration_ms": 1, "bytes": 1, "changed": true, "digest": "d",
        "crawl_delay_ms": 1, "retry_after_ms": 1, "next_at": at, "found": [found],
    });
    let beat = json!({
        "uuid": "u", "address": "a", "metadata": {"a": "b"}, "ready": true, "priority": 5, "interval_ms": 3_000, "heard": 1, "slot": "s", "token": TOKEN,
        "peer": {"address": "a:1", "secret": TOKEN}, "take_over": {"epoch": 1, "expires_at_ms": 1},
    });
    let sum = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let artifact = json!({"location": "s3://crawl/1.warc.gz", "bytes": 1, "checksum": sum});
    let machine = json!({"type": "server", "address": "10.0.0.7:9000", "capacity": 1, "row": 0, "state": "online", "token": TOKEN, "version": "1"});
    vec![
        ("post", "/v1/urls", json!({"crawl": "news", "urls": [found]})),
        ("post", "/v1/urls/requeue", filter.clone()),
        ("post", "/v1/urls/requeue", named.clone()),
        ("post", "/v1/urls/delete", filter),
        ("post", "/v1/urls/delete", named),
        (
            "post",
            "/v1/reservations",
            json!({"holder": "w", "crawl": "news", "groups": 1, "urls": 1, "lease_ms": 100, "request_id": "r"}),
        ),
        ("post", "/v1/reservations/revoke", json!({"token": TOKEN, "holder": null, "host": null})),
        ("post", "/v1/reservations/revoke", json!({"holder": "w", "token": null, "host": null})),
        ("post", "/v1/reservations/revoke", json!({"host": "a.example", "token": null, "holder": null})),
        ("post", "/v1/reservations/{token}/renew", json!({"lease_ms": 100})),
        ("post", "/v1/reservations/{token}/release", json!({"results": [result.clone()], "ready_at": at})),
        (
            "post",
            "/v1/chunks/claim",
            json!({
                "stage": "crawl", "worker": "w", "crawl": "news", "max": 1, "links": 1, "host": "a.example",
                "lease_ms": 100, "linger_ms": 0, "request_id": "r",
            }),
        ),
        ("post", "/v1/chunks/{chunk}/links", json!({"token": TOKEN, "results": [result], "replace": true})),
        ("post", "/v1/chunks/{chunk}/renew", json!({"token": TOKEN, "lease_ms": 100})),
        ("post", "/v1/chunks/{chunk}/complete", json!({"token": TOKEN, "artifact": artifact})),
        ("post", "/v1/chunks/{chunk}/fail", json!({"token": TOKEN, "reason": "it broke", "input_lost": false})),
        ("put", "/v1/fleet/{id}", machine),
        ("patch", "/v1/fleet/{id}", json!({"desired": "drain"})),
        ("post", "/v1/placements/{chunk}/{server}", json!({"state": "ready"})),
        ("put", "/v1/hosts/{host}", host.clone()),
        ("patch", "/v1/hosts/{host}", host),
        ("put", "/v1/groups/{group}", group.clone()),
        ("patch", "/v1/groups/{group}", group),
        ("put", "/v1/crawls/{crawl}", crawl.clone()),
        ("put", "/v1/crawls/{crawl}", json!({"revisit": {"fixed_ms": 1}})),
        ("patch", "/v1/crawls/{crawl}", crawl),
        ("put", "/v1/roles/{utype}", role.clone()),
        ("patch", "/v1/roles/{utype}", role),
        ("post", "/v1/roles/{utype}/raise_epoch", json!({"epoch": 1})),
        ("post", "/v1/roles/{utype}/heartbeat", beat),
    ]
}

/// The same for pools and their workers.
fn pools() -> Vec<(&'static str, &'static str, Value)> {
    let pool = json!({
        "runtime": "docker", "command": ["w"], "image": "i", "env": {"A": "b"}, "port": 80, "advertise": "a",
        "memory_bytes": 6_291_456, "cpu_millis": 10, "pull": "missing", "slots": 1, "min": 0, "max": 1, "buffer": 0,
        "idle_ms": 0, "age_ms_max": 100, "uses_max": 1, "start_ms_max": 100, "queue_max": 1, "match_ms_max": 100,
        "reservation_ms": 100, "makers_max": 1, "paused": true,
    });
    let report = json!({"address": "a:1", "free": 0, "run": 1, "secret": TOKEN});
    let pause = json!({"paused": true});
    vec![
        ("put", "/v1/pools/{pool}", pool),
        ("put", "/v1/pools/{pool}/paused", pause),
        ("put", "/v1/pools/{pool}/workers/{worker}", report),
    ]
}

fn whole() -> Vec<(&'static str, &'static str, Value)> {
    [bodies(), pools()].concat()
}

/// The pointers to everything inside a value, and to itself.
fn places(value: &Value, at: &str, places: &mut Vec<String>) {
    places.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| self::places(field, &format!("{at}/{name}"), places))
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| self::places(item, &format!("{at}/{i}"), places))
        }
        _ => {}
    }
}

/// The numbers that a document names as bounds anywhere, with their neighbours.
fn bounds(value: &Value, found: &mut Vec<i64>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, field)| match field.as_i64() {
            Some(bound) if matches!(name.as_str(), "minimum" | "maximum") => {
                found.extend([bound - 1, bound, bound + 1])
            }
            _ => bounds(field, found),
        }),
        Value::Array(items) => items.iter().for_each(|item| bounds(item, found)),
        _ => {}
    }
}

/// What a place is filled with instead.
fn odd_values(document: &Value) -> Vec<Value> {
    let mut numbers = Vec::new();
    bounds(&document["components"]["schemas"], &mut numbers);
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.len() > 30, "{numbers:?}");
    let words = ["", "x", "never", "reserved", "fetched", "gone", "heartbeat", "step_down", "raise_epoch", "continue"];
    let mut odd = vec![
        json!(null),
        json!(true),
        json!(0.5),
        json!(5.0),
        json!([]),
        json!([null, null]),
        json!([1, 2]),
        json!({}),
        json!({"x": 1}),
    ];
    odd.extend(numbers.into_iter().map(Value::from));
    odd.extend(words.map(Value::from));
    odd.extend([22, 64, 65, 128, 129, 255, 256, 257, 512, 513].map(|length| Value::from("a".repeat(length))));
    odd
}

fn mutations(body: &Value, odd: &[Value]) -> Vec<(String, Value)> {
    let mut all = vec![("the whole".to_owned(), body.clone())];
    let mut found = Vec::new();
    places(body, "", &mut found);
    for place in &found {
        for value in odd {
            let mut changed = body.clone();
            *changed.pointer_mut(place).unwrap() = value.clone();
            all.push((format!("{place} = {value:.60}"), changed));
        }
        let mut changed = body.clone();
        let there = changed.pointer_mut(place).unwrap();
        if let Value::Object(fields) = there {
            // The library would accept a list of the fields instead of the object.
            let list = fields.values().cloned().collect();
            *there = Value::Array(list);
            all.push((format!("{place} as a list"), changed));
        }
        let mut changed = body.clone();
        if let Value::Object(fields) = changed.pointer_mut(place).unwrap() {
            fields.insert("no_such_field".into(), 1.into());
            all.push((format!("{place} with one more field"), changed));
        }
        let (parent, name) = place.rsplit_once('/').unwrap_or_default();
        let mut changed = body.clone();
        if let Value::Object(fields) = changed.pointer_mut(parent).unwrap()
            && fields.remove(name).is_some()
        {
            all.push((format!("{place} left out"), changed));
        }
    }
    all
}

#[tokio::test]
async fn the_document_takes_the_bodies_that_the_server_takes_and_no_others() {
    let door = Door::new();
    let document = door.get("/openapi.json").await.ok();
    let odd = odd_values(&document);
    let (mut differences, mut tried) = (Vec::new(), 0);
    for (method, path, body) in whole() {
        let request = &document["paths"][path][method]["requestBody"];
        let schema = &request["content"]["application/json"]["schema"];
        let real = path
            .replace("{token}", TOKEN)
            .replace("{host}", "a.example")
            .replace("{chunk}", "1")
            .replace(['{', '}'], "");
        let method: Method = method.to_uppercase().parse().unwrap();
        for (change, body) in mutations(&body, &odd) {
            let answer = door.send_as(method.clone(), &real, "application/json", body.to_string()).await;
            let is_refused = matches!(answer.status.as_u16(), 400 | 413);
            if answer.status.as_u16() != 422 && is_refused == takes(&document, schema, &body) {
                differences.push(format!("{method} {path}: {change}: {} {:.200}", answer.status, answer.text));
            }
            assert!(!answer.status.is_server_error(), "{method} {path}: {change}: {}", answer.text);
            tried += 1;
        }
        // A body may be omitted where the document says so.
        let answer = door.send_as(method.clone(), &real, "", "").await;
        let is_needed = request["required"] == true;
        if is_needed != matches!(answer.status.as_u16(), 400 | 415) {
            differences.push(format!("{method} {path}: without a body: {} {}", answer.status, answer.text));
        }
    }
    assert!(tried > 5_000, "{tried}");
    assert!(differences.is_empty(), "{} of {tried}:\n{}", differences.len(), differences.join("\n"));
}

/// Every call that takes a body is covered.
#[tokio::test]
async fn every_call_with_a_body_is_held_against_the_document() {
    let document = Door::new().get("/openapi.json").await.ok();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, call) in item.as_object().unwrap() {
            let is_tried = whole().iter().any(|(tried, of, _)| tried == method && of == path);
            assert_eq!(call["requestBody"].is_object(), is_tried, "{method} {path}");
        }
    }
}
