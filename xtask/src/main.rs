//! Development tasks: `cargo xtask tidy`, `check`, `verify`, `prove`, `fix` and `fixtures`.
//!
//! `verify` is what continuous integration runs and never writes; `check` is its quick part; `prove` runs what takes longer; `fix`
//! and `fixtures` write. Nothing here is part of the product.

mod jobs;
mod leftovers;
mod packages;
mod prove;
mod steps;
mod suite;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  tidy     check the project's rules: dependencies, sizes, dead files, lints, words
  check    format, tidy, clippy and the tests that take seconds: while working
  verify   everything that must hold before a change goes in; writes nothing
           (`--without docker` leaves out the tests that need a Docker engine, where none can be started)
  fix      format, and apply clippy's automatic fixes
  fixtures make the fixtures of the storage format anew, after a change of a layout
  prove    the long tests, all or those named after it:
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["tidy"] => tidy::run(&root()),
        ["check"] => steps::check(&root()),
        ["verify"] => steps::verify(&root(), true),
        ["verify", "--without", "docker"] => steps::verify(&root(), false),
        ["fix"] => steps::fix(&root()),
        ["fixtures"] => steps::fixtures(&root()),
        [leftovers::WORD, ..] => {
            return match leftovers::run(args.get(1..).unwrap_or_default()) {
                Ok(code) => ExitCode::from(code),
                Err(error) => failed(&error),
            };
        }
        ["prove", ..] => prove::run(&root(), args.get(1..).unwrap_or_default()),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}{}", prove::listing());
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}{}", prove::listing());
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("{error:#}");
    ExitCode::FAILURE
}

/// The workspace: the parent folder of this crate. Cargo provides the path at run time.
fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
