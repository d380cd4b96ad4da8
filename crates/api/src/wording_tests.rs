use crate::crawls::SetCrawlRequest;
use crate::hosts::SetHostRequest;
use crate::object;
use crate::reservations::{ReleaseReservationRequest, ReserveGroupsRequest};
use crate::roles::HeartbeatRequest;
use crate::urls::{AddUrlsRequest, UrlToAdd};

fn said<T: serde::de::DeserializeOwned>(text: &str) -> String {
    object::read::<T>(text.as_bytes()).map(drop).expect_err(text).sentence("the body")
}

#[test]
fn the_field_what_came_and_what_is_expected_are_told() {
    for (text, want) in [
        ("[]", "the body: expected an object, got a list"),
        ("7", "the body: expected an object, got 7"),
        ("null", "the body: expected an object, got null"),
        (r#""x""#, r#"the body: expected an object, got the text "x""#),
        (
            r#"{"delay_ms":18446744073709551616}"#,
            "delay_ms: expected a whole number between 0 and 4398046511104, got 1.8446744073709552e+19",
        ),
        (r#"{"delay_ms":-1}"#, "delay_ms: expected a whole number between 0 and 4398046511104, got -1"),
        (r#"{"delay_ms":1.5}"#, "delay_ms: expected a whole number between 0 and 4398046511104, got 1.5"),
        (r#"{"delay_ms":"5"}"#, r#"delay_ms: expected a whole number between 0 and 4398046511104, got the text "5""#),
        (r#"{"delay_ms":{}}"#, "delay_ms: expected a whole number between 0 and 4398046511104, got an object"),
        (r#"{"delay_factor":true}"#, "delay_factor: expected a number, got true"),
        (r#"{"delay_factor":1e999}"#, "delay_factor: the number is too large"),
        (r#"{"paused":1}"#, "paused: expected true or false, got 1"),
        (r#"{"paused":"1e+9"}"#, r#"paused: expected true or false, got the text "1e+9""#),
        (r#"{"delay_ms":1,"delay_ms":2}"#, "delay_ms: is given twice"),
        (
            r#"{"delay":1}"#,
            "delay: there is no such field; it is none of delay_ms, delay_factor, delay_ms_min, delay_ms_max, \
             blocked_until, crawl_delay_ms, paused, limit, ready_at; did you mean 'delay_ms'?",
        ),
    ] {
        assert_eq!(said::<SetHostRequest>(text), want, "{text}");
    }
}

#[test]
fn fields_within_lists_and_objects_are_named_with_their_place() {
    let url = |text: &str| said::<AddUrlsRequest>(&format!(r#"{{"urls":[{{"url":"http://a/"}},{text}]}}"#));
    assert_eq!(url(r#"{}"#), "urls[1].url: is missing");
    assert_eq!(url(r#""http://b/""#), r#"urls[1]: expected an object, got the text "http://b/""#);
    assert_eq!(url(r#"["http://b/"]"#), "urls[1]: expected an object, got a list");
    assert_eq!(
        url(r#"{"url":"http://b/","priority":300}"#),
        "urls[1].priority: expected a whole number between 0 and 9, got 300"
    );
    let prio = url(r#"{"url":"http://b/","prio":3}"#);
    assert!(prio.starts_with("urls[1].prio: there is no such field; it is none of url, key, crawl"), "{prio}");
    assert!(prio.ends_with("; did you mean 'priority'?"), "{prio}");
    assert_eq!(said::<AddUrlsRequest>("{}"), "urls: is missing");
    assert_eq!(said::<ReserveGroupsRequest>(r#"{"holder":5}"#), "holder: expected a text, got 5");
    let crawl = said::<SetCrawlRequest>(r#"{"limits":{"depth":4294967296}}"#);
    assert_eq!(crawl, "limits.depth: expected a whole number between 0 and 4294967295, got 4294967296");
}

#[test]
fn one_of_several_words_is_told_with_the_others() {
    let outcome =
        |text: &str| said::<ReleaseReservationRequest>(&format!(r#"{{"results":[{{"url":"u","outcome":{text}}}]}}"#));
    let want = "results[0].outcome: 'fetcht' is none of fetched, retry, gone, failed; did you mean 'fetched'?";
    assert_eq!(outcome(r#""fetcht""#), want);
    assert_eq!(outcome("5"), "results[0].outcome: a value of another kind is expected");
}

#[test]
fn what_is_not_json_is_told_with_its_place() {
    for (text, want) in [
        ("{\n \"url\": ,}", "the body is not JSON: a value of another kind is expected (line 2, column 9)"),
        (r#"{"url":"http"#, "the body is not JSON: it ends within a string (line 1, column 12)"),
        ("{url:1}", "the body is not JSON: names must be in double quotes (line 1, column 2)"),
    ] {
        assert_eq!(said::<UrlToAdd>(text), want, "{text}");
    }
}

#[test]
fn a_name_with_quotes_in_it_is_told_as_it_came() {
    let said = said::<AddUrlsRequest>(r#"{"a`, expected `b":1}"#);
    assert_eq!(said, "a`, expected `b: there is no such field; it is none of crawl, urls");
}

#[test]
fn long_values_are_not_repeated_whole() {
    let text = format!(r#"{{"delay_ms":"{}"}}"#, "x".repeat(100_000));
    assert!(said::<SetHostRequest>(&text).len() < 300);
    let text = format!(r#"{{"{}":1}}"#, "x".repeat(100_000));
    assert!(said::<SetHostRequest>(&text).len() < 600);
}

#[test]
fn a_whole_number_may_be_written_with_a_fraction_of_zero_or_be_absent() {
    let beat = |text: &str| object::read::<HeartbeatRequest>(text.as_bytes()).unwrap().interval_ms;
    assert_eq!(beat(r#"{"uuid":"a","interval_ms":50}"#), Some(50));
    assert_eq!(beat(r#"{"uuid":"a","interval_ms":50.0}"#), Some(50));
    assert_eq!((beat(r#"{"uuid":"a","interval_ms":null}"#), beat(r#"{"uuid":"a"}"#)), (None, None));
    let wrong = said::<ReserveGroupsRequest>(r#"{"holder":"a","wait_ms":null}"#);
    assert_eq!(wrong, "wait_ms: expected a whole number between 0 and 60000, got null");
}

#[test]
fn content_of_an_enum_is_named_by_its_word() {
    for (text, want) in [
        (
            r#"{"revisit":{"fixed_ms":-1}}"#,
            "revisit.fixed_ms: expected a whole number between 1 and 4398046511104, got -1",
        ),
        (r#"{"revisit":{"adaptive":{"min_ms":1}}}"#, "revisit.adaptive.max_ms: is missing"),
        (r#"{"revisit":{"adaptive":[1,2]}}"#, "revisit.adaptive: expected an object, got a list"),
        (r#"{"revisit":{"fixed_ms":1,"never":null}}"#, "revisit: a value of another kind is expected"),
        (
            r#"{"revisit":{"fixed":1}}"#,
            "revisit: 'fixed' is none of never, fixed_ms, adaptive; did you mean 'fixed_ms'?",
        ),
    ] {
        assert_eq!(said::<SetCrawlRequest>(text), want, "{text}");
    }
}

#[test]
fn what_is_wrong_is_told_before_what_follows_it_and_is_no_json() {
    assert_eq!(said::<SetHostRequest>(r#"{"paused":1,"#), "paused: expected true or false, got 1");
    assert_eq!(
        said::<SetHostRequest>(r#"{"paused":true}x"#),
        "the body is not JSON: unexpected characters follow its end (line 1, column 16)"
    );
}
