//! Starts a worker's process: program and arguments as they are, never through a shell.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use wayleave_core::matches::Make;

use super::ending;
use super::record::Process;
use super::system::{MARK, Stat};
use crate::runtime::Failure;

/// What a worker inherits of the server's environment: no more, because that may hold the server's secrets.
const INHERITED: &[&str] = &["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// What a worker gets besides its recipe.
#[derive(Debug)]
pub struct RunEnvironment<'a> {
    /// Where to listen.
    pub host: IpAddr,
    /// On which port.
    pub port: u16,
    /// The mark of its run.
    pub mark: &'a str,
}

/// Starts it, as the leader of a process group of its own: what it starts ends with it, and an interrupt of the server's
/// terminal does not reach it.
///
/// The program of `launcher`, if there is one, is started with the command behind its own arguments, and becomes it.
pub fn spawn(
    make: &Make,
    environment: &RunEnvironment<'_>,
    launcher: &[String],
    output: File,
) -> Result<Process, Failure> {
    let Some(program) = make.recipe.command.first() else {
        return Err(Failure::new("the pool has no command: give the program and its arguments"));
    };
    if !launcher.is_empty() {
        // A launcher that cannot become the command would only say so in the worker's log.
        let path = make.recipe.env.get("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH"));
        find(program, path.as_deref()).map_err(|error| refusal(program, &error))?;
    }
    let command_line: Vec<&String> = launcher.iter().chain(&make.recipe.command).collect();
    let Some((first, arguments)) = command_line.split_first() else { return Err(Failure::new("there is no command")) };
    let port = environment.port.to_string();
    let errors = output.try_clone().map_err(|error| Failure::new(format!("its log cannot be opened: {error}")))?;
    let mut command = Command::new(first);
    command
        .args(arguments.iter().map(|argument| argument.replace("{port}", &port)))
        .env_clear()
        .envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
        .envs(&make.recipe.env)
        .envs([("HOST", environment.host.to_string().as_str()), ("PORT", &port), ("WAYLEAVE_WORKER", &make.name)])
        .envs([("WAYLEAVE_RUN", make.run.to_string()), ("WAYLEAVE_SECRET", make.secret.0.to_string())])
        .env(MARK, environment.mark)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(0);
    let mut child = command.spawn().map_err(|error| refusal(program, &error))?;
    let pid = i32::try_from(child.id()).map_err(|_| Failure::new("the system gave a strange process id"))?;
    // Even if it has ended by now it is listed, until this process asks how it ended.
    let why = match Stat::of(pid) {
        Ok(Some(stat)) => return Ok(Process { pid, started: stat.started, session: Some(stat.session) }),
        Ok(None) => "/proc does not list it: is it mounted?".to_owned(),
        Err(error) => format!("/proc cannot be read: {error}"),
    };
    // Without its start time it would not be found again.
    ending::signal_group(Process { pid, started: 0, session: None }, Signal::KILL);
    _ = child.wait();
    Err(Failure::new(format!("the new process was ended again, because {why}")))
}

/// Looks for a program by exec's rules.
fn find(program: &str, path: Option<&OsStr>) -> io::Result<()> {
    let look = |path: &Path| match path.metadata() {
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => Ok(()),
        Ok(_) => Err(io::ErrorKind::PermissionDenied.into()),
        Err(error) => Err(error),
    };
    if program.contains('/') {
        return look(Path::new(program));
    }
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    for folder in std::env::split_paths(path.unwrap_or_default()) {
        match look(&folder.join(program)) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => outcome = Err(error),
            Err(_) => {}
        }
    }
    outcome
}

fn refusal(program: &str, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "does not exist: correct `command`, or install it on this machine".to_owned(),
        io::ErrorKind::PermissionDenied => "may not be executed: make it executable".to_owned(),
        _ => format!("cannot be started: {error}"),
    };
    Failure::new(format!("command '{program}' {remedy}"))
}
