//! The command line: one binary whose subcommands start a server or talk to one.
//!
//! Data goes to stdout, everything else to stderr, and exit codes are made for scripts. Apart from `serve`, which
//! starts the server, and `copier`, which copies stores that no server uses, this crate must not know how anything is decided
//! or stored: it uses the API like any other client.

/// Replaces the standard macro in this crate: text of others must not steer the terminal.
macro_rules! eprintln {
    ($($text:tt)*) => {
        $crate::output::note(format_args!($($text)*))
    };
}

mod check;
pub mod cli;
mod commands;
mod copier;
mod copy;
mod elect;
mod exec;
mod exit;
mod export;
mod import;
mod input;
mod left_out;
mod limits;
mod output;
mod patience;
mod record;
mod remote;
mod seed;
pub mod serve;
mod signals;
mod snapshot;
mod toml_file;
mod unpacked;
mod values;
mod whole_file;
mod workers;

pub use cli::{Cli, main};
