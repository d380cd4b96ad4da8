//! Speaks with people: one binary whose subcommands start a server or talk to one.
//!
//! In: arguments, files and standard input. Out: data on stdout, everything else on stderr, an exit code that scripts can
//! use. Apart from `serve`, which starts the other rooms, this crate must not know how anything is decided or kept: it
//! speaks to a server like anybody else.

pub mod cli;
mod commands;
mod elect;
mod exit;
mod export;
mod import;
mod input;
mod left_out;
mod output;
mod patience;
mod record;
mod remote;
mod seed;
pub mod serve;
mod snapshot;
mod unpacked;
mod values;
mod whole_file;

pub use cli::{Cli, main};
