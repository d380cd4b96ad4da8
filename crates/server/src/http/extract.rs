//! Extractors: parse a request into typed values, or return a problem that says what is wrong.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header;
use axum::http::request::Parts;
use bytes::Bytes;
use futures::StreamExt;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use wayleave_api::chunks::chunk_id;
use wayleave_api::object;
use wayleave_api::{Code, Problem};
use wayleave_core::asked::AskedHost;
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::limits;
use wayleave_core::names::{self, Alias, ClientName, CrawlName, MachineId, PoolName, RoleName, Uuid};
use wayleave_listen::{ClientAddress, proxy_header};

use super::accepts::{BodyKind, body_kind, unsupported};
use super::app::App;
use super::held::{Held, deadline};
use super::refused::Refused;

/// A JSON body.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for JsonBody<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refused> {
        if body_kind(request.headers())? != BodyKind::Json {
            return Err(unsupported("a stream of lines"));
        }
        let bytes = read_body(request, app).await?;
        read_json(&bytes).map(Self)
    }
}

/// An optional JSON body; if absent, every field has its default.
pub struct OptionalJsonBody<T>(pub T);

impl<T: DeserializeOwned + Default> FromRequest<App> for OptionalJsonBody<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refused> {
        let kind = body_kind(request.headers());
        let bytes = read_body(request, app).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        if kind? != BodyKind::Json {
            return Err(unsupported("a stream of lines"));
        }
        read_json(&bytes).map(Self)
    }
}

/// Parses a whole JSON body, which must be an object. Fails if it is empty, not JSON, or has another shape.
pub fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refused> {
    if bytes.is_empty() {
        let problem = Problem::new(Code::BadJson, "the body is empty; send a JSON object");
        return Err(problem.with("line", 1).with("column", 1).into());
    }
    object::read(bytes).map_err(|error| Problem::of_body(error).into())
}

/// Parses one NDJSON line. The error says what is wrong with it, in a sentence.
pub fn read_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    object::read(line).map_err(|error| error.sentence("the line"))
}

/// Reads a body up to its size limit and timeout. Fails if it is too large, too slow or truncated.
pub async fn read_body(request: Request, app: &App) -> Result<Bytes, Refused> {
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > limits::BODY_BYTES_MAX) {
        return Err(too_large());
    }
    let (held, since) = (Held::of(&request, app), Instant::now());
    let mut stream = request.into_body().into_data_stream();
    // Nothing is preallocated for the announced length: an announcement costs a client nothing.
    let mut whole = Vec::new();
    loop {
        let until = deadline(since, app.config.body_timeout, whole.len());
        let waited = tokio::time::timeout_at(until, stream.next()).await;
        let part = match waited.map_err(|_| {
            Problem::new(Code::BodyTimeout, "the body came too slowly or stopped arriving; send it again")
        })? {
            None => return Ok(whole.into()),
            Some(part) => part.map_err(|e| Problem::new(Code::BadJson, format!("the body was cut off: {e}")))?,
        };
        if whole.len() + part.len() > limits::BODY_BYTES_MAX {
            return Err(too_large());
        }
        held.take(part.len())?;
        whole.extend_from_slice(&part);
    }
}

fn too_large() -> Refused {
    let limit = limits::BODY_BYTES_MAX;
    let detail = format!("the body is over {limit} bytes; send several requests, or URLs as application/x-ndjson");
    Problem::new(Code::BodyTooLarge, detail).with("limit", limit).into()
}

/// The query string.
pub struct QueryOf<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<App> for QueryOf<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Refused> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).unwrap_or_default();
        object::read_query(&pairs).map(Self).map_err(|error| Problem::of_query(error).into())
    }
}

/// The address that a report comes from, if it is known: what the report names may be called there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReportedFrom(pub Option<IpAddr>);

impl FromRequestParts<App> for ReportedFrom {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Infallible> {
        // The address of a proxy says nothing about the machine that reports through it.
        let direct = proxy_header(&parts.headers).is_none();
        Ok(Self(parts.extensions.get().filter(|_| direct).map(|ClientAddress(ip)| *ip)))
    }
}

async fn segment(parts: &mut Parts, app: &App, name: &str, code: Code) -> Result<String, Refused> {
    let read = Path::<BTreeMap<String, String>>::from_request_parts(parts, app).await;
    let Path(mut segments) = read.map_err(|e| Problem::new(code, e.body_text()))?;
    Ok(segments.remove(name).unwrap_or_default())
}

fn job_id(text: &str) -> Result<Token, String> {
    let wrong = || format!("'{text}' is not the id of a job; send it as it was given out");
    Token::parse(text).map_err(|_| wrong())
}

/// A client's name. Those that mean a place in a path never arrive: URL libraries and proxies resolve them, also encoded.
fn client_name(text: &str) -> Result<ClientName, String> {
    match text {
        "." | ".." => Err(format!("'{text}' cannot be the name of a client, because it means another path")),
        _ => names::client(text).map_err(|bad| bad.to_string()),
    }
}

/// The name of a worker, of which only those in use are valid: it is not checked further than it is repeated.
fn worker_name(text: &str) -> Result<String, String> {
    let is_shown = text.len() <= limits::WORKER_BYTES_MAX && !text.chars().any(char::is_control);
    is_shown.then(|| text.to_owned()).ok_or_else(|| "no worker has such a name; see its WAYLEAVE_WORKER".to_owned())
}

macro_rules! path_segment {
    ($(#[$doc:meta])* $extractor:ident($target:ty), $name:literal, $code:ident, $parse:path) => {
        $(#[$doc])*
        pub struct $extractor(pub $target);

        impl FromRequestParts<App> for $extractor {
            type Rejection = Refused;

            async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refused> {
                let text = segment(parts, app, $name, Code::$code).await?;
                $parse(&text).map(Self).map_err(|error| Problem::new(Code::$code, error).into())
            }
        }
    };
}

path_segment! {
    /// A host or queue key in the path.
    HostInPath(AskedHost), "host", BadHost, AskedHost::parse
}
path_segment! {
    /// An alias in the path.
    AliasInPath(Alias), "group", BadAlias, names::alias
}
path_segment! {
    /// An alias, or a host that is a group of its own, in the path.
    GroupInPath(AskedHost), "group", BadHost, AskedHost::parse
}
path_segment! {
    /// A crawl in the path.
    CrawlInPath(CrawlName), "crawl", BadCrawl, names::crawl
}
path_segment! {
    /// A reservation's token in the path.
    TokenInPath(Token), "token", BadToken, Token::parse
}
path_segment! {
    /// The id of a chunk in the path.
    ChunkInPath(ChunkId), "chunk", BadChunk, chunk_id
}
path_segment! {
    /// The id of a job in the path.
    JobInPath(Token), "job", BadJob, job_id
}

path_segment! {
    /// A role in the path.
    RoleInPath(RoleName), "utype", BadRole, names::role
}
path_segment! {
    /// A machine in the path.
    MachineInPath(MachineId), "id", BadMachine, names::machine
}
path_segment! {
    /// An index server in the path.
    ServerInPath(MachineId), "server", BadMachine, names::machine
}
path_segment! {
    /// A pool in the path.
    PoolInPath(PoolName), "pool", BadPool, names::pool
}
path_segment! {
    /// A client in the path.
    ClientInPath(ClientName), "client", BadClient, client_name
}
path_segment! {
    /// A worker in the path.
    WorkerInPath(String), "worker", UnknownWorker, worker_name
}
path_segment! {
    /// A candidate's uuid in the path.
    UuidInPath(Uuid), "uuid", BadUuid, names::uuid
}
