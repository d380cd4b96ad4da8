//! Conversion and validation of URL bodies.

use super::*;
use wayleave_core::time::Time;

fn put(text: &str) -> Result<Put, BadValue> {
    serde_json::from_str::<UrlToAdd>(text).unwrap().to_put(&"DEFAULT".into(), 0)
}

#[test]
fn absent_fields_take_their_defaults() {
    let put = put(r#"{"url":"HTTP://Example.com/a#b"}"#).unwrap();
    assert_eq!(
        (put.url.as_ref(), put.host.as_ref(), put.crawl.as_ref()),
        ("http://example.com/a", "example.com", "DEFAULT")
    );
    assert_eq!(put.kind, PutKind::Discovered { at: None, priority: 5, depth: 0 });
    assert!(put.metadata.is_empty());
}

#[test]
fn every_field_arrives() {
    let put = put(
        r#"{"url":"http://e.com/","key":"k","crawl":"news","at":"1970-01-01T00:00:02Z","priority":9,"depth":4,"metadata":{"a":"b"}}"#,
    )
    .unwrap();
    assert_eq!((put.host.as_ref(), put.crawl.as_ref()), ("k", "news"));
    let (explicit, again) = (true, false);
    assert_eq!(put.kind, PutKind::Wanted { at: Some(Time(2_000)), priority: 9, explicit, depth: 4, again });
    assert_eq!(put.metadata.entries(), [("a", vec!["b"])]);
}

#[test]
fn a_found_url_inherits_crawl_and_depth_unless_it_names_its_own() {
    let found: UrlToAdd = serde_json::from_str(r#"{"url":"http://e.com/"}"#).unwrap();
    let put = found.to_put(&"news".into(), 3).unwrap();
    assert_eq!((put.crawl.as_ref(), put.kind), ("news", PutKind::Discovered { at: None, priority: 5, depth: 3 }));
}

#[test]
fn what_cannot_be_taken_names_its_field() {
    let large = format!(r#"{{"url":"http://e.com/","metadata":{{"a":"{}"}}}}"#, "x".repeat(limits::METADATA_BYTES_MAX));
    let key = format!(r#"{{"url":"http://e.com/","key":"{}"}}"#, "k".repeat(limits::KEY_UNITS_MAX + 1));
    for (text, field) in [
        (r#"{"url":"nonsense"}"#, "url"),
        (r#"{"url":"mailto:a@b"}"#, "url"),
        (r#"{"url":""}"#, "url"),
        (r#"{"url":"http://e.com/","crawl":"a\nb"}"#, "crawl"),
        (key.as_str(), "key"),
        (large.as_str(), "metadata"),
    ] {
        assert_eq!(put(text).expect_err(text).field, field);
    }
}

#[test]
fn a_batch_over_the_limit_is_refused_with_the_limit() {
    let full = AddUrlsRequest { crawl: None, urls: vec![UrlToAdd::default(); limits::BATCH_URLS_MAX] };
    assert_eq!(full.check_size(), Ok(()));
    let over = AddUrlsRequest { crawl: None, urls: vec![UrlToAdd::default(); limits::BATCH_URLS_MAX + 1] };
    assert!(over.check_size().expect_err("one too many").to_string().contains("the limit, which is 10000"));
}

#[test]
fn outcomes_have_the_words_of_the_contract() {
    for (outcome, want) in [
        (PutOutcome::Added, r#"{"url":"u","status":"added"}"#),
        (PutOutcome::Known, r#"{"url":"u","status":"known"}"#),
        (PutOutcome::Rejected("no".into()), r#"{"url":"u","status":"rejected","reason":"no"}"#),
        (
            PutOutcome::Failed(Box::new(Refusal::OverLimit("later".to_owned()))),
            r#"{"url":"u","status":"failed","reason":"later"}"#,
        ),
    ] {
        assert_eq!(serde_json::to_string(&AddResult::new(Some("u".into()), outcome)).unwrap(), want);
    }
}

#[test]
fn unknown_fields_are_named() {
    let error = serde_json::from_str::<UrlToAdd>(r#"{"url":"u","prio":1}"#).expect_err("unknown").to_string();
    assert!(error.contains("unknown field `prio`, expected one of `url`, `key`"), "{error}");
    let error = serde_json::from_str::<AddUrlsRequest>(r#"{"crawl":"x"}"#).expect_err("no urls").to_string();
    assert!(error.contains("missing field `urls`"), "{error}");
}

#[test]
fn states_have_the_same_words_as_in_the_core() {
    for word in ["queued", "reserved", "fetched", "gone", "failed"] {
        let wire: UrlState = serde_json::from_value(word.into()).unwrap();
        let core = view::UrlState::from(wire);
        assert_eq!((core.as_str(), UrlState::from(core)), (word, wire));
    }
}

#[test]
fn a_view_shows_null_where_nothing_is_known() {
    let view = view::UrlView {
        url: "http://e.com/".into(),
        host: "e.com".into(),
        crawl: "DEFAULT".into(),
        state: view::UrlState::Queued,
        due_at: Some(Time(1)),
        held_until: None,
        created_at: Time(0),
        priority: 5,
        depth: 0,
        attempts: 0,
        last: None,
        metadata: wayleave_core::metadata::Metadata::default(),
    };
    let want = serde_json::json!({
        "url": "http://e.com/", "host": "e.com", "crawl": "DEFAULT", "state": "queued",
        "due_at": "1970-01-01T00:00:00.001Z", "held_until": null, "created_at": "1970-01-01T00:00:00.000Z",
        "priority": 5, "depth": 0, "attempts": 0, "last": null, "metadata": {},
    });
    assert_eq!(serde_json::to_value(Url::from(view)).unwrap(), want);
}
