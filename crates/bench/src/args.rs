//! The arguments of `wayleave bench`.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::codec::Manner;
use crate::scenario;

/// Benchmark a running frontier, side by side with a peer and with a null server.
///
/// Every scenario runs in short rounds that alternate between the servers, so that background load affects all of them
/// alike. Compare the ratios, not the rates: `null` is the same protocol on the same stack without a store, the upper
/// bound on this machine.
#[derive(Args, Clone, Debug)]
#[command(after_help = scenario::HELP)]
pub struct BenchArgs {
    /// The server to benchmark, on this machine; several nodes of one store separated by commas: clients are spread
    /// over them. By default the one of --server
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub address: Vec<String>,

    /// A second server of the URLFrontier protocol, benchmarked in alternation with the first
    #[arg(long, value_name = "HOST:PORT")]
    pub beside: Option<String>,

    /// A running null server; by default one is started for the run
    #[arg(long, value_name = "HOST:PORT")]
    pub null_address: Option<String>,

    /// Do not compare with a null server
    #[arg(long, conflicts_with = "null_address")]
    pub no_null: bool,

    /// Encode and decode every message, as crawlers with generated code do, instead of sending prepared bytes. The load
    /// generator shares its cores with the server, so prepared bytes make the null server look faster than any crawler
    /// would find it
    #[arg(long)]
    pub ordinary: bool,

    /// Scenarios to run, by name or by prefix; all by default
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = scenario::named)]
    pub scenario: Vec<String>,

    /// Number of hosts of the URLs
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub hosts: u64,

    /// Number of hosts in the many-hosts scenarios
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub many_hosts: u64,

    /// Number of queued URLs before each round that takes some out
    #[arg(long, value_name = "N", default_value_t = 400_000)]
    pub urls: u64,

    /// Percentage of ingested URLs that were sent before
    #[arg(long, value_name = "PERCENT", default_value_t = 23, value_parser = clap::value_parser!(u8).range(0..=99))]
    pub known: u8,

    /// Time per scenario and server, in seconds
    #[arg(long, value_name = "S", default_value_t = 6.0)]
    pub seconds: f64,

    /// Number of rounds into which the time is divided
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,

    /// Numbers of idle callers in the scenario herds
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 100, 10_000],
        value_parser = clap::value_parser!(u64).range(1..=200_000))]
    pub waiters: Vec<u64>,

    /// Seed, to generate the same URLs again; random by default
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// PID of the first server: adds its CPU time and memory to the table, and rounds wait until it is idle; of several
    /// nodes separated by commas
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,

    /// PID of the second server
    #[arg(long, value_name = "PID", requires = "beside")]
    pub beside_pid: Option<u32>,

    /// Print JSON for scripts instead of a table
    #[arg(long)]
    pub json: bool,

    /// Visit a few hosts repeatedly, through all addresses, and report the longest pause of any of them, concurrent
    /// visits and visits too soon: for use while nodes come and go
    #[arg(long, conflicts_with_all = ["beside", "null_address", "scenario"])]
    pub churn: bool,

    /// Serve as a null server instead of benchmarking
    #[arg(long)]
    pub null: bool,

    /// Address of the null server; port 0 takes a free one and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", requires = "null")]
    pub listen: SocketAddr,

    /// Serve as a worker of a pool, which the matches scenarios start
    #[arg(long, hide = true, conflicts_with_all = ["null", "churn"])]
    pub worker: bool,

    /// Ends the null server when its standard input closes, so that it never outlives the run that started it
    #[arg(long, hide = true, requires = "null")]
    pub until_stdin_closes: bool,
}

impl BenchArgs {
    /// How clients treat messages.
    pub(crate) const fn manner(&self) -> Manner {
        if self.ordinary { Manner::Ordinary } else { Manner::Prepared }
    }

    /// Seconds of one round.
    pub(crate) fn round_secs(&self) -> f64 {
        self.seconds.clamp(0.05, 3_600.0) / f64::from(self.rounds)
    }
}

/// The address, if it is on this machine: an unbounded load must not leave it.
pub(crate) async fn loopback(address: &str) -> Result<SocketAddr> {
    let bare = address.trim_start_matches("http://").trim_end_matches('/');
    let found = tokio::net::lookup_host(bare).await.with_context(|| format!("'{address}' is not HOST:PORT"))?;
    let found: Vec<SocketAddr> = found.collect();
    let local = |ip: IpAddr| ip.is_loopback();
    match found.iter().find(|found| local(found.ip())) {
        Some(address) => Ok(*address),
        None => bail!("'{address}' is not on this machine; bench only loads servers on a loopback address"),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: BenchArgs,
    }

    #[test]
    fn the_definition_is_sound_and_has_defaults() {
        Cli::command().debug_assert();
        let args = Cli::try_parse_from(["bench", "--seconds", "9"]).unwrap().args;
        assert_eq!((args.hosts, args.known, args.rounds), (50_000, 23, 3));
        assert!((args.round_secs() - 3.0).abs() < 1e-9);
        assert!(Cli::try_parse_from(["bench", "--known", "100"]).is_err());
        let wrong = Cli::try_parse_from(["bench", "--scenario", "put,nope"]).err().unwrap().to_string();
        assert!(wrong.contains("'nope'") && wrong.contains("put-1"), "{wrong}");
    }

    #[tokio::test]
    async fn only_this_machine_is_loaded() {
        assert!(loopback("127.0.0.1:7071").await.is_ok());
        assert!(loopback("http://[::1]:7071/").await.is_ok());
        assert!(loopback("192.0.2.1:7071").await.unwrap_err().to_string().contains("loopback"));
        assert!(loopback("nonsense").await.is_err());
    }
}
