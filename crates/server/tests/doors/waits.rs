//! Calls that wait: bounded in number and in memory, shared between callers, and answered early when their place is
//! needed, without losing what was granted.

use std::net::SocketAddr;

use futures::stream::FuturesUnordered;
use hyper::client::conn::http2::{self, SendRequest};
use tokio::net::TcpSocket;

use crate::prelude::*;
use crate::support::frontier_over;

/// The timeout for what must happen; long, because it is not reached in practice.
const SOON: Duration = Duration::from_secs(20);
type Polls = FuturesUnordered<BoxFuture<'static, (u16, Value)>>;

const POLL: &str = r#"{"holder":"w","wait_ms":60000}"#;

/// A server with room for this many waits.
fn room(waits: usize) -> Config {
    Config { held_bytes_max: waits * 2 * WAIT_BYTES, ..Config::default() }
}

fn poll_text() -> String {
    let length = POLL.len();
    format!(
        "POST /v1/reservations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{POLL}"
    )
}

async fn get(running: &Running, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = tokio::time::timeout(SOON, running.exchange(&request)).await.expect("short calls are answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

/// Returns when this many calls wait.
async fn until_waiting(running: &Running, count: usize) {
    let line = format!("\nwayleave_waits {count}\n");
    let waiting = async { while !get(running, "/metrics").await.contains(&line) {} };
    tokio::time::timeout(SOON, waiting).await.expect("they wait");
}

/// A response of a connection that stays open.
async fn response(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    loop {
        let mut part = [0; 4_096];
        let read = tokio::time::timeout(SOON, stream.read(&mut part)).await.expect("it is answered").unwrap();
        text.push_str(std::str::from_utf8(&part[..read]).unwrap());
        let length = text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        let whole = text.split_once("\r\n\r\n").is_some_and(|(_, body)| Some(body.len()) >= length);
        if read == 0 || whole {
            return text;
        }
    }
}

/// A client of an address of its own.
async fn http2(running: &Running, from: &str) -> SendRequest<Body> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
    let stream = TokioIo::new(socket.connect(running.address).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn polls(sender: &mut SendRequest<Body>, count: usize) -> Polls {
    async fn read(answer: impl Future<Output = hyper::Result<hyper::Response<hyper::body::Incoming>>>) -> (u16, Value) {
        let answer = answer.await.unwrap();
        let status = answer.status().as_u16();
        assert_eq!(answer.headers().get("retry-after").is_some_and(|after| after == "5"), status == 429);
        (status, serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap())
    }
    let request = || hyper::Request::post("http://x/v1/reservations").header("content-type", "application/json");
    (0..count).map(|_| read(sender.send_request(request().body(Body::from(POLL)).unwrap())).boxed()).collect()
}

/// The next this many answers, which all have this status.
async fn expect(polls: &mut Polls, count: usize, status: u16) {
    for n in 0..count {
        let (found, body) = tokio::time::timeout(SOON, polls.next()).await.expect("it is answered").unwrap();
        assert_eq!(found, status, "{n}: {body}");
        assert!(body["code"] == "overloaded" || body["reservations"] == json!([]), "{body}");
    }
}

#[tokio::test]
async fn polls_on_all_connections_keep_nobody_out() {
    let running = start(Config { bounds: Bounds { connections_max: 64, ..Bounds::default() }, ..Config::default() });
    let running = running.await;
    let mut first = running.connect().await;
    first.write_all(poll_text().as_bytes()).await.unwrap();
    until_waiting(&running, 1).await;
    let mut others = Vec::new();
    for _ in 0..47 {
        let mut stream = running.connect().await;
        stream.write_all(poll_text().as_bytes()).await.unwrap();
        others.push(stream);
    }
    until_waiting(&running, 48).await;
    for _ in 0..50 {
        let mut stream = running.connect().await;
        stream.write_all(poll_text().as_bytes()).await.unwrap();
        let refused = response(&mut stream).await;
        assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("retry-after: 5"), "{refused}");
        others.push(stream);
    }
    get(&running, "/healthz").await;
    // Uploads that never end take the connections that are kept for short calls.
    let upload = "POST /v1/urls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\
                  Expect: 100-continue\r\n\r\n";
    for _ in 0..16 {
        let mut stream = running.connect().await;
        stream.write_all(upload.as_bytes()).await.unwrap();
        tokio::time::timeout(SOON, stream.read_exact(&mut [0; 25])).await.expect("it is served").unwrap();
        others.push(stream);
    }
    get(&running, "/healthz").await;
    let mut last = String::new();
    tokio::time::timeout(SOON, first.read_to_string(&mut last)).await.expect("the longest poll leaves").unwrap();
    assert!(last.starts_with("HTTP/1.1 200") && last.contains("\"reservations\":[]"), "{last}");
    assert!(last.contains("connection: close"), "its client should not use the connection again: {last}");
}

#[tokio::test]
async fn polls_are_bounded_in_memory_and_others_are_served_beside_them() {
    let running = start(room(100)).await;
    let mut sender = http2(&running, "127.0.0.1").await;
    let mut waiting = polls(&mut sender, 300);
    expect(&mut waiting, 200, 429).await;
    until_waiting(&running, 100).await;
    let body = Body::from(r#"{"urls":[]}"#);
    let request = hyper::Request::post("http://x/v1/urls").header("content-type", "application/json");
    let answer = tokio::time::timeout(SOON, sender.send_request(request.body(body).unwrap())).await.unwrap().unwrap();
    assert_eq!(answer.status(), 200, "on the same connection, too");
    let large = Body::from(format!(r#"{{"urls":[]{}}}"#, " ".repeat(200_000)));
    let request = hyper::Request::post("http://x/v1/urls").header("content-type", "application/json");
    let answer = tokio::time::timeout(SOON, sender.send_request(request.body(large).unwrap())).await.unwrap().unwrap();
    assert_eq!(answer.status(), 200, "large bodies have room, too");
    assert!(waiting.next().now_or_never().is_none(), "the others wait");
}

/// A regression: bodies that brought nothing, one line of NDJSON per half minute or no message of a put stream, kept all
/// connections for as long as they liked.
#[tokio::test]
async fn bodies_that_bring_nothing_keep_nobody_out() {
    let bounds = Bounds { connections_max: 16, ..Bounds::default() };
    let running = start(Config { bounds, ..Config::default() }).await;
    let upload = "POST /v1/urls?results=false HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n\
                  1\r\n{\r\n";
    let mut uploads = Vec::new();
    for _ in 0..16 {
        let mut stream = running.connect().await;
        stream.write_all(upload.as_bytes()).await.unwrap();
        uploads.push(stream);
    }
    get(&running, "/healthz").await;
    let mut streams = Vec::new();
    for _ in 0..16 {
        let mut sender = http2(&running, "127.0.0.1").await;
        let body = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
        let call =
            hyper::Request::post("http://x/urlfrontier.URLFrontier/PutURLs").header("content-type", "application/grpc");
        let answer = sender.send_request(call.header("te", "trailers").body(body).unwrap()).await.unwrap();
        streams.push((sender, answer));
    }
    get(&running, "/healthz").await;
    // Those who lost their place are told what to do.
    let mut last = String::new();
    let read = uploads.first_mut().unwrap().read_to_string(&mut last);
    tokio::time::timeout(SOON, read).await.expect("the longest leaves").unwrap();
    assert!(last.contains("send the rest again"), "{last}");
    let body = streams.remove(0).1.into_body().collect();
    let ended = tokio::time::timeout(SOON, body).await.expect("the longest leaves").unwrap();
    let status = ended.trailers().unwrap().get("grpc-message").unwrap().to_str().unwrap();
    assert!(status.contains("send%20what%20was%20not%20acknowledged%20again"), "{status}");
}

#[tokio::test]
async fn a_smaller_caller_takes_places_of_the_larger_one_and_keeps_its_own() {
    let running = start(room(100)).await;
    let mut sender = http2(&running, "127.0.0.1").await;
    let mut large = polls(&mut sender, 100);
    tokio::select! { _ = large.next() => panic!("there is room"), () = until_waiting(&running, 100) => {} }
    let mut small_sender = http2(&running, "127.0.0.2").await;
    let mut small = polls(&mut small_sender, 10);
    let answered = async {
        expect(&mut large, 10, 200).await;
        until_waiting(&running, 100).await;
        large.extend(polls(&mut sender, 20));
        expect(&mut large, 20, 429).await;
    };
    tokio::select! { biased; _ = small.next() => panic!("it has less than its share"), () = answered => {} }
    // A second connection of the large address has a share, too.
    let mut other_sender = http2(&running, "127.0.0.1").await;
    let mut other = polls(&mut other_sender, 10);
    let answered = expect(&mut large, 10, 200);
    tokio::select! { biased; _ = other.next() => panic!("it has less than its share"), () = answered => {} }
    assert!(small.next().now_or_never().is_none());
}

#[tokio::test]
async fn while_there_is_room_one_address_may_have_it_all() {
    let running = start(Config::default()).await;
    let mut senders = [http2(&running, "127.0.0.1").await, http2(&running, "127.0.0.1").await];
    let [mut first, mut second] = senders.each_mut().map(|sender| polls(sender, 1_000));
    tokio::select! {
        _ = first.next() => panic!("there is room"),
        _ = second.next() => panic!("there is room"),
        () = until_waiting(&running, 2_000) => {}
    }
}

/// Every call that waits, and the status of its answer when it has nothing.
async fn calls(door: &Door) -> Vec<(&'static str, String, Value, u16)> {
    door.put("/v1/crawls/idle", json!({})).await.ok();
    door.put("/v1/pools/p", json!({"command": ["./w"]})).await.ok();
    door.seed("news", &["http://a.example/1"]).await;
    let version = &door.get("/v1/map").await.ok()["version"];
    let again = json!({"holder": "w", "crawl": "idle", "wait_ms": 60_000, "request_id": "r"});
    let chunk = json!({"stage": "crawl", "worker": "w", "crawl": "idle", "wait_ms": 60_000, "request_id": "c"});
    let post = |path: &str, body: &Value| ("POST", path.to_owned(), body.clone(), 200);
    vec![
        post("/v1/reservations", &json!({"holder": "w", "crawl": "idle", "wait_ms": 60_000})),
        // Of two with one id, one waits until the other is decided.
        post("/v1/reservations", &again),
        post("/v1/reservations", &again),
        post("/v1/chunks/claim", &json!({"stage": "build", "worker": "w", "wait_ms": 60_000})),
        post("/v1/chunks/claim", &chunk),
        post("/v1/chunks/claim", &chunk),
        ("GET", format!("/v1/map?since={version}&wait_ms=60000"), Value::Null, 204),
        ("GET", "/v1/roles/r?wait_ms=60000".to_owned(), Value::Null, 200),
        ("GET", "/v1/crawls/news?wait_for=finished&wait_ms=60000".to_owned(), Value::Null, 200),
        ("PUT", "/v1/matches/c?pool=p&wait_ms=60000".to_owned(), Value::Null, 202),
    ]
}

async fn send(door: &Door, (method, path, body, _): &(&'static str, String, Value, u16)) -> Response {
    let (kind, body) = if body.is_null() { ("", String::new()) } else { ("application/json", body.to_string()) };
    door.send_as(method.parse().unwrap(), path, kind, body).await
}

#[tokio::test]
async fn every_call_that_waits_is_charged_and_answers_when_the_server_stops() {
    let door = Door::new();
    let calls = calls(&door).await;
    let answers = calls.iter().map(|call| {
        let (door, call) = (door.clone(), call.clone());
        tokio::spawn(async move { send(&door, &call).await })
    });
    let answers: Vec<_> = answers.collect();
    let all_wait = async {
        while door.app.waits.count() < calls.len() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, all_wait).await.expect("all of them wait");
    assert!(door.app.budget.held() >= calls.len() * WAIT_BYTES);
    door.app.stopping.cancel();
    let mut undecided = 0;
    for (answer, call) in answers.into_iter().zip(&calls) {
        let answer = tokio::time::timeout(SOON, answer).await.expect(&call.1).unwrap();
        // It cannot say what the other call with its id gets.
        let is_undecided = call.2.get("request_id").is_some() && answer.status == 503;
        undecided += usize::from(is_undecided);
        assert!(is_undecided || answer.status.as_u16() == call.3, "{call:?}: {}", answer.text);
        let nothing = answer.text.is_empty()
            || !["reservations", "chunks"]
                .iter()
                .any(|list| answer.json()[*list].as_array().is_some_and(|list| !list.is_empty()));
        assert!(nothing, "{}", answer.text);
    }
    assert!(undecided <= 2, "{undecided}");
    assert_eq!((door.app.waits.count(), door.app.budget.held()), (0, 0));
}

#[tokio::test]
async fn where_no_call_may_wait_those_that_need_not_are_answered() {
    let door = Door::with(Config { held_bytes_max: WAIT_BYTES, ..Config::default() });
    let mut calls = calls(&door).await;
    let [first, again] = [1, 3].map(|n| calls.remove(n));
    for call in &calls {
        let answer = send(&door, call).await;
        if call.3 == 202 {
            assert_eq!(answer.status, 202, "its client is queued all the same");
        } else {
            assert_eq!(answer.problem(), (429, "overloaded".to_owned()), "{call:?}");
        }
        assert!(answer.headers.contains_key("retry-after"), "{call:?}");
    }
    assert_eq!((first.3, again.3, door.app.waits.refused()), (200, 200, calls.len() as u64));
    door.reserve_one(json!({"holder": "w", "wait_ms": 60_000})).await;
    door.post("/v1/roles/r/heartbeat", json!({"uuid": "u"})).await.ok();
    assert_eq!(door.get("/v1/roles/r?wait_ms=60000").await.ok()["primary"]["uuid"], "u");
    door.get("/v1/map?since=77&wait_ms=60000").await.ok();
    door.get("/v1/crawls/idle").await.ok();
}

#[tokio::test]
async fn probes_are_answered_even_when_no_memory_is_left() {
    let door = Door::new();
    let mut unread = door.app.budget.share(1);
    unread.overdraw(usize::MAX / 2);
    assert_eq!(door.get("/v1/stats").await.problem(), (503, "memory_full".to_owned()));
    for path in ["/healthz", "/readyz"] {
        door.get(path).await.ok();
    }
}

/// A regression: a grant that was being written when the server stopped was dropped, and its group was busy until the
/// lease was over.
#[tokio::test]
async fn what_is_granted_while_a_call_must_answer_is_answered() {
    let engine = Arc::new(Memory::stepped(SystemClock::default()));
    let opening = {
        let engine = engine.clone();
        std::thread::spawn(move || frontier_over(engine))
    };
    while !opening.is_finished() {
        engine.make_durable(usize::MAX);
        std::thread::yield_now();
    }
    let door = Door::to(opening.join().unwrap());
    let polling = {
        let door = door.clone();
        tokio::spawn(async move { door.post("/v1/reservations", json!({"holder": "w", "wait_ms": 60_000})).await.ok() })
    };
    while door.app.waits.count() == 0 {
        tokio::task::yield_now().await;
    }
    let seeding = {
        let door = door.clone();
        tokio::spawn(async move { door.seed("DEFAULT", &["http://a.example/1"]).await })
    };
    // The URL is durable, and then the grant waits to be.
    while engine.make_durable(1) == 0 {
        tokio::task::yield_now().await;
    }
    while engine.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    door.app.stopping.cancel();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!polling.is_finished(), "what it was granted is on its way");
    while !polling.is_finished() {
        engine.make_durable(usize::MAX);
        tokio::task::yield_now().await;
    }
    seeding.await.unwrap();
    let granted = polling.await.unwrap();
    assert_eq!(granted["reservations"][0]["group"], "a.example", "{granted}");
}
