//! The User-Agent: `wayleave/VERSION (+CONTACT)`.

use std::net::IpAddr;
use std::str::FromStr;

use hyper::header::HeaderValue;
use url::{Host, Url};

use crate::limits::CONTACT_BYTES_MAX;

/// The product token: what a robots.txt names.
pub const PRODUCT: &str = "wayleave";

/// A URL or a mail address under which the owner of a host reaches the people who crawl it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact(String);

/// Why a text is no contact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("contact {0:?} is neither an http(s) URL nor a mail address of at most {CONTACT_BYTES_MAX} bytes")]
pub struct BadContact(String);

impl FromStr for Contact {
    type Err = BadContact;

    fn from_str(text: &str) -> Result<Self, BadContact> {
        // Visible ASCII without the parentheses that would end the comment in the header.
        let plain = text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'(' | b')' | b'\\'));
        let url = Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        let mail = text.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty() && host.contains('.') && !host.starts_with('.') && !host.contains('@')
        });
        let good = plain && text.len() <= CONTACT_BYTES_MAX && (url || mail);
        good.then(|| Self(text.to_owned())).ok_or_else(|| BadContact(text.to_owned()))
    }
}

/// The header's value.
#[must_use]
pub fn user_agent(contact: Option<&Contact>) -> HeaderValue {
    let version = env!("CARGO_PKG_VERSION");
    let text = match contact {
        Some(Contact(contact)) => format!("{PRODUCT}/{version} (+{contact})"),
        None => format!("{PRODUCT}/{version}"),
    };
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(PRODUCT))
}

/// Whether a URL names this machine: an address of loopback, `localhost` or a name under it (RFC 6761).
#[must_use]
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        Some(Host::Domain(name)) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            name == "localhost" || name.ends_with(".localhost")
        }
        None => false,
    }
}
