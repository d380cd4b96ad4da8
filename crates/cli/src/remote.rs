//! The server that a command speaks to, and the form of its answers.

use std::time::Duration;

use wayleave_client::{Client, Error, Retry};

use crate::patience;

/// Arguments of every command that speaks to a server.
#[derive(Clone, Debug, clap::Args)]
pub struct RemoteArgs {
    /// Address of the server, or of several nodes with commas between them: the next one is asked when one does not answer
    #[arg(
        long,
        global = true,
        env = "WAYLEAVE_SERVER",
        default_value = "http://127.0.0.1:7071",
        value_name = "URL",
        help_heading = "Global options"
    )]
    pub server: String,
    /// Print JSON, one value a line, instead of tables
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
}

/// A client and the form of its answers.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The client.
    pub client: Client,
    /// Whether answers are printed as JSON.
    pub json: bool,
}

impl Remote {
    /// Patience of a person at a terminal.
    const SHORT: Retry = Retry { attempts: 4, base: Duration::from_millis(100), max: Duration::from_millis(500) };
    /// Patience of work that runs for hours: a restart of the server must not end it.
    const LONG: Retry = Retry { attempts: 15, base: Duration::from_millis(100), max: Duration::from_secs(5) };

    /// The server that the arguments name.
    ///
    /// # Errors
    /// If they name none.
    pub fn new(args: &RemoteArgs) -> Result<Self, Error> {
        Ok(Self { client: Client::new(&args.server)?.with_retry(Self::SHORT), json: args.json })
    }

    /// Makes sure of a crawl that somebody names: one that is misspelt has no URLs, which says something else.
    ///
    /// # Errors
    /// If it is not known, or the server does not answer.
    pub async fn check_crawl(&self, crawl: Option<&str>) -> Result<(), Error> {
        match crawl {
            Some(crawl) => self.client.crawl(crawl).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// The same of a host.
    ///
    /// # Errors
    /// If it is not known, or the server does not answer.
    pub async fn check_host(&self, host: Option<&str>) -> Result<(), Error> {
        match host {
            Some(host) => self.client.host(host).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// The same server for a person at a terminal, who is told on stderr what is waited for. Who asked for JSON is a program:
    /// it reads the exit code, and the error at the end.
    #[must_use]
    pub fn told(self) -> Self {
        if self.json { self } else { Self { client: patience::told(self.client), ..self } }
    }

    /// A client for long work, once the server has answered: a wrong address is told at once.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn patient(&self) -> Result<Client, Error> {
        self.client.stats().await?;
        Ok(self.client.clone().with_retry(Self::LONG))
    }
}
