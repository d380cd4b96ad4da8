//! Makes sure that an image is there, as its pool's pull policy says.

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

/// The pulls that go on, one per image. An order waits for one until its own deadline, and the pull goes on: so an image
/// that takes longer than a worker may take to start gets there all the same.
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

    /// The pull of an image: the one that goes on, or a new one.
    fn join(&self, docker: &Docker, image: &str) -> watch::Receiver<Pulled> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pull) = running.get(image) {
            return pull.clone();
        }
        let (tell, told) = watch::channel(None);
        running.insert(image.to_owned(), told.clone());
        let (pulls, docker, image) = (self.clone(), docker.clone(), image.to_owned());
        tokio::spawn(async move {
            let pulled = pull(&docker, &image, pulls.credentials).await;
            // From now on an order starts another one.
            pulls.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&image);
            tell.send_replace(Some(pulled.map_err(Arc::from)));
        });
        told
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
            Err(error) if !is_missing(&error) => return Err(engine.told("look for the image", &error)),
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
    let silent = |_| format!("the engine has said nothing of it for {} s", PULL_SILENCE_MAX.as_secs());
    while let Some(step) = timeout(PULL_SILENCE_MAX, progress.next()).await.map_err(silent)? {
        let step = step.map_err(|error| super::engine::reason(&error))?;
        if let Some(why) = step.error_detail.and_then(|detail| detail.message) {
            return Err(why);
        }
    }
    Ok(())
}
