//! A Docker engine that is slow or gone, played by a few lines on a socket.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use wayleave_core::matches::{Make, Recipe, RuntimeKind};
use wayleave_makers::Runtime;
use wayleave_makers::runtime::docker::DockerRuntime;

use super::support::{eventually, key, make, recipe, soon};

/// What the engine has been asked for, and what lets it create containers.
struct Engine {
    calls: Mutex<Vec<String>>,
    may_create: Semaphore,
    created: Mutex<bool>,
}

impl Engine {
    fn start(socket: &Path) -> Arc<Self> {
        let engine =
            Arc::new(Self { calls: Mutex::default(), may_create: Semaphore::new(0), created: Mutex::new(false) });
        let (listener, shared) = (UnixListener::bind(socket).unwrap(), engine.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(shared.clone().serve(stream));
            }
        });
        engine
    }

    /// One call, after which the connection is closed: so the engine is gone as soon as its socket is.
    async fn serve(self: Arc<Self>, stream: UnixStream) {
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
        let words: Vec<&str> = first.split(' ').collect();
        let (status, answer) = self.answer(words[0], words[1]).await;
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n");
        let text = format!("{head}content-length: {}\r\n\r\n{answer}", answer.len());
        _ = stream.write_all(text.as_bytes()).await;
    }

    async fn answer(&self, method: &str, path: &str) -> (&'static str, &'static str) {
        self.calls.lock().unwrap().push(format!("{method} {path}"));
        let none = ("404 Not Found", r#"{"message":"there is none"}"#);
        match (method, path) {
            (_, path) if path.contains("/containers/create") => {
                self.may_create.acquire().await.unwrap().forget();
                *self.created.lock().unwrap() = true;
                ("201 Created", r#"{"Id":"late","Warnings":[]}"#)
            }
            ("DELETE", path) if path.contains("/containers/late") => {
                *self.created.lock().unwrap() = false;
                ("204 No Content", "")
            }
            (_, path) if path.contains("/containers/") => none,
            (_, path) if path.contains("/images/") => ("200 OK", "{}"),
            _ => ("200 OK", r#"{"ApiVersion":"1.43"}"#),
        }
    }
}

fn container() -> Make {
    let image = Some("browser:1".into());
    make(1, Recipe { runtime: RuntimeKind::Docker, image, port: Some(80), ..recipe(&[], &[]) })
}

#[tokio::test]
async fn a_container_that_is_created_after_its_order_was_given_up_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("docker.sock");
    let engine = Engine::start(&socket);
    let runtime = DockerRuntime::connect(socket.to_str()).await.unwrap();
    let why = runtime.create(&key(1), &container(), Instant::now() + Duration::from_millis(200)).await.unwrap_err();
    assert_eq!(why.to_string(), "Docker did not create the container in time");
    // Its removal finds nothing yet.
    runtime.remove(&key(1), soon()).await.unwrap();
    assert!(!engine.calls.lock().unwrap().iter().any(|call| call.starts_with("DELETE")));
    engine.may_create.add_permits(1);
    eventually("the late container is removed", || async {
        let deleted = engine.calls.lock().unwrap().iter().any(|call| call.starts_with("DELETE"));
        (deleted && !*engine.created.lock().unwrap()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_engine_that_is_gone_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("docker.sock");
    let named = |why: String| {
        let begin = format!("the Docker engine at {} does not answer: ", socket.display());
        assert!(why.starts_with(&begin) && why.ends_with("`serve --docker`"), "{why}");
    };
    named(DockerRuntime::connect(socket.to_str()).await.unwrap_err().to_string());
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    drop(listener);
    named(DockerRuntime::connect(socket.to_str()).await.unwrap_err().to_string());
    std::fs::remove_file(&socket).unwrap();
    let _engine = Engine::start(&socket);
    let runtime = DockerRuntime::connect(socket.to_str()).await.unwrap();
    std::fs::remove_file(&socket).unwrap();
    named(runtime.create(&key(1), &container(), soon()).await.unwrap_err().to_string());
}
