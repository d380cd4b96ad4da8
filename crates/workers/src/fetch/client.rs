//! The HTTP client: HTTP/1.1, or HTTP/2 where the TLS handshake agrees on it; Mozilla's authorities; no proxy.

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use crate::limits::HEAD_BYTES_MAX;

/// A client for requests with this kind of body.
pub(crate) type Https<B> = Client<HttpsConnector<HttpConnector>, B>;

/// A client with its own pool of connections.
pub(crate) fn https<B>(connect: Duration, authorities: &[CertificateDer<'static>]) -> Result<Https<B>, rustls::Error>
where
    B: Body<Data = Bytes> + Send,
{
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(connect));
    tcp.set_nodelay(true);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for authority in authorities {
        roots.add(authority.clone())?;
    }
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_all_versions().wrap_connector(tcp);
    let client = Client::builder(TokioExecutor::new())
        // A visit to a host is short; a delay between visits outlasts most servers' patience.
        .pool_idle_timeout(Duration::from_secs(15))
        .pool_max_idle_per_host(2)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http1_max_buf_size(HEAD_BYTES_MAX)
        .http2_max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
        .build(connector);
    Ok(client)
}

/// An error with its sources, outermost first: hyper's own text rarely names the cause.
pub(crate) fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let _ = write!(text, ": {source}");
        next = source.source();
    }
    text
}
