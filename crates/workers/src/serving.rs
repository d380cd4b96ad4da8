//! Listens for other workers: on an address of this machine, under one that they can reach.
//!
//! Locations of artifacts outlive a process. A worker that takes any free port takes the same one again after a
//! restart: it is noted in the folder that it serves.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use url::Url;

/// Where the port is noted. No artifact's name begins with a dot.
const NOTE: &str = ".port";

/// A listener, and the address that others use.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    base: Url,
}

/// Why nobody could reach this worker.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken or not of this machine.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error.
        cause: io::Error,
    },
    /// Listening everywhere is no address that others could use.
    #[error("others cannot reach {0}: say with --advertise HOST:PORT how they do")]
    Unspecified(SocketAddr),
    /// No address.
    #[error("'{0}' is not HOST:PORT or HOST")]
    Advertise(String),
}

impl Listening {
    /// Listens. Port 0 is the port that was noted in `folder` if it is free, else any.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub async fn start(listen: SocketAddr, advertise: Option<&str>, folder: Option<&Path>) -> Result<Self, Error> {
        let noted = folder.filter(|_| listen.port() == 0).and_then(|folder| fs::read_to_string(folder.join(NOTE)).ok());
        let noted = noted.and_then(|port| port.trim().parse().ok()).map(|port| SocketAddr::new(listen.ip(), port));
        let again = match noted {
            Some(address) => TcpListener::bind(address).await.ok(),
            None => None,
        };
        let listener = match again {
            Some(listener) => listener,
            None => TcpListener::bind(listen).await.map_err(|cause| Error::Listen { address: listen, cause })?,
        };
        let address = listener.local_addr().map_err(|cause| Error::Listen { address: listen, cause })?;
        if let Some(folder) = folder.filter(|_| listen.port() == 0 && noted.is_none()) {
            // Without the note all works until the next restart.
            if let Err(error) =
                fs::create_dir_all(folder).and_then(|()| fs::write(folder.join(NOTE), address.port().to_string()))
            {
                tracing::warn!(error = %error, "the port cannot be noted");
            }
        }
        Ok(Self { listener, base: base(address, advertise)? })
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
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(self.listener, router).await {
                tracing::error!(error = %error, "nothing is served any more");
            }
        });
        task.abort_handle()
    }
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

    #[test]
    fn others_are_told_an_address_that_they_can_use() {
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
