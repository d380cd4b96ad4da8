//! Protects against cross-site requests: detects requests that a web page may have made a browser send without
//! consent.
//!
//! A process on loopback has no password, so this module alone protects it from the web pages that its user visits.
//! There are three attacks:
//!
//! - *CSRF without a preflight*: a form, an image, a `fetch` in mode `no-cors`. The browser sends the page's `Origin`,
//!   or at least `Sec-Fetch-Site`. Foreign ones are refused.
//! - *DNS rebinding*: the page's own name is made to resolve to 127.0.0.1, so that the browser takes the server for the
//!   page's. `Host` then has that name. Only names that the attacker cannot resolve are accepted, and the configured
//!   ones.
//! - *A body of a CORS-safelisted type*: gRPC without its content type is refused by the server, because that type
//!   requires a preflight.
//!
//! Which names an attacker can resolve depends on the address. On loopback every page that the user visits, in any
//! network, can attack, and that network answers for single labels, `.local` and `.internal`: only loopback addresses
//! and `localhost` remain, which browsers resolve themselves. On other addresses containers and pods call each other by
//! such names, and a host that answers for them in a trusted network can call the port directly.
//!
//! Over cleartext HTTP/2 the name does not matter: no browser speaks it. Requests without `Origin` and `Host` pass:
//! browsers always send `Host`, and probes of load balancers often do not.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Version, header};

/// Suffixes of names that cannot be registered: multicast DNS, private zones, Kubernetes services.
const PRIVATE_ENDINGS: [&str; 3] = [".local", ".internal", ".svc"];
/// Headers that proxies add.
const PROXY_HEADERS: [&str; 12] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-original-forwarded-for",
    "x-original-host",
    "x-envoy-external-address",
    "x-proxyuser-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
];
const PROXY_PREFIX: &str = "x-forwarded";

/// The accepted host names and origins of a port.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// Whether only this machine can call.
    local: bool,
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// It is for another host.
    Host(String),
    /// It comes from a web page of another site.
    Origin(String),
    /// A page of another site has embedded it.
    Embedded,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(
                f,
                "the request is for host '{host}', which is not a name of this server; call it by its address, or start it \
                 with --allow-host NAME"
            ),
            Self::Origin(origin) => write!(
                f,
                "the request comes from a web page of '{origin}'; if pages from there may steer the crawl, start the server \
                 with --allow-origin {origin}"
            ),
            Self::Embedded => f.write_str(
                "the request comes from a web page of another site (Sec-Fetch-Site); open the address itself, or start the \
                 server with --allow-origin ORIGIN and call it with fetch in mode 'cors'",
            ),
        }
    }
}

impl Guard {
    /// The guard of a port at this address, which is announced as `advertised` (`HOST[:PORT]`), and of pages of these
    /// origins.
    #[must_use]
    pub fn new(listen: IpAddr, advertised: Option<&str>, origins: &[String]) -> Self {
        let advertised = advertised.and_then(|address| host_of(&address.to_ascii_lowercase()));
        let origins = origins.iter().map(|origin| lower(origin).trim_end_matches('/').to_owned());
        Self {
            local: listen.to_canonical().is_loopback(),
            hosts: advertised.into_iter().collect(),
            origins: origins.collect(),
        }
    }

    /// Accepts these host names too; a leading dot means all names below one.
    #[must_use]
    pub fn allowing(mut self, hosts: &[String]) -> Self {
        self.hosts.extend(hosts.iter().map(|host| lower(host)));
        self
    }

    /// Whether a request is allowed; with the origin to allow in the response, if it comes from another one. Fails if a
    /// web page of another site may have made a browser send it.
    pub fn judge(&self, request: &Request) -> Result<Option<HeaderValue>, Foreign> {
        let headers = request.headers();
        if request.version() <= Version::HTTP_11 {
            let in_line = request.uri().authority().map(Authority::as_str);
            let named = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or("?"));
            let mut names = in_line.into_iter().chain(named).filter(|host| !host.is_empty());
            // Probes call by any name, and their responses are no secret.
            let is_probe = matches!(request.uri().path(), "/healthz" | "/readyz");
            if let Some(foreign) = names.find(|host| !is_probe && !self.takes_host(host)) {
                return Err(Foreign::Host(foreign.to_owned()));
            }
        }
        let Some(origin) = headers.get(header::ORIGIN) else {
            return if is_embedded(request.method(), headers) { Err(Foreign::Embedded) } else { Ok(None) };
        };
        let text = origin.to_str().unwrap_or("?").to_ascii_lowercase();
        if self.origins.contains(&text) {
            return Ok(Some(origin.clone()));
        }
        let name = request.uri().authority().map(Authority::as_str);
        let name = name.or_else(|| headers.get(header::HOST)?.to_str().ok()).unwrap_or_default();
        // Check the name here too: over HTTP/2, which a proxy may speak on behalf of a browser, it was not checked yet.
        if is_own(&text, &name.to_ascii_lowercase()) && self.takes_host(name) {
            Ok(None)
        } else {
            Err(Foreign::Origin(text))
        }
    }

    /// Whether a name of this port, with or without the port, is configured, or is one that no attacker can resolve.
    fn takes_host(&self, text: &str) -> bool {
        let Some(host) = host_of(&text.to_ascii_lowercase()) else { return false };
        let allowed = |allowed: &String| *allowed == host || (allowed.starts_with('.') && host.ends_with(allowed));
        if host == "localhost" || host.ends_with(".localhost") || self.hosts.iter().any(allowed) {
            return true;
        }
        let address = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) => match inner.parse::<Ipv6Addr>() {
                Ok(address) => Some(IpAddr::V6(address)),
                Err(_) => return false,
            },
            None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        };
        match address {
            Some(address) => !self.local || address.to_canonical().is_loopback(),
            None => !self.local && (!host.contains('.') || PRIVATE_ENDINGS.iter().any(|ending| host.ends_with(ending))),
        }
    }
}

/// The name of the first header that shows that a proxy passed the request on: the client is unknown.
#[must_use]
pub fn proxy_header(headers: &HeaderMap) -> Option<&str> {
    let mut names = headers.keys().map(header::HeaderName::as_str);
    names.find(|name| PROXY_HEADERS.contains(name) || name.starts_with(PROXY_PREFIX))
}

fn lower(text: &str) -> String {
    text.trim().to_ascii_lowercase()
}

/// The host of `host:port`, without a trailing dot.
fn host_of(text: &str) -> Option<String> {
    let authority: Authority = text.parse().ok()?;
    let host = authority.host();
    // The parser passes over what follows an address in brackets, and what precedes an `@`.
    let port = text.strip_prefix(host)?;
    let is_port = port.strip_prefix(':').map_or(port.is_empty(), |port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let host = host.strip_suffix('.').unwrap_or(host);
    (!host.is_empty() && is_port).then(|| host.to_owned())
}

/// Whether an origin is the server itself under the name it was called by. A proxy that terminates TLS changes the
/// scheme.
fn is_own(origin: &str, name: &str) -> bool {
    [("http://", ":80"), ("https://", ":443")].into_iter().any(|(scheme, port)| {
        let of = |text: &str| text.strip_suffix(port).unwrap_or(text).to_owned();
        origin.strip_prefix(scheme).is_some_and(|found| of(found) == of(name))
    })
}

/// Whether a page of another site has embedded this request. Following a link is not embedding, unless the request
/// changes something.
fn is_embedded(method: &Method, headers: &HeaderMap) -> bool {
    let is = |name: &str, words: &[&str]| {
        headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| words.contains(&value))
    };
    let followed = is("sec-fetch-mode", &["navigate"]) && matches!(*method, Method::GET | Method::HEAD);
    is("sec-fetch-site", &["cross-site", "same-site"]) && !followed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_matches_with_and_without_the_default_port() {
        for (origin, name) in [
            ("http://localhost:7071", "localhost:7071"),
            ("http://localhost", "localhost:80"),
            ("https://crawl.example", "crawl.example"),
            ("https://crawl.example", "crawl.example:443"),
        ] {
            assert!(is_own(origin, name), "{origin} {name}");
        }
        for (origin, name) in [
            ("null", "localhost"),
            ("http://localhost:1", "localhost:2"),
            ("http://localhost", "localhost:443"),
            ("http://localhost.evil.example", "localhost"),
            ("ftp://localhost", "localhost"),
        ] {
            assert!(!is_own(origin, name), "{origin} {name}");
        }
    }

    fn on(listen: &str) -> Guard {
        Guard::new(listen.parse().unwrap(), None, &[])
    }

    #[test]
    fn on_loopback_only_names_that_no_network_answers_for_are_taken() {
        let (local, mapped, open) = (on("127.0.0.1"), on("::ffff:127.0.0.1"), on("0.0.0.0"));
        for host in
            ["127.0.0.1", "127.1.2.3:1", "[::1]:7071", "[::ffff:127.0.0.1]", "localhost", "LOCALHOST.:9", "a.localhost"]
        {
            assert!(local.takes_host(host) && mapped.takes_host(host) && open.takes_host(host), "{host}");
        }
        for host in [
            "wayleave",
            "node-1:7071",
            "pi.local",
            "evil.local:7071",
            "host.docker.internal",
            "w.crawl.svc",
            "10.1.2.3",
            "0.0.0.0",
            "[::]",
            "[::ffff:10.0.0.1]",
            "[fe80::1]",
            "2130706433",
        ] {
            assert!(!local.takes_host(host) && !mapped.takes_host(host), "{host}");
            assert!(open.takes_host(host), "{host}: containers call each other by such names");
        }
        for host in
            ["evil.lan", "evil.example", "localhost.evil.example", "notlocalhost.example", "127.0.0.1.evil.example"]
        {
            assert!(!local.takes_host(host) && !open.takes_host(host), "{host}");
        }
    }

    #[test]
    fn own_and_allowed_names_are_taken_on_loopback_too() {
        let hosts = ["wayleave".to_owned(), ".corp.local ".to_owned()];
        let guard = Guard::new("127.0.0.1".parse().unwrap(), Some("Node-1:7071"), &[]).allowing(&hosts);
        for host in ["wayleave:1", "a.corp.local", "node-1"] {
            assert!(guard.takes_host(host), "{host}");
        }
        for host in ["corp.local", "node-2", "wayleave.local"] {
            assert!(!guard.takes_host(host), "{host}");
        }
    }

    #[test]
    fn a_proxy_is_known_by_what_it_adds() {
        for name in ["Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "x-forwarded-host", "X-Forwarded-Anything"] {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static("x"))]);
            assert_eq!(proxy_header(&headers), Some(name.to_ascii_lowercase().as_str()));
        }
        let plain = [header::HOST, header::USER_AGENT, header::CONTENT_TYPE, header::ORIGIN, header::ACCEPT];
        let headers = HeaderMap::from_iter(plain.map(|name| (name, HeaderValue::from_static("x"))));
        assert_eq!(proxy_header(&headers), None);
    }

    #[test]
    fn what_is_no_name_at_all_is_not_taken() {
        let guard = on("10.0.0.1");
        for text in [
            "",
            "?",
            "a b",
            "user@localhost",
            "localhost:x",
            "localhost:x:y",
            "[::1",
            "[::1]x",
            "[::1]:x",
            "1.2.3.4.example",
            ".",
        ] {
            assert!(!guard.takes_host(text), "{text}");
        }
    }
}
