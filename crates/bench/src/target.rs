//! A server under measurement.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tonic::transport::{Channel, Endpoint};
use wayleave_api::urlfrontier::url_frontier_client::UrlFrontierClient;
use wayleave_api::urlfrontier::{QueueDelayParams, QueueWithinCrawlParams};

use crate::args::{BenchArgs, loopback};

/// The column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The server of `--address`.
    Main,
    /// The server of `--beside`.
    Beside,
    /// The null server.
    Null,
}

/// A server and its column.
pub struct Target {
    /// Its column.
    pub side: Side,
    /// Its addresses; several, if it is several nodes.
    pub addresses: Vec<SocketAddr>,
    /// Its processes, as far as they are known.
    pub pids: Vec<u32>,
    /// The null server's process ends with this.
    _child: Option<Child>,
}

/// No server responds at an address.
#[derive(Debug, thiserror::Error)]
#[error("no gRPC server answers at {address}; start one with 'wayleave serve'")]
pub struct Unreachable {
    address: SocketAddr,
    source: tonic::transport::Error,
}

impl Target {
    /// The servers named by the arguments.
    pub async fn all(args: &BenchArgs) -> Result<Vec<Self>> {
        let known = async |side, address: &str, pid: Option<u32>| -> Result<Self> {
            Ok(Self { side, addresses: vec![loopback(address).await?], pids: pid.into_iter().collect(), _child: None })
        };
        let mut nodes = Vec::with_capacity(args.address.len());
        for address in &args.address {
            nodes.push(loopback(address).await?);
        }
        let mut targets = vec![Self { side: Side::Main, addresses: nodes, pids: args.pid.clone(), _child: None }];
        if let Some(address) = &args.beside {
            targets.push(known(Side::Beside, address, args.beside_pid).await?);
        }
        match &args.null_address {
            Some(address) => targets.push(known(Side::Null, address, None).await?),
            None if args.no_null => {}
            None => targets.push(start_null().await?),
        }
        for target in &targets {
            for client in 0..target.addresses.len() {
                target.channel(client).await?;
            }
        }
        Ok(targets)
    }

    /// The node for a client.
    pub fn address(&self, client: usize) -> Result<SocketAddr> {
        let node = self.addresses.get(client % self.addresses.len().max(1));
        node.copied().context("no address was given")
    }

    /// A separate connection for a client.
    pub async fn channel(&self, client: usize) -> Result<Channel> {
        let address = self.address(client)?;
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
        let endpoint = endpoint.tcp_nodelay(true).connect_timeout(Duration::from_secs(5));
        Ok(endpoint.connect().await.map_err(|source| Unreachable { address, source })?)
    }

    /// The number of scheduled URLs of a crawl.
    pub async fn scheduled(&self, crawl: &str) -> Result<u64> {
        let mut client = UrlFrontierClient::new(self.channel(0).await?);
        let params = QueueWithinCrawlParams { crawl_id: crawl.to_owned(), ..Default::default() };
        Ok(client.get_stats(params).await?.into_inner().size)
    }

    /// Disables politeness for a crawl, so that it does not cap the rate. Servers without a delay per crawl apply it to
    /// all.
    pub async fn without_delay(&self, crawl: &str) -> Result<()> {
        let mut client = UrlFrontierClient::new(self.channel(0).await?);
        let params = QueueDelayParams { crawl_id: crawl.to_owned(), ..Default::default() };
        client.set_delay(params).await?;
        Ok(())
    }
}

/// Starts a null server as a separate process, which shares the machine as the measured server does.
async fn start_null() -> Result<Target> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut child = Command::new(program)
        .args(["bench", "--null", "--listen", "127.0.0.1:0", "--until-stdin-closes"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("the null server cannot be started; start one yourself and give --null-address, or --no-null")?;
    let output = child.stdout.take().context("the null server has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).await?;
    let address = line.trim().rsplit(' ').next().unwrap_or_default();
    let address = address.parse().with_context(|| format!("the null server said '{}'", line.trim()))?;
    Ok(Target {
        side: Side::Null,
        addresses: vec![address],
        pids: child.id().into_iter().collect(),
        _child: Some(child),
    })
}
