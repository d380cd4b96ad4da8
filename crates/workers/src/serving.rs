//! Listens for other workers: on an address of this machine, under one that they can reach.
//!
//! Locations of artifacts outlive a process. A worker that takes any free port takes the same one again after a
//! restart: it is noted in the folder that it serves. So is a port that was asked for, for a restart that asks for none.
//!
//! The port has the bounds and the guard of the server's: `wayleave-listen`.
//!
//! Interleavings: several workers serve one folder: a port that is taken is passed over, so each gets the port of one of
//! them. Two of them begin at the same time: one note may replace the other, and a worker whose port is not noted takes
//! another one after a restart, as without a folder.

use std::fs;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use url::Url;
use wayleave_listen::{Bounds, Guard, Shared, plain};

use crate::limits::{CONNECTIONS_MAX, UNREAD_BYTES_MAX};

/// Where the port is noted. No artifact's name begins with a dot.
const NOTE: &str = ".port";

/// How many ports are noted: several workers may serve one folder.
const NOTED_MAX: usize = 8;

/// A listener, and the address that others use.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    base: Url,
    guard: Guard,
}

/// Why this worker could not be reached.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Error {
    #[error("cannot listen on {address}: {cause}")]
    Listen { address: SocketAddr, cause: io::Error },
    #[error("others cannot reach {0}: say with --advertise HOST:PORT how they do")]
    Unspecified(SocketAddr),
    #[error("'{0}' is not HOST:PORT or HOST")]
    Advertise(String),
}

impl Listening {
    /// Listens. Port 0 is the last port that was noted in `folder` and is free, else any.
    pub async fn start(listen: SocketAddr, advertise: Option<&str>, folder: Option<&Path>) -> Result<Self, Error> {
        let noted = folder.map(noted).unwrap_or_default();
        let mut again = None;
        for port in noted.iter().filter(|_| listen.port() == 0) {
            again = TcpListener::bind(SocketAddr::new(listen.ip(), *port)).await.ok();
            if again.is_some() {
                break;
            }
        }
        let listener = match again {
            Some(listener) => listener,
            None => TcpListener::bind(listen).await.map_err(|cause| Error::Listen { address: listen, cause })?,
        };
        let address = listener.local_addr().map_err(|cause| Error::Listen { address: listen, cause })?;
        // A worker beside others in one folder, whose ports are all taken, leaves the note to them.
        if let Some(folder) = folder.filter(|_| listen.port() != 0 || noted.is_empty())
            && let Err(error) = note(folder, address.port(), &noted)
        {
            // Without the note all works until the next restart.
            tracing::warn!(error = %error, "the port cannot be noted");
        }
        let guard = Guard::new(address.ip(), advertise, &[]);
        Ok(Self { listener, base: base(address, advertise)?, guard })
    }

    /// Accepts requests under these host names too; a leading dot means all names below one.
    #[must_use]
    pub fn allowing(mut self, hosts: &[String]) -> Self {
        self.guard = self.guard.allowing(hosts);
        self
    }

    /// The URL that others use, with a slash at its end.
    #[must_use]
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// Host and port that others use.
    #[must_use]
    pub fn address(&self) -> String {
        let port = self.base.port_or_known_default().unwrap_or(80);
        format!("{}:{port}", self.base.host_str().unwrap_or_default())
    }

    /// Answers requests until the task is aborted or the program ends.
    pub fn serve(self, router: Router) -> AbortHandle {
        let shared = Shared::new(UNREAD_BYTES_MAX);
        let router = plain::guarded(router, self.guard, shared.clone());
        let bounds = Bounds { connections_max: connections_max(), ..Bounds::default() };
        tokio::spawn(wayleave_listen::serve(self.listener, router, bounds, shared, pending())).abort_handle()
    }
}

/// Of the descriptors of the process a quarter, so that the worker's own files and fetches are never short of them.
fn connections_max() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files / 4).unwrap_or(usize::MAX).clamp(1, CONNECTIONS_MAX)
}

/// The ports that workers of a folder had, the last one first.
fn noted(folder: &Path) -> Vec<u16> {
    let text = fs::read_to_string(folder.join(NOTE)).unwrap_or_default();
    text.lines().filter_map(|port| port.trim().parse().ok()).take(NOTED_MAX).collect()
}

/// Notes a port before others, which another worker of the folder may have.
fn note(folder: &Path, port: u16, noted: &[u16]) -> io::Result<()> {
    if noted.first() == Some(&port) {
        return Ok(());
    }
    let others = noted.iter().filter(|other| **other != port);
    let lines: Vec<String> = std::iter::once(&port).chain(others).take(NOTED_MAX).map(u16::to_string).collect();
    fs::create_dir_all(folder)?;
    fs::write(folder.join(NOTE), lines.join("\n"))
}

fn base(address: SocketAddr, advertise: Option<&str>) -> Result<Url, Error> {
    let Some(named) = advertise else {
        let usable = !address.ip().is_unspecified();
        let url = usable.then(|| format!("http://{address}/").parse().ok()).flatten();
        return url.ok_or(Error::Unspecified(address));
    };
    let wrong = || Error::Advertise(named.to_owned());
    let mut url: Url = format!("http://{named}/").parse().map_err(|_| wrong())?;
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
        return Err(wrong());
    }
    // The parser drops the port that http has by default, so the text decides.
    let has_port = named.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if !has_port {
        url.set_port(Some(address.port())).map_err(|()| wrong())?;
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn a_restarted_worker_has_its_port_again_unless_it_is_taken() {
        let folder = TempDir::new().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let first = Listening::start(any, None, Some(folder.path())).await.unwrap();
        let url = first.base().clone();
        let beside = Listening::start(any, None, Some(folder.path())).await.unwrap();
        assert_ne!(beside.base(), &url);
        drop((first, beside));
        let again = Listening::start(any, None, Some(folder.path())).await.unwrap();
        assert_eq!(again.base(), &url);
    }

    /// A regression: only a port that was not asked for was noted.
    #[tokio::test]
    async fn a_port_that_was_asked_for_is_taken_again_if_none_is() {
        let folder = TempDir::new().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let first = Listening::start(any, None, Some(folder.path())).await.unwrap().base().port();
        let free = TcpListener::bind(any).await.unwrap();
        let asked = free.local_addr().unwrap();
        drop(free);
        drop(Listening::start(asked, None, Some(folder.path())).await.unwrap());
        let again = Listening::start(any, None, Some(folder.path())).await.unwrap();
        assert_eq!(again.base().port(), Some(asked.port()));
        let beside = Listening::start(any, None, Some(folder.path())).await.unwrap();
        assert_eq!(beside.base().port(), first, "the one that had the first port has it again");
    }

    #[test]
    fn the_advertised_address_is_reachable() {
        let address = "0.0.0.0:9".parse().unwrap();
        assert!(matches!(base(address, None), Err(Error::Unspecified(_))));
        for (named, wanted) in [
            ("crawler-1.example", "http://crawler-1.example:9/"),
            ("crawler-1.example:7", "http://crawler-1.example:7/"),
            ("crawler-1.example:80", "http://crawler-1.example/"),
            ("[::1]:7", "http://[::1]:7/"),
        ] {
            assert_eq!(base(address, Some(named)).unwrap().as_str(), wanted);
        }
        for wrong in ["", "http://a", "a/b", "a:port", "user@a"] {
            assert!(base(address, Some(wrong)).is_err(), "{wrong}");
        }
    }
}
