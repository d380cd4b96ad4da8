//! Serves a folder of artifacts over HTTP: read-only, one level deep, with ranges.
//!
//! A path is a [`Name`] or nothing: no slash, no leading dot, no escape. Links in the folder are not followed.

use std::io::SeekFrom;
use std::path::PathBuf;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio_util::io::ReaderStream;

use super::Name;

/// The routes of a folder: `GET /{name}`, and `HEAD`.
pub fn router(folder: impl Into<PathBuf>) -> Router {
    Router::new().route("/{name}", get(artifact)).with_state(folder.into())
}

async fn artifact(State(folder): State<PathBuf>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    let Ok(name) = name.parse::<Name>() else { return StatusCode::NOT_FOUND.into_response() };
    file(folder.join(name.as_ref()), &headers).await
}

/// Sends a file, or the part of it that the headers ask for.
pub(crate) async fn file(path: PathBuf, headers: &HeaderMap) -> Response {
    match send(path.clone(), headers).await {
        Ok(response) => response,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => StatusCode::NOT_FOUND.into_response(),
        Err(error) => {
            tracing::error!(file = %path.display(), error = %error, "a file cannot be served");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn send(path: PathBuf, headers: &HeaderMap) -> std::io::Result<Response> {
    if !tokio::fs::symlink_metadata(&path).await?.is_file() {
        return Ok(StatusCode::NOT_FOUND.into_response());
    }
    let mut file = File::open(&path).await?;
    let size = file.metadata().await?.len();
    let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    let (status, start, length) = match range.map_or(Range::Whole, |range| Range::parse(range, size)) {
        Range::Whole => (StatusCode::OK, 0, size),
        Range::Part { start, length } => (StatusCode::PARTIAL_CONTENT, start, length),
        Range::Outside => {
            let content_range = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, content_range).into_response());
        }
    };
    file.seek(SeekFrom::Start(start)).await?;
    let mut response = Response::new(Body::from_stream(ReaderStream::with_capacity(file.take(length), 64 * 1024)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    if status == StatusCode::PARTIAL_CONTENT {
        let content_range = format!("bytes {start}-{}/{size}", start + length - 1);
        headers.extend(HeaderValue::try_from(content_range).ok().map(|value| (header::CONTENT_RANGE, value)));
    }
    Ok(response)
}

/// What a Range header asks for (RFC 9110, 14.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Range {
    /// No range, several, or none that can be read: the whole file is a valid answer.
    Whole,
    /// Never empty.
    Part {
        start: u64,
        length: u64,
    },
    Outside,
}

impl Range {
    fn parse(text: &str, size: u64) -> Self {
        let Some((first, last)) = text.strip_prefix("bytes=").and_then(|range| range.trim().split_once('-')) else {
            return Self::Whole;
        };
        let number = |text: &str| (!text.starts_with('+')).then(|| text.parse::<u64>().ok()).flatten();
        let (start, end) = match (number(first), number(last)) {
            (Some(start), Some(last)) if start <= last => (start, last.saturating_add(1).min(size)),
            (Some(start), None) if last.is_empty() => (start, size),
            (None, Some(length)) if first.is_empty() => (size.saturating_sub(length), size),
            _ => return Self::Whole,
        };
        if start < end { Self::Part { start, length: end - start } } else { Self::Outside }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_standard() {
        let part = |start, length| Range::Part { start, length };
        for (text, wanted) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=2-5", part(2, 4)),
            ("bytes=5-", part(5, 5)),
            ("bytes=-3", part(7, 3)),
            ("bytes=-30", part(0, 10)),
            ("bytes=8-99", part(8, 2)),
            ("bytes=0-18446744073709551615", part(0, 10)),
            ("bytes=10-", Range::Outside),
            ("bytes=99-100", Range::Outside),
            ("bytes=-0", Range::Outside),
            ("bytes=5-2", Range::Whole),
            ("bytes=1-2,4-5", Range::Whole),
            ("bytes=a-b", Range::Whole),
            ("bytes=-", Range::Whole),
            ("bytes=+1-2", Range::Whole),
            ("lines=1-2", Range::Whole),
            ("", Range::Whole),
        ] {
            assert_eq!(Range::parse(text, 10), wanted, "{text}");
        }
        assert_eq!(Range::parse("bytes=0-", 0), Range::Outside);
    }
}
