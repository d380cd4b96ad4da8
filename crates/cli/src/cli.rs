//! The one tree of arguments, and the dispatch to the commands.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{exit, serve};

/// The control plane of a crawl fleet: which host may be visited now, by whom, and which URLs of it.
#[derive(Debug, Parser)]
#[command(name = "wayleave", version, arg_required_else_help = true, after_help = AFTER_HELP)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Start here:
  wayleave serve                                  run a server in this folder
  curl -s http://127.0.0.1:7071/docs              all calls, readable

Exit codes: 0 done, 1 error, 2 wrong usage or settings, 3 not found, 4 refused or in conflict, 5 cannot be reached.";

/// What the binary can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a server: native API, URLFrontier, health and metrics on one port.
    Serve(serve::Args),
}

/// Reads the arguments, does what they say and tells how it went.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Serve(args) => serve::run(args),
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
}
