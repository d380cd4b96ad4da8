//! The handle: addresses, a pool of connections, and how patient to be.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;

use crate::error::{Error, root_cause};
use crate::retry::Retry;
use crate::servers::{Here, Servers};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client of one server, or of several nodes of the same service; cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) http: reqwest::Client,
    servers: Arc<Servers>,
    pub(crate) retry: Retry,
}

impl Client {
    /// A client of the server at `addresses`, such as `http://127.0.0.1:7071`, or of several nodes, with commas between
    /// them; `host:port` is enough. Calls go to one of them until it cannot be reached, does not answer in time or says that
    /// it is unavailable; the next attempt or call, also of a clone, then goes to the next one. Nothing is sent yet.
    ///
    /// # Errors
    /// If one of them is not an http address.
    pub fn new(addresses: &str) -> Result<Self, Error> {
        let servers = Arc::new(Servers::parse(addresses)?);
        // The server is one's own: a proxy for the web must not come between, above all not between long polls.
        let http = reqwest::Client::builder().no_proxy().connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true).build();
        let http =
            http.map_err(|error| Error::BadAddress { address: addresses.to_owned(), cause: root_cause(&error) })?;
        Ok(Self { http, servers, retry: Retry::default() })
    }

    /// The same client with another patience.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// The address that the next call goes to.
    #[must_use]
    pub fn server(&self) -> &str {
        self.servers.current()
    }

    /// The server that an attempt which starts now goes to.
    pub(crate) fn here(&self) -> Here {
        Here::now(&self.servers)
    }

    /// The address of a call, still without its server.
    pub(crate) fn url(&self, parts: &[&str]) -> Url {
        self.servers.url(parts)
    }
}
