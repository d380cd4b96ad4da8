//! A small web on loopback to try the workers on: several hosts, with everything that makes crawling hard.
//!
//! Host *i* is the address `127.0.0.(2+i)`, all on one port, so its URLs need neither DNS nor an entry in a hosts file.
//! Linux answers on all of `127.0.0.0/8`; macOS needs `ifconfig lo0 alias 127.0.0.2` and so on first. Names such as
//! `a.localhost` would need a resolver that knows them, which plain glibc does not.
//!
//! What a host serves is a function of its number and the settings ([`pages`]); when it served what to whom is kept in
//! memory, and [`AccessLog::politeness`] derives from it how the host was treated.

mod access_log;
mod answers;
pub mod pages;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use url::Url;

pub use access_log::{Access, AccessLog, Politeness};

/// The most hosts that a site can have.
pub const HOSTS_MAX: usize = 250;
/// The most pages that a host can have.
pub const PAGES_MAX: usize = 100_000;

/// How often another port is tried if one is taken on some address.
const PORT_ATTEMPTS: usize = 50;

/// Settings of a site.
#[derive(Debug, Clone)]
pub struct Config {
    /// How many hosts, 1 to [`HOSTS_MAX`].
    pub hosts: usize,
    /// How many pages a host has besides the special ones, 1 to [`PAGES_MAX`].
    pub pages: usize,
    /// The port; any free one if 0.
    pub port: u16,
    /// The Crawl-delay in robots.txt.
    pub crawl_delay: Option<Duration>,
    /// How long a slow page takes.
    pub slow: Duration,
    /// How often `/busy` answers 429 before it gives in.
    pub busy_times: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hosts: 4,
            pages: 10,
            port: 0,
            crawl_delay: Some(Duration::from_secs(1)),
            slow: Duration::from_secs(2),
            busy_times: 1,
        }
    }
}

/// A running site. It ends when it is dropped.
#[derive(Debug)]
pub struct Site {
    config: Config,
    port: u16,
    log: Arc<AccessLog>,
    _servers: JoinSet<()>,
}

impl Site {
    /// Starts a site. Fails if the settings are out of bounds or the addresses cannot be bound.
    pub async fn start(config: Config) -> io::Result<Self> {
        if !(1..=HOSTS_MAX).contains(&config.hosts) || !(1..=PAGES_MAX).contains(&config.pages) {
            let text = format!("a site has 1 to {HOSTS_MAX} hosts and 1 to {PAGES_MAX} pages a host");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (port, listeners) = bind_all(&config).await?;
        let log = Arc::new(AccessLog::default());
        let mut servers = JoinSet::new();
        for (host, listener) in listeners.into_iter().enumerate() {
            let router = answers::router(&config, host, port, Arc::clone(&log));
            servers.spawn(async move {
                if let Err(error) = axum::serve(listener, router).await {
                    tracing::error!(site.host = host, error = %error, "a host of the site has stopped");
                }
            });
        }
        Ok(Self { config, port, log, _servers: servers })
    }

    /// The first page of every host.
    #[must_use]
    pub fn seeds(&self) -> Vec<Url> {
        (0..self.config.hosts).filter_map(|host| self.url(host, "/")).collect()
    }

    /// The URL of a path on a host.
    #[must_use]
    pub fn url(&self, host: usize, path: &str) -> Option<Url> {
        pages::base(host, self.port).and_then(|base| base.join(path).ok())
    }

    /// A page of a host.
    #[must_use]
    pub fn page(&self, host: usize, path: &str) -> Option<pages::Page> {
        pages::page(&self.config, host, self.port, path)
    }

    /// All pages that a crawl from the seeds should bring into an index, with their words.
    pub fn indexable(&self) -> impl Iterator<Item = (Url, pages::Page)> {
        (0..self.config.hosts).flat_map(move |host| {
            let of_host = pages::indexable(&self.config, host, self.port);
            of_host.into_iter().filter_map(move |page| Some((self.url(host, &page.path)?, page)))
        })
    }

    /// Who asked for what, and when.
    #[must_use]
    pub fn log(&self) -> &AccessLog {
        &self.log
    }
}

/// Binds one port on all addresses.
async fn bind_all(config: &Config) -> io::Result<(u16, Vec<TcpListener>)> {
    let mut last = None;
    for _ in 0..PORT_ATTEMPTS {
        match bind_once(config).await {
            // Another program has a port that the system chose for us on some other address.
            Err(error) if config.port == 0 && error.kind() == io::ErrorKind::AddrInUse => last = Some(error),
            done => return done,
        }
    }
    Err(last.unwrap_or_else(|| io::Error::from(io::ErrorKind::AddrInUse)))
}

async fn bind_once(config: &Config) -> io::Result<(u16, Vec<TcpListener>)> {
    let mut port = config.port;
    let mut listeners = Vec::with_capacity(config.hosts);
    for host in 0..config.hosts {
        let address = SocketAddr::from((address(host), port));
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))?;
        port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok((port, listeners))
}

/// The address of a host.
pub(crate) fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, u8::try_from(host + 2).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests;
