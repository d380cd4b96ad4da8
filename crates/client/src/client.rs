//! The client handle: addresses, a connection pool, and a retry policy.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;

use crate::error::{Error, root_cause};
use crate::retry::Retry;
use crate::servers::{Here, Servers};
use crate::waiting::{Observer, Waiting};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may be silent before its other end is probed, and between two probes. After a few without an answer it
/// is broken: a machine that lost its power closes no connection, and a stream may rightly be silent for long, such as a listing of
/// a few URLs among very many.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How many probes may stay without an answer.
const PROBES: u32 = 3;
/// The connect timeout if there is another server to try: long enough for one lost packet to be resent.
const CONNECT_TIMEOUT_OF_SEVERAL: Duration = Duration::from_secs(2);

/// A client of one server, or of several nodes of the same service; cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) http: reqwest::Client,
    servers: Arc<Servers>,
    pub(crate) retry: Retry,
    pub(crate) observer: Option<Observer>,
}

impl Client {
    /// A client of the server at `addresses`, such as `http://127.0.0.1:7071`, or of several nodes, separated by
    /// commas; `host:port` suffices. Calls go to one of them until it is unreachable, times out or reports that it is
    /// unavailable; the next attempt or call, also of a clone, then fails over to the next one. Nothing is sent yet.
    /// Fails if one of them is not an http address.
    pub fn new(addresses: &str) -> Result<Self, Error> {
        let servers = Arc::new(Servers::parse(addresses)?);
        // Never use a web proxy, above all not for long polls.
        let timeout = if servers.count() > 1 { CONNECT_TIMEOUT_OF_SEVERAL } else { CONNECT_TIMEOUT };
        let http = reqwest::Client::builder().no_proxy().connect_timeout(timeout).tcp_nodelay(true);
        let http =
            http.tcp_keepalive(KEEP_ALIVE).tcp_keepalive_interval(KEEP_ALIVE).tcp_keepalive_retries(PROBES).build();
        let http =
            http.map_err(|error| Error::BadAddress { address: addresses.to_owned(), cause: root_cause(&error) })?;
        let retry = Retry::default().at_least(servers.count());
        Ok(Self { http, servers, retry, observer: None })
    }

    /// Sets the retry policy. A policy with retries tries every address at least once.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry.at_least(self.servers.count());
        self
    }

    /// Sets an observer, which is informed of slow and retried calls.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Fn(&Waiting<'_>) + Send + Sync>) -> Self {
        self.observer = Some(Observer(observer));
        self
    }

    /// How often a call is attempted, at most.
    pub(crate) const fn attempts(&self) -> u32 {
        self.retry.attempts
    }

    pub(crate) fn observe(&self, waiting: &Waiting<'_>) {
        if let Some(Observer(tell)) = &self.observer {
            tell(waiting);
        }
    }

    /// The addresses that calls may go to.
    pub fn servers(&self) -> impl Iterator<Item = &Url> {
        self.servers.all()
    }

    /// The address that the next call goes to.
    #[must_use]
    pub fn server(&self) -> &str {
        self.servers.current()
    }

    /// Whether, after `attempt` attempts, there is a server that has not been tried and may do better, so there is no
    /// need to back off.
    pub(crate) fn has_another(&self, attempt: u32, error: &Error) -> bool {
        error.is_of_one_server() && usize::try_from(attempt).is_ok_and(|asked| asked < self.servers.count())
    }

    /// The server for an attempt that starts now.
    pub(crate) fn here(&self) -> Here {
        Here::now(&self.servers)
    }

    /// The URL of a call, still without its server.
    pub(crate) fn url(&self, parts: &[&str]) -> Url {
        self.servers.url(parts)
    }
}
