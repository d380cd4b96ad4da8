//! Makes sure that an image is there, as its pool's pull policy says.

use bollard::Docker;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::StreamExt;
use tokio::time::Instant;
use wayleave_core::matches::{Make, PullPolicy};

use super::engine::{Engine, by, is_missing};
use crate::runtime::Failure;

/// Pulls the image of a pool if its policy says so.
pub async fn ensure(engine: &Engine, make: &Make, deadline: Instant) -> Result<(), Failure> {
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
    let pulled = by(deadline, &format!("pull the image '{image}'"), pull(&engine.docker, image)).await?;
    pulled.map_err(|why| Failure::new(format!("the image '{image}' cannot be pulled: {why}")))
}

/// Without a tag Docker would pull all of them.
async fn pull(docker: &Docker, image: &str) -> Result<(), String> {
    let has_tag = image.contains('@') || image.rsplit('/').next().is_some_and(|last| last.contains(':'));
    let name = if has_tag { image.to_owned() } else { format!("{image}:latest") };
    let options = CreateImageOptionsBuilder::default().from_image(&name).build();
    let mut progress = std::pin::pin!(docker.create_image(Some(options), None, None));
    while let Some(step) = progress.next().await {
        let step = step.map_err(|error| super::engine::reason(&error))?;
        if let Some(why) = step.error_detail.and_then(|detail| detail.message) {
            return Err(why);
        }
    }
    Ok(())
}
