//! The compact form of a URL within its queue: most URLs of a queue start with the queue's own host, which the row key
//! already implies. Keys of one queue sort like the URLs themselves.
//!
//! Layout: a class byte, then the remaining text. Class 1 means `http://HOST`, class 3 `https://HOST`; any other text
//! is kept in full in class 0, 2 or 4, whichever preserves the byte order. A text over [`PLAIN_BYTES_MAX`] is
//! truncated and ends in a 128-bit hash; its row then carries the full URL.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use serde::{Deserialize, Serialize};

use crate::redact;

/// Longest text that a key carries in full. B-tree stores limit their keys (PostgreSQL: about 2,700 bytes).
pub const PLAIN_BYTES_MAX: usize = 1_024;
const CUT: u8 = 0x80;
/// Length of the hash at the end of a truncated key.
const HASH_BYTES: usize = 16;
const HTTP: &str = "http://";
const HTTPS: &str = "https://";

/// A URL within its queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UrlKey(pub Box<[u8]>);

impl UrlKey {
    /// The key of `url` in the queue of `host`.
    #[must_use]
    pub fn new(host: &str, url: &str) -> Self {
        let (class, rest) = split(host, url);
        if rest.len() <= PLAIN_BYTES_MAX {
            let mut bytes = Vec::with_capacity(rest.len() + 1);
            bytes.push(class);
            bytes.extend_from_slice(rest.as_bytes());
            return Self(bytes.into());
        }
        let (head, _) = rest.as_bytes().split_at(PLAIN_BYTES_MAX);
        let mut bytes = Vec::with_capacity(PLAIN_BYTES_MAX + 1 + HASH_BYTES);
        bytes.push(class | CUT);
        bytes.extend_from_slice(head);
        bytes.extend_from_slice(&hash(url, 0x9e37_79b9_7f4a_7c15).to_be_bytes());
        bytes.extend_from_slice(&hash(url, 0xd1b5_4a32_d192_ed03).to_be_bytes());
        Self(bytes.into())
    }

    /// Whether the key was truncated, so that the row must carry the full URL.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.0.first().is_some_and(|class| class & CUT != 0)
    }

    /// The URL of this key in the queue of `host`; `whole` is the full URL from the row, if the key was truncated. Without
    /// the row the start of it, and "…"; what may be the start of credentials is left out.
    #[must_use]
    pub fn url(&self, host: &str, whole: Option<&str>) -> Box<str> {
        if let Some(whole) = whole {
            return whole.into();
        }
        let Some((class, rest)) = self.0.split_first() else { return "".into() };
        let kept = if self.is_cut() { rest.len().saturating_sub(HASH_BYTES) } else { rest.len() };
        // A character may be cut.
        let rest = rest.get(..kept).and_then(|kept| kept.utf8_chunks().next()).map_or("", |chunk| chunk.valid());
        let text = match class & !CUT {
            1 => [HTTP, host, rest].concat(),
            3 => [HTTPS, host, rest].concat(),
            _ => rest.to_owned(),
        };
        if self.is_cut() { redact::start_of_url(&text, host).into() } else { text.into() }
    }
}

fn split<'a>(host: &str, url: &'a str) -> (u8, &'a str) {
    let after = |scheme: &str| url.strip_prefix(scheme).and_then(|rest| rest.strip_prefix(host));
    if let Some(rest) = after(HTTP) {
        return (1, rest);
    }
    if let Some(rest) = after(HTTPS) {
        return (3, rest);
    }
    let below = |scheme: &str| url.bytes().cmp(scheme.bytes().chain(host.bytes())).is_lt();
    let class = if below(HTTP) {
        0
    } else if below(HTTPS) {
        2
    } else {
        4
    };
    (class, url)
}

pub(crate) fn hash(url: &str, seed: u64) -> u64 {
    rapidhash_v3_seeded(url.as_bytes(), &RapidSecrets::seed(seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn keys_read_back_and_sort_as_urls(
            a in "(http://h|https://h|http://g|ftp://h|http|i)?[a-z/.:]{0,12}",
            b in "(http://h|https://h|http://g|ftp://h|http|i)?[a-z/.:]{0,12}",
        ) {
            let (x, y) = (UrlKey::new("h", &a), UrlKey::new("h", &b));
            proptest::prop_assert_eq!(&*x.url("h", None), a.as_str());
            proptest::prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        }
    }

    #[test]
    fn a_long_url_is_cut_and_stays_its_own() {
        let url = |end: &str| format!("http://h/{}{end}", "x".repeat(2_000));
        let (a, b) = (UrlKey::new("h", &url("a")), UrlKey::new("h", &url("b")));
        assert!(a.is_cut() && a != b && a.0.len() < 1_100);
        assert_eq!(&*a.url("h", Some(&url("a"))), url("a"));
    }

    #[test]
    fn a_truncated_key_shows_the_start_of_its_url_but_no_hash_or_credential() {
        let long = "é".repeat(1_000);
        let kept = "é".repeat(511);
        let secret = "s3cret".repeat(300);
        for (url, shown) in [
            (format!("http://h/{long}"), format!("http://h/{kept}…")),
            (format!("https://h/{long}"), format!("https://h/{kept}…")),
            (format!("https://h?{long}"), format!("https://h?{kept}…")),
            (format!("http://u:p@h/{}", "x".repeat(2_000)), format!("http://u:p@h/{}…", "x".repeat(1_024 - 13))),
            (format!("http://u:{secret}@h/1"), "http://h/…".to_owned()),
            (format!("http://h:{secret}@g/1"), "http://h/…".to_owned()),
            (format!("https:////u:{secret}@h/1"), "https:////h/…".to_owned()),
            (format!("u:{secret}@h/1"), "h/…".to_owned()),
        ] {
            let key = UrlKey::new("h", &url);
            assert!(key.is_cut(), "{url}");
            assert_eq!(&*key.url("h", None), shown);
        }
    }
}
