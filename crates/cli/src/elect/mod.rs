//! `elect`: runs a command only while this process is primary of a role.
//!
//! There are three processes: *elect* talks to the server, the *guardian* supervises the command, the *command* works.
//! Elect tells the guardian the end of the term whenever it moves; the guardian ends the command in time even if elect
//! hangs, is stopped or is killed. If the guardian is killed, the kernel kills the command, and elect kills what the
//! command has started.

mod args;
mod exec;
mod guardian;
mod pids;
mod protocol;
mod strays;
mod supervise;

use std::sync::Arc;

use anyhow::Context;
use rustix::process::{getpid, set_child_subreaper};
use tokio::signal::unix::{SignalKind, signal};
use wayleave_api::Patch;
use wayleave_api::roles::SetRoleRequest;
use wayleave_elect::{Election, LastLine, Options, Stopper};

pub use args::{Args, ExecArgs, GuardArgs};
pub use exec::run as exec;
pub use guardian::run as guard;

use crate::exit::{Ended, STANDBY, UNAVAILABLE, USAGE};
use crate::remote::Remote;
use crate::serve::{LogForm, start_logging};
use pids::Pids;
use supervise::Supervisor;

/// The command was not found.
const NOT_FOUND: u8 = 127;

/// The metadata with which a candidate names itself to people.
pub const NAME: &str = "name";

/// Stands for the role and runs the command while primary.
///
/// # Errors
/// If the server refuses, T is too short, or with `--once` the command exited with a code other than 0.
pub fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    start_logging(LogForm::Text, &args.log_level)?;
    let [program, ..] = args.command.as_slice() else { return Ok(()) };
    if !exec::can_be_found(program) {
        let message = format!("'{program}' was not found or cannot be run; name a program, or give its full path");
        return Err(Ended { code: NOT_FOUND, message }.into());
    }
    if let Some(listen) = args.exposes_itself() {
        let message = format!(
            "--peer {listen} can be reached from other machines and has no TLS; add --insecure if the network is trusted, or \
             listen on 127.0.0.1"
        );
        return Err(Ended { code: USAGE, message }.into());
    }
    // More than one thread: the work must not delay heartbeats.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.context("cannot start")?.block_on(stand(remote, args))
}

async fn stand(remote: &Remote, args: Args) -> anyhow::Result<()> {
    if let Some(ttl_ms) = args.ttl {
        // Checked before it is set: too short a T would keep existing candidates from the role.
        let plan = args.options().plan(std::time::Duration::from_millis(ttl_ms));
        plan.map_err(|error| Ended { code: USAGE, message: error.to_string() })?;
        let request = SetRoleRequest { ttl_ms: Patch::Set(ttl_ms), ..SetRoleRequest::default() };
        remote.client.patch_role(&args.role, &request).await.context("cannot set the role's T")?;
    }
    let pids = Arc::new(Pids::default());
    bury_orphans(&pids)?;
    let last = pids.clone();
    // Killing the processes that do the work is enough: without them this process is harmless, and may stand again.
    let last_line = LastLine::Call(Arc::new(move || last.kill()));
    let options = Options { last_line, ..args.options() };
    let supervisor = Arc::new(Supervisor::new(&args, &options, pids));
    let election = Election::new(remote.client.clone(), args.role.clone(), options);
    stop_on_signals(election.stopper())?;
    let ended = election.run(move |term| supervisor.clone().run(term)).await;
    match ended {
        Ok(None | Some(0)) => Ok(()),
        Ok(Some(code)) => Err(Ended { code, message: String::new() }.into()),
        Err(wayleave_elect::Error::Refused(error)) => Err(error.into()),
        Err(error @ wayleave_elect::Error::TooTight(_)) => {
            Err(Ended { code: USAGE, message: error.to_string() }.into())
        }
        Err(error @ wayleave_elect::Error::Standby { .. }) => {
            Err(Ended { code: STANDBY, message: error.to_string() }.into())
        }
        Err(error @ (wayleave_elect::Error::Unrecorded { .. } | wayleave_elect::Error::NoServer { .. })) => {
            Err(Ended { code: UNAVAILABLE, message: error.to_string() }.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Orphans of the command are reparented to the guardian, and to this process if the guardian is killed or this is PID
/// 1 of a container. Nothing else would reap them.
fn bury_orphans(pids: &Arc<Pids>) -> anyhow::Result<()> {
    set_child_subreaper(Some(getpid())).context("cannot become the reaper of orphans")?;
    let mut deaths = signal(SignalKind::child()).context("cannot listen for signals")?;
    let pids = pids.clone();
    tokio::spawn(async move {
        while deaths.recv().await.is_some() {
            strays::bury(pids.guardian_now());
        }
    });
    Ok(())
}

/// SIGTERM, SIGINT and SIGHUP: stop the command, release the role, exit with 0.
fn stop_on_signals(stopper: Stopper) -> anyhow::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let mut signals = signal(kind).context("cannot listen for signals")?;
        let stopper = stopper.clone();
        tokio::spawn(async move {
            if signals.recv().await.is_some() {
                stopper.stop();
            }
        });
    }
    Ok(())
}
