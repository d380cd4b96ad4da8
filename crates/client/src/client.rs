//! The handle: an address, a pool of connections, and how patient to be.

use std::time::Duration;

use reqwest::Url;

use crate::error::{Error, root_cause};
use crate::retry::Retry;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client of one server; cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) base: Url,
    pub(crate) retry: Retry,
}

impl Client {
    /// A client of the server at `base_url`, such as `http://127.0.0.1:7071`. Nothing is sent yet.
    ///
    /// # Errors
    /// If the text is not an http address.
    pub fn new(base_url: &str) -> Result<Self, Error> {
        let wrong = |cause: String| Error::BadAddress { address: base_url.to_owned(), cause };
        let base = Url::parse(base_url).map_err(|error| wrong(error.to_string()))?;
        if base.scheme() != "http" {
            return Err(wrong(format!("the scheme is '{}', only http is spoken", base.scheme())));
        }
        if base.cannot_be_a_base() || base.host_str().is_none_or(str::is_empty) {
            return Err(wrong("it names no host".to_owned()));
        }
        // The server is one's own: a proxy for the web must not come between, above all not between long polls.
        let http = reqwest::Client::builder().no_proxy().connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true).build();
        let http = http.map_err(|error| wrong(root_cause(&error)))?;
        Ok(Self { http, base, retry: Retry::default() })
    }

    /// The same client with another patience.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// The server's address.
    #[must_use]
    pub fn server(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// The address of a call; parts are encoded as needed.
    pub(crate) fn url(&self, parts: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("v1").extend(parts);
        }
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_encoded() {
        let client = Client::new("http://127.0.0.1:7071").unwrap();
        assert_eq!(client.url(&["hosts", "a/b c?d"]).as_str(), "http://127.0.0.1:7071/v1/hosts/a%2Fb%20c%3Fd");
        let below = Client::new("http://example.com/frontier/").unwrap();
        assert_eq!(below.url(&["stats"]).as_str(), "http://example.com/frontier/v1/stats");
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused_with_the_remedy() {
        for address in ["", "127.0.0.1:7071", "https://example.com", "unix:/x", "http://"] {
            let error = Client::new(address).expect_err(address).to_string();
            assert!(error.contains("http://127.0.0.1:7071"), "{error}");
        }
    }
}
