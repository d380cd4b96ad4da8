//! File descriptors: connections must not exhaust those that the store needs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::prelude::*;

const LIMIT: u32 = 1_024;
const IDLE: usize = 1_100;

/// Sends a request over a persistent connection, and returns the status line and the body.
fn ask(stream: &mut TcpStream, request: &str, body: &str) -> String {
    let head = format!(
        "{request} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = Vec::new();
    loop {
        let mut part = [0; 8_192];
        let read = stream.read(&mut part).unwrap();
        answer.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&answer);
        let length =
            text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse::<usize>().ok());
        let whole =
            text.split_once("\r\n\r\n").is_some_and(|(_, body)| length.is_some_and(|length| body.len() >= length));
        if read == 0 || whole {
            return text.into_owned();
        }
    }
}

/// A server whose soft and hard limit is 1,024 holds 1,100 idle connections. They used to take the last descriptor, so
/// that the next table could not be written, and the store failed permanently.
#[test]
fn idle_connections_past_the_limit_leave_the_store_working() {
    // This process needs as many.
    let mine = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: mine.maximum, maximum: mine.maximum }).unwrap();
    assert!(mine.maximum.is_none_or(|maximum| maximum > 2_000), "this test needs 2,000 file descriptors");
    let (_keep, data) = folder();
    let server = Server::start_limited(&data, &["--memtable-mb", "1"], &format!("ulimit -n {LIMIT}"));
    let address = server.url.trim_start_matches("http://").to_owned();
    let mut worker = TcpStream::connect(&address).unwrap();
    worker.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert!(ask(&mut worker, "GET /healthz", "").contains("200 OK"));
    let address = address.parse().unwrap();
    // Beyond the accept queue a connection is not even established; that is as good as refused.
    let idle: Vec<TcpStream> =
        (0..IDLE).map_while(|_| TcpStream::connect_timeout(&address, Duration::from_secs(5)).ok()).collect();
    assert!(idle.len() > 1_000, "{} connections", idle.len());
    // Enough for several tables and journal files.
    for batch in 0..60 {
        let urls: Vec<String> =
            (0..200).map(|i| format!(r#"{{"url":"http://h{}.example/{batch}/{i}"}}"#, i % 40)).collect();
        let answer = ask(&mut worker, "POST /v1/urls", &format!(r#"{{"urls":[{}]}}"#, urls.join(",")));
        assert!(answer.contains("200 OK") && answer.contains(r#""added":200"#), "batch {batch}: {answer:.400}");
    }
    let ready = ask(&mut worker, "GET /readyz", "");
    assert!(ready.contains("200 OK"), "{ready}");
    drop(idle);
    assert_eq!(server.stats()["urls"]["queued"], 12_000, "others are served again");
    assert_eq!(server.stop(), 0);
}

#[test]
fn the_limit_is_raised_to_the_hard_one_and_told() {
    let (_keep, data) = folder();
    let server = Server::start_limited(&data, &[], "ulimit -Hn 2000; ulimit -Sn 300");
    let log = server.log();
    assert!(log.contains("raised the file descriptor limit") && log.contains("300") && log.contains("2000"), "{log}");
}
