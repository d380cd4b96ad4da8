//! Folders, a worker that serves one, and a WebDAV server, all real and on loopback.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use wayleave_outgoing::Policy;

use super::*;
use crate::digest::sha256;
use crate::fetch::tests::INNER;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn file(folder: &TempDir, content: &[u8]) -> PathBuf {
    let path = folder.path().join("content");
    fs::write(&path, content).unwrap();
    path
}

async fn serve(router: Router) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// A worker's folder that is served, and its store.
async fn served(folder: &TempDir) -> (Store, Url) {
    let path = folder.path().join("served");
    fs::create_dir(&path).unwrap();
    let url = serve(serve::router(&path)).await;
    (Store::open(path.to_str().unwrap(), Some(&url)).unwrap(), url)
}

/// A store on another machine, as it were: it has a folder of its own.
fn elsewhere(folder: &TempDir) -> Store {
    Store::open(&format!("file://{}", folder.path().join("elsewhere").display()), None).unwrap()
}

#[tokio::test]
async fn what_one_worker_publishes_another_fetches() {
    let folder = TempDir::new().unwrap();
    let (store, url) = served(&folder).await;
    let content: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    let artifact = store.put(&name("chunk-1.warc.gz"), &file(&folder, &content)).await.unwrap();
    assert_eq!(artifact.location, url.join("chunk-1.warc.gz").unwrap());
    assert_eq!((artifact.bytes, artifact.checksum.as_str()), (800_000, sha256(&content).as_str()));
    let into = folder.path().join("fetched");
    for store in [&store, &elsewhere(&folder)] {
        store.get(&artifact, &Rule::operator(), &into).await.unwrap();
        assert!(fs::read(&into).unwrap() == content);
        fs::remove_file(&into).unwrap();
    }
    let left: Vec<_> = fs::read_dir(store.folder().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["chunk-1.warc.gz"], "no temporary file is left");
}

#[tokio::test]
async fn a_shared_folder_needs_no_server() {
    let folder = TempDir::new().unwrap();
    let store = elsewhere(&folder);
    let artifact = store.put(&name("a"), &file(&folder, b"content")).await.unwrap();
    assert_eq!(artifact.location.scheme(), "file");
    let into = folder.path().join("fetched");
    elsewhere(&folder).get(&artifact, &Rule::operator(), &into).await.unwrap();
    assert_eq!(fs::read(&into).unwrap(), b"content");
    store.remove(&artifact.location).await.unwrap();
    store.remove(&artifact.location).await.unwrap();
    assert!(matches!(store.get(&artifact, &Rule::operator(), &into).await, Err(Error::Gone { .. })));
}

#[tokio::test]
async fn what_a_killed_worker_left_is_swept_away_when_it_is_old() {
    let folder = TempDir::new().unwrap();
    let store = elsewhere(&folder);
    let path = store.folder().unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 24 * 60 * 60);
    for (name, written) in
        [(".part-old", Some(old)), (".part-young", None), ("artifact", Some(old)), (".other", Some(old))]
    {
        let file = fs::File::create(path.join(name)).unwrap();
        written.map_or(Ok(()), |written| file.set_modified(written)).unwrap();
    }
    let store = elsewhere(&folder);
    let mut left: Vec<_> =
        fs::read_dir(store.folder().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".other", ".part-young", "artifact"]);
}

#[tokio::test]
async fn what_is_not_as_described_never_gets_a_name() {
    let folder = TempDir::new().unwrap();
    let (store, url) = served(&folder).await;
    let good = store.put(&name("a"), &file(&folder, b"content")).await.unwrap();
    let into = folder.path().join("fetched");
    let wrong = [
        Artifact { bytes: 6, ..good.clone() },
        Artifact { bytes: 8, ..good.clone() },
        Artifact { checksum: sha256(b"other"), ..good.clone() },
    ];
    for store in [&store, &elsewhere(&folder)] {
        for artifact in &wrong {
            let error = store.get(artifact, &Rule::operator(), &into).await.unwrap_err();
            assert!(matches!(error, Error::Differs { .. }), "{error}");
            assert!(!into.exists());
        }
        for (bytes, checksum) in [(7, "md5:00"), (7, ""), (u64::MAX, good.checksum.as_str())] {
            let artifact = Artifact { location: good.location.clone(), bytes, checksum: checksum.to_owned() };
            assert!(matches!(store.get(&artifact, &Rule::operator(), &into).await, Err(Error::Description { .. })));
        }
        let gone = Artifact { location: url.join("gone").unwrap(), ..good.clone() };
        assert!(matches!(store.get(&gone, &Rule::operator(), &into).await, Err(Error::Gone { .. })));
    }
    assert!(!into.exists());
    // A name that is taken keeps its file until the new one is whole.
    fs::write(&into, b"old").unwrap();
    store.get(&wrong[2], &Rule::operator(), &into).await.unwrap_err();
    assert_eq!(fs::read(&into).unwrap(), b"old");
    store.get(&good, &Rule::operator(), &into).await.unwrap();
    assert_eq!(fs::read(&into).unwrap(), b"content");
}

#[tokio::test]
async fn a_worker_reads_no_other_files_of_its_machine() {
    let folder = TempDir::new().unwrap();
    let (store, _) = served(&folder).await;
    let secret = file(&folder, b"secret");
    let into = folder.path().join("fetched");
    for location in [
        Url::from_file_path(&secret).unwrap(),
        "ftp://127.0.0.1/x".parse().unwrap(),
        "s3://bucket/x".parse().unwrap(),
        "data:,secret".parse().unwrap(),
    ] {
        let artifact = Artifact { location, bytes: 6, checksum: sha256(b"secret") };
        for store in [&store, &elsewhere(&folder)] {
            assert!(
                matches!(store.get(&artifact, &Rule::operator(), &into).await, Err(Error::Location(_))),
                "{artifact:?}"
            );
        }
    }
}

/// A regression: the reason of a failed fetch revealed size and SHA-256 of the answer of an internal address.
#[tokio::test]
async fn a_location_leads_to_no_private_address_and_reasons_reveal_no_content() {
    let folder = TempDir::new().unwrap();
    let (store, url) = served(&folder).await;
    let good = store.put(&name("a"), &file(&folder, b"secret content")).await.unwrap();
    let (into, policy) = (folder.path().join("fetched"), Policy::new(Vec::new(), true));
    let elsewhere = elsewhere(&folder);
    let port = url.port().unwrap();
    for host in INNER {
        let location = format!("http://{host}:{port}/a").parse().unwrap();
        let artifact = Artifact { location, ..good.clone() };
        for rule in [policy.web(), policy.named(["10.0.0.7".parse().unwrap()])] {
            let error = elsewhere.get(&artifact, &rule, &into).await.unwrap_err();
            assert!(matches!(error, Error::Refused { .. }), "{error}");
        }
    }
    println!("seen: artifacts at {} spellings of inner addresses: 0 fetched", INNER.len());
    let wrong = Artifact { bytes: 5, checksum: sha256(b"guess"), ..good.clone() };
    let vouched = policy.named(["127.0.0.1".parse().unwrap()]);
    let error = elsewhere.get(&wrong, &vouched, &into).await.unwrap_err().to_string();
    assert_eq!(error, format!("{} is not the artifact that it should be", good.location));
    elsewhere.get(&good, &vouched, &into).await.unwrap();
    assert_eq!(fs::read(&into).unwrap(), b"secret content");
}

#[tokio::test]
async fn an_endless_answer_ends_at_the_declared_size() {
    let endless = || {
        let stream = futures::stream::repeat_with(|| Ok::<_, std::convert::Infallible>(Bytes::from_static(&[0; 1000])));
        Response::new(axum::body::Body::from_stream(stream))
    };
    let url = serve(Router::new().fallback(async move || endless())).await;
    let folder = TempDir::new().unwrap();
    let artifact = Artifact { location: url.join("a").unwrap(), bytes: 2_500, checksum: sha256(&[0; 2_500]) };
    let error = elsewhere(&folder).get(&artifact, &Rule::operator(), &folder.path().join("fetched")).await.unwrap_err();
    assert!(matches!(error, Error::Differs { .. }), "{error}");
}

/// One request over a bare socket: a client library would tidy the path up.
async fn raw(url: &Url, request: &str) -> String {
    let mut socket = TcpStream::connect(url.socket_addrs(|| None).unwrap()[0]).await.unwrap();
    let text = request.replacen(" HTTP", " HTTP/1.1\r\nhost: x\r\nconnection: close", 1) + "\r\n\r\n";
    socket.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn no_path_leaves_the_folder_and_nothing_can_be_written() {
    let folder = TempDir::new().unwrap();
    let (store, url) = served(&folder).await;
    file(&folder, b"secret");
    store.put(&name("a"), &file(&folder, b"0123456789")).await.unwrap();
    let served = store.folder().unwrap();
    fs::write(served.join(".part-x"), b"secret").unwrap();
    fs::create_dir(served.join("inner")).unwrap();
    fs::write(served.join("inner/x"), b"secret").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.path().join("content"), served.join("link")).unwrap();
    for path in [
        "/../content",
        "/..%2fcontent",
        "/%2e%2e/content",
        "/%2e%2e%2fcontent",
        "/./a",
        "//a",
        "/.part-x",
        "/inner",
        "/inner/x",
        "/inner%2fx",
        "/link",
        "/a%00",
        "/",
        "/a/",
        "/..",
        "/%ff",
        "/nothing",
    ] {
        let answer = raw(&url, &format!("GET {path} HTTP")).await;
        assert!(answer.starts_with("HTTP/1.1 404") || answer.starts_with("HTTP/1.1 400"), "{path}: {answer}");
        assert!(!answer.contains("secret"), "{path}");
    }
    for method in ["PUT", "DELETE", "POST", "PATCH"] {
        assert!(raw(&url, &format!("{method} /a HTTP")).await.starts_with("HTTP/1.1 405"), "{method}");
    }
    let answer = raw(&url, "GET /a HTTP\r\nrange: bytes=2-4").await;
    assert!(answer.starts_with("HTTP/1.1 206") && answer.ends_with("\r\n\r\n234"), "{answer}");
    assert!(answer.contains("content-range: bytes 2-4/10\r\n") && answer.contains("content-length: 3\r\n"), "{answer}");
    let answer = raw(&url, "GET /a HTTP\r\nrange: bytes=10-").await;
    assert!(answer.starts_with("HTTP/1.1 416") && answer.contains("content-range: bytes */10\r\n"), "{answer}");
    let answer = raw(&url, "HEAD /a HTTP").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("content-length: 10\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn settings_and_names_are_checked() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().to_str().unwrap();
    for wrong in [path, "ftp://host/", "gs://bucket", "file://host/path", "http://[broken", "s3://"] {
        assert!(Store::open(wrong, None).is_err(), "{wrong}");
    }
    fs::write(folder.path().join("file"), b"").unwrap();
    let base = "http://127.0.0.1/".parse().unwrap();
    assert!(matches!(Store::open(&format!("{path}/file"), Some(&base)), Err(Error::File { .. })));
    assert!(Store::open(&format!("{path}/a/b"), Some(&base)).is_ok());
    for bad in ["", ".", "..", ".a", "a/b", "a\\b", "a b", "ä", "a\0", &"a".repeat(201)] {
        assert!(bad.parse::<Name>().is_err(), "{bad:?}");
    }
}

/// The little of WebDAV that a store needs: PUT, GET, HEAD, COPY, DELETE; in memory.
type Files = Arc<Mutex<HashMap<String, Bytes>>>;

async fn dav(State(files): State<Files>, method: Method, headers: HeaderMap, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let mut files = files.lock().unwrap();
    match method.as_str() {
        "PUT" => {
            files.insert(path, body);
            StatusCode::CREATED.into_response()
        }
        "COPY" => {
            let to: Url = headers["destination"].to_str().unwrap().parse().unwrap();
            let Some(copied) = files.get(&path).cloned() else { return StatusCode::NOT_FOUND.into_response() };
            files.insert(to.path().to_owned(), copied);
            StatusCode::CREATED.into_response()
        }
        "DELETE" => match files.remove(&path) {
            Some(_) => StatusCode::NO_CONTENT.into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        "GET" | "HEAD" => match files.get(&path) {
            Some(content) => ([("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")], content.clone()).into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

#[tokio::test]
async fn a_webdav_server_is_a_store() {
    let files = Files::default();
    let url = serve(Router::new().fallback(dav).with_state(Arc::clone(&files))).await;
    let folder = TempDir::new().unwrap();
    let store = Store::open(url.join("depot").unwrap().as_str(), None).unwrap();
    let artifact = store.put(&name("a.warc.gz"), &file(&folder, b"content")).await.unwrap();
    assert_eq!(artifact.location, url.join("depot/a.warc.gz").unwrap());
    let there: Vec<_> = files.lock().unwrap().keys().cloned().collect();
    assert_eq!(there, ["/depot/a.warc.gz"], "the temporary name is gone");
    let into = folder.path().join("fetched");
    for store in [&store, &elsewhere(&folder)] {
        store.get(&artifact, &Rule::operator(), &into).await.unwrap();
        assert_eq!(fs::read(&into).unwrap(), b"content");
        fs::remove_file(&into).unwrap();
    }
    files.lock().unwrap().insert("/depot/a.warc.gz".to_owned(), Bytes::from_static(b"changed"));
    let error = store.get(&artifact, &Rule::operator(), &into).await.unwrap_err();
    assert!(matches!(error, Error::Differs { .. }) && !into.exists(), "{error}");
    store.remove(&artifact.location).await.unwrap();
    store.remove(&artifact.location).await.unwrap();
    assert!(matches!(store.get(&artifact, &Rule::operator(), &into).await, Err(Error::Gone { .. })));
}

#[test]
fn no_text_of_an_error_names_a_password_or_what_a_query_holds() {
    let location =
        || -> Url { "http://u:hunter2@h/a.tar?X-Amz-Signature=hunter2&sig=hunter2&token=hunter2".parse().unwrap() };
    let cause = || "error sending request for url (http://u:hunter2@h/a.tar)".to_owned();
    let refused = Refused { host: "h".to_owned(), kind: wayleave_outgoing::Kind::Private };
    let errors = [
        Error::Setting(location().to_string(), cause()),
        Error::Location(location()),
        Error::Description { location: location() },
        Error::Differs { location: location() },
        Error::Refused { location: location(), refused },
        Error::Gone { location: location() },
        Error::Transfer { location: location(), cause: cause() },
    ];
    for error in errors {
        let text = error.to_string();
        assert!(!text.contains("hunter2") && text.contains("http://***@h/a.tar?X-Amz-Signature=***&sig=***"), "{text}");
    }
}
