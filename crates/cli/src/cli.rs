//! The command-line definition, and the dispatch to the commands.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::commands::{
    chunks, crawls, fleet, get, groups, hosts, jobs, map, match_client, matches, nodes, placements, pools, put,
    release, reservations, roles, stats, urls, why,
};
use crate::remote::{Remote, RemoteArgs};
use crate::{check, copy, elect, exec, exit, export, import, seed, serve, snapshot, workers};

/// The control plane of a crawl fleet: which host may be visited now, by whom, and which URLs of it.
#[derive(Debug, Parser)]
#[command(name = "wayleave", version, arg_required_else_help = true, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Start here:
  wayleave demo                         see all of it at work on this machine
  wayleave serve                        run a server on 127.0.0.1:7071, with its data in ./wayleave-data
  wayleave seed urls.txt                add URLs
  wayleave get --release fetched        play a crawler that fetches one of them
  wayleave why example.com              explain what a host waits for

Exit codes: 0 success, 1 error, 2 wrong usage or settings, 3 not found or nothing ready, 4 refused or in conflict,
5 the server cannot be reached or cannot answer, 6 some of the input was rejected and the rest stored,
7 the server's store has failed: restart it; 75 elect --no-wait, and another process is primary.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a server: native API, URLFrontier, health and metrics on one port
    Serve(Box<serve::Args>),
    /// Add URLs from files, sitemaps or standard input
    Seed(seed::Args),
    /// Add a few URLs
    Put(put::Args),
    /// Reserve groups and print their URLs
    Get(get::Args),
    /// End a reservation and report the results of its URLs
    Release(release::ReleaseArgs),
    /// Extend a reservation
    Renew(release::RenewArgs),
    /// Hosts: list, show, set
    Hosts(hosts::Args),
    /// Groups of hosts that are visited as one: list, show, set, delete
    Groups(groups::Args),
    /// Crawls: list, show, set, delete, purge
    Crawls(crawls::Args),
    /// URLs: list, look up, requeue, delete
    Urls(urls::Args),
    /// Jobs over many URLs: list, show, cancel
    Jobs(jobs::Args),
    /// Current reservations: list, revoke
    Reservations(reservations::Args),
    /// Chunks of links on their way from crawl to build: list, show, retry, skip, claim
    Chunks(chunks::Args),
    /// Machines of the fleet, and which of them are well: list, show, set, remove
    Fleet(fleet::Args),
    /// List the copies of built chunks on index servers
    Placements(placements::Args),
    /// Show where readers find each built chunk
    Map(map::Args),
    /// Pools of workers that are started when clients need them: list, show, set, remove, workers, logs
    Pools(pools::Args),
    /// Clients that have a worker or wait for one: list, show, cancel
    Matches(matches::Args),
    /// Ask for a worker of a pool, and print its address
    Match(match_client::Args),
    /// Roles: primary and standbys; list, show, set, step-down, release, delete
    Roles(roles::Args),
    /// List the nodes that share the store, and what they own
    Nodes,
    /// Run a command only while primary of a role: on one of many machines, restarted elsewhere when it dies
    Elect(Box<elect::Args>),
    /// The supervisor of a command that `elect` runs
    #[command(hide = true)]
    ElectGuard(elect::GuardArgs),
    /// Execs a command of `elect`, or a worker of a pool
    #[command(hide = true)]
    Exec(exec::Args),
    /// Crawl: fetch what the server hands out, obey robots.txt, follow links, and store the pages as WARC files
    Crawl(Box<workers::crawl::Args>),
    /// Build an index of each crawled chunk
    Build(Box<workers::build::Args>),
    /// Hold index chunks, and answer searches in them
    Index(Box<workers::index::Args>),
    /// See it all at work on this machine: a small web, a server, crawlers, index servers, a search
    Demo(workers::demo::Args),
    /// Search all built chunks
    Search(workers::search::Args),
    /// Explain what a host, a group, a client of a pool, or a pool waits for
    Why(why::Args),
    /// Totals
    Stats,
    /// Copy the store of a running server to a file, as of one moment
    Snapshot(snapshot::SnapshotArgs),
    /// Create a new store from a snapshot: a data folder, or the tables of a database
    Restore(snapshot::RestoreArgs),
    /// Copy a store that no server uses into a new one: from a data folder to a database, or any other way
    Copy(copy::CopyArgs),
    /// Check every file of a data folder against its checksums, without changing anything
    Check(check::Args),
    /// Save all that is readable of a damaged data folder into a new one, and list what is not
    Salvage(copy::SalvageArgs),
    /// Write all data to a file
    Export(export::Args),
    /// Read an export, or a dump of URLFrontier
    Import(import::Args),
    /// Benchmark a server, and another for comparison, relative to a null server in the same run
    Bench(Box<wayleave_bench::BenchArgs>),
}

/// Parses the arguments, runs the command and reports its result.
pub fn main() -> ExitCode {
    let Cli { remote, command } = Cli::parse();
    match run(&remote, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}

fn run(remote: &RemoteArgs, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(args) => serve::run(*args),
        Command::Bench(args) => bench(remote, *args),
        Command::Elect(args) => elect::run(&Remote::new(remote)?, *args),
        Command::ElectGuard(args) => elect::guard(&args),
        Command::Exec(args) => exec::run(&args),
        Command::Restore(args) => snapshot::restore(remote.json, &args),
        Command::Copy(args) => copy::copy(remote.json, &args),
        Command::Check(args) => check::run(remote.json, &args),
        Command::Salvage(args) => copy::salvage(remote.json, &args),
        Command::Crawl(args) => workers::run(remote, |remote| workers::crawl::run(remote, *args)),
        Command::Build(args) => workers::run(remote, |remote| workers::build::run(remote, *args)),
        Command::Index(args) => workers::run(remote, |remote| workers::index::run(remote, *args)),
        Command::Demo(args) => workers::run(remote, |remote| workers::demo::run(remote.json, args)),
        command => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.context("cannot start")?.block_on(ask(&Remote::new(remote)?.told(), command))
        }
    }
}

fn bench(remote: &RemoteArgs, mut args: wayleave_bench::BenchArgs) -> anyhow::Result<()> {
    if args.address.is_empty() {
        args.address = remote.server.split(',').map(str::to_owned).collect();
    }
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(wayleave_bench::run(args))
}

async fn ask(remote: &Remote, command: Command) -> anyhow::Result<()> {
    match command {
        // These need threads of their own, or none, and were handled before.
        Command::Serve(_) | Command::Bench(_) => Ok(()),
        Command::Restore(_) | Command::Copy(_) | Command::Check(_) | Command::Salvage(_) => Ok(()),
        Command::Elect(_) | Command::ElectGuard(_) | Command::Exec(_) => Ok(()),
        Command::Crawl(_) | Command::Build(_) | Command::Index(_) | Command::Demo(_) => Ok(()),
        Command::Seed(args) => seed::run(remote, args).await,
        Command::Put(args) => put::run(remote, args).await,
        Command::Get(args) => get::run(remote, args).await,
        Command::Release(args) => release::release(remote, args).await,
        Command::Renew(args) => release::renew(remote, args).await,
        Command::Hosts(args) => hosts::run(remote, args).await,
        Command::Groups(args) => groups::run(remote, args).await,
        Command::Crawls(args) => crawls::run(remote, args).await,
        Command::Urls(args) => urls::run(remote, args).await,
        Command::Jobs(args) => jobs::run(remote, args).await,
        Command::Reservations(args) => reservations::run(remote, args).await,
        Command::Chunks(args) => chunks::run(remote, args).await,
        Command::Fleet(args) => fleet::run(remote, args).await,
        Command::Placements(args) => placements::run(remote, args).await,
        Command::Map(args) => map::run(remote, args).await,
        Command::Pools(args) => pools::run(remote, args).await,
        Command::Matches(args) => matches::run(remote, args).await,
        Command::Match(args) => match_client::run(remote, args).await,
        Command::Roles(args) => roles::run(remote, args).await,
        Command::Nodes => nodes::run(remote).await,
        Command::Search(args) => workers::search::run(remote, args).await,
        Command::Why(args) => why::run(remote, args).await,
        Command::Stats => stats::run(remote).await,
        Command::Snapshot(args) => snapshot::take(remote, args).await,
        Command::Export(args) => export::run(remote, args).await,
        Command::Import(args) => import::run(remote, args).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_are_taken_before_and_after_the_command() {
        for line in [
            "wayleave --json stats",
            "wayleave stats --json",
            "wayleave hosts list --json --server http://a",
            "wayleave hosts --json list",
            "wayleave roles --json show indexer",
            "wayleave chunks --json show 1",
            "wayleave fleet --json show index-1",
            "wayleave placements --json --row 1",
            "wayleave pools --json show p",
            "wayleave matches --json --pool p",
            "wayleave match c --pool p --json",
            "wayleave --json crawls",
            "wayleave urls --json --host a",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert!(cli.remote.json, "{line}");
        }
    }
}
