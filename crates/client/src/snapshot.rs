//! The store as one file.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use wayleave_api::store::GetSnapshotQuery;

use crate::{Client, Error};

/// How long a server that sends a copy may send nothing. It reads rows one after the other, and sends them as it reads.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The same of a partial copy: before the first row, the server counts what damaged shards have left, which takes as long as they are
/// large. TCP finds a machine that is gone.
const PARTIAL_SILENCE_MAX: Duration = Duration::from_secs(24 * 3_600);

impl Client {
    /// Streams a consistent copy of the server's whole store; if it is `partial`, without what cannot be read. It may take long, but a
    /// server that sends nothing for a minute, of a partial copy for a day, is given up. It is not resumed: a truncated copy ends with an
    /// error, and has no end mark. Fails if the store does not support it, or the server cannot answer.
    pub async fn snapshot(&self, partial: bool) -> Result<impl Stream<Item = Result<Bytes, Error>> + use<>, Error> {
        let here = self.here();
        let query = GetSnapshotQuery { partial: partial.then_some(true) };
        let request = self.http.get(here.place(&self.url(&["snapshot"]))).query(&query);
        let response = request.send().await.map_err(|error| here.failed(here.not_answered(&error)))?;
        let response = here.accepted(response).await.map_err(|(error, _)| here.failed(error))?;
        let silence = if partial { PARTIAL_SILENCE_MAX } else { SILENCE_MAX };
        let pieces = response.bytes_stream().boxed();
        Ok(futures::stream::unfold(Some((pieces, here)), move |reading| async move {
            let (mut pieces, here) = reading?;
            // Only the time in which a piece is asked for counts: the caller may be slow.
            match tokio::time::timeout(silence, pieces.next()).await {
                Ok(Some(Ok(piece))) => Some((Ok(piece), Some((pieces, here)))),
                Ok(Some(Err(error))) => Some((Err(here.failed(here.not_answered(&error))), None)),
                Ok(None) => None,
                Err(_) => Some((Err(here.failed(here.silent(silence))), None)),
            }
        }))
    }
}
