//! Parsing of URLs at the API boundary: what is accepted, what is rejected and why, and the host a URL belongs to.

use crate::limits;
use crate::names::{self, BadName, HostName};
use crate::redact;

/// Why a URL is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum BadUrl {
    #[error("the URL is empty")]
    Empty,
    #[error("the URL has {found} bytes; the limit is {} bytes", limits::URL_BYTES_MAX)]
    TooLong { found: usize },
    #[error("the URL contains a control character (code {0}); percent-encode it")]
    Control(u32),
    #[error("'{text}' is not a URL: {cause}")]
    NotAUrl { text: String, cause: String },
    #[error("scheme '{0}' is not crawled; use http, https or ftp")]
    Scheme(String),
    #[error("the URL has no host")]
    NoHost,
    #[error(transparent)]
    Key(#[from] BadName),
}

/// A URL and the host that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The URL's text.
    pub url: String,
    /// The host (or queue key).
    pub host: HostName,
}

/// Parses a URL strictly: normalised, without fragment. `key` replaces the host as queue key and is taken literally.
/// Fails if it is not a URL that can be crawled.
pub fn parse(text: &str, key: Option<&str>) -> Result<Page, BadUrl> {
    let text = text.trim_matches(' ');
    check_text(text)?;
    if text.is_empty() {
        return Err(BadUrl::Empty);
    }
    if lacks_host(text) {
        return Err(BadUrl::NoHost);
    }
    let mut url = url::Url::parse(text).map_err(|cause| BadUrl::NotAUrl {
        text: redact::url(text).chars().take(80).collect(),
        cause: match cause {
            url::ParseError::RelativeUrlWithoutBase => "it begins with no scheme, such as https://".to_owned(),
            cause => cause.to_string(),
        },
    })?;
    if !is_crawled(url.scheme()) {
        return Err(BadUrl::Scheme(url.scheme().to_owned()));
    }
    url.set_fragment(None);
    let host = match key.filter(|k| !k.is_empty()) {
        Some(key) => {
            names::check_key(key)?;
            key.into()
        }
        None => names::host(url.host_str().ok_or(BadUrl::NoHost)?)?,
    };
    let url = String::from(url);
    if url.len() > limits::URL_BYTES_MAX {
        return Err(BadUrl::TooLong { found: url.len() });
    }
    Ok(Page { url, host })
}

/// Parses a URL as URLFrontier does: the text is kept as sent; without an explicit key, the key is the parsed host in
/// lower case, else the text in the position of a host. Fails if no key can be derived, or the text or the key exceeds
/// its limit.
pub fn parse_loosely(url: &str, key: &str) -> Result<HostName, BadUrl> {
    check_text(url)?;
    if !key.is_empty() {
        names::check_key(key)?;
        return Ok(key.into());
    }
    if let Some(plain) = plain_host(url) {
        names::check_key(plain)?;
        return Ok(plain.into());
    }
    if lacks_host(url) {
        return Err(BadUrl::NoHost);
    }
    let parsed = url::Url::parse(url).ok();
    let host = parsed.as_ref().and_then(url::Url::host_str).filter(|host| !host.is_empty());
    let derived = match (&parsed, host) {
        (Some(parsed), Some(host)) if is_crawled(parsed.scheme()) => return Ok(names::host(host)?),
        (_, Some(host)) => host.to_lowercase(),
        (_, None) => textual_key(url).to_owned(),
    };
    if derived.is_empty() {
        return Err(BadUrl::NoHost);
    }
    names::check_key(&derived)?;
    Ok(derived.into())
}

fn is_crawled(scheme: &str) -> bool {
    matches!(scheme, "http" | "https" | "ftp")
}

/// Whether no host follows the scheme, as in `http:///path`. The parser behaves like browsers and takes the first path
/// segment for the host, which is hardly what the author of a URL list meant.
fn lacks_host(url: &str) -> bool {
    let Some((scheme, rest)) = url.trim_start().split_once(':') else { return false };
    let slashes = rest.bytes().take_while(|b| matches!(b, b'/' | b'\\')).count();
    is_crawled(&scheme.to_ascii_lowercase()) && slashes != 2
}

fn check_text(text: &str) -> Result<(), BadUrl> {
    if text.len() > limits::URL_BYTES_MAX {
        return Err(BadUrl::TooLong { found: text.len() });
    }
    match text.chars().find(|c| c.is_control()) {
        Some(c) => Err(BadUrl::Control(c as u32)),
        None => Ok(()),
    }
}

/// Fast path: the host of a URL that is already normalised. Most URLs skip the full parser this way.
fn plain_host(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let end = rest.find(['/', '?', '#', ':']).unwrap_or(rest.len());
    let host = rest.get(..end)?;
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.' || b == b'_';
    // A port or a path must follow: "user:password@" has a letter or an @ before the next slash.
    let tail = rest.get(end..)?;
    let authority_ends = tail.find(['/', '?', '#']).unwrap_or(tail.len());
    let port = tail.get(..authority_ends)?;
    let port_is_plain = port.is_empty() || port.bytes().skip(1).all(|b| b.is_ascii_digit());
    let ends_in_digit = host.bytes().next_back().is_some_and(|b| b.is_ascii_digit());
    let labels = host.split('.').all(|label| !label.is_empty());
    (labels && !ends_in_digit && port_is_plain && host.bytes().all(plain)).then_some(host)
}

fn textual_key(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split([':', '/', '?', '&']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_reading_normalises() {
        let page = parse("HTTP://ExAmple.COM:80/a b#frag", None).map(|p| (p.url, p.host.to_string()));
        assert_eq!(page, Ok(("http://example.com/a%20b".to_owned(), "example.com".to_owned())));
        for key in ["KEY one", "42", "Example.COM", "http://x/"] {
            assert_eq!(parse("http://e.com/", Some(key)).map(|p| p.host.to_string()), Ok(key.to_owned()));
        }
    }

    #[test]
    fn strict_reading_refuses_with_a_reason() {
        let long = format!("http://e.com/{}", "a".repeat(limits::URL_BYTES_MAX));
        for (text, want) in [
            ("", "empty"),
            ("nonsense", "not a URL"),
            ("mailto:a@b", "scheme 'mailto'"),
            ("http://e.com/\u{1}", "control character"),
            (long.as_str(), "limit is 8192 bytes"),
            ("http://", "not a URL"),
            ("http:///path", "no host"),
            ("HTTP:/path", "no host"),
            ("https:example.com", "no host"),
            ("http:\\\\\\x", "no host"),
            ("http://example.com../", "not a host name"),
        ] {
            let error = parse(text, None).expect_err(text).to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn loose_reading_derives_the_key() {
        for (url, want) in [
            ("http://gac.icann.org?x=1", "gac.icann.org"),
            ("https://h.com:8443/x", "h.com"),
            ("http://c.org#t", "c.org"),
            ("http://user:pw@h/", "h"),
            ("http://[2001:db8::1]/", "[2001:db8::1]"),
            ("HTTP://ExAmple.COM/", "example.com"),
            ("mailto:a@b", "mailto"),
            ("foo", "foo"),
            ("http://10.1/", "10.0.0.1"),
            ("http://example.com./", "example.com"),
            ("http://Example.com.:80/", "example.com"),
            ("app://Host./", "host."),
        ] {
            assert_eq!(parse_loosely(url, "").as_deref(), Ok(want), "{url}");
        }
        for url in ["http:///path", " http:///path", "ftp:/x", "http://a..b/", "http://.a/", "http://a../"] {
            assert!(parse_loosely(url, "").is_err(), "{url}");
            assert_eq!(parse_loosely(url, "k").as_deref(), Ok("k"), "{url}: with a key the text is not looked at");
        }
        assert!(parse_loosely("", "").is_err());
        assert_eq!(parse_loosely("", "k").as_deref(), Ok("k"));
        assert!(parse_loosely("http://a/", &"k".repeat(256)).is_err());
    }
}
