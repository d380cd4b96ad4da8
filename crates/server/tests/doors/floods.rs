//! Clients that send without end, stall or do not read: memory, time and connection slots stay bounded, and others are
//! served.

use bytes::Bytes;
use futures::stream::FuturesUnordered;
use hyper::client::conn::http2::SendRequest;

use crate::prelude::*;

const SHORT: Duration = Duration::from_millis(200);
/// The timeout for what must happen; long, because it is not reached in practice.
const SOON: Duration = Duration::from_secs(20);

async fn http2(running: &Running) -> SendRequest<Body> {
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(running.connect().await));
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn grpc(running: &Running) -> UrlFrontierClient<Channel> {
    let channel = Channel::from_shared(format!("http://{}", running.address)).unwrap().connect().await.unwrap();
    UrlFrontierClient::new(channel)
}

/// Waits until the server closes the connection; returns what it sent before.
async fn closed(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut said)).await;
    // A reset counts as an end too.
    drop(read.expect("the server closes the connection"));
    String::from_utf8_lossy(&said).into_owned()
}

async fn healthy(running: &Running) {
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = tokio::time::timeout(SOON, running.exchange(request)).await.expect("others are served");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn bodies_of_all_connections_share_one_budget_and_small_ones_are_taken_last() {
    let running = start(Config { held_bytes_max: 1 << 20, ..Config::default() }).await;
    let mut sender = http2(&running).await;
    let (mut parts, mut answers) = (Vec::new(), FuturesUnordered::new());
    for _ in 0..10 {
        // Bodies of 200 kB that never end: three of them fit beside the quarter for small ones.
        let (part, body) = futures::channel::mpsc::unbounded::<Result<Bytes, std::io::Error>>();
        part.unbounded_send(Ok(vec![b' '; 200_000].into())).unwrap();
        parts.push(part);
        let request = hyper::Request::post("http://x/v1/urls").header("content-type", "application/json");
        answers.push(sender.send_request(request.body(Body::from_stream(body)).unwrap()));
    }
    for _ in 0..7 {
        let answer = tokio::time::timeout(SOON, answers.next()).await.expect("it is refused").unwrap().unwrap();
        assert_eq!(answer.status(), 503);
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(text.windows(11).any(|word| word == b"memory_full"), "{text:?}");
    }
    let small = r#"{"urls":[{"url":"http://a.example/"}]}"#;
    let request = hyper::Request::post("http://x/v1/urls").header("content-type", "application/json");
    let answer = sender.send_request(request.body(Body::from(small)).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200, "a small body still finds room");
}

/// A response without flow-control window: HTTP/2 would buffer it forever, while the client answers pings and reads
/// other streams.
#[tokio::test]
async fn unread_answers_are_counted_and_end_their_connection() {
    let config = Config {
        held_bytes_max: 1 << 20,
        bounds: Bounds { answer_timeout: SHORT, ..Bounds::default() },
        ..Config::default()
    };
    let running = start(config).await;
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let handshake = builder.initial_stream_window_size(1).handshake(TokioIo::new(running.connect().await));
    let (mut sender, connection) = handshake.await.unwrap();
    let ended = tokio::spawn(connection);
    let mut unread = Vec::new();
    for _ in 0..3 {
        let request = hyper::Request::get("http://x/openapi.json").body(Body::empty()).unwrap();
        unread.push(sender.send_request(request).await.unwrap());
    }
    tokio::time::timeout(SOON, ended).await.expect("the connection is closed").unwrap().ok();
    drop(unread);
    healthy(&running).await;
}

#[tokio::test]
async fn a_connection_that_sends_part_of_anything_is_closed() {
    let running = start(Config {
        bounds: Bounds { head_timeout: SHORT, ..Bounds::default() },
        body_timeout: SHORT,
        ..Config::default()
    })
    .await;
    for part in ["P", "PRI * HTTP/2.0\r\n", "G", "GET / HTTP/1.1\r\nHost: localhost\r\n"] {
        let mut stream = running.connect().await;
        stream.write_all(part.as_bytes()).await.unwrap();
        closed(&mut stream).await;
    }
    let head = |kind: &str| {
        format!("POST /v1/urls HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: 900\r\n\r\n")
    };
    for (kind, part) in [
        ("application/json", "{"),
        ("application/x-ndjson", "{\"url\":\"http://a/\"}\n"),
        ("application/x-ndjson", "{"),
    ] {
        let mut stream = running.connect().await;
        stream.write_all((head(kind) + part).as_bytes()).await.unwrap();
        let said = closed(&mut stream).await;
        assert!(said.contains("body_timeout") || kind.ends_with("ndjson"), "{said}");
    }
}

/// Each byte arrives in time, but all of them together do not.
#[tokio::test]
async fn a_body_that_drips_is_given_up() {
    let running = start(Config { body_timeout: SHORT, ..Config::default() }).await;
    for kind in ["application/json", "application/x-ndjson"] {
        let (mut read, mut write) = running.connect().await.into_split();
        let head = format!(
            "POST /v1/urls HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: 9000\r\n\r\n"
        );
        write.write_all(head.as_bytes()).await.unwrap();
        let drip = async {
            while write.write_all(b" ").await.is_ok() {
                tokio::time::sleep(SHORT / 10).await;
            }
        };
        let mut said = Vec::new();
        let ended = async { drop(read.read_to_end(&mut said).await) };
        tokio::time::timeout(SOON, async {
            tokio::select! { () = drip => {}, () = ended => {} }
        })
        .await
        .expect(kind);
    }
}

#[tokio::test]
async fn connections_without_a_request_keep_nobody_out() {
    let running =
        start(Config { bounds: Bounds { connections_max: 8, ..Bounds::default() }, ..Config::default() }).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        let mut stream = running.connect().await;
        stream.write_all(b"G").await.unwrap();
        silent.push(stream);
    }
    healthy(&running).await;
}

#[tokio::test]
async fn a_batch_over_its_limit_fails_as_one_and_its_stream_goes_on() {
    let running = start(Config::default()).await;
    let batch = |id: &str, urls: usize| DiscoveredBatch {
        id: id.into(),
        items: vec![UrlInfo { url: "http://a/".into(), ..Default::default() }; urls],
    };
    let batches = stream::iter([batch("over", 10_001), batch("within", 2)]);
    let acks = grpc(&running).await.put_discovered(batches).await.unwrap().into_inner();
    let mut acks: Vec<_> = acks.map(Result::unwrap).collect().await;
    acks.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!((acks[0].id.as_str(), acks[0].statuses.len()), ("over", 10_001));
    assert!(acks[0].statuses.iter().all(|status| *status == i32::from(Ack::Fail)));
    assert_eq!(acks[1].statuses, [Ack::Ok, Ack::Skipped].map(i32::from));
}

/// The stream idles far longer than a body may take; its next item is accepted. Then the server stops, and the stream
/// ends at once.
#[tokio::test]
async fn a_put_stream_may_idle_and_does_not_hold_a_stop_up() {
    let config = Config {
        body_timeout: SHORT,
        bounds: Bounds { answer_timeout: SHORT, head_timeout: SHORT, ..Bounds::default() },
        ..Config::default()
    };
    let running = start(config).await;
    let (items, sent) = futures::channel::mpsc::unbounded::<UrlItem>();
    let mut client = grpc(&running).await;
    let mut acks = client.put_urls(sent).await.unwrap().into_inner();
    for id in ["one", "two"] {
        tokio::time::sleep(SHORT * 5).await;
        items.unbounded_send(UrlItem { id: id.into(), ..Default::default() }).unwrap();
        assert_eq!(acks.next().await.unwrap().unwrap().id, id);
    }
    running.stop.send(()).unwrap();
    // The grace period is ten seconds.
    tokio::time::timeout(Duration::from_secs(5), running.ended).await.expect("the stop waits for nobody").unwrap();
    let end = acks.next().await.unwrap().unwrap_err();
    assert_eq!(end.code(), tonic::Code::Unavailable, "{end}");
}
