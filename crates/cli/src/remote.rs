//! The server that a command talks to, and its output format.

use std::time::Duration;

use wayleave_client::{Client, Error, Retry};
use wayleave_workers::fetch::is_loopback;

use crate::patience;

/// Arguments of every command that talks to a server.
#[derive(Clone, Debug, clap::Args)]
pub struct RemoteArgs {
    /// Address of the server, or comma-separated addresses of several nodes for failover
    #[arg(
        long,
        global = true,
        env = "WAYLEAVE_SERVER",
        default_value = "http://127.0.0.1:7071",
        value_name = "URL",
        help_heading = "Global options"
    )]
    pub server: String,
    /// Print JSON, one value per line, instead of tables
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
}

/// A client and its output format.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The client.
    pub client: Client,
    /// Whether to print JSON.
    pub json: bool,
    /// Whether the server is reached on loopback: then what it calls loopback is this machine.
    pub is_here: bool,
}

impl Remote {
    /// The retry policy for a person at a terminal.
    const SHORT: Retry = Retry { attempts: 4, base: Duration::from_millis(100), max: Duration::from_millis(500) };
    /// The retry policy for work that runs for hours: a restart of the server must not end it.
    const LONG: Retry = Retry { attempts: 15, base: Duration::from_millis(100), max: Duration::from_secs(5) };

    /// The server named by the arguments.
    pub fn new(args: &RemoteArgs) -> Result<Self, Error> {
        let client = Client::new(&args.server)?.with_retry(Self::SHORT);
        let is_here = client.servers().all(is_loopback);
        Ok(Self { client, json: args.json, is_here })
    }

    /// Checks that a named crawl exists: a misspelt one would look like one without URLs.
    pub async fn check_crawl(&self, crawl: Option<&str>) -> Result<(), Error> {
        match crawl {
            Some(crawl) => self.client.crawl(crawl).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// The same for a host.
    pub async fn check_host(&self, host: Option<&str>) -> Result<(), Error> {
        match host {
            Some(host) => self.client.host(host).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// The same server for a person at a terminal, with notes on stderr about waits. With JSON the caller is a program:
    /// it reads the exit code, and the final error.
    #[must_use]
    pub fn told(self) -> Self {
        if self.json { self } else { Self { client: patience::told(self.client), ..self } }
    }

    /// A client for long work, once the server has answered: a wrong address is reported at once.
    pub async fn patient(&self) -> Result<Client, Error> {
        self.client.stats().await?;
        Ok(self.client.clone().with_retry(Self::LONG))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A regression: an address without a scheme was taken for that of another machine, which has other loopback addresses.
    #[test]
    fn a_server_on_loopback_is_here_however_its_address_is_spelt() {
        let is_here =
            |server: &str| Remote::new(&RemoteArgs { server: server.to_owned(), json: false }).unwrap().is_here;
        for here in [
            "http://127.0.0.1:7071",
            "127.0.0.1:7071",
            "localhost:7071",
            "[::1]:7071",
            "127.0.0.1:1, http://localhost:2/",
        ] {
            assert!(is_here(here), "{here}");
        }
        for elsewhere in ["192.0.2.1:7071", "127.0.0.1:7071,http://frontier:7071"] {
            assert!(!is_here(elsewhere), "{elsewhere}");
        }
    }
}
