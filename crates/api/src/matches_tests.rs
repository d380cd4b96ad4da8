//! Matches as they are written, and what is asked of them.

use wayleave_core::ids::ShardId;
use wayleave_core::matches::{MatchWhy, Matched};
use wayleave_core::time::Time;

use super::*;

fn view(stage: MatchStage, retry_after: Option<u64>) -> MatchView {
    MatchView {
        stage,
        why: MatchWhy::Last("because".into()),
        position: None,
        estimate: None,
        retry_after: retry_after.map(Millis),
        matched: None,
        verified: false,
        version: 3,
    }
}

fn written(view: MatchView) -> Match {
    Match::new(&"browsers".into(), &"a/b".into(), view)
}

#[test]
fn a_client_is_told_to_wait_whole_seconds_rounded_up() {
    for (ms, secs) in [(None, 1), (Some(0), 1), (Some(1), 1), (Some(1_000), 1), (Some(1_001), 2), (Some(29_500), 30)] {
        assert_eq!(written(view(MatchStage::Queued, ms)).retry_after_secs(), secs, "{ms:?}");
    }
}

#[test]
fn a_failure_is_a_problem_that_also_says_its_state() {
    let problem = written(view(MatchStage::Failed, Some(2_500))).failure();
    let wire = serde_json::to_value(&problem).unwrap();
    assert_eq!((&wire["status"], &wire["code"]), (&503.into(), &"match_failed".into()));
    assert_eq!((&wire["state"], &wire["reason"]), (&"failed".into(), &"because".into()));
    assert_eq!(wire["retry_after_ms"], 3_000);
}

#[test]
fn a_token_is_neither_in_logs_nor_in_lists() {
    let token = Token::new(ShardId(0), 7 << 70 | 9);
    let matched = Matched { worker: "w-1".into(), address: "h:1".into(), token: Some(token), expires_at: Time(0) };
    let whole = written(MatchView { matched: Some(matched), ..view(MatchStage::Matched, None) });
    let text = token.to_string();
    assert!(serde_json::to_string(&whole).unwrap().contains(&text));
    assert!(!format!("{whole:?}").contains(&text));
    let query = DeleteMatchQuery { pool: "p".into(), token: Some(text.clone()) };
    assert!(!format!("{query:?}").contains(&text));
    let listed = serde_json::to_string(&whole.without_token()).unwrap();
    assert!(!listed.contains("token"), "{listed}");
}

#[test]
fn a_cursor_reads_back_whatever_the_client_is_called() {
    for (pool, client) in [("p", Some("a/b")), ("p.1", Some("ä \u{1F600}")), ("p", None)] {
        let cursor = MatchCursor { pool: pool.into(), client: client.map(Into::into) };
        let query = |pool: Option<&str>| ListMatchesQuery {
            pool: pool.map(str::to_owned),
            after: Some(cursor.to_string()),
            ..ListMatchesQuery::default()
        };
        assert_eq!(query(None).cursor().unwrap(), Some(cursor.clone()));
        assert_eq!(query(Some(pool)).cursor().unwrap(), Some(cursor.clone()));
        let other = query(Some("q")).cursor().expect_err("a cursor of another pool");
        assert_eq!(other.code(), Some(Code::BadCursor));
    }
    for bad in ["", "p", "/x", "p/\u{7}", "a b/c"] {
        let query = ListMatchesQuery { after: Some(bad.to_owned()), ..ListMatchesQuery::default() };
        assert_eq!(query.cursor().expect_err(bad).code(), Some(Code::BadCursor));
    }
}

#[test]
fn names_and_times_out_of_bounds_are_refused() {
    let query = |pool: &str, wait_ms| PutMatchQuery { pool: pool.to_owned(), wait_ms };
    assert_eq!(query("a b", None).pool().expect_err("no name").code(), Some(Code::BadPool));
    assert_eq!(query("", None).pool().expect_err("empty").code(), Some(Code::BadPool));
    assert_eq!(query("p", Some(60_001)).wait().expect_err("too long").field, "wait_ms");
    assert_eq!(query("p", Some(60_000)).wait(), Ok(Millis(60_000)));
}
