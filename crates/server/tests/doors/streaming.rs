//! URLs as NDJSON: in and out, of any number, with results in the order sent.

use std::convert::Infallible;

use bytes::Bytes;

use crate::prelude::*;

#[tokio::test]
async fn a_bad_line_is_rejected_with_its_number_and_does_not_stop_the_rest() {
    let long = "x".repeat(limits::LINE_BYTES_MAX + 1);
    let body = format!(
        "{{\"url\":\"mailto:a@b\"}}\n\nnot json\n{{\"url\":1}}\n{long}\n{{\"url\":\"http://a/\",\"priority\":10}}"
    );
    let answer = Door::new().lines("/v1/urls", body).await;
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/x-ndjson");
    let mut lines = answer.lines();
    let last = lines.pop().unwrap();
    assert_eq!(last, json!({"counts": {"added": 0, "known": 0, "rejected": 5, "failed": 0}}));
    let numbers: Vec<&Value> = lines.iter().map(|line| &line["line"]).collect();
    assert_eq!(numbers, [1, 3, 4, 5, 6]);
    for (line, reason) in lines.iter().zip([
        "scheme 'mailto'",
        "the line is not JSON",
        "expected a text",
        "over 262144",
        "priority: expected a whole number between 0 and 9",
    ]) {
        assert_eq!(line["status"], "rejected");
        assert!(line["reason"].as_str().unwrap().contains(reason), "{reason}: {line}");
    }
    assert_eq!(lines[0]["url"], "mailto:a@b");
}

#[tokio::test]
async fn counts_alone_come_as_one_line() {
    let answer = Door::new().lines("/v1/urls?results=false", "nonsense\n".repeat(2_500)).await;
    assert_eq!(answer.lines(), [json!({"counts": {"added": 0, "known": 0, "rejected": 2500, "failed": 0}})]);
}

#[tokio::test]
async fn a_stream_over_many_parts_keeps_its_order() {
    let parts = (1..=30).map(|part| Ok::<_, Infallible>(Bytes::from(format!("\"part {part}\"\n").repeat(333))));
    let answer = Door::new().lines("/v1/urls", Body::from_stream(futures::stream::iter(parts))).await;
    let lines = answer.lines();
    assert_eq!(lines.len(), 30 * 333 + 1);
    for (i, line) in lines.iter().take(30 * 333).enumerate() {
        assert_eq!(line["line"], i + 1);
    }
}

/// A slow sender must not wait for a chunk to fill up.
#[tokio::test]
async fn results_come_while_lines_are_still_sent() {
    let door = Door::new();
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, Infallible>>(1);
    let body = Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(receiver));
    let request = Request::post("/v1/urls").header(header::CONTENT_TYPE, "application/x-ndjson").body(body).unwrap();
    let response = tower::ServiceExt::oneshot(wayleave_server::http::router(&door.app), request).await.unwrap();
    let mut results = response.into_body().into_data_stream();
    for number in 1..=3 {
        sender.send(Ok(Bytes::from_static(b"nonsense\n"))).await.unwrap();
        let line: Value = serde_json::from_slice(&results.next().await.unwrap().unwrap()).unwrap();
        assert_eq!(line["line"], number);
    }
    drop(sender);
    let last: Value = serde_json::from_slice(&results.next().await.unwrap().unwrap()).unwrap();
    assert_eq!(last["counts"]["rejected"], 3);
    assert!(results.next().await.is_none());
}

/// It sends before it reads: the results must be buffered instead of blocking it.
#[tokio::test]
async fn a_client_that_sends_everything_before_it_reads_is_not_stuck() {
    let door = Door::new();
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, Infallible>>(1);
    let body = Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(receiver));
    let request = Request::post("/v1/urls").header(header::CONTENT_TYPE, "application/x-ndjson").body(body).unwrap();
    let response = tower::ServiceExt::oneshot(wayleave_server::http::router(&door.app), request).await.unwrap();
    for _ in 0..200 {
        sender.send(Ok(Bytes::from("nonsense\n".repeat(1_000)))).await.unwrap();
    }
    drop(sender);
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 200_001);
}

#[tokio::test]
async fn lines_in_come_out_again() {
    let door = Door::new();
    let lines: String = (0..3_500).map(|i| format!("{{\"url\":\"http://h{}.example/{i}\"}}\n", i % 7)).collect();
    let told = door.lines("/v1/urls?crawl=big", lines.clone()).await.lines();
    assert_eq!(told.last().unwrap()["counts"], json!({"added": 3500, "known": 0, "rejected": 0, "failed": 0}));
    assert_eq!((&told[3_000]["line"], &told[3_000]["url"]), (&json!(3001), &json!("http://h4.example/3000")));
    let again = door.lines("/v1/urls?crawl=big&results=false", lines).await.lines();
    assert_eq!(again, [json!({"counts": {"added": 0, "known": 3500, "rejected": 0, "failed": 0}})]);

    let ask = |path: &str| {
        Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(header::ACCEPT, "application/x-ndjson")
            .body(Body::empty())
    };
    let all = door.send(ask("/v1/urls?crawl=big").unwrap()).await;
    assert_eq!(all.headers[header::CONTENT_TYPE], "application/x-ndjson");
    let urls: std::collections::BTreeSet<String> =
        all.lines().iter().map(|line| line["url"].as_str().unwrap().to_owned()).collect();
    assert_eq!((all.lines().len(), urls.len()), (3_500, 3_500));
    let some = door.send(ask("/v1/urls?crawl=big&host=h3.example&limit=1200").unwrap()).await.lines();
    assert_eq!(some.len(), 500);
    let few = door.send(ask("/v1/urls?crawl=big&limit=1200").unwrap()).await.lines();
    assert_eq!(few.len(), 1_200);
    let none = door.send(ask("/v1/urls?crawl=other").unwrap()).await;
    assert_eq!(none.text, "");
}
