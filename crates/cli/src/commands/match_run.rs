//! `match … -- command`: runs a command while its client has a worker, and gives the worker back afterwards.
//!
//! The match is confirmed several times per reservation time. If it is gone, or no server has confirmed it for most of that
//! time, the worker may soon be another client's: the command is stopped. A signal that ends this process is passed on.
//!
//! What the command has started ends with it, also what has left its group or was orphaned: orphans become children of this
//! process, as of the guardian of `elect`. If this process is killed, the command is killed with it.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use wayleave_api::matches::{DeleteMatchQuery, GetMatchQuery, Match, MatchState};
use wayleave_client::Client;

use super::match_client::may_pass;
use crate::elect::stop_signals;
use crate::elect::strays::{self, Survivor};
use crate::exec;
use crate::exit::{ERROR, Ended, REFUSED};

/// How often a match is confirmed per reservation time.
const CONFIRMS: u32 = 5;
/// How long the command and what it has started may take to end after TERM, before they are killed.
const GRACE: Duration = Duration::from_secs(5);
/// How long killed processes may take to die.
const DYING: Duration = Duration::from_secs(2);
/// The pause between two looks at what is ending.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Runs the command with the worker's address in its environment. Returns when it has ended. Fails if the command
/// fails, with its exit code; if it cannot be run; or if the match ended before the command.
pub async fn run(client: &Client, found: &Match, command: &[String]) -> anyhow::Result<()> {
    let mut left = Vec::new();
    let ended = hold_and_run(client, found, command, &mut left).await;
    if !left.is_empty() {
        let message = format!(
            "the command has not stopped, so its worker is not given back; it is free when the reservation time is over: {}",
            strays::describe(&left)
        );
        return Err(Ended { code: ERROR, message }.into());
    }
    let query = DeleteMatchQuery { pool: found.pool.clone(), token: found.token.clone() };
    // Bounded: signals do not end this process any more.
    let why = match timeout(GRACE, client.delete_match(&found.client, &query)).await {
        Ok(Err(error)) if error.problem().is_none_or(|problem| !matches!(problem.status, 404 | 409)) => {
            error.to_string()
        }
        Ok(_) => return ended,
        Err(_) => "the server has not answered".to_owned(),
    };
    eprintln!("the worker could not be given back ({why}); it is free when the reservation time is over");
    ended
}

/// What could not be ended of the command is `left`.
async fn hold_and_run(
    client: &Client,
    found: &Match,
    command: &[String],
    left: &mut Vec<Survivor>,
) -> anyhow::Result<()> {
    let reservation = Duration::from_millis(client.pool(&found.pool).await?.reservation_ms);
    let mut listening = Listening::start()?;
    let before = strays::children();
    if before.is_empty() {
        // Orphans of other children would come here too, and none says whose it was.
        set_child_subreaper(Some(getpid())).context("cannot become the reaper of orphans")?;
    }
    let mut child = spawn(found, command)?;
    let leader = pid_of(&child);
    let kept = |pid: Pid| Some(pid) == leader || before.contains(&pid);
    let status = tokio::select! {
        status = child.wait() => {
            *left = stop(&mut child, &kept).await;
            status
        }
        why = hold(client, found, reservation, &kept) => {
            *left = stop(&mut child, &kept).await;
            let message = format!("the command was stopped, because its worker may be another client's: {why}");
            return Err(Ended { code: REFUSED, message }.into());
        }
        () = listening.told_to_end() => {
            *left = stop(&mut child, &kept).await;
            if !left.is_empty() {
                return Ok(());
            }
            child.wait().await
        }
    };
    match code_of(status.context("cannot wait for the command")?) {
        0 => Ok(()),
        code => Err(Ended { code, message: String::new() }.into()),
    }
}

fn spawn(found: &Match, command: &[String]) -> anyhow::Result<Child> {
    // It ends with this thread, the main one: after a KILL of this process nobody would confirm the match.
    let spawned = Command::from(exec::tied_to(std::process::id()))
        .args(command)
        .env("WAYLEAVE_ADDRESS", found.address.as_deref().unwrap_or_default())
        .env("WAYLEAVE_TOKEN", found.token.as_deref().unwrap_or_default())
        .kill_on_drop(true)
        .spawn();
    spawned.context("cannot start the command")
}

fn pid_of(child: &Child) -> Option<Pid> {
    child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw)
}

/// Confirms the match until it is gone or may be; returns why.
async fn hold(client: &Client, found: &Match, reservation: Duration, kept: &impl Fn(Pid) -> bool) -> String {
    let (pause, query) = (reservation / CONFIRMS, GetMatchQuery { pool: found.pool.clone(), ..Default::default() });
    let mut confirmed = Instant::now();
    loop {
        let until = confirmed + (reservation - pause);
        sleep_until(until.min(Instant::now() + pause)).await;
        strays::bury(kept);
        // The server counts from a later moment.
        let begun = Instant::now();
        match timeout_at(until.min(begun + pause), client.get_match(&found.client, &query)).await {
            Ok(Ok(now)) if now.state == MatchState::Matched && now.token == found.token => confirmed = begun,
            Ok(Ok(now)) => return now.reason,
            Ok(Err(error)) if !may_pass(&error) => return error.to_string(),
            Ok(Err(_)) | Err(_) => {}
        }
        if confirmed.elapsed() >= reservation - pause {
            return "no server has confirmed the match in time".to_owned();
        }
    }
}

/// TERM, then KILL, for the command and all that it has started. TERM comes once: what starts after it cleans up. Returns what
/// is left: what runs as another user, as under sudo, cannot be killed.
async fn stop(child: &mut Child, kept: &impl Fn(Pid) -> bool) -> Vec<Survivor> {
    let begun = Instant::now();
    // Nothing of it is reaped yet, so the ids are its own.
    for pid in pid_of(child).into_iter().chain(strays::living(kept)).flat_map(strays::family) {
        _ = kill_process(pid, Signal::TERM);
    }
    while begun.elapsed() < GRACE {
        strays::bury(kept);
        if !matches!(child.try_wait(), Ok(None)) && strays::living(kept).is_empty() {
            return Vec::new();
        }
        sleep(LOOK_AGAIN).await;
    }
    // None once it has ended.
    let leader = pid_of(child);
    let refused = leader.and_then(|pid| kill_process(pid, Signal::KILL).err());
    let ended = timeout(DYING, child.wait()).await;
    let leader = leader.filter(|_| ended.is_err()).map(|pid| Survivor::of(pid, refused));
    leader.into_iter().chain(strays::end(kept, DYING)).collect()
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// The signals that end this process, by their kind.
struct Listening(mpsc::Receiver<SignalKind>);

impl Listening {
    fn start() -> anyhow::Result<Self> {
        let (tell, told) = mpsc::channel(1);
        for kind in stop_signals() {
            let (mut signals, tell) = (signal(kind).context("cannot listen for signals")?, tell.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    _ = tell.send(kind).await;
                }
            });
        }
        Ok(Self(told))
    }

    /// The first interrupt reaches the command too, from the terminal: it may end by itself.
    async fn told_to_end(&mut self) {
        let mut interrupts = 0;
        while let Some(kind) = self.0.recv().await {
            interrupts += u32::from(kind == SignalKind::interrupt());
            if kind != SignalKind::interrupt() || interrupts > 1 {
                return;
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_the_commands_also_of_one_that_a_signal_ended() {
        let raw = [0, 3 << 8, 15, 9].map(ExitStatus::from_raw);
        assert_eq!(raw.map(code_of), [0, 3, 143, 137]);
    }
}
