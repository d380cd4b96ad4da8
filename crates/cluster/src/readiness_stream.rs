//! Streams the state of a node's shards to one subscriber.

use std::time::Duration;

use futures::Stream;
use wayleave_shard::Frontier;

/// The minimum interval between two beats: shards change faster than others need to know.
const SHORTEST: Duration = Duration::from_millis(5);
/// The maximum interval: a beat without news is a keep-alive.
const LONGEST: Duration = Duration::from_secs(1);

/// The beats of a frontier: one at once, then one per change, and more if a beat is full.
pub fn readiness_stream(frontier: &Frontier) -> impl Stream<Item = Vec<u8>> + Send + use<> {
    let news = frontier.news();
    futures::stream::unfold((frontier.beats(), news, true), |(mut beats, mut news, first)| async move {
        if !first && !beats.has_more() {
            tokio::time::sleep(SHORTEST).await;
            _ = tokio::time::timeout(LONGEST, news.changed()).await;
        }
        let beat = beats.next_beat().to_bytes();
        Some((beat, (beats, news, false)))
    })
}
