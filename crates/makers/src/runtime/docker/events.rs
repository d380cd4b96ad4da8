//! The engine's event stream: a hint that a container has ended. Lists show what is missed here.

use std::collections::HashMap;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::{EventsOptionsBuilder, InspectContainerOptions};
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::container::OWNER;
use super::engine::by;
use super::state::ContainerView;
use crate::runtime::Ended;

/// Pause before the stream is opened again.
const PAUSE: Duration = Duration::from_secs(1);
/// Deadline of a look at a container that ended.
const LOOK: Duration = Duration::from_secs(10);

/// Reports ended containers until the receiver is gone.
pub async fn run(docker: Docker, ends: mpsc::Sender<Ended>) {
    loop {
        tokio::select! {
            () = ends.closed() => return,
            () = follow(&docker, &ends) => {}
        }
        tokio::select! {
            () = ends.closed() => return,
            () = sleep(PAUSE) => {}
        }
    }
}

/// Follows the stream until it breaks.
async fn follow(docker: &Docker, ends: &mpsc::Sender<Ended>) {
    let filters = HashMap::from([("type", vec!["container"]), ("event", vec!["die"]), ("label", vec![OWNER])]);
    let options = EventsOptionsBuilder::default().filters(&filters).build();
    let mut events = std::pin::pin!(docker.events(Some(options)));
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::debug!(%error, "Docker's event stream broke; it is opened again");
                return;
            }
        };
        let Some(id) = event.actor.and_then(|actor| actor.id) else { continue };
        let look = docker.inspect_container(&id, None::<InspectContainerOptions>);
        // A container that was removed or started again meanwhile appears in lists.
        let Ok(Ok(found)) = by(Instant::now() + LOOK, "look at a container", look).await else { continue };
        if let Some(ContainerView { worker, instance: Some(instance), exit: Some(exit), .. }) =
            ContainerView::of(&found)
        {
            _ = ends.try_send(Ended { worker, instance, exit });
        }
    }
}
