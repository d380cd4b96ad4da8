//! The process that execs the command: it ties its life to the guardian's first.
//!
//! The child itself must request the kernel's parent-death signal (PR_SET_PDEATHSIG), between fork and exec, which is
//! not possible in safe code. So this is a separate process that requests it and then execs; the setting survives exec.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::NOT_FOUND;
use super::args::ExecArgs;
use crate::exit::Ended;

/// Execs the command; returns only on failure.
///
/// # Errors
/// If the guardian is gone, or the command cannot be run.
pub fn run(args: &ExecArgs) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The guardian may have died before the line above: then no signal comes.
    if getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(args.parent) {
        return Err(Ended { code: 1, message: "the guardian is gone; not starting the command".into() }.into());
    }
    let [program, rest @ ..] = args.command.as_slice() else { return Ok(()) };
    let error = Command::new(program).args(rest).exec();
    Err(Ended { code: NOT_FOUND, message: format!("cannot run '{program}': {error}") }.into())
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
