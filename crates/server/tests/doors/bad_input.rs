//! Invalid input of every kind: the response says what is wrong.

use crate::prelude::*;

const JSON: &str = "application/json";

#[tokio::test]
async fn bad_json_is_refused_with_line_and_column() {
    let answer = Door::new().send_as(Method::POST, "/v1/urls", JSON, "{\n \"urls\": [,]}").await;
    assert_eq!(answer.problem(), (400, "bad_json".to_owned()));
    let body = answer.json();
    assert_eq!((&body["line"], &body["column"]), (&json!(2), &json!(11)), "{body}");
}

#[tokio::test]
async fn an_empty_body_is_refused_where_one_is_needed() {
    let door = Door::new();
    for (method, path) in [(Method::POST, "/v1/urls"), (Method::POST, "/v1/reservations"), (Method::PUT, "/v1/hosts/a")]
    {
        let answer = door.send_as(method, path, JSON, Body::empty()).await;
        assert_eq!(answer.problem(), (400, "bad_json".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn fields_that_cannot_be_taken_are_named() {
    let door = Door::new();
    let token = "A".repeat(22);
    let release = format!("/v1/reservations/{token}/release");
    for (method, path, body, named) in [
        (
            Method::POST,
            "/v1/urls",
            json!({"urls": [], "crawls": "x"}),
            "crawls: there is no such field; it is none of crawl, urls; did you mean 'crawl'?",
        ),
        (Method::POST, "/v1/urls", json!({"urls": [{"url": "http://a/", "prio": 1}]}), "did you mean 'priority'?"),
        (
            Method::POST,
            "/v1/urls",
            json!({"urls": "http://a/"}),
            "urls: expected a list of at most 10000 entries, got the text",
        ),
        (Method::POST, "/v1/urls", json!({"urls": [{"url": "http://a/", "at": "soon"}]}), "RFC 3339"),
        (Method::POST, "/v1/urls", json!({"crawl": "a\u{7}b", "urls": []}), "crawl: "),
        (Method::POST, "/v1/urls", json!([]), "the body: expected an object, got a list"),
        (Method::PATCH, "/v1/hosts/a.example", json!([5]), "the body: expected an object, got a list"),
        (
            Method::PATCH,
            "/v1/hosts/a.example",
            json!({"delay_ms": 1e20}),
            "delay_ms: expected a whole number between 0 and",
        ),
        (Method::POST, release.as_str(), json!({"results": [{"url": "u", "outcome": 5}]}), "results[0].outcome: "),
        (Method::POST, "/v1/reservations", json!({}), "holder: is missing"),
        (Method::POST, "/v1/reservations", json!({"holder": ""}), "holder: "),
        (
            Method::POST,
            "/v1/reservations",
            json!({"holder": "w", "groups": -1}),
            "groups: expected a whole number between 1 and 1000, got -1",
        ),
        (Method::POST, "/v1/reservations", json!({"holder": "w", "lease_ms": 99}), "lease_ms: 99 is not between 100"),
        (Method::POST, "/v1/reservations", json!({"holder": "w", "wait_ms": 60_001}), "wait_ms: "),
        (
            Method::POST,
            release.as_str(),
            json!({"results": [{"url": "u", "outcome": "lost"}]}),
            "results[0].outcome: 'lost' is none of fetched, retry, gone, failed",
        ),
        (Method::PUT, "/v1/hosts/a.example", json!({"delay": 5}), "delay: there is no such field"),
        (
            Method::PUT,
            "/v1/hosts/a.example",
            json!({"delay_ms": "5"}),
            "delay_ms: expected a whole number between 0 and 4398046511104, got the text",
        ),
        (Method::PATCH, "/v1/hosts/a.example", json!({"delay_factor": -1}), "delay_factor: "),
        (Method::PUT, "/v1/groups/big", json!({"delay_ms": 5}), "hosts: is missing"),
        (Method::PUT, "/v1/groups/big", json!({"hosts": ["a", ""]}), "hosts[1]: "),
        (Method::PUT, "/v1/groups/big", json!({"hosts": [], "parallel": 0}), "parallel: "),
        (Method::PUT, "/v1/crawls/c", json!({"weight": 0}), "weight: "),
        (Method::PATCH, "/v1/crawls/c", json!({"revisit": "often"}), "revisit: 'often' is none of never"),
    ] {
        let answer = door.send_as(method, path, JSON, body.to_string()).await;
        assert_eq!(answer.problem(), (400, "bad_value".to_owned()), "{path} {body}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(named), "{named}: {}", answer.text);
    }
}

#[tokio::test]
async fn names_in_the_path_are_checked() {
    let door = Door::new();
    let long = "k".repeat(limits::KEY_UNITS_MAX + 1);
    for (method, path, code) in [
        (Method::POST, "/v1/reservations/short/renew".to_owned(), "bad_token"),
        (Method::POST, format!("/v1/reservations/{}/release", "!".repeat(22)), "bad_token"),
        (Method::DELETE, "/v1/groups/not.an.alias".to_owned(), "bad_alias"),
        (Method::DELETE, "/v1/groups/two%20words".to_owned(), "bad_alias"),
        (Method::GET, format!("/v1/hosts/{long}"), "bad_host"),
        (Method::GET, "/v1/hosts/a%07b".to_owned(), "bad_host"),
        (Method::GET, "/v1/hosts/%ff".to_owned(), "bad_host"),
        (Method::GET, format!("/v1/crawls/{long}"), "bad_crawl"),
    ] {
        let answer = door.send_as(method, &path, JSON, Body::empty()).await;
        assert_eq!(answer.problem(), (400, code.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn queries_are_checked() {
    let door = Door::new();
    for (path, code, named) in [
        ("/v1/hosts?sate=ready", "bad_query", "sate: there is no such field; it is none of state"),
        ("/v1/hosts?state=sleepy", "bad_query", "state: 'sleepy' is none of ready"),
        ("/v1/hosts?limit=many", "bad_query", "limit: expected a whole number from 0 on, got the text \"many\""),
        ("/v1/hosts?limit=0", "bad_value", "limit: 0 is not between 1 and 1000"),
        ("/v1/groups?limit=1001", "bad_value", "limit: 1001"),
        ("/v1/urls?state=busy", "bad_query", "state: 'busy' is none of queued"),
        ("/v1/urls/lookup", "bad_query", "url: is missing"),
        ("/v1/urls/lookup?url=", "bad_value", "url: the URL is empty"),
    ] {
        let answer = door.get(path).await;
        assert_eq!(answer.problem(), (400, code.to_owned()), "{path}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(named), "{named}: {}", answer.text);
    }
    let answer = door.post("/v1/crawls/c/purge", json!({})).await;
    assert_eq!(answer.problem(), (400, "bad_query".to_owned()));
}

#[tokio::test]
async fn a_batch_over_the_limit_is_refused_with_the_limit() {
    let urls = vec![json!({"url": "http://a/"}); limits::BATCH_URLS_MAX + 1];
    let answer = Door::new().post("/v1/urls", json!({ "urls": urls })).await;
    assert_eq!(answer.problem(), (413, "batch_too_large".to_owned()));
    assert_eq!((&answer.json()["limit"], &answer.json()["field"]), (&json!(limits::BATCH_URLS_MAX), &json!("urls")));
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_whether_it_is_announced_or_not() {
    let door = Door::new();
    let large = vec![b' '; limits::BODY_BYTES_MAX + 1];
    let announced = Request::post("/v1/urls").header(header::CONTENT_TYPE, JSON);
    let announced = announced.header(header::CONTENT_LENGTH, large.len()).body(Body::empty()).unwrap();
    assert_eq!(door.send(announced).await.problem(), (413, "body_too_large".to_owned()));
    let answer = door.send_as(Method::POST, "/v1/urls", JSON, large).await;
    assert_eq!(answer.problem(), (413, "body_too_large".to_owned()));
    assert_eq!(answer.json()["limit"], limits::BODY_BYTES_MAX);
}

#[tokio::test]
async fn another_content_type_is_refused_with_the_right_one() {
    let door = Door::new();
    for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let answer = door.send_as(Method::POST, "/v1/reservations", kind, r#"{"holder":"w"}"#).await;
        assert_eq!(answer.problem(), (415, "unsupported_content_type".to_owned()), "{kind}");
        assert!(answer.text.contains("application/json"), "{}", answer.text);
    }
    let answer = door.lines("/v1/reservations", r#"{"holder":"w"}"#).await;
    assert_eq!(answer.problem(), (415, "unsupported_content_type".to_owned()));
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems_too() {
    let door = Door::new();
    for path in ["/v1", "/v1/nothing", "/v1/hosts/", "/v2/urls"] {
        assert_eq!(door.get(path).await.problem(), (404, "no_such_path".to_owned()), "{path}");
    }
    let answer = door.delete("/v1/urls").await;
    assert_eq!(answer.problem(), (405, "method_not_allowed".to_owned()));
    assert!(answer.headers["allow"].to_str().unwrap().contains("POST"), "{answer:?}");
    assert_eq!(door.post("/healthz", json!({})).await.problem(), (405, "method_not_allowed".to_owned()));
}

#[tokio::test]
async fn an_unknown_grpc_method_is_answered_in_grpc() {
    let request = Request::post("/no.Such/Method").header(header::CONTENT_TYPE, "application/grpc");
    let answer = Door::new().send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["grpc-status"]),
        (200, &header::HeaderValue::from_static("12"))
    );
}

#[tokio::test]
async fn a_body_that_stops_arriving_is_given_up() {
    let request = Request::post("/v1/reservations").header(header::CONTENT_TYPE, JSON);
    let stalled = futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
    let door = Door::with(Config { body_timeout: Duration::from_millis(20), ..Config::default() });
    let answer = door.send(request.body(Body::from_stream(stalled)).unwrap()).await;
    assert_eq!(answer.problem(), (408, "body_timeout".to_owned()));
}

#[tokio::test]
async fn the_process_is_up_and_says_when_it_stops() {
    let door = Door::new();
    assert_eq!(door.get("/healthz").await.ok(), json!({"status": "up"}));
    assert_eq!(door.get("/readyz").await.ok(), json!({"status": "ready"}));
    door.app.stopping.cancel();
    assert_eq!(door.get("/healthz").await.ok(), json!({"status": "up"}));
    let answer = door.get("/readyz").await;
    assert_eq!(answer.problem(), (503, "not_ready".to_owned()));
    assert!(answer.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn requests_are_counted_by_route_never_by_path() {
    let door = Door::new();
    door.get("/v1/hosts/a%07b").await;
    door.get("/nowhere/secret").await;
    let page = door.get("/metrics").await;
    assert!(page.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert!(
        page.text.contains("_count{method=\"GET\",route=\"/v1/hosts/{host}\",status=\"400\"} 1\n"),
        "{}",
        page.text
    );
    assert!(page.text.contains("_count{method=\"GET\",route=\"-\",status=\"404\"} 1\n"), "{}", page.text);
    assert!(!page.text.contains("secret"), "{}", page.text);
}
