//! What strangers can do at the port of a worker: nothing but take a slot for a while.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::stage::Worker;
use crate::support::{Server, binary, folder};

const HALF_OPEN: usize = 1_100;

/// An index server with 1,024 descriptors, and its address.
fn index(server: &Server, data: &std::path::Path) -> (Worker, String) {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 1024; exec \"$@\"", "sh"]).arg(binary()).args(["index", "--data"]).arg(data);
    command.args(["--server", &server.url]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    let address = loop {
        line.clear();
        assert!(errors.read_line(&mut line).unwrap() > 0, "it has ended");
        if let Some((_, rest)) = line.split_once(" ready on http://") {
            break rest.split('/').next().unwrap().to_owned();
        }
    };
    std::thread::spawn(move || errors.lines().map_while(Result::ok).for_each(|line| println!("index: {line}")));
    (Worker(child), address)
}

fn ask(address: &str, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A regression: connections without a whole request took all descriptors, so that health checks failed for ever.
#[test]
fn half_requests_without_end_do_not_keep_a_worker_from_answering() {
    // This process needs as many.
    let mine = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: mine.maximum, maximum: mine.maximum }).unwrap();
    let (_keep, data) = folder();
    let server = Server::start(&data);
    let (_worker, address) = index(&server, &data.with_file_name("index"));
    let socket = address.parse().unwrap();
    let mut strangers = Vec::new();
    for _ in 0..HALF_OPEN {
        let Ok(mut stream) = TcpStream::connect_timeout(&socket, Duration::from_secs(5)) else { break };
        // It may have been evicted already.
        _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Half: ");
        strangers.push(stream);
    }
    let begun = Instant::now();
    let answer = ask(&address, "/healthz", &address);
    println!("seen: {} half requests, /healthz answered in {:?}", strangers.len(), begun.elapsed());
    assert!(strangers.len() > 1_000 && answer.starts_with("HTTP/1.1 200"), "{} {answer}", strangers.len());
    assert!(begun.elapsed() < Duration::from_secs(10), "after {:?}", begun.elapsed());
}

#[test]
fn a_page_under_a_name_of_its_network_reads_nothing_from_a_worker() {
    let (_keep, data) = folder();
    let server = Server::start(&data);
    let (_worker, address) = index(&server, &data.with_file_name("index"));
    for host in ["evil.example", "evil.local", "evil", "10.1.2.3", "evil.internal:7071"] {
        let answer = ask(&address, "/search?q=x", host);
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("--allow-host"), "{host}: {answer}");
        assert!(ask(&address, "/healthz", host).starts_with("HTTP/1.1 200"), "a probe");
    }
    for host in [address.as_str(), "localhost", "index.localhost:80"] {
        assert!(ask(&address, "/search?q=x", host).starts_with("HTTP/1.1 200"), "{host}");
    }
}
