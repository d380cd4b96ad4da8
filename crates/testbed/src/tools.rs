//! The PostgreSQL programs of this machine, and the user that they run as.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where Debian's packages install the programs, one folder per major version.
const PACKAGES: &str = "/usr/lib/postgresql";
/// PostgreSQL refuses to run as root; Debian's package creates this user for it.
const USER: &str = "postgres";

/// The folder with the programs of the newest version. Panics if there is none.
pub(crate) fn programs() -> PathBuf {
    let versions = std::fs::read_dir(PACKAGES).into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").exists())
        .max();
    newest
        .map(|(_, bin)| bin)
        .unwrap_or_else(|| panic!("PostgreSQL is missing from {PACKAGES}: `cargo xtask verify` installs it"))
}

/// A PostgreSQL program, run with `prefix` (such as `ip netns exec NAME`) and never as root.
pub(crate) fn command(prefix: &[String], program: &Path) -> Command {
    let mut words: Vec<&OsStr> = prefix.iter().map(OsStr::new).collect();
    let (user, group) = (format!("--reuid={USER}"), format!("--regid={USER}"));
    if is_root() {
        words.extend(["setpriv", &user, &group, "--clear-groups"].map(OsStr::new));
    }
    words.push(program.as_os_str());
    let (first, rest) = words.split_first().expect("the program itself is there");
    let mut command = Command::new(first);
    // Its own process group: the test handles a Ctrl-C at the terminal. The user may lack access to the test's working
    // directory.
    command.args(rest).current_dir("/").stdin(Stdio::null()).process_group(0);
    command
}

/// Changes the owner of a folder to the server's user.
pub(crate) fn give(folder: &Path) {
    if !is_root() {
        return;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = users.lines().find(|line| line.split(':').next() == Some(USER));
    let line = line.unwrap_or_else(|| panic!("there is no user {USER}: `cargo xtask verify` installs the package"));
    let number = |field: usize| line.split(':').nth(field).and_then(|text| text.parse().ok());
    std::os::unix::fs::chown(folder, number(2), number(3)).unwrap();
}

/// Runs a program to its end and returns its output. Panics if it fails.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed ({}): {error}", output.status);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
