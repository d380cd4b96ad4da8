//! The store as one file.

use bytes::Bytes;
use futures::{Stream, StreamExt};
use wayleave_api::store::GetSnapshotQuery;

use crate::{Client, Error};

impl Client {
    /// Streams a consistent copy of the server's whole store; if it is `partial`, without what cannot be read. It has no timeout and is not resumed: a truncated copy
    /// ends with an error, and has no end mark.
    ///
    /// # Errors
    /// If the store does not support it, or the server cannot answer.
    pub async fn snapshot(&self, partial: bool) -> Result<impl Stream<Item = Result<Bytes, Error>> + use<>, Error> {
        let here = self.here();
        let query = GetSnapshotQuery { partial: partial.then_some(true) };
        let request = self.http.get(here.place(&self.url(&["snapshot"]))).query(&query);
        let response = request.send().await.map_err(|error| here.failed(here.not_answered(&error)))?;
        let response = here.accepted(response).await.map_err(|(error, _)| here.failed(error))?;
        Ok(response.bytes_stream().map(move |piece| piece.map_err(|error| here.failed(here.not_answered(&error)))))
    }
}
