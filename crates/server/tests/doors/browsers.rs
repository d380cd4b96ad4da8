//! What a web page can make a browser send to a server on loopback, without consent, changes and reveals nothing; and
//! other clients are not affected.

use std::process::Command;

use wayleave_api::urlfrontier::{Active, Empty};

use crate::prelude::*;

/// The header of a request that closes its connection.
fn head(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    format!("{text}\r\n{body}")
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {answer:?}")).parse().unwrap()
}

async fn grpc(running: &Running) -> UrlFrontierClient<Channel> {
    let channel = Channel::from_shared(format!("http://{}", running.address)).unwrap().connect().await.unwrap();
    UrlFrontierClient::new(channel)
}

async fn make_crawl(running: &Running, crawl: &str) {
    let body = format!(r#"{{"crawl":"{crawl}","urls":[{{"url":"http://a.example/"}}]}}"#);
    let json = ("Content-Type", "application/json");
    let answer = running.exchange(&head("POST", "/v1/urls", &[("Host", "localhost"), json], &body)).await;
    assert_eq!(status(&answer), 200, "{answer}");
}

async fn crawls(running: &Running) -> StringList {
    grpc(running).await.list_crawls(Local::default()).await.unwrap().into_inner()
}

/// A gRPC message: five bytes of frame, then field 1 as text.
fn delete_crawl(crawl: &str) -> String {
    let message = format!("\x0a{}{crawl}", char::from(u8::try_from(crawl.len()).unwrap()));
    format!("\0\0\0\0{}{message}", char::from(u8::try_from(message.len()).unwrap()))
}

const DELETE: &str = "/urlfrontier.URLFrontier/DeleteCrawl";

#[tokio::test]
async fn a_page_deletes_no_crawl_through_the_grpc_door() {
    let running = start(Config::default()).await;
    make_crawl(&running, "kept").await;
    let host = format!("localhost:{}", running.address.port());
    let body = delete_crawl("kept");
    let (plain, grpc) = (("Content-Type", "text/plain"), ("Content-Type", "application/grpc"));
    for headers in [
        // What a page can send without a preflight, under each name that its browser may use.
        vec![("Host", "evil.example"), ("Origin", "http://evil.example"), plain],
        vec![("Host", host.as_str()), ("Origin", "http://evil.example"), plain],
        vec![("Host", host.as_str()), plain],
        vec![("Host", host.as_str())],
        // What it could send after DNS rebinding of its own name.
        vec![("Host", "evil.example"), grpc],
        vec![("Host", host.as_str()), ("Origin", "null"), grpc],
    ] {
        let answer = running.exchange(&head("POST", DELETE, &headers, &body)).await;
        let refused = matches!(status(&answer), 403 | 415) || answer.contains("grpc-status: 7");
        assert!(refused, "{headers:?}: {answer}");
        assert_eq!(crawls(&running).await.values, ["kept"], "{headers:?}: {answer}");
    }
}

#[tokio::test]
async fn a_page_sends_no_bodiless_post_and_reads_nothing_under_a_foreign_name() {
    let running = start(Config::default()).await;
    make_crawl(&running, "kept").await;
    for (method, path) in
        [("POST", "/v1/crawls/kept/purge"), ("DELETE", "/v1/crawls/kept"), ("POST", "/v1/roles/r/step_down")]
    {
        let headers = [("Host", "127.0.0.1"), ("Origin", "https://evil.example")];
        let answer = running.exchange(&head(method, path, &headers, "")).await;
        assert_eq!(status(&answer), 403, "{answer}");
        assert!(answer.contains(r#""code":"foreign_origin""#), "{answer}");
        assert!(answer.contains("https://evil.example") && answer.contains("--allow-origin"), "{answer}");
    }
    for (method, path) in [("GET", "/v1/crawls"), ("GET", "/metrics"), ("POST", "/v1/crawls/kept/purge")] {
        for host in ["evil.example", "evil.example:7071", "EVIL.example.", "127.0.0.1.evil.example"] {
            let answer = running.exchange(&head(method, path, &[("Host", host)], "")).await;
            assert_eq!(status(&answer), 403, "{answer}");
            assert!(answer.contains(r#""code":"foreign_host""#) && answer.contains("--allow-host"), "{answer}");
        }
    }
    // A second Host, or one in the request line, does not bypass the check.
    let two = head("GET", "/v1/crawls", &[("Host", "localhost"), ("Host", "evil.example")], "");
    let line = head("GET", "http://evil.example/v1/crawls", &[("Host", "localhost")], "");
    for request in [two, line] {
        let answer = running.exchange(&request).await;
        assert!(matches!(status(&answer), 400 | 403), "{answer}");
    }
    // An image or a script of another site: no Origin, but the browser sends Sec-Fetch-Site.
    let embedded = [("Host", "localhost"), ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")];
    assert_eq!(status(&running.exchange(&head("GET", "/v1/snapshot", &embedded, "")).await), 403);
    let followed = [("Host", "localhost"), ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")];
    assert_eq!(status(&running.exchange(&head("GET", "/docs", &followed, "")).await), 200, "a link may lead here");
    assert_eq!(crawls(&running).await.values, ["kept"]);
}

#[tokio::test]
async fn on_loopback_only_names_that_no_network_answers_for_are_taken_whatever_the_port() {
    let config = Config { advertise: Some("crawl.example.org:7071".into()), ..Config::default() };
    let running = start(Config { allow_hosts: vec!["proxy.example".into(), ".corp.example".into()], ..config }).await;
    let taken = [
        "127.0.0.1",
        "127.0.0.1:1",
        "[::1]:7071",
        "localhost",
        "LOCALHOST:9",
        "a.localhost",
        "crawl.example.org",
        "crawl.example.org:80",
        "proxy.example:443",
        "Proxy.Example",
        "a.b.corp.example",
    ];
    for host in taken {
        let answer = running.exchange(&head("GET", "/v1/hosts", &[("Host", host)], "")).await;
        assert_eq!(status(&answer), 200, "{host}: {answer}");
    }
    let foreign = [
        "corp.example",
        "example.org",
        "svc",
        "wayleave",
        "node-1:7071",
        "pi.local",
        "evil.local",
        "evil.lan",
        "evil.internal",
        "host.docker.internal:7071",
        "wayleave.crawl.svc",
        "wayleave.crawl.svc.cluster.local",
        "x.svc.example",
        "notlocal.example",
        "10.1.2.3",
        "192.168.0.1",
        "169.254.169.254",
        "0.0.0.0:7071",
        "[::]",
        "[::ffff:10.0.0.1]",
        "[fe80::1]",
        "2130706433",
    ];
    for host in foreign {
        let answer = running.exchange(&head("GET", "/v1/hosts", &[("Host", host)], "")).await;
        assert_eq!(status(&answer), 403, "{host}: {answer}");
    }
    println!("seen: server: {} names taken, {} answered 403", taken.len(), foreign.len());
    for host in ["a b", "localhost:x:y"] {
        let answer = running.exchange(&head("GET", "/v1/hosts", &[("Host", host)], "")).await;
        assert!(matches!(status(&answer), 400 | 403), "{host}: {answer}");
    }
    // Load balancers' probes call by any name, by none, or by an empty one.
    for host in ["example.org", ""] {
        let answer = running.exchange(&head("GET", "/readyz", &[("Host", host)], "")).await;
        assert_eq!(status(&answer), 200, "{host}: {answer}");
    }
    let answer = running.exchange("GET /healthz HTTP/1.0\r\n\r\n").await;
    assert_eq!(status(&answer), 200, "{answer}");
}

/// A regression: names that the visitor's network answers for passed as local, so such a page could set a command.
#[tokio::test]
async fn a_page_under_a_name_of_its_network_sets_no_command() {
    let running = start(Config::default()).await;
    let port = running.address.port();
    let names = ["evil.local", "evil", "evil.lan", "evil.internal", "evil.svc"];
    for name in names {
        let (host, origin) = (format!("{name}:{port}"), format!("http://{name}:{port}"));
        let headers = [("Host", host.as_str()), ("Origin", origin.as_str()), ("Content-Type", "application/json")];
        let answer = running.exchange(&head("PUT", "/v1/pools/p", &headers, r#"{"command":["id"]}"#)).await;
        assert_eq!(status(&answer), 403, "{name}: {answer}");
    }
    let pool = running.exchange(&head("GET", "/v1/pools/p", &[("Host", "localhost")], "")).await;
    assert_eq!(status(&pool), 404, "{pool}");
    println!("seen: pages under {} names of their network: 0 commands set", names.len());
}

#[tokio::test]
async fn a_page_of_the_server_and_pages_that_are_allowed_may_call_it() {
    let config = Config { allow_origins: vec!["https://board.example".into()], ..Config::default() };
    let running = start(config).await;
    let host = format!("localhost:{}", running.address.port());
    let own = format!("http://{host}");
    let json = ("Content-Type", "application/json");
    let put = |origin: &str| head("PUT", "/v1/crawls/c", &[("Host", host.as_str()), ("Origin", origin), json], "{}");
    assert_eq!(status(&running.exchange(&put(&own)).await), 200);
    let answer = running.exchange(&put("https://board.example")).await;
    assert_eq!(status(&answer), 200);
    assert!(answer.contains("access-control-allow-origin: https://board.example"), "{answer}");
    let ask = [("Host", host.as_str()), ("Origin", "https://board.example"), ("Access-Control-Request-Method", "PUT")];
    let preflight = running.exchange(&head("OPTIONS", "/v1/crawls/c", &ask, "")).await;
    assert_eq!(status(&preflight), 204, "{preflight}");
    assert!(preflight.contains("access-control-allow-methods: ") && preflight.contains("PUT"), "{preflight}");
    // Another port is another origin, and so is another scheme of an allowed one.
    for origin in
        ["http://localhost:1", "http://localhost", "http://board.example", "https://board.example.evil.example"]
    {
        assert_eq!(status(&running.exchange(&put(origin)).await), 403, "{origin}");
    }
}

/// gRPC clients speak HTTP/2 without TLS, which no browser does: their name for the server does not matter.
#[tokio::test]
async fn grpc_clients_work_unchanged_under_any_name() {
    let running = start(Config::default()).await;
    make_crawl(&running, "kept").await;
    let endpoint = Channel::from_shared(format!("http://{}", running.address)).unwrap();
    let named = endpoint.origin("http://frontier.public.example:7071".parse().unwrap());
    let mut client = UrlFrontierClient::new(named.connect().await.unwrap());
    client.set_active(Active { state: true, local: false }).await.unwrap();
    assert_eq!(client.list_crawls(Local::default()).await.unwrap().into_inner().values, ["kept"]);
    assert_eq!(client.list_nodes(Empty {}).await.unwrap().into_inner().values.len(), 1);
}

/// The real curl, as in the README; under the name of a container over HTTP/2, which no browser speaks.
#[tokio::test(flavor = "multi_thread")]
async fn curl_works_unchanged() {
    let running = start(Config::default()).await;
    let port = running.address.port();
    for (name, protocol) in
        [("localhost", "--http1.1"), ("a.localhost", "--http1.1"), ("wayleave", "--http2-prior-knowledge")]
    {
        let url = format!("http://{name}:{port}/v1/urls");
        let resolve = format!("{name}:{port}:127.0.0.1");
        let body = r#"{"urls":[{"url":"http://a.example/"}]}"#;
        let curl = || {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "--fail-with-body", protocol, "--resolve", &resolve, &url]);
            curl.args(["-H", "Content-Type: application/json", "-d", body]).output()
        };
        let output = tokio::task::block_in_place(curl).expect("curl is installed");
        assert!(output.status.success(), "{name} {protocol}: {output:?}");
    }
}
