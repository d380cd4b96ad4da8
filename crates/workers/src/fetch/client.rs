//! The HTTP client: HTTP/1.1, or HTTP/2 where the TLS handshake agrees on it; Mozilla's authorities; no proxy. It connects only where
//! its rule allows.

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use wayleave_outgoing::{Connector, Rule};

use crate::limits::{CONNECT_TIME_MAX, HEAD_BYTES_MAX};

/// A client for requests with this kind of body.
pub(crate) type Https<B> = Client<HttpsConnector<Connector>, B>;

/// The settings of TLS, which all clients share.
pub(crate) fn tls(authorities: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for authority in authorities {
        roots.add(authority.clone())?;
    }
    let mut tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

/// A client for calls of one rule, with its own pool of connections.
pub(crate) fn https<B>(rule: Rule, tls: Arc<ClientConfig>) -> Https<B>
where
    B: Body<Data = Bytes> + Send,
{
    Client::builder(TokioExecutor::new())
        // A visit to a host is short; a delay between visits outlasts most servers' patience.
        .pool_idle_timeout(Duration::from_secs(15))
        .pool_max_idle_per_host(2)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http1_max_buf_size(HEAD_BYTES_MAX)
        .http2_max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
        .build(HttpsConnector::from((Connector::new(rule, Some(CONNECT_TIME_MAX)), tls)))
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
