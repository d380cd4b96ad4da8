//! The accept loop: both protocols on one port, a bounded number of connections, graceful shutdown.

use wayleave_server::Port;
use wayleave_server::server::BindError;

use crate::prelude::*;

async fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    loop {
        let mut part = [0; 4096];
        let read = stream.read(&mut part).await.unwrap();
        answer.extend_from_slice(&part[..read]);
        if read == 0 || answer.ends_with(b"}") {
            return String::from_utf8(answer).unwrap();
        }
    }
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[tokio::test]
async fn http_1_keeps_its_connection_for_further_requests() {
    let running = start(Config::default()).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    for _ in 0..2 {
        let answer = ask(&mut stream, HEALTH).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with(r#"{"status":"up"}"#), "{answer}");
    }
}

#[tokio::test]
async fn http_2_is_spoken_on_the_same_port() {
    let running = start(Config::default()).await;
    let stream = TcpStream::connect(running.address).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let request = hyper::Request::get(format!("http://{}/healthz", running.address)).body(Body::empty()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, hyper::Version::HTTP_2));
}

#[tokio::test]
async fn a_stop_ends_idle_connections_and_refuses_new_ones() {
    let running = start(Config::default()).await;
    let mut idle = TcpStream::connect(running.address).await.unwrap();
    ask(&mut idle, HEALTH).await;
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    running.stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(5), running.ended).await.expect("well within the grace time").unwrap();
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert!(TcpStream::connect(running.address).await.is_err());
}

/// The request is in progress when the stop comes; its body arrives afterwards and it is still answered.
#[tokio::test]
async fn a_stop_lets_a_request_finish() {
    let running = start(Config::default()).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let head = "POST /v1/urls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    running.stop.send(()).unwrap();
    // The port is closed once the stop has been noticed.
    while TcpStream::connect(running.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let answer = ask(&mut stream, "{}").await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("urls: is missing"), "{answer}");
    tokio::time::timeout(Duration::from_secs(5), running.ended).await.expect("nothing is left").unwrap();
}

#[tokio::test]
async fn what_does_not_finish_in_the_grace_time_is_cut() {
    let running =
        start(Config { bounds: Bounds { grace: Duration::from_millis(50), ..Bounds::default() }, ..Config::default() })
            .await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let head = "POST /v1/urls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.read_exact(&mut [0; 25]).await.unwrap();
    running.stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(5), running.ended).await.expect("the grace time is over").unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn past_the_bound_a_connection_waits_until_another_ends() {
    let running =
        start(Config { bounds: Bounds { connections_max: 1, ..Bounds::default() }, ..Config::default() }).await;
    let mut first = TcpStream::connect(running.address).await.unwrap();
    ask(&mut first, HEALTH).await;
    // An upload: a connection without a request would be evicted at once, and one that only waits would leave.
    let head = "POST /v1/urls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    first.write_all(head.as_bytes()).await.unwrap();
    first.read_exact(&mut [0; 25]).await.unwrap();
    let mut second = TcpStream::connect(running.address).await.unwrap();
    second.write_all(HEALTH.as_bytes()).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), second.read(&mut [0; 1])).await;
    assert!(early.is_err(), "it was served beside the first");
    drop(first);
    let answer = tokio::time::timeout(Duration::from_secs(5), ask(&mut second, "")).await.expect("its turn has come");
    assert!(answer.contains("200 OK"), "{answer}");
}

#[tokio::test]
async fn a_connection_that_never_speaks_is_closed() {
    let running = start(Config {
        bounds: Bounds { head_timeout: Duration::from_millis(50), ..Bounds::default() },
        ..Config::default()
    })
    .await;
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    let closed = tokio::time::timeout(Duration::from_secs(5), silent.read(&mut [0; 1])).await;
    assert_eq!(closed.expect("it is closed").unwrap_or(0), 0);
}

#[tokio::test]
async fn an_open_address_is_refused_before_the_port_is_taken() {
    let config = Config { listen: "0.0.0.0:0".parse().unwrap(), ..Config::default() };
    let Err(error) = Port::take(config) else { panic!("it was taken") };
    assert!(matches!(error, BindError::Config(_)) && error.to_string().contains("--insecure"), "{error}");
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let running = start(Config::default()).await;
    let config = Config { listen: running.address, ..Config::default() };
    let Err(error) = Port::take(config) else { panic!("it was taken twice") };
    assert!(error.to_string().contains(&running.address.to_string()), "{error}");
}

#[tokio::test]
async fn a_long_poll_ends_early_when_the_server_stops() {
    let running = start(Config::default()).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let body = r#"{"holder":"w","wait_ms":60000}"#;
    let head = format!(
        "POST /v1/reservations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.read_exact(&mut [0; 25]).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    running.stop.send(()).unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(5), ask(&mut stream, "")).await.expect("long before 60 s");
    assert!(answer.ends_with(r#"{"reservations":[]}"#), "{answer}");
    tokio::time::timeout(Duration::from_secs(5), running.ended).await.expect("nothing is left").unwrap();
}
