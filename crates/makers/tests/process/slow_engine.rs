//! A Docker engine that is slow or gone, played by a few lines on a socket.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use wayleave_core::matches::{Make, PullPolicy, Recipe, RuntimeKind};
use wayleave_makers::Runtime;
use wayleave_makers::runtime::WorkerKey;
use wayleave_makers::runtime::docker::{DockerRuntime, RemovedContainers};

use super::support::{eventually, key, make, recipe, soon};

/// What the engine has been asked for, and what lets it create containers.
struct Engine {
    calls: Mutex<Vec<String>>,
    may_create: Semaphore,
    created: Mutex<bool>,
    /// It has the container of this worker, and says of each order to remove it that another one does.
    stuck: Mutex<Option<WorkerKey>>,
    /// If it has no image: what lets it pull one, the credentials that it was sent, and whether it has it by now.
    pulls: Option<Semaphore>,
    credentials: Mutex<Vec<String>>,
    pulled: Mutex<bool>,
}

impl Engine {
    fn start(socket: &Path) -> Arc<Self> {
        Self::start_with(socket, None)
    }

    fn start_with(socket: &Path, pulls: Option<Semaphore>) -> Arc<Self> {
        let engine = Arc::new(Self {
            calls: Mutex::default(),
            may_create: Semaphore::new(0),
            created: Mutex::new(false),
            stuck: Mutex::default(),
            pulls,
            credentials: Mutex::default(),
            pulled: Mutex::default(),
        });
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
            let name = line.split(':').next().unwrap().to_ascii_lowercase();
            if name == "x-registry-auth" {
                self.credentials.lock().unwrap().push(line[name.len() + 1..].trim().to_owned());
            }
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

    fn count(&self, method: &str, part: &str) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| call.starts_with(method) && call.contains(part)).count()
    }

    async fn answer(&self, method: &str, path: &str) -> (&'static str, String) {
        self.calls.lock().unwrap().push(format!("{method} {path}"));
        let stuck = self.stuck.lock().unwrap().clone();
        if let Some(worker) = stuck.filter(|_| path.contains("/containers/")) {
            return match method {
                "DELETE" => ("409 Conflict", r#"{"message":"removal is already in progress"}"#.to_owned()),
                _ if path.contains("/logs") => ("200 OK", String::new()),
                _ => ("200 OK", inspected(&worker)),
            };
        }
        let (status, body) = self.usual_answer(method, path).await;
        (status, body.to_owned())
    }

    async fn usual_answer(&self, method: &str, path: &str) -> (&'static str, &'static str) {
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
            ("POST", path) if path.contains("/images/create") => {
                self.pulls.as_ref().unwrap().acquire().await.unwrap().forget();
                *self.pulled.lock().unwrap() = true;
                ("200 OK", r#"{"status":"done"}"#)
            }
            (_, path) if path.contains("/images/") && self.pulls.is_some() && !*self.pulled.lock().unwrap() => none,
            (_, path) if path.contains("/images/") => ("200 OK", "{}"),
            _ => ("200 OK", r#"{"ApiVersion":"1.43"}"#),
        }
    }
}

/// An engine, and a runtime that is connected to it.
async fn started() -> (tempfile::TempDir, Arc<Engine>, DockerRuntime) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("docker.sock");
    let engine = Engine::start(&socket);
    let runtime = DockerRuntime::connect(socket.to_str()).await.unwrap();
    (folder, engine, runtime)
}

fn inspected(worker: &WorkerKey) -> String {
    let labels = json!({
        "wayleave.owner": &*worker.owner, "wayleave.pool": &*worker.pool,
        "wayleave.generation": format!("{:x}", worker.generation), "wayleave.worker": worker.worker.0.to_string(),
    });
    json!({"Id": "stuck", "Config": {"Labels": labels}, "State": {"Running": false}}).to_string()
}

fn container() -> Make {
    let image = Some("browser:1".into());
    make(1, Recipe { runtime: RuntimeKind::Docker, image, port: Some(80), ..recipe(&[], &[]) })
}

#[tokio::test]
async fn a_container_that_is_created_after_its_order_was_given_up_is_removed() {
    let (_folder, engine, runtime) = started().await;
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

/// A regression: each of the looks, every 20 ms, read and kept the whole output of the container.
#[tokio::test]
async fn a_container_being_removed_is_polled_with_back_off_and_logged_once() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("docker.sock");
    let engine = Engine::start(&socket);
    *engine.stuck.lock().unwrap() = Some(key(1));
    let runtime = DockerRuntime::connect(socket.to_str()).await.unwrap().keeping_logs_in(folder.path().join("kept"));
    let deadline = Instant::now() + Duration::from_millis(700);
    let why = runtime.remove(&key(1), deadline).await.unwrap_err().to_string();
    assert_eq!(
        why, "Docker cannot remove the container: removal is already in progress",
        "the last answer of the engine"
    );
    assert!(Instant::now() < deadline + Duration::from_millis(500), "pauses end at the deadline");
    assert!(!folder.path().join("kept").exists(), "it was never started, and wrote nothing");
    let (deletes, logs) = (engine.count("DELETE", "stuck"), engine.count("GET", "/logs"));
    assert_eq!(logs, 1, "{deletes} orders to remove it");
    assert!((1..=7).contains(&deletes), "{deletes}");
}

#[tokio::test]
async fn an_engine_that_does_not_answer_collects_a_bounded_number_of_orders() {
    let (_folder, engine, runtime) = started().await;
    let create = async |no| {
        let given_up = Instant::now() + Duration::from_secs(2);
        runtime.create(&key(no), &container(), given_up).await.unwrap_err().to_string()
    };
    let given_up = futures::future::join_all((0..80).map(create)).await;
    let sent = engine.count("POST", "/containers/create");
    assert_eq!(sent, 64, "{given_up:?}");
    let says = "has not answered 64 earlier orders to create a container";
    assert_eq!(given_up.iter().filter(|why| why.contains(says)).count(), 16, "{given_up:?}");
    engine.may_create.add_permits(64);
    eventually("the late containers are removed", || async {
        (engine.count("DELETE", "/containers/late") == 64).then_some(())
    })
    .await;
    create(99).await;
    assert_eq!(engine.count("POST", "/containers/create"), 65, "there is room again");
}

#[tokio::test]
async fn an_order_that_is_never_answered_makes_room_after_some_minutes() {
    let (_folder, engine, runtime) = started().await;
    let create = async |no| {
        let given_up = Instant::now() + Duration::from_secs(2);
        runtime.create(&key(no), &container(), given_up).await.unwrap_err().to_string()
    };
    futures::future::join_all((0..64).map(create)).await;
    assert_eq!(engine.count("POST", "/containers/create"), 64);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(150)).await;
    tokio::time::resume();
    assert_eq!(create(99).await, "Docker did not create the container in time");
    assert_eq!(engine.count("POST", "/containers/create"), 65, "it was sent");
}

#[tokio::test]
async fn nothing_is_sent_after_the_deadline() {
    let (_folder, engine, runtime) = started().await;
    let before = engine.count("", "");
    runtime.create(&key(1), &container(), Instant::now()).await.unwrap_err();
    runtime.remove(&key(1), Instant::now()).await.unwrap_err();
    assert_eq!(engine.count("", ""), before);
}

#[tokio::test]
async fn the_output_of_a_removed_container_is_read_while_the_engine_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("docker.sock");
    let _engine = Engine::start(&socket);
    let kept = folder.path().join("kept");
    let runtime = DockerRuntime::connect(socket.to_str()).await.unwrap().keeping_logs_in(kept.clone());
    let of_worker = kept.join(&*key(1).pool).join(format!("{:016x}-1", key(1).generation));
    std::fs::create_dir_all(&of_worker).unwrap();
    std::fs::write(of_worker.join("log"), "bye").unwrap();
    std::fs::write(of_worker.join("end"), "it exited with code 3").unwrap();
    std::fs::remove_file(&socket).unwrap();
    assert_eq!(runtime.logs(&key(1), 100, soon()).await.as_deref(), Ok("bye"));
    runtime.logs(&key(2), 100, soon()).await.unwrap_err();
    let away = RemovedContainers::new(kept);
    let listed = away.list(&key(1).pool, soon()).await.unwrap();
    assert_eq!((listed.len(), listed[0].reason.as_str()), (1, "it exited with code 3"));
    assert_eq!(away.log(&key(1), 2, soon()).await, Ok(Some("ye".into())));
    assert_eq!(away.log(&key(2), 2, soon()).await, Ok(None));
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

/// A regression: each order cancelled the pull of the one before it at its deadline, so that a large image never came.
#[tokio::test]
async fn an_image_is_pulled_once_for_all_orders_and_the_pull_outlives_them() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("docker.sock");
    let engine = Engine::start_with(&socket, Some(Semaphore::new(0)));
    let settings = folder.path().join("config.json");
    // The name and the password are `me` and `it`.
    std::fs::write(&settings, r#"{"auths": {"https://index.docker.io/v1/": {"auth": "bWU6aXQ="}}}"#).unwrap();
    let runtime = DockerRuntime::connect(socket.to_str()).await.unwrap().with_credentials_of(settings);
    let missing = Make { pull: PullPolicy::Missing, ..container() };
    for _ in 0..3 {
        let order = async |no| {
            let given_up = Instant::now() + Duration::from_millis(150);
            runtime.create(&key(no), &missing, given_up).await.unwrap_err().to_string()
        };
        for why in futures::future::join_all((0..4).map(order)).await {
            assert_eq!(why, "the image 'browser:1' is still being pulled, which goes on");
        }
    }
    assert_eq!(engine.count("POST", "/images/create"), 1);
    let sent = engine.credentials.lock().unwrap().clone();
    assert_eq!(sent.len(), 1, "{sent:?}");
    let sent = String::from_utf8(base64::engine::general_purpose::STANDARD.decode(&sent[0]).unwrap()).unwrap();
    let sent: serde_json::Value = serde_json::from_str(&sent).unwrap();
    assert_eq!((&sent["username"], &sent["password"]), (&"me".into(), &"it".into()), "{sent}");
    engine.pulls.as_ref().unwrap().add_permits(1);
    eventually("the image is there", || async { (*engine.pulled.lock().unwrap()).then_some(()) }).await;
    let given_up = Instant::now() + Duration::from_millis(500);
    let why = runtime.create(&key(1), &missing, given_up).await.unwrap_err().to_string();
    assert_eq!(why, "Docker did not create the container in time", "which comes after the pull");
    assert_eq!(engine.count("POST", "/images/create"), 1);
    engine.may_create.add_permits(1);
}
