//! The handle: addresses, a pool of connections, and how patient to be.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;

use crate::error::{Error, root_cause};
use crate::retry::Retry;
use crate::servers::{Here, Servers};
use crate::waiting::{Observer, Waiting};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The same where there is another one to ask: long enough for a lost packet to be sent again.
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
    /// A client of the server at `addresses`, such as `http://127.0.0.1:7071`, or of several nodes, with commas between
    /// them; `host:port` is enough. Calls go to one of them until it cannot be reached, does not answer in time or says that
    /// it is unavailable; the next attempt or call, also of a clone, then goes to the next one. Nothing is sent yet.
    ///
    /// # Errors
    /// If one of them is not an http address.
    pub fn new(addresses: &str) -> Result<Self, Error> {
        let servers = Arc::new(Servers::parse(addresses)?);
        // The server is one's own: a proxy for the web must not come between, above all not between long polls.
        let timeout = if servers.count() > 1 { CONNECT_TIMEOUT_OF_SEVERAL } else { CONNECT_TIMEOUT };
        let http = reqwest::Client::builder().no_proxy().connect_timeout(timeout).tcp_nodelay(true).build();
        let http =
            http.map_err(|error| Error::BadAddress { address: addresses.to_owned(), cause: root_cause(&error) })?;
        let retry = Retry::default().at_least(servers.count());
        Ok(Self { http, servers, retry, observer: None })
    }

    /// The same client with another patience. Whoever tries more than once tries every address at least once.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry.at_least(self.servers.count());
        self
    }

    /// The same client, which tells how calls stand that are not answered at once.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Fn(&Waiting<'_>) + Send + Sync>) -> Self {
        self.observer = Some(Observer(observer));
        self
    }

    pub(crate) fn observe(&self, waiting: &Waiting<'_>) {
        if let Some(Observer(tell)) = &self.observer {
            tell(waiting);
        }
    }

    /// The address that the next call goes to.
    #[must_use]
    pub fn server(&self) -> &str {
        self.servers.current()
    }

    /// Whether, after so many attempts, there is a server that has not been asked and may do better: no reason to wait then.
    pub(crate) fn has_another(&self, attempt: u32, error: &Error) -> bool {
        error.is_of_one_server() && usize::try_from(attempt).is_ok_and(|asked| asked < self.servers.count())
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
