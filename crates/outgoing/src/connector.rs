//! Connections that go only where a rule allows.

use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tower::Service;

use crate::rule::{Refused, Rule};
use crate::target::{Unresolved, allowed, literal, lookup};

type BoxError = Box<dyn Error + Send + Sync>;
type Boxed<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// Connects over TCP. The rule is part of it, so connections of different rules are never shared.
#[derive(Clone, Debug)]
pub struct Connector {
    rule: Rule,
    tcp: HttpConnector<Lookup>,
}

impl Connector {
    /// A connector for calls of one rule.
    #[must_use]
    pub fn new(rule: Rule, timeout: Option<Duration>) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(Lookup(rule.clone()));
        tcp.enforce_http(false);
        tcp.set_connect_timeout(timeout);
        tcp.set_nodelay(true);
        Self { rule, tcp }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Boxed<Self::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        // Addresses are not looked up, so they are checked here.
        let host = to.host().unwrap_or_default();
        if let Some(ip) = literal(host)
            && let Err(refused) = allowed(host, &self.rule, std::iter::once(ip))
        {
            return Box::pin(async move { Err(refused.into()) });
        }
        let connecting = self.tcp.call(to);
        Box::pin(async move { connecting.await.map_err(Into::into) })
    }
}

/// Looks names up, and gives the addresses that may be called: the connection goes to one of these.
#[derive(Clone, Debug)]
struct Lookup(Rule);

impl Service<Name> for Lookup {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Boxed<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let rule = self.0.clone();
        Box::pin(async move {
            let ips = lookup(name.as_str(), &rule).await.map_err(|error| match error {
                Unresolved::Refused(refused) => BoxError::from(refused),
                other => other.into(),
            })?;
            Ok(ips.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect::<Vec<_>>().into_iter())
        })
    }
}

/// A client of plain HTTP. It follows no redirect, and uses no proxy.
pub type HttpClient = Client<Connector, Empty<Bytes>>;

/// A client for calls of one rule, which keeps up to this many idle connections per host for this long.
#[must_use]
pub fn http_client(rule: Rule, idle_max: usize, idle: Duration) -> HttpClient {
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_idle_timeout(idle).pool_max_idle_per_host(idle_max);
    builder.build(Connector::new(rule, None))
}

/// The refusal that an error of a client comes from, if it does.
#[must_use]
pub fn refused<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Refused> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(refused) = error.downcast_ref() {
            return Some(refused);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use tokio::net::TcpListener;

    use super::*;
    use crate::rule::{Kind, Policy};

    async fn server() -> (u16, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&asked);
        let router = Router::new().fallback(async move || _ = count.fetch_add(1, Ordering::SeqCst));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (port, asked)
    }

    #[tokio::test]
    async fn names_and_addresses_are_checked_when_they_are_connected_to() {
        let (port, asked) = server().await;
        let client = |rule| http_client(rule, 1, Duration::from_secs(1));
        let policy = Policy::new(Vec::new(), true);
        let (web, site) = (client(policy.web()), client(policy.this_machine()));
        for host in ["127.0.0.1", "localhost", "127.1", "0", "0x7f000001", "2130706433", "[::ffff:127.0.0.1]", "[::1]"]
        {
            let uri: Uri = format!("http://{host}:{port}/").parse().unwrap();
            let error = web.get(uri.clone()).await.unwrap_err();
            let refused = refused(&error).unwrap_or_else(|| panic!("{host}: {error:?}"));
            assert!(matches!(refused.kind, Kind::Loopback | Kind::NotOne), "{refused}");
            assert!(refused.to_string().starts_with(&format!("{host} may not be called (")), "{refused}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        for host in ["127.0.0.1", "localhost"] {
            let uri: Uri = format!("http://{host}:{port}/").parse().unwrap();
            assert!(site.get(uri).await.unwrap().status().is_success());
        }
        let kept: Uri = format!("http://localhost:{port}/").parse().unwrap();
        assert!(web.get(kept).await.is_err(), "a connection of another rule is not used");
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_machine_is_found_by_the_addresses_that_its_rule_allows() {
        let policy = Policy::new(Vec::new(), true);
        let here = policy.reporting(["127.0.0.1".parse().unwrap()]);
        let elsewhere = policy.reporting(["203.0.113.7".parse().unwrap()]);
        for target in ["127.0.0.1:80", "localhost:80", "localhost"] {
            let target: crate::Target = target.parse().unwrap();
            assert_eq!(target.addresses(&here).await.unwrap(), ["127.0.0.1:80".parse().unwrap()], "{target}");
            let error = target.addresses(&elsewhere).await.unwrap_err();
            assert!(matches!(error, Unresolved::Refused(Refused { kind: Kind::Foreign, .. })), "{error}");
        }
        for wrong in ["", "a/b", "a b", "[::1", "user name@x"] {
            assert!(wrong.parse::<crate::Target>().is_err(), "{wrong}");
        }
    }
}
