//! A host and a port as a caller gives them, and the addresses that they may mean.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::rule::{Refused, Rule};

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    host: String,
    port: u16,
}

/// No address that may be called.
#[derive(Debug, thiserror::Error)]
pub enum Unresolved {
    /// It is no host.
    #[error("'{0}' is no address")]
    Malformed(String),
    /// Its name cannot be resolved.
    #[error("{0}")]
    Lookup(#[from] io::Error),
    /// None of its addresses may be called.
    #[error("{0}")]
    Refused(#[from] Refused),
}

impl FromStr for Target {
    type Err = Unresolved;

    /// `HOST:PORT` or `HOST`, then port 80.
    fn from_str(text: &str) -> Result<Self, Unresolved> {
        let url = hyper::Uri::builder().scheme("http").authority(text).path_and_query("/").build();
        let host = url.as_ref().ok().and_then(|url| Some((url.host()?.to_owned(), url.port_u16().unwrap_or(80))));
        let (host, port) = host.ok_or_else(|| Unresolved::Malformed(text.to_owned()))?;
        Ok(Self { host, port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Target {
    /// Whether it is a name, which has to be looked up.
    #[must_use]
    pub fn is_name(&self) -> bool {
        literal(&self.host).is_none()
    }

    /// The addresses that may be called.
    pub async fn addresses(&self, rule: &Rule) -> Result<Vec<SocketAddr>, Unresolved> {
        let ips = match literal(&self.host) {
            Some(ip) => allowed(&self.host, rule, std::iter::once(ip))?,
            None => lookup(&self.host, rule).await?,
        };
        Ok(ips.into_iter().map(|ip| SocketAddr::new(ip, self.port)).collect())
    }
}

/// The address that a host is, if it is no name.
pub(crate) fn literal(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse().ok()
}

/// The addresses of a name that may be called.
pub async fn lookup(name: &str, rule: &Rule) -> Result<Vec<IpAddr>, Unresolved> {
    let found = tokio::net::lookup_host((name, 0)).await?;
    Ok(allowed(name, rule, found.map(|address| address.ip()))?)
}

pub(crate) fn allowed(host: &str, rule: &Rule, ips: impl Iterator<Item = IpAddr>) -> Result<Vec<IpAddr>, Refused> {
    let (mut allowed, mut refused) = (Vec::new(), None);
    for ip in ips {
        match rule.check(ip) {
            Ok(()) => allowed.push(ip),
            Err(kind) => refused = refused.or(Some((ip, kind))),
        }
    }
    match refused {
        Some((ip, kind)) if allowed.is_empty() => {
            // The log is the operator's own; the refusal may be shown to others.
            tracing::info!(host, address = %ip, "an address is not called: it is {kind}");
            Err(Refused { host: host.to_owned(), kind })
        }
        _ => Ok(allowed),
    }
}
