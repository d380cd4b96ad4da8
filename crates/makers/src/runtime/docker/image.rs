//! Makes sure that an image is present, according to its pool's pull policy.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bollard::Docker;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::StreamExt;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};
use wayleave_core::matches::{Make, PullPolicy};

use super::credentials;
use super::engine::{Engine, by, is_missing};
use crate::limits::PULL_SILENCE_MAX;
use crate::runtime::Failure;

/// What came of a pull, once it has ended.
type Pulled = Option<Result<(), Arc<str>>>;

/// The pulls in progress, one per image. An order waits for one until its own deadline, and the pull continues: so an
/// image that takes longer than a worker may take to start arrives anyway.
#[derive(Clone, Debug)]
pub struct Pulls {
    running: Arc<Mutex<BTreeMap<String, watch::Receiver<Pulled>>>>,
    /// Docker's settings file, with credentials of registries.
    pub credentials: Option<PathBuf>,
}

impl Pulls {
    /// No pulls.
    pub fn new() -> Self {
        Self { running: Arc::default(), credentials: credentials::file() }
    }

    /// The pull of an image: the one in progress, or a new one.
    fn join(&self, docker: &Docker, image: &str) -> watch::Receiver<Pulled> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a teller it ended in a panic.
        if let Some(pull) = running.get(image).filter(|pull| pull.has_changed().is_ok()) {
            return pull.clone();
        }
        let (sender, receiver) = watch::channel(None);
        running.insert(image.to_owned(), receiver.clone());
        let (pulls, docker, image) = (self.clone(), docker.clone(), image.to_owned());
        tokio::spawn(async move {
            let pulled = pull(&docker, &image, pulls.credentials).await;
            // From now on an order starts another one.
            pulls.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&image);
            sender.send_replace(Some(pulled.map_err(Arc::from)));
        });
        receiver
    }
}

/// Pulls the image of a pool if its policy says so.
pub async fn ensure(engine: &Engine, pulls: &Pulls, make: &Make, deadline: Instant) -> Result<(), Failure> {
    let Some(image) = make.recipe.image.as_deref() else {
        return Err(Failure::new("the pool has no image: name one"));
    };
    if make.pull != PullPolicy::Always {
        match by(deadline, "look for the image", engine.docker.inspect_image(image)).await? {
            Ok(_) => return Ok(()),
            Err(error) if !is_missing(&error) => return Err(engine.failure("look for the image", &error)),
            Err(_) if make.pull == PullPolicy::Never => {
                let remedy = "pull or build it there, or set `pull` to \"missing\"";
                return Err(Failure::new(format!("the engine has no image '{image}', and none is pulled: {remedy}")));
            }
            Err(_) => {}
        }
    }
    let mut pull = pulls.join(&engine.docker, image);
    let pulled = match timeout_at(deadline, pull.wait_for(Option::is_some)).await {
        Err(_) => return Err(Failure::new(format!("the image '{image}' is still being pulled, which goes on"))),
        Ok(Err(_)) => Err("a task broke".into()),
        Ok(Ok(pulled)) => pulled.clone().unwrap_or(Ok(())),
    };
    pulled.map_err(|why| Failure::new(format!("the image '{image}' cannot be pulled: {why}")))
}

/// Without a tag Docker would pull all of them.
async fn pull(docker: &Docker, image: &str, credentials: Option<PathBuf>) -> Result<(), String> {
    let has_tag = image.contains('@') || image.rsplit('/').next().is_some_and(|last| last.contains(':'));
    let name = if has_tag { image.to_owned() } else { format!("{image}:latest") };
    let of = image.to_owned();
    let credentials = spawn_blocking(move || credentials::of(&credentials?, &of)).await.ok().flatten();
    let options = CreateImageOptionsBuilder::default().from_image(&name).build();
    let mut progress = std::pin::pin!(docker.create_image(Some(options), None, credentials));
    let silent = |_| format!("the engine has not reported on it for {} s", PULL_SILENCE_MAX.as_secs());
    while let Some(step) = timeout(PULL_SILENCE_MAX, progress.next()).await.map_err(silent)? {
        let step = step.map_err(|error| super::engine::reason(&error))?;
        if let Some(why) = step.error_detail.and_then(|detail| detail.message) {
            return Err(why);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A regression: every later order of the image failed.
    #[tokio::test]
    async fn a_pull_whose_task_broke_is_begun_anew() {
        // A file where a socket is expected: there is no answer.
        let socket = tempfile::NamedTempFile::new().unwrap();
        let docker =
            Docker::connect_with_unix(socket.path().to_str().unwrap(), 1, bollard::API_DEFAULT_VERSION).unwrap();
        let pulls = Pulls { running: Arc::default(), credentials: None };
        let broken = watch::channel(None).1;
        pulls.running.lock().unwrap().insert("image".to_owned(), broken);
        let mut pull = pulls.join(&docker, "image");
        assert!(pulls.join(&docker, "image").same_channel(&pull), "one pull at a time");
        assert!(pull.wait_for(Option::is_some).await.is_ok_and(|pulled| pulled.as_ref().unwrap().is_err()));
    }
}
