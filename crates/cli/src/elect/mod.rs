//! `elect`: runs a command only while this process is primary of a role.
//!
//! There are three processes: *elect* talks to the server, the *guardian* supervises the command, the *command* works.
//! Elect tells the guardian the end of the term whenever it moves; the guardian ends the command in time even if elect
//! hangs, is stopped or is killed. If the guardian is killed, the kernel kills the command, and elect kills what the
//! command has started. What cannot be killed is not dead: elect keeps the role until it is.

mod args;
mod guardian;
mod pids;
mod protocol;
pub mod strays;
mod supervise;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{getpid, set_child_subreaper};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use wayleave_api::Patch;
use wayleave_api::roles::SetRoleRequest;
use wayleave_elect::{Election, LastLine, Options, Stopper};

pub use args::{Args, GuardArgs};
pub use guardian::run as guard;

use crate::exec;
use crate::exit::{COMMAND_NOT_FOUND, ERROR, Ended, STANDBY, UNAVAILABLE, USAGE};
use crate::remote::Remote;
use crate::serve::{LogForm, start_logging};
use crate::signals::is_meant;
use pids::Pids;
use strays::Survivor;
use supervise::Supervisor;

/// How often children that no command of ours has started are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long tasks may take to end after the election has.
const ENDING: Duration = Duration::from_secs(2);

/// The metadata with which a candidate names itself to people.
pub const NAME: &str = "name";

/// Stands for the role and runs the command while primary. Fails if the server refuses, T is too short, or with
/// `--once` the command exited with a code other than 0.
pub fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    start_logging(LogForm::Text, &args.log_level)?;
    let [program, ..] = args.command.as_slice() else { return Ok(()) };
    if !exec::can_be_found(program) {
        let message = format!("'{program}' was not found or cannot be run; name a program, or give its full path");
        return Err(Ended { code: COMMAND_NOT_FOUND, message }.into());
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
    let runtime = runtime.context("cannot start")?;
    let ended = runtime.block_on(stand(remote, args));
    runtime.shutdown_timeout(ENDING);
    ended
}

async fn stand(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let mut stops = Stops::listen()?;
    tokio::select! {
        set = set_ttl(remote, &args) => set?,
        () = stops.next() => return Ok(()),
    }
    let pids = Arc::new(Pids::default());
    bury_orphans(&pids)?;
    let last = pids.clone();
    // Killing the processes that do the work is enough: without them this process is harmless, and may stand again.
    let last_line = LastLine::Call(Arc::new(move || _ = last.kill()));
    let options = Options { last_line, ..args.options(remote) };
    let supervisor = Arc::new(Supervisor::new(&args, &options, pids.clone()));
    let election = Election::new(remote.client.clone(), args.role.clone(), options);
    let stopper = election.stopper();
    let ended = tokio::select! {
        ended = election.run(move |term| supervisor.clone().run(term)) => ended,
        left = stops.twice(stopper, &pids) => {
            let message = format!(
                "stopped without releasing the role '{}': {}. When the term has ended another candidate becomes primary, even if \
                 it is still running",
                args.role, strays::describe(&left)
            );
            return Err(Ended { code: ERROR, message }.into());
        }
    };
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

async fn set_ttl(remote: &Remote, args: &Args) -> anyhow::Result<()> {
    let Some(ttl_ms) = args.ttl else { return Ok(()) };
    // Checked before it is set: too short a T would keep existing candidates from the role.
    let plan = args.options(remote).plan(Duration::from_millis(ttl_ms));
    plan.map_err(|error| Ended { code: USAGE, message: error.to_string() })?;
    let request = SetRoleRequest { ttl_ms: Patch::Set(ttl_ms), ..SetRoleRequest::default() };
    remote.client.patch_role(&args.role, &request).await.context("cannot set the role's T")?;
    Ok(())
}

/// Orphans of the command are reparented to the guardian, and to this process if the guardian is killed or this is PID
/// 1 of a container. Nothing else would reap them.
fn bury_orphans(pids: &Arc<Pids>) -> anyhow::Result<()> {
    set_child_subreaper(Some(getpid())).context("cannot become the reaper of orphans")?;
    pids.bury();
    let mut deaths = signal(SignalKind::child()).context("cannot listen for signals")?;
    let pids = pids.clone();
    tokio::spawn(async move {
        // No signal tells that an orphan has come.
        while !matches!(tokio::time::timeout(LOOK_EVERY, deaths.recv()).await, Ok(None)) {
            pids.bury();
        }
    });
    Ok(())
}

/// SIGTERM, SIGINT and SIGHUP. One that was ignored when this process started stays ignored: `nohup`, or Ctrl-C for a
/// background job of a script.
pub fn stop_signals() -> impl Iterator<Item = SignalKind> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let is_ignored = move |kind: &SignalKind| ignored.unwrap_or(0) & (1 << (kind.as_raw_value() - 1)) != 0;
    let others = [SignalKind::interrupt(), SignalKind::hangup()].into_iter().filter(move |kind| !is_ignored(kind));
    std::iter::once(SignalKind::terminate()).chain(others)
}

/// The signals that tell this process to stop.
struct Stops(mpsc::Receiver<()>);

impl Stops {
    fn listen() -> anyhow::Result<Self> {
        let (tell, told) = mpsc::channel(1);
        for kind in stop_signals() {
            let (mut signals, tell) = (signal(kind).context("cannot listen for signals")?, tell.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    _ = tell.try_send(());
                }
            });
        }
        Ok(Self(told))
    }

    async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }

    /// The first one stops the command, releases the role and ends this process. If the command cannot be killed, a later
    /// one ends this process as it is; returns what is left of the command.
    async fn twice(mut self, stopper: Stopper, pids: &Pids) -> Vec<Survivor> {
        self.next().await;
        stopper.stop();
        let first = Instant::now();
        loop {
            self.next().await;
            if !is_meant(first, Instant::now()) {
                continue;
            }
            let left = pids.left();
            if !left.is_empty() {
                return left;
            }
        }
    }
}
