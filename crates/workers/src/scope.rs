//! The scope of a crawl: how far from its seeds it may follow links.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use url::{Host, Url};

/// The width of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// The hosts of the seeds.
    #[default]
    Host,
    /// Their registrable domains, by the public suffix list: `blog.example.co.uk` brings in all of `example.co.uk`.
    Domain,
    /// The web.
    Any,
}

/// A reach that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("scope {0:?} is none of host, domain, any")]
pub struct UnknownReach(String);

impl FromStr for Reach {
    type Err = UnknownReach;

    fn from_str(text: &str) -> Result<Self, UnknownReach> {
        match text {
            "host" => Ok(Self::Host),
            "domain" => Ok(Self::Domain),
            "any" => Ok(Self::Any),
            _ => Err(UnknownReach(text.to_owned())),
        }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Domain => "domain",
            Self::Any => "any",
        })
    }
}

/// The part of the web that a crawl may visit. Ports and schemes do not matter.
#[derive(Debug, Clone)]
pub struct Scope {
    reach: Reach,
    names: HashSet<String>,
}

impl Scope {
    /// A scope around seeds.
    #[must_use]
    pub fn new<'a>(reach: Reach, seeds: impl IntoIterator<Item = &'a Url>) -> Self {
        Self { reach, names: seeds.into_iter().filter_map(|seed| name(reach, seed)).collect() }
    }

    /// Whether it contains a URL.
    #[must_use]
    pub fn contains(&self, url: &Url) -> bool {
        let http = matches!(url.scheme(), "http" | "https");
        http && (self.reach == Reach::Any || name(self.reach, url).is_some_and(|name| self.names.contains(&name)))
    }
}

/// What two URLs of one scope have in common. An address, or a name without a registrable domain, is its own domain.
fn name(reach: Reach, url: &Url) -> Option<String> {
    let host = match url.host()? {
        Host::Domain(name) => name.strip_suffix('.').unwrap_or(name).to_owned(),
        address => return Some(address.to_string()),
    };
    match reach {
        Reach::Host | Reach::Any => Some(host),
        Reach::Domain => Some(psl::domain_str(&host).map_or_else(|| host.clone(), str::to_owned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reach: Reach, seeds: &[&str], inside: &[&str], outside: &[&str]) {
        let seeds: Vec<Url> = seeds.iter().map(|seed| seed.parse().unwrap()).collect();
        let scope = Scope::new(reach, &seeds);
        for url in inside {
            assert!(scope.contains(&url.parse().unwrap()), "{url} is in {reach}");
        }
        for url in outside {
            assert!(!scope.contains(&url.parse().unwrap()), "{url} is not in {reach}");
        }
    }

    #[test]
    fn a_host_ignores_scheme_port_and_spelling() {
        check(
            Reach::Host,
            &["http://www.example.org/"],
            &["https://WWW.example.org:8443/x", "http://www.example.org./"],
            &["http://example.org/", "http://www.example.org.evil.net/", "ftp://www.example.org/"],
        );
    }

    #[test]
    fn a_domain_is_what_its_owner_registered() {
        check(
            Reach::Domain,
            &["http://blog.example.co.uk/", "http://me.github.io/"],
            &["http://example.co.uk/", "https://a.b.example.co.uk/", "http://me.github.io/x"],
            &["http://other.co.uk/", "http://co.uk/", "http://you.github.io/", "http://example.co.uk.net/"],
        );
    }

    #[test]
    fn an_address_is_its_own_domain() {
        check(
            Reach::Domain,
            &["http://127.0.0.2:8080/", "http://[::1]/", "http://localhost/"],
            &["http://127.0.0.2/", "http://[::1]:1/", "http://localhost:1/"],
            &["http://127.0.0.3:8080/", "http://a.b.localhost.example/"],
        );
    }

    #[test]
    fn any_is_the_web_only() {
        check(
            Reach::Any,
            &[],
            &["http://a.example/", "https://127.0.0.1/"],
            &["ftp://a.example/", "mailto:a@b.example"],
        );
    }

    #[test]
    fn reaches_are_read_as_they_are_written() {
        for reach in [Reach::Host, Reach::Domain, Reach::Any] {
            assert_eq!(reach.to_string().parse(), Ok(reach));
        }
        assert_eq!("site".parse::<Reach>(), Err(UnknownReach("site".to_owned())));
    }
}
