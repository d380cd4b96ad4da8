//! Host names in requests: a host name in any spelling, or a queue key, which is taken literally.
//!
//! The text alone is ambiguous: `Example.COM` is the host `example.com`, unless a URLFrontier client has created a
//! queue with exactly that key. So the store decides: the literal text if it is known, otherwise the normalised form.
//! This module lists the candidate names, and chooses the name of a host that is not known yet.

use crate::names::{BadName, HostName, check_key, host};

/// The names that a text may mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedHost {
    written: HostName,
    normal: Option<HostName>,
}

impl AskedHost {
    /// Parses the text. Fails if nothing can have that name.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        check_key(text)?;
        let normal = host(text).ok().filter(|normal| **normal != *text);
        Ok(Self { written: text.into(), normal })
    }

    /// The literal text, as a queue key.
    #[must_use]
    pub const fn written(&self) -> &HostName {
        &self.written
    }

    /// The normalised host name, if it differs from the text.
    #[must_use]
    pub const fn normal(&self) -> Option<&HostName> {
        self.normal.as_ref()
    }

    /// The name for a host that is known under none of the candidates. A text with a dot or a colon is taken for a host
    /// name or address; words such as `_DEFAULT_` and `42` are keys. Fails if it looks like a mistake that would create
    /// a useless queue key: a URL, a name with a port, a name with an empty label.
    pub fn fresh(&self) -> Result<HostName, BadName> {
        let text = &*self.written;
        if let Some(normal) = &self.normal {
            return Ok(if text.contains(['.', ':']) { normal.clone() } else { self.written.clone() });
        }
        if host(text).is_ok() {
            return Ok(self.written.clone());
        }
        let begun = || text.chars().take(80).collect();
        let port = text.rsplit_once(':').filter(|(name, port)| port.parse::<u16>().is_ok() && host(name).is_ok());
        if text.contains("://") || port.is_some() {
            return Err(BadName::MoreThanAHost(begun()));
        }
        let bare: String = text.split('.').filter(|label| !label.is_empty()).collect::<Vec<_>>().join(".");
        if text.contains('.') && host(&bare).is_ok() {
            return Err(BadName::NotAHost(begun()));
        }
        Ok(self.written.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(text: &str) -> Result<String, BadName> {
        AskedHost::parse(text)?.fresh().map(|name| name.to_string())
    }

    #[test]
    fn a_normalized_host_name_means_only_that_host() {
        for text in ["example.com", "localhost", "10.0.0.1", "[2001:db8::1]", "two words", "a/b"] {
            let asked = AskedHost::parse(text).unwrap();
            assert_eq!((&**asked.written(), asked.normal()), (text, None), "{text}");
            assert_eq!(fresh(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn host_names_are_normalized_and_plain_words_stay_unchanged() {
        for (text, want) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("2001:DB8::1", "[2001:db8::1]"),
            ("_DEFAULT_", "_DEFAULT_"),
            ("42", "42"),
            ("_DEFAULT_ x", "_DEFAULT_ x"),
        ] {
            assert_eq!(fresh(text).as_deref(), Ok(want), "{text}");
        }
        assert_eq!(AskedHost::parse("_DEFAULT_").unwrap().normal().map(|name| &**name), Some("_default_"));
    }

    #[test]
    fn slips_are_not_made_hosts_but_may_be_the_names_of_queues() {
        for text in ["https://a.example/", "a.example:443", "[::1]:80"] {
            assert!(matches!(fresh(text), Err(BadName::MoreThanAHost(_))), "{text}");
            assert_eq!(&**AskedHost::parse(text).unwrap().written(), text);
        }
        for text in ["example.com..", ".example.com", "a..b"] {
            assert!(matches!(fresh(text), Err(BadName::NotAHost(_))), "{text}");
        }
        assert!(AskedHost::parse("").is_err() && AskedHost::parse("a\nb").is_err());
    }
}
