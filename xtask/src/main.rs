//! The house keeper: `cargo xtask tidy`, `verify` and `fix`.
//!
//! `verify` is what continuous integration runs and never writes; `fix` writes. Nothing here is part of the product.

mod packages;
mod steps;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  tidy     check the rules of the house: arrows, sizes, dead files, lints, words
  verify   everything that must hold before a change goes in; writes nothing
  fix      format, and apply what clippy can repair by itself
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (command, rest) = (args.next(), args.next());
    let result = match (command.as_deref(), rest) {
        (Some("tidy"), None) => tidy::run(&root()),
        (Some("verify"), None) => steps::verify(&root()),
        (Some("fix"), None) => steps::fix(&root()),
        (Some("help" | "--help" | "-h"), None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace: the folder above this crate. Cargo says at run time where the crate lies now.
fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
