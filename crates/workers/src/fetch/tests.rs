//! Against real servers on loopback: hyper for well-behaved ones, a bare socket for the others.

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// "hello" in brotli.
const HELLO_BR: &[u8] = &[0x0b, 0x02, 0x80, b'h', b'e', b'l', b'l', b'o', 0x03];

/// A fetcher of an operator who allows loopback.
fn fetcher(config: Config) -> Fetcher {
    let policy = Policy::new(vec!["127.0.0.0/8".parse().unwrap()], false);
    Fetcher::new(Config { policy, ..config }).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Serves what the function answers, and returns the server's URL.
async fn serve<F>(answer: F) -> Url
where
    F: Fn(axum::extract::Request) -> Response + Clone + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let router = Router::new().fallback(async move |request: axum::extract::Request| answer(request));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// Answers every connection with these bytes, and then keeps it open or closes it.
async fn serve_bytes(bytes: &'static [u8], open: bool) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(bytes).await;
            kept.extend(open.then_some(socket));
        }
    });
    url
}

#[tokio::test]
async fn a_page_comes_with_status_bytes_and_an_honest_user_agent() {
    let seen = Arc::new(Mutex::new(String::new()));
    let agent = Arc::clone(&seen);
    let url = serve(move |request| {
        *agent.lock().unwrap() = request.headers()["user-agent"].to_str().unwrap().to_owned();
        Response::builder().header("content-type", "text/html; charset=utf-8").body(Body::from("hello")).unwrap()
    })
    .await;
    let contact = Some("https://example.org/bot".parse().unwrap());
    let fetched = fetcher(Config { contact, ..Config::default() }).fetch(&url, Loopback::Closed).await.unwrap();
    assert_eq!(fetched.status, 200);
    assert_eq!(fetched.body().unwrap(), ("hello".into(), Cut::No));
    assert!(fetched.is_html() && !fetched.cut && fetched.redirect.is_none() && fetched.retry_after.is_none());
    let wanted = format!("wayleave/{} (+https://example.org/bot)", env!("CARGO_PKG_VERSION"));
    assert_eq!(*seen.lock().unwrap(), wanted);
    assert_eq!(fetched.request_headers[header::USER_AGENT], wanted);
}

#[tokio::test]
async fn gzip_and_brotli_are_kept_as_sent_and_decoded_on_demand() {
    let url = serve(|request| {
        let asked = request.headers()["accept-encoding"].to_str().unwrap().to_owned();
        assert!(asked.contains("gzip") && asked.contains("br"), "{asked}");
        let (coding, body) = match request.uri().path() {
            "/gzip" => ("gzip", gzip(b"hello")),
            "/br" => ("br", HELLO_BR.to_vec()),
            "/broken" => ("gzip", gzip(b"hello")[..12].to_vec()),
            "/empty" => ("gzip", Vec::new()),
            _ => ("zstd", b"?".to_vec()),
        };
        Response::builder().header("content-encoding", coding).body(Body::from(body)).unwrap()
    })
    .await;
    let fetcher = fetcher(Config::default());
    let fetched = fetcher.fetch(&url.join("gzip").unwrap(), Loopback::Closed).await.unwrap();
    assert_eq!(fetched.raw, gzip(b"hello"));
    assert_eq!(fetched.body().unwrap(), ("hello".into(), Cut::No));
    let fetched = fetcher.fetch(&url.join("br").unwrap(), Loopback::Closed).await.unwrap();
    assert_eq!(fetched.body().unwrap(), ("hello".into(), Cut::No));
    let fetched = fetcher.fetch(&url.join("broken").unwrap(), Loopback::Closed).await.unwrap();
    assert_eq!(fetched.body().unwrap().1, Cut::Broken);
    let fetched = fetcher.fetch(&url.join("empty").unwrap(), Loopback::Closed).await.unwrap();
    assert_eq!(fetched.body().unwrap(), (Bytes::new(), Cut::No));
    let fetched = fetcher.fetch(&url.join("other").unwrap(), Loopback::Closed).await.unwrap();
    assert_eq!(fetched.body(), Err(UnknownCoding("zstd".to_owned())));
}

#[test]
fn a_decompression_bomb_is_cut_at_the_limit() {
    let bomb = Bytes::from(gzip(&vec![0; 10_000_000]));
    assert!(bomb.len() < 100_000, "the test needs a real bomb");
    let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"))]);
    let (decoded, cut) = decode(&bomb, &headers, 1_000).unwrap();
    assert_eq!((decoded.len(), cut), (1_000, Cut::TooLong));
}

#[tokio::test]
async fn an_endless_body_is_cut_at_the_limit() {
    let url = serve(|_| {
        let endless = futures::stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 1000])));
        Response::new(Body::from_stream(endless))
    })
    .await;
    let fetched =
        fetcher(Config { body_bytes_max: 2_500, ..Config::default() }).fetch(&url, Loopback::Closed).await.unwrap();
    assert!(fetched.cut);
    assert_eq!(fetched.raw.len(), 2_500);
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_whole() {
    let url = serve(|_| Response::new(Body::from("12345"))).await;
    let fetched =
        fetcher(Config { body_bytes_max: 5, ..Config::default() }).fetch(&url, Loopback::Closed).await.unwrap();
    assert_eq!((fetched.raw.as_ref(), fetched.cut), (b"12345".as_slice(), false));
}

#[tokio::test]
async fn a_redirect_is_a_result_and_is_not_followed() {
    let url = serve(|request| {
        assert_ne!(request.uri().path(), "/next");
        let (status, target) = match request.uri().path() {
            "/a" => (301, "/next?q=1#part"),
            "/b" => (302, "https://other.example/ü"),
            "/c" => (307, "ftp://other.example/"),
            "/d" => (304, "/next"),
            _ => (302, "http://[broken"),
        };
        let target = axum::http::HeaderValue::from_bytes(target.as_bytes()).unwrap();
        Response::builder().status(status).header("location", target).body(Body::empty()).unwrap()
    })
    .await;
    let fetcher = fetcher(Config::default());
    let next = url.join("/next?q=1").unwrap().to_string();
    for (path, wanted) in
        [("a", Some(next.as_str())), ("b", Some("https://other.example/%C3%BC")), ("c", None), ("d", None), ("e", None)]
    {
        let fetched = fetcher.fetch(&url.join(path).unwrap(), Loopback::Closed).await.unwrap();
        assert_eq!(fetched.redirect.as_ref().map(Url::as_str), wanted, "{path}");
    }
}

#[tokio::test]
async fn a_busy_host_says_when_to_come_back() {
    let url = serve(|_| Response::builder().status(429).header("retry-after", "7").body(Body::empty()).unwrap()).await;
    let fetched = fetcher(Config::default()).fetch(&url, Loopback::Closed).await.unwrap();
    assert_eq!((fetched.status.as_u16(), fetched.retry_after), (429, Some(Duration::from_secs(7))));
}

#[tokio::test]
async fn off_loopback_a_contact_is_insisted_on() {
    let fetcher = fetcher(Config::default());
    for target in ["http://example.org/", "http://192.0.2.1/", "http://localhost.example.org/", "http://[2001:db8::1]/"]
    {
        let error = fetcher.fetch(&target.parse().unwrap(), Loopback::Closed).await.unwrap_err();
        assert!(matches!(error, Error::NoContact(_)), "{target}: {error}");
    }
    for target in ["ftp://127.0.0.1/", "file:///etc/passwd", "data:,x"] {
        let error = fetcher.fetch(&target.parse().unwrap(), Loopback::Closed).await.unwrap_err();
        assert!(matches!(error, Error::NotHttp(_)), "{target}: {error}");
    }
    for local in [
        "http://127.9.9.9/",
        "http://localhost:1/",
        "http://a.localhost./",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
    ] {
        assert!(is_loopback(&local.parse().unwrap()), "{local}");
    }
}

/// Loopback in every spelling, and addresses of a network that is not everybody's.
pub(crate) const INNER: [&str; 25] = [
    "127.0.0.1",
    "127.8.8.8",
    "localhost",
    "LOCALHOST",
    "127.1",
    "2130706433",
    "0x7f.1",
    "017700000001",
    "0",
    "0.0.0.0",
    "[::]",
    "[::1]",
    "[::7f00:1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2606:4700::5efe:127.0.0.1]",
    "10.0.0.1",
    "192.168.0.1",
    "100.64.0.1",
    "169.254.169.254",
    "[fe80::1]",
    "[fd00::1]",
    "[::ffff:10.0.0.1]",
];

/// A regression: only literal loopback was refused, and only where a page linked to it.
#[tokio::test]
async fn a_page_leads_to_no_address_that_is_not_public() {
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let url = serve(move |_| {
        *count.lock().unwrap() += 1;
        Response::new(Body::from("secret"))
    })
    .await;
    let port = url.port().unwrap();
    let contact = Some("me@example.org".parse().unwrap());
    let web = Fetcher::new(Config { contact, ..Config::default() }).unwrap();
    for host in INNER {
        let target = format!("http://{host}:{port}/").parse().unwrap();
        let error = web.fetch(&target, Loopback::Closed).await.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{host}: {error}");
    }
    // Where an operator wants a site of this machine crawled, nothing else is open.
    for host in ["0.0.0.0", "[64:ff9b::7f00:1]"] {
        let other = format!("http://{host}:{port}/").parse().unwrap();
        let error = web.fetch(&other, Loopback::Open).await.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{host}: {error}");
    }
    assert_eq!(*asked.lock().unwrap(), 0);
    println!("seen: pages at {} spellings of inner addresses: 0 connections", INNER.len());
    assert_eq!(web.fetch(&url, Loopback::Open).await.unwrap().raw, "secret");
}

#[test]
fn a_contact_is_a_url_or_a_mail_address() {
    for good in ["https://example.org/bot?x=1", "crawl@example.org", "http://127.0.0.1/"] {
        assert!(good.parse::<Contact>().is_ok(), "{good}");
    }
    let long = format!("https://example.org/{}", "x".repeat(200));
    for bad in ["", "me", "@example.org", "me@localhost", "a@b@c.d", "ftp://x.y/", "x@y.z\r\nEvil: 1", "x@y.z)", &long]
    {
        assert!(bad.parse::<Contact>().is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_silent_host_times_out_and_a_dead_port_refuses() {
    let url = serve_bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", true).await;
    let quick = fetcher(Config { time_max: Duration::from_millis(50), ..Config::default() });
    assert!(matches!(quick.fetch(&url, Loopback::Closed).await, Err(Error::Timeout { .. })));

    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = fetcher(Config::default())
        .fetch(&format!("http://{closed}/").parse().unwrap(), Loopback::Closed)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
}

#[tokio::test]
async fn half_a_body_and_noise_are_protocol_errors() {
    let fetcher = fetcher(Config::default());
    for bytes in [b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".as_slice(), b"220 smtp.example\r\n\r\n"] {
        let url = serve_bytes(bytes, false).await;
        let error = fetcher.fetch(&url, Loopback::Closed).await.unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{error}");
    }
}

#[tokio::test]
async fn an_endless_header_is_refused() {
    let head: &'static [u8] = Box::leak(format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(200_000)).into_bytes().into());
    let url = serve_bytes(head, true).await;
    let error = fetcher(Config::default()).fetch(&url, Loopback::Closed).await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
}

#[tokio::test]
async fn a_password_in_a_url_is_not_sent() {
    let url = serve(|request| {
        assert!(request.headers().get("authorization").is_none());
        Response::new(Body::from(request.uri().to_string()))
    })
    .await;
    let mut login = url.clone();
    login.set_username("me").unwrap();
    login.set_password(Some("secret")).unwrap();
    assert_eq!(fetcher(Config::default()).fetch(&login, Loopback::Closed).await.unwrap().raw, "/");
}

/// A TLS server that offers these protocols, and its certificate.
async fn serve_tls(folder: &std::path::Path, protocols: &[&[u8]]) -> (Url, CertificateDer<'static>) {
    use rustls::pki_types::{PrivateKeyDer, pem::PemObject as _};
    let make = "openssl req -new -x509 -days 9 -nodes -newkey rsa:2048 -out server.crt -keyout server.key \
        -subj /CN=wayleave-test -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
    let made = std::process::Command::new("sh").args(["-c", make]).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let certificate = CertificateDer::from_pem_file(folder.join("server.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(socket).await else { return };
                let service = hyper::service::service_fn(async |_| {
                    Ok::<_, Infallible>(hyper::Response::new(http_body_util::Full::new(Bytes::from_static(b"hello"))))
                });
                let server = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
                let _ = server.serve_connection(hyper_util::rt::TokioIo::new(stream), service).await;
            });
        }
    });
    (url, certificate)
}

#[tokio::test]
async fn tls_speaks_http_2_where_the_host_does_and_trusts_no_stranger() {
    for (protocols, version) in
        [([b"h2".as_slice(), b"http/1.1"].as_slice(), Version::HTTP_2), (&[b"http/1.1"], Version::HTTP_11)]
    {
        let folder = tempfile::TempDir::new().unwrap();
        let (url, certificate) = serve_tls(folder.path(), protocols).await;
        let trusting = fetcher(Config { authorities: vec![certificate], ..Config::default() });
        let fetched = trusting.fetch(&url, Loopback::Closed).await.unwrap();
        assert_eq!(
            (fetched.version, fetched.status.as_u16(), fetched.raw.as_ref()),
            (version, 200, b"hello".as_slice())
        );
        let error = fetcher(Config::default()).fetch(&url, Loopback::Closed).await.unwrap_err();
        assert!(matches!(&error, Error::Connect { cause, .. } if cause.contains("certificate")), "{error}");
    }
}

#[test]
fn no_text_of_an_error_names_a_password() {
    let url = || -> Url { "http://u:hunter2@h/a?page=1".parse().unwrap() };
    let cause = || "error sending request for url (http://u:hunter2@h/a)".to_owned();
    let errors = [
        Error::NotHttp(url()),
        Error::NoContact(url()),
        Error::Timeout { url: url(), limit: Duration::from_secs(1) },
        Error::Connect { url: url(), cause: cause() },
        Error::Protocol { url: url(), cause: cause() },
    ];
    for error in errors {
        let text = error.to_string();
        assert!(!text.contains("hunter2") && text.contains("http://***@h/a?page=1"), "{text}");
    }
}
