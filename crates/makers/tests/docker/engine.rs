//! A Docker engine of our own, shared by the tests that run at the same time, and the image of the worker.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::StreamExt;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::Mutex;
use wayleave_makers::runtime::docker::DockerRuntime;

use super::support::program;

/// The image that holds the worker.
pub const IMAGE: &str = "wayleave-example:1";
/// How long dockerd may take to start.
const PATIENCE: Duration = Duration::from_secs(120);

static SHARED: Mutex<Weak<Engine>> = Mutex::const_new(Weak::new());

/// A running engine; stopped with all its containers when the last test that uses it ends.
pub struct Engine {
    dockerd: Child,
    bridge: String,
    folder: tempfile::TempDir,
}

impl Engine {
    /// The engine of this process.
    pub async fn get() -> Arc<Self> {
        let mut shared = SHARED.lock().await;
        if let Some(engine) = shared.upgrade() {
            return engine;
        }
        let engine = Arc::new(Self::start().await);
        *shared = Arc::downgrade(&engine);
        engine
    }

    async fn start() -> Self {
        // Sockets have short names, so the folder has one.
        let folder = tempfile::Builder::new().prefix("wl").tempdir_in("/tmp").unwrap();
        let number = std::process::id();
        let bridge = format!("wl{}", number % 1_000_000);
        let address = format!("10.213.{}.1/24", number % 250);
        for words in [
            &["link", "add", "name", &bridge, "type", "bridge"][..],
            &["addr", "add", &address, "dev", &bridge],
            &["link", "set", &bridge, "up"],
        ] {
            let done = Command::new("ip").args(words).output().expect("`ip` is missing: install iproute2");
            let output = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.success(), "no bridge for containers can be made, which needs root: {output}");
        }
        let path = |name: &str| folder.path().join(name);
        let mut command = Command::new("dockerd");
        command
            .args(["--storage-driver", "vfs", "--iptables=false", "--bridge", &bridge])
            .arg("--data-root")
            .arg(path("data"))
            .arg("--exec-root")
            .arg(path("run"))
            .arg("--pidfile")
            .arg(path("pid"))
            .arg(format!("--host=unix://{}", path("docker.sock").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(path("log")).unwrap());
        let dockerd = command.spawn().expect("dockerd is missing: install docker.io");
        let mut engine = Self { dockerd, bridge, folder };
        engine.wait().await;
        engine.import().await;
        engine
    }

    /// Waits until it answers.
    async fn wait(&mut self) {
        let since = Instant::now();
        while let Err(why) = DockerRuntime::connect(Some(&self.socket())).await {
            let ended = self.dockerd.try_wait().unwrap();
            assert!(ended.is_none(), "dockerd cannot run here ({ended:?}); it needs root:\n{}", self.log());
            assert!(since.elapsed() < PATIENCE, "dockerd does not answer: {why}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    pub fn socket(&self) -> String {
        self.folder.path().join("docker.sock").display().to_string()
    }

    pub async fn runtime(&self) -> DockerRuntime {
        DockerRuntime::connect(Some(&self.socket())).await.unwrap()
    }

    /// The engine's own client, to look behind the runtime.
    pub async fn docker(&self) -> Docker {
        let docker = Docker::connect_with_unix(&self.socket(), 60, bollard::API_DEFAULT_VERSION).unwrap();
        docker.negotiate_version().await.unwrap()
    }

    /// An image from nothing: the worker and the shared libraries that it names.
    async fn import(&self) {
        let mut tree = tar::Builder::new(Vec::new());
        // A linker leaves holes in a program, and Docker takes no sparse files.
        tree.sparse(false);
        tree.append_path_with_name(program(), "worker").unwrap();
        for library in libraries(Path::new(program())) {
            let mut file = File::open(&library).unwrap();
            tree.append_file(library.strip_prefix("/").unwrap(), &mut file).unwrap();
        }
        let (repo, tag) = IMAGE.split_once(':').unwrap();
        let options = CreateImageOptionsBuilder::default().from_src("-").repo(repo).tag(tag).build();
        let body = bollard::body_full(tree.into_inner().unwrap().into());
        let docker = self.docker().await;
        let mut steps = std::pin::pin!(docker.create_image(Some(options), Some(body), None));
        while let Some(step) = steps.next().await {
            step.unwrap();
        }
    }
}

/// What `ldd` lists; nothing for a program that is linked statically.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let paths = listed.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
    paths.map(PathBuf::from).collect()
}

impl Drop for Engine {
    fn drop(&mut self) {
        _ = kill_process(Pid::from_child(&self.dockerd), Signal::TERM);
        _ = self.dockerd.wait();
        _ = Command::new("ip").args(["link", "del", &self.bridge]).output();
    }
}
