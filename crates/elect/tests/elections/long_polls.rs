//! A standby long-polls for the end of the current term all the time, not only until its first long poll is over.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use wayleave_client::Client;
use wayleave_elect::{Election, Options};

/// T is 15 s, so heartbeats are at least 2.6 s apart.
const STANDBY: &str = r#"{"primary":false,"holder":"other","address":null,"epoch":3,"ttl_ms":15000,"remaining_ms":15000,
    "interval_ms":3000,"mode":"strict","step_down":false,"reason":"other is primary","changes_in_ms":15000}"#;
const ROLE: &str = r#"{"role":"r","primary":{"uuid":"other","address":null,"metadata":{},"epoch":3,"remaining_ms":15000,
    "granted_at":"2026-01-01T00:00:00Z","renewed_at":"2026-01-01T00:00:00Z","ready":true,"priority":5,"interval_ms":3000,
    "step_down":false},"epoch":3,"ttl_ms":15000,"mode":"strict","version":1,"standbys_ready":1,"standbys":[],
    "reason":"other is primary","changes_in_ms":15000}"#;
const PROBLEM: &str = r#"{"type":"x","title":"x","status":503,"code":"unavailable","detail":"try again"}"#;

/// A server that knows another primary, and does not let callers wait: a long poll is answered at once, alternately by
/// a primary that is still there and by a failure. Records when it was asked for what.
async fn impatient(asked: mpsc::UnboundedSender<(&'static str, Instant)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut looks = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = head_of(&mut stream).await;
            let beat = head.starts_with("POST");
            looks += usize::from(!beat);
            _ = asked.send((if beat { "heartbeat" } else { "look" }, Instant::now()));
            let (status, body) = match (beat, looks % 2) {
                (true, _) => (200, STANDBY),
                (false, 1) => (200, ROLE),
                (false, _) => (503, PROBLEM),
            };
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    address
}

async fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut part = [0; 4_096];
        let count = stream.read(&mut part).await.unwrap();
        head.extend(part.iter().take(count));
    }
    String::from_utf8_lossy(&head).into_owned()
}

#[tokio::test]
async fn the_next_look_does_not_wait_for_the_next_heartbeat() {
    let (asked, mut questions) = mpsc::unbounded_channel();
    let client = Client::new(&impatient(asked).await).unwrap();
    let election = Election::new(client, "r", Options::default());
    let running = tokio::spawn(election.run(|_| async { ControlFlow::<(), _>::Continue(Duration::ZERO) }));
    let mut seen = Vec::new();
    while seen.len() < 4 {
        seen.push(tokio::time::timeout(Duration::from_secs(30), questions.recv()).await.unwrap().unwrap());
    }
    running.abort();
    let kinds: Vec<&str> = seen.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, ["heartbeat", "look", "look", "look"], "after an answer and after a failure");
}
