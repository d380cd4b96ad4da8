//! The end of work: its grace period is a bound under any answers of a server, holds keep the role, and a stop always
//! ends.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use wayleave_client::Client;
use wayleave_elect::{Election, Error, LastLine, Options, Stopper};

const PATIENCE: Duration = Duration::from_secs(8);
const GRACE: Duration = Duration::from_millis(300);

/// A server that acknowledges each heartbeat of one candidate, which is primary; or refuses them on request, after a
/// while.
#[derive(Default)]
struct Script {
    /// The requests: method and path.
    heard: Mutex<Vec<String>>,
    refuses: Option<Semaphore>,
}

impl Script {
    async fn start(self) -> (Arc<Self>, Client) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&listener.local_addr().unwrap().to_string()).unwrap();
        let script = Arc::new(self);
        let serving = script.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let script = serving.clone();
                tokio::spawn(async move { script.serve(stream).await });
            }
        });
        (script, client)
    }

    async fn serve(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        let (mut first, mut length) = (String::new(), 0);
        stream.read_line(&mut first).await.unwrap();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            length = line.strip_prefix("content-length:").map_or(length, |text| text.trim().parse().unwrap());
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        self.heard.lock().unwrap().push(first.split(' ').take(2).collect::<Vec<_>>().join(" "));
        let (status, answer) = self.answer(&first, &body).await;
        let text = answer.to_string();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\n");
        _ = stream.write_all(format!("{head}content-length: {}\r\n\r\n{text}", text.len()).as_bytes()).await;
        _ = stream.shutdown().await;
    }

    async fn answer(&self, first: &str, body: &[u8]) -> (u16, Value) {
        if first.starts_with("DELETE") {
            return (200, json!({"released": true}));
        }
        if let Some(may) = &self.refuses {
            may.acquire().await.unwrap().forget();
            let problem =
                json!({"type": "x", "title": "x", "status": 403, "code": "forbidden", "detail": "not for you"});
            return (403, problem);
        }
        let request: Value = serde_json::from_slice(body).unwrap();
        let answer = json!({
            "primary": true, "holder": request["uuid"], "address": null, "epoch": 7, "token": "aabb", "ttl_ms": 15_000,
            "remaining_ms": 15_000, "interval_ms": 3_000, "mode": "strict", "step_down": false, "reason": "primary",
            "changes_in_ms": 15_000,
        });
        (200, answer)
    }

    fn count(&self, start: &str) -> usize {
        self.heard.lock().unwrap().iter().filter(|line| line.starts_with(start)).count()
    }
}

fn options(interval: Option<Duration>) -> Options {
    // Not the default, which would abort the tests.
    let last_line = LastLine::Call(Arc::new(|| {}));
    Options { grace: GRACE, interval, last_line, ..Options::default() }
}

async fn stop_after(stopper: Stopper, pause: Duration) {
    sleep(pause).await;
    stopper.stop();
}

/// A regression: each heartbeat that was acknowledged moved the moment at which the work is cancelled.
#[tokio::test]
async fn work_that_does_not_stop_is_cancelled_after_its_grace_period() {
    let (script, client) = Script::default().start().await;
    let election = Election::new(client, "r", options(Some(Duration::from_millis(50))));
    tokio::spawn(stop_after(election.stopper(), Duration::from_millis(500)));
    let begun = Instant::now();
    let running = election.run(|term| async move {
        term.stopping().await;
        std::future::pending::<ControlFlow<(), Duration>>().await
    });
    let ended = timeout(PATIENCE, running).await.expect("it is cancelled").unwrap();
    assert_eq!(ended, None);
    let took = begun.elapsed() - Duration::from_millis(500);
    assert!(took >= GRACE && took < GRACE * 4, "{took:?}");
    assert!(script.count("POST") > 10, "heartbeats went on");
    assert_eq!(script.count("DELETE"), 1, "the role is released");
}

#[tokio::test]
async fn held_work_keeps_the_role_and_its_heartbeats_after_its_task_ended() {
    let (script, client) = Script::default().start().await;
    let election = Election::new(client, "r", options(Some(Duration::from_millis(50))));
    let stopper = election.stopper();
    let held = Arc::new(Mutex::new(None));
    let keep = held.clone();
    let running = tokio::spawn(election.run(move |term| {
        *keep.lock().unwrap() = Some(term.hold());
        async move {
            term.stopping().await;
            ControlFlow::<(), _>::Continue(Duration::ZERO)
        }
    }));
    sleep(Duration::from_millis(300)).await;
    stopper.stop();
    sleep(GRACE * 4).await;
    assert!(held.lock().unwrap().is_some() && !running.is_finished());
    let beats = script.count("POST");
    sleep(GRACE).await;
    assert!(script.count("POST") > beats && script.count("DELETE") == 0, "the term is renewed");
    drop(held.lock().unwrap().take());
    assert_eq!(timeout(PATIENCE, running).await.expect("it ends").unwrap().unwrap(), None);
    assert_eq!(script.count("DELETE"), 1);
}

/// A regression: the effects of the refusal were dropped, and with them the end.
#[tokio::test]
async fn a_stop_ends_the_election_although_a_refusal_follows() {
    let refuses = Some(Semaphore::new(0));
    let (script, client) = Script { refuses, ..Script::default() }.start().await;
    let election = Election::new(client, "r", options(None));
    let stopper = election.stopper();
    let work = |_| async { ControlFlow::<(), _>::Continue(Duration::ZERO) };
    let running = tokio::spawn(election.run(work));
    while script.count("POST") == 0 {
        sleep(Duration::from_millis(5)).await;
    }
    stopper.stop();
    sleep(Duration::from_millis(50)).await;
    script.refuses.as_ref().unwrap().add_permits(100);
    let ended = timeout(PATIENCE, running).await.expect("it ends").unwrap();
    assert!(matches!(ended, Ok(None)), "{ended:?}");
}

#[tokio::test]
async fn a_refusal_ends_the_election_with_its_reason() {
    let (_script, client) = Script { refuses: Some(Semaphore::new(100)), ..Script::default() }.start().await;
    let work = |_| async { ControlFlow::<(), _>::Continue(Duration::ZERO) };
    let running = Election::new(client, "r", options(None)).run(work);
    let ended = timeout(PATIENCE, running).await.expect("it ends");
    assert!(matches!(&ended, Err(Error::Refused(_))), "{ended:?}");
}
