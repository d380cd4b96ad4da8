//! What strangers can do at the ports of a server and its workers: nothing but take a connection for a while.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::stage::Worker;
use crate::pools::until;
use crate::prelude::*;

const HALF_OPEN: usize = 1_100;

/// A worker with 1,024 descriptors whose folder is beside the data, and its address.
fn worker(server: &Server, data: &Path, kind: &str) -> (Worker, String) {
    let (folder, option) = (data.with_file_name(kind), if kind == "index" { "--data" } else { "--store" });
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 1024; exec \"$@\"", "sh"]).arg(binary()).args([kind, option]).arg(&folder);
    command
        .args(["--id", kind, "--server", &server.url])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let worker = Worker(command.spawn().unwrap());
    let address = || {
        let machines = server.run(&["fleet", "--json"]).json();
        let mine = machines.into_iter().find(|machine| machine["id"] == kind);
        mine.map(|machine| machine["address"].as_str().unwrap().to_owned())
    };
    until("it has reported", || address().is_some());
    (worker, address().unwrap())
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
fn half_requests_without_end_keep_no_port_from_answering() {
    // This process needs as many.
    let mine = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: mine.maximum, maximum: mine.maximum }).unwrap();
    let (_keep, data) = folder();
    let server = Server::start_limited(&data, &[], "ulimit -n 1024");
    let own = server.url.strip_prefix("http://").unwrap().to_owned();
    check_half_requests("server", &own);
    for kind in ["crawl", "build", "index"] {
        let (_worker, address) = worker(&server, &data, kind);
        check_half_requests(kind, &address);
    }
}

fn check_half_requests(what: &str, address: &str) {
    let socket = address.parse().unwrap();
    let mut strangers = Vec::new();
    for n in 0..HALF_OPEN {
        let Ok(mut stream) = TcpStream::connect_timeout(&socket, Duration::from_secs(5)) else { break };
        let half = ["GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Half: ", "PRI * HTTP/2.0\r\n\r\n", "G", ""][n % 4];
        // It may have been evicted already.
        _ = stream.write_all(half.as_bytes());
        strangers.push(stream);
    }
    let begun = Instant::now();
    let answer = ask(address, "/healthz", address);
    println!("seen: {what}: {} half requests, /healthz answered in {:?}", strangers.len(), begun.elapsed());
    assert!(strangers.len() > 1_000 && answer.starts_with("HTTP/1.1 200"), "{what}: {} {answer}", strangers.len());
}

/// Names that networks answer for, other spellings of addresses, and what is no name.
const FOREIGN: &str = "evil.example EVIL.example. evil.local evil evil.lan evil.internal:7071 evil.svc pi.home.arpa 10.1.2.3 \
    169.254.169.254 0.0.0.0 [::] [::ffff:10.0.0.1] [fe80::1] 2130706433 0x7f.1 127.1 127.0.0.1.nip.io localhost.evil.example \
    user@localhost localhost@evil.example [::1 [::1]x %6cocalhost";

#[test]
fn a_page_under_a_name_of_its_network_reads_nothing_from_a_worker() {
    let (_keep, data) = folder();
    let server = Server::start(&data);
    for (kind, path, found) in [("crawl", "/chunk", 404), ("build", "/chunk", 404), ("index", "/search?q=x", 200)] {
        let (_worker, address) = worker(&server, &data, kind);
        let foreign = FOREIGN.split(' ');
        println!("seen: {kind}: {} foreign names and 3 foreign origins refused", foreign.clone().count());
        for host in foreign {
            let answer = ask(&address, path, host);
            let said = answer.starts_with("HTTP/1.1 403") && answer.contains("--allow-host");
            assert!(said || answer.starts_with("HTTP/1.1 400"), "{kind} {host}: {answer}");
        }
        for origin in ["http://evil.example", "null", "http://localhost:1"] {
            let answer = ask(&address, path, &format!("{address}\r\nOrigin: {origin}"));
            assert!(answer.starts_with("HTTP/1.1 403"), "{kind} {origin}: {answer}");
        }
        assert!(ask(&address, "/healthz", "evil.example").starts_with("HTTP/1.1 200"), "a probe");
        for host in [address.as_str(), "localhost", "index.localhost:80", "[::1]:7"] {
            let answer = ask(&address, path, host);
            assert!(answer.starts_with(&format!("HTTP/1.1 {found}")), "{kind} {host}: {answer}");
        }
    }
}
