//! Conversion and validation of reservation bodies.

use super::*;
use wayleave_core::time::Time;

fn reserve(text: &str) -> Result<request::Reserve, BadValue> {
    request::Reserve::try_from(&serde_json::from_str::<ReserveGroupsRequest>(text).unwrap())
}

#[test]
fn a_holder_is_enough() {
    let want = request::Reserve {
        holder: "w".into(),
        groups: 1,
        urls: 1,
        crawl: None,
        lease: Millis(60_000),
        wait: Millis(0),
        request: None,
    };
    assert_eq!(reserve(r#"{"holder":"w"}"#), Ok(want.clone()));
    assert_eq!(request::Reserve::try_from(&ReserveGroupsRequest::new("w")), Ok(want));
}

#[test]
fn both_ends_of_every_bound_are_taken() {
    let least = reserve(r#"{"holder":"w","groups":1,"urls":0,"lease_ms":100,"wait_ms":0,"crawl":"c"}"#).unwrap();
    assert_eq!((least.urls, least.lease, least.crawl.as_deref()), (0, Millis(100), Some("c")));
    let most = reserve(r#"{"holder":"w","groups":1000,"urls":1000,"lease_ms":3600000,"wait_ms":60000}"#).unwrap();
    assert_eq!((most.groups, most.urls, most.lease.0, most.wait.0), (1_000, 1_000, 3_600_000, 60_000));
}

#[test]
fn past_its_bound_every_field_is_named() {
    let long_id = format!(r#"{{"holder":"w","request_id":"{}"}}"#, "i".repeat(limits::REQUEST_ID_BYTES_MAX + 1));
    let long = format!(r#"{{"holder":"{}"}}"#, "h".repeat(limits::HOLDER_BYTES_MAX + 1));
    for (text, field) in [
        (r#"{"holder":" "}"#, "holder"),
        (r#"{"holder":"a\nb"}"#, "holder"),
        (long.as_str(), "holder"),
        (r#"{"holder":"w","request_id":" "}"#, "request_id"),
        (r#"{"holder":"w","request_id":"a\tb"}"#, "request_id"),
        (long_id.as_str(), "request_id"),
        (r#"{"holder":"w","groups":0}"#, "groups"),
        (r#"{"holder":"w","groups":1001}"#, "groups"),
        (r#"{"holder":"w","urls":1001}"#, "urls"),
        (r#"{"holder":"w","lease_ms":99}"#, "lease_ms"),
        (r#"{"holder":"w","lease_ms":3600001}"#, "lease_ms"),
        (r#"{"holder":"w","wait_ms":60001}"#, "wait_ms"),
        (r#"{"holder":"w","crawl":"a\u0007"}"#, "crawl"),
    ] {
        assert_eq!(reserve(text).expect_err(text).field, field);
    }
}

#[test]
fn a_release_carries_every_result_field() {
    let body: ReleaseReservationRequest = serde_json::from_str(
        r#"{"results":[{"url":"http://e.com/","outcome":"retry","status":503,"duration_ms":1,"bytes":2,
            "crawl_delay_ms":3,"retry_after_ms":4,"next_at":"1970-01-01T00:00:05Z","changed":true,"digest":"abc",
            "found":[{"url":"http://f.com/"}]}],"ready_at":"1970-01-01T00:00:06Z"}"#,
    )
    .unwrap();
    let want = request::UrlResult {
        url: "http://e.com/".into(),
        outcome: request::Outcome::Retry,
        status: Some(503),
        duration: Some(Millis(1)),
        bytes: Some(2),
        crawl_delay: Some(Millis(3)),
        retry_after: Some(Millis(4)),
        next_at: Some(Time(5_000)),
        changed: Some(true),
        digest: Some("abc".into()),
    };
    assert_eq!(body.core_results(), Ok(vec![want]));
    assert_eq!(body.ready_at, Some(Timestamp(Time(6_000))));
}

#[test]
fn a_bad_result_is_named_by_its_place() {
    let body: ReleaseReservationRequest =
        serde_json::from_str(r#"{"results":[{"url":"u","outcome":"gone"},{"url":"v","outcome":"gone","status":7}]}"#)
            .unwrap();
    assert_eq!(body.core_results().expect_err("status 7").field, "results[1].status");
    for length in [0, limits::DIGEST_BYTES_MAX + 1] {
        let digest = "d".repeat(length);
        let text = format!(r#"{{"results":[{{"url":"u","outcome":"fetched","digest":"{digest}"}}]}}"#);
        let body: ReleaseReservationRequest = serde_json::from_str(&text).unwrap();
        assert_eq!(body.core_results().expect_err("a digest").field, "results[0].digest");
    }
}

#[test]
fn too_many_results_or_found_urls_are_refused_with_the_limit() {
    let result = |found| UrlResult { found, ..UrlResult::new("u", Outcome::Fetched) };
    let results = vec![result(vec![]); limits::RESULTS_MAX + 1];
    let body = ReleaseReservationRequest { results, ready_at: None };
    assert!(body.check_size().expect_err("results").to_string().contains("the limit, which is 1000"));
    let half = vec![UrlToAdd::default(); limits::FOUND_MAX / 2 + 1];
    let body = ReleaseReservationRequest { results: vec![result(half.clone()), result(half)], ready_at: None };
    assert!(body.check_size().expect_err("found").to_string().contains("the limit, which is 10000"));
}

#[test]
fn the_listing_does_not_tell_the_secret() {
    let view = view::ReservationView {
        token: wayleave_core::ids::Token([7; 16]),
        group: "g".into(),
        host: "h".into(),
        holder: "w".into(),
        granted_at: Time(1),
        expires_at: Time(2),
        urls: 3,
    };
    let secret = view.token.to_string();
    let told = serde_json::to_string(&LiveReservation::from(view)).unwrap();
    assert!(!told.contains(&secret), "{told}");
    assert!(told.contains(r#""urls":3"#), "{told}");
}

#[test]
fn a_request_id_stands_for_all_that_is_asked_for_but_the_patience() {
    let id = |text: &str| reserve(text).unwrap().request.unwrap();
    let first = id(r#"{"holder":"w","groups":2,"request_id":"r"}"#);
    assert_eq!(&*first.id, "r");
    assert_eq!(id(r#"{"holder":"w","groups":2,"request_id":"r","wait_ms":5}"#), first);
    for other in
        [r#""groups":3"#, r#""groups":2,"urls":2"#, r#""groups":2,"crawl":"c""#, r#""groups":2,"lease_ms":100"#]
    {
        assert_ne!(id(&format!(r#"{{"holder":"w",{other},"request_id":"r"}}"#)).asks, first.asks, "{other}");
    }
}
