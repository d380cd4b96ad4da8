//! The process that becomes a command of `elect` or a worker of a pool: it changes its own settings, then execs.
//!
//! Only the child itself can tie its life to its parent's (PR_SET_PDEATHSIG) or lower its limits before the command reads
//! them, between fork and exec, which is not possible in safe code. So this is a separate process; the settings survive
//! exec.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Resource, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit};

use crate::exit::{COMMAND_NOT_FOUND, Ended};

/// The hidden command that this is.
const WORD: &str = "exec";

/// Arguments of the process that execs a command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// End with this process
    #[arg(long)]
    parent: Option<i32>,
    /// Limit the number of file descriptors to this
    #[arg(long)]
    files: Option<u64>,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// What runs a command that ends with the process `parent`; the command follows.
pub fn tied_to(parent: u32) -> Command {
    // The running binary, even if its file was replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.args([WORD, "--parent", &parent.to_string(), "--"]);
    command
}

/// What runs a command with this soft limit of file descriptors; the command follows.
pub fn with_files(files: u64) -> Vec<String> {
    ["/proc/self/exe", WORD, "--files", &files.to_string(), "--"].map(str::to_owned).into()
}

/// Execs the command; returns only on failure. Fails if the parent is gone, or the command cannot be run.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.parent.is_some() {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have died before the line above: then no signal comes.
        if getppid().map(|parent| parent.as_raw_nonzero().get()) != args.parent {
            return Err(Ended { code: 1, message: "the parent is gone; not starting the command".into() }.into());
        }
    }
    if let Some(files) = args.files {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = Some(limit.maximum.map_or(files, |maximum| files.min(maximum)));
        setrlimit(Resource::Nofile, limit)?;
    }
    let [program, rest @ ..] = args.command.as_slice() else { return Ok(()) };
    let error = Command::new(program).args(rest).exec();
    Err(Ended { code: COMMAND_NOT_FOUND, message: format!("cannot run '{program}': {error}") }.into())
}

/// Whether a program of this name exists, by exec's search rules.
pub fn can_be_found(program: &str) -> bool {
    let runs =
        |path: &Path| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        return runs(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| runs(&folder.join(program)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_the_shell_finds_them() {
        assert!(can_be_found("sh") && can_be_found("/bin/sh"));
        assert!(!can_be_found("no-such-program-here") && !can_be_found("/bin") && !can_be_found("/etc/passwd"));
    }
}
