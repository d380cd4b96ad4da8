//! The whole store as one file, streamed while the server keeps running.

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use wayleave_api::store::GetSnapshotQuery;
use wayleave_api::{Code, Problem};

use crate::http::app::App;
use crate::http::extract::QueryOf;
use crate::http::refused::Refused;
use crate::store::BodyWriter;

/// The maximum number of buffered chunks.
const PIECES_WAITING: usize = 8;

/// Streams a consistent copy of the whole store, as a file for `wayleave restore`.
///
/// It contains everything acknowledged before the call. If it fails half-way, the file ends with the reason, or the
/// connection is closed and the file has no end mark. With `partial`, rows that cannot be read are left out, and named at the
/// end of the file.
#[utoipa::path(
    get, path = "/v1/snapshot", tag = "store", params(GetSnapshotQuery),
    responses((status = 200, description = "The file.", body = String, content_type = "application/octet-stream"))
)]
pub async fn get_snapshot(
    State(app): State<App>,
    QueryOf(query): QueryOf<GetSnapshotQuery>,
) -> Result<Response, Refused> {
    let Some(store) = &app.store else {
        return Err(Problem::new(Code::NotSupported, "this server has no store to copy").into());
    };
    let Ok(place) = app.snapshots.clone().try_acquire_owned() else {
        return Err(Problem::new(Code::Overloaded, "another snapshot is being taken; try again later").into());
    };
    let write = store.snapshot(query.partial.unwrap_or(false)).await?;
    let (pieces, body) = mpsc::channel(PIECES_WAITING);
    let (done, result) = oneshot::channel();
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let _place = place;
        let mut out = BodyWriter::new(pieces, runtime);
        let written = write(&mut out).and_then(|()| std::io::Write::flush(&mut out));
        if let Err(error) = &written {
            tracing::warn!(%error, "aborted a snapshot");
        }
        // Sent before the channel closes: a truncated body must not look complete.
        _ = done.send(written);
    });
    // The end of the chunks is the end of the body only if all were written.
    let end = futures::stream::once(result).filter_map(|result| async {
        match result {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Err(error)),
            Err(_) => Some(Err(std::io::Error::other("the snapshot was not written to its end"))),
        }
    });
    let body = Body::from_stream(ReceiverStream::new(body).map(Ok).chain(end));
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response())
}
