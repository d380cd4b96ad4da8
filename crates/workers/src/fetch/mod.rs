//! Fetches one URL: a request with an honest User-Agent, a response with everything that a report to the server
//! needs.
//!
//! It follows no redirect (the target is a found link), retries nothing (the server decides when a URL is due again) and
//! knows nothing of robots.txt or chunks. The body is kept as received, with its content coding, so that a WARC file
//! records what the host sent; [`Fetched::body`] decodes it. Size, time and decompression are bounded.
//!
//! The client is hyper with hyper-rustls rather than reqwest. Cargo unifies features: with reqwest's TLS features in
//! the workspace, every other reqwest client of the program would load the system's certificates when it is built, and
//! fail on a machine that has none, even for plain HTTP.

mod agent;
mod body;
pub(crate) mod client;
mod retry_after;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Empty};
use hyper::{HeaderMap, Request, StatusCode, Version, header};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use tokio::time::timeout_at;
use url::Url;
use wayleave_api::redact;
use wayleave_outgoing::{Policy, Refused};

pub use agent::{BadContact, Contact, PRODUCT, is_loopback, user_agent};
pub use body::{Cut, decode};

use crate::limits;
use client::Https;

/// Settings of a fetcher.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the owner of a host can complain. Without it only loopback is fetched.
    pub contact: Option<Contact>,
    /// Bytes of a body that are kept; the rest is cut off.
    pub body_bytes_max: usize,
    /// Time of one fetch.
    pub time_max: Duration,
    /// Certificate authorities besides Mozilla's, such as a company's own.
    pub authorities: Vec<CertificateDer<'static>>,
    /// Which addresses may be called.
    pub policy: Policy,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            contact: None,
            body_bytes_max: limits::BODY_BYTES_MAX,
            time_max: limits::FETCH_TIME_MAX,
            authorities: Vec::new(),
            policy: Policy::new(Vec::new(), false),
        }
    }
}

/// Whether a URL on loopback may be fetched that its operator has not allowed by network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loopback {
    /// It may not.
    Closed,
    /// It may: an operator wants this site of this machine crawled. Other hosts that lead to loopback stay closed.
    Open,
}

/// Fetches URLs. Clones share connections.
#[derive(Debug, Clone)]
pub struct Fetcher {
    web: Https<Empty<Bytes>>,
    this_machine: Https<Empty<Bytes>>,
    config: Config,
    user_agent: header::HeaderValue,
}

/// A response, whatever its status.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// The URL that was requested.
    pub url: Url,
    /// When the request was sent.
    pub started: Timestamp,
    /// From the request to the last byte.
    pub duration: Duration,
    /// The protocol that was spoken.
    pub version: Version,
    /// The status.
    pub status: StatusCode,
    /// The request's headers as sent.
    pub request_headers: HeaderMap,
    /// The response's headers as received.
    pub headers: HeaderMap,
    /// The body as received: its content coding is still on.
    pub raw: Bytes,
    /// Whether the body was longer than the limit, and is cut.
    pub cut: bool,
    /// Where a redirect leads to: an http or https URL without a fragment.
    pub redirect: Option<Url>,
    /// How long the host asks to wait, from the end of the fetch.
    pub retry_after: Option<Duration>,
}

impl Fetched {
    /// The body without its content coding, at most [`limits::DECODED_BYTES_MAX`] bytes. Fails if the coding is unknown
    /// or the body is not in it. A body that is too long or incomplete is cut, not refused.
    pub fn body(&self) -> Result<(Bytes, Cut), UnknownCoding> {
        decode(&self.raw, &self.headers, limits::DECODED_BYTES_MAX)
    }

    /// The value of a header, if there is exactly readable text.
    #[must_use]
    pub fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether the host says that this is HTML.
    #[must_use]
    pub fn is_html(&self) -> bool {
        is_html(self.header(header::CONTENT_TYPE))
    }
}

/// Whether a content type is HTML. A response without one is not guessed at.
#[must_use]
pub fn is_html(content_type: Option<&str>) -> bool {
    let kind = content_type.and_then(|value| value.split(';').next()).map(str::trim).unwrap_or_default();
    kind.eq_ignore_ascii_case("text/html") || kind.eq_ignore_ascii_case("application/xhtml+xml")
}

/// A content coding that was not asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("content coding {0:?} is unknown")]
pub struct UnknownCoding(pub String);

/// Why there is no response. The text names no password.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Error {
    #[error("{} is no http or https URL with a host", redact::url(.0.as_str()))]
    NotHttp(Url),
    #[error("{} is off loopback: set a contact (a URL or a mail address) for the User-Agent", redact::url(.0.as_str()))]
    NoContact(Url),
    #[error("{0}")]
    Refused(Refused),
    #[error("{} took longer than {limit:?}", redact::url(.url.as_str()))]
    Timeout { url: Url, limit: Duration },
    /// No connection: the name, the network, the TLS handshake.
    #[error("cannot connect to {}: {}", redact::url(.url.as_str()), redact::sentence(.cause))]
    Connect { url: Url, cause: String },
    #[error("no valid response from {}: {}", redact::url(.url.as_str()), redact::sentence(.cause))]
    Protocol { url: Url, cause: String },
}

impl Fetcher {
    /// A fetcher with its own pool of connections. Fails if TLS cannot be set up: an authority is no certificate.
    pub fn new(config: Config) -> Result<Self, rustls::Error> {
        let user_agent = user_agent(config.contact.as_ref());
        let tls = client::tls(&config.authorities)?;
        let web = client::https(config.policy.web(), Arc::clone(&tls));
        let this_machine = client::https(config.policy.this_machine(), tls);
        Ok(Self { web, this_machine, config, user_agent })
    }

    /// Whether this fetcher may ask for a URL at all. Fails if it is no http(s) URL, or is off loopback and no contact
    /// is set.
    pub fn allowed(&self, url: &Url) -> Result<(), Error> {
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(Error::NotHttp(url.clone()));
        }
        if self.config.contact.is_none() && !is_loopback(url) {
            return Err(Error::NoContact(url.clone()));
        }
        Ok(())
    }

    /// Fetches a URL with GET. The address is checked when it is connected to. Fails if there is no complete response.
    /// A status such as 404 or 500 is a response.
    pub async fn fetch(&self, url: &Url, loopback: Loopback) -> Result<Fetched, Error> {
        self.allowed(url)?;
        // By its text: a name of the web that resolves to loopback is no site of this machine.
        let here = loopback == Loopback::Open && is_loopback(url);
        let client = if here { &self.this_machine } else { &self.web };
        let request = self.request(url)?;
        let request_headers = request.headers().clone();
        let (started, clock) = (Timestamp::now(), Instant::now());
        let deadline = tokio::time::Instant::now() + self.config.time_max;
        let late = |_| Error::Timeout { url: url.clone(), limit: self.config.time_max };
        let response = timeout_at(deadline, client.request(request)).await.map_err(late)?;
        let (head, body) = response.map_err(|error| failed(url, &error))?.into_parts();
        let (raw, cut) = timeout_at(deadline, self.read(url, body)).await.map_err(late)??;
        Ok(Fetched {
            url: url.clone(),
            started,
            duration: clock.elapsed(),
            version: head.version,
            status: head.status,
            request_headers,
            redirect: redirect(url, head.status, &head.headers),
            retry_after: retry_after::parse(&head.headers, Timestamp::now()),
            headers: head.headers,
            raw,
            cut,
        })
    }

    fn request(&self, url: &Url) -> Result<Request<Empty<Bytes>>, Error> {
        let mut target = url.clone();
        target.set_fragment(None);
        // A password in a URL is not sent: it would be an unwanted login.
        let _ = target.set_username("");
        let _ = target.set_password(None);
        let request = Request::get(target.as_str())
            .header(header::USER_AGENT, self.user_agent.clone())
            .header(header::ACCEPT, "text/html,application/xhtml+xml;q=0.9,*/*;q=0.5")
            .header(header::ACCEPT_ENCODING, body::ACCEPTED)
            .body(Empty::new());
        request.map_err(|_| Error::NotHttp(url.clone()))
    }

    /// Reads until the end or the limit. Dropping the rest closes the connection (HTTP/1) or the stream (HTTP/2).
    async fn read(&self, url: &Url, mut body: hyper::body::Incoming) -> Result<(Bytes, bool), Error> {
        let mut raw = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Error::Protocol { url: url.clone(), cause: client::causes(&error) })?;
            let Ok(data) = frame.into_data() else { continue };
            let room = self.config.body_bytes_max - raw.len();
            raw.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
            if data.len() > room {
                return Ok((raw.freeze(), true));
            }
        }
        Ok((raw.freeze(), false))
    }
}

fn failed(url: &Url, error: &hyper_util::client::legacy::Error) -> Error {
    if let Some(refused) = wayleave_outgoing::refused(error) {
        return Error::Refused(refused.clone());
    }
    let (url, cause) = (url.clone(), client::causes(error));
    if error.is_connect() { Error::Connect { url, cause } } else { Error::Protocol { url, cause } }
}

fn redirect(from: &Url, status: StatusCode, headers: &HeaderMap) -> Option<Url> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    // Many servers send raw UTF-8 in Location.
    let location = std::str::from_utf8(headers.get(header::LOCATION)?.as_bytes()).ok()?;
    let mut target = from.join(location).ok()?;
    target.set_fragment(None);
    let usable = matches!(target.scheme(), "http" | "https") && target.as_str().len() <= limits::URL_BYTES_MAX;
    usable.then_some(target)
}

#[cfg(test)]
pub(crate) mod tests;
