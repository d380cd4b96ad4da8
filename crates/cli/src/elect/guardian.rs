//! The guardian: parent of the command, which it ends in time, whatever happens to elect.
//!
//! It has its own process group, so that neither Ctrl-C nor Ctrl-Z at elect's terminal reaches it, and no async
//! runtime: one poll loop over a socket, a timer on the boot clock, and a pidfd of the command.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process_group, pidfd_open, set_child_subreaper, waitid,
};
use tokio::signal::unix::{SignalKind, signal};
use wayleave_core::time::Millis;
use wayleave_elect::{Alarm, BootClock, Clock, Moment};

use super::args::GuardArgs;
use super::protocol::{Order, Report};
use super::strays;

/// How long killed processes may take to die before the guardian reports them as dead all the same.
const DYING: Duration = Duration::from_secs(2);

/// Supervises one run of the command.
///
/// # Errors
/// If the command cannot be started.
pub fn run(args: &GuardArgs) -> anyhow::Result<()> {
    // Orphans of the command are reparented to this process, so that it can find them.
    set_child_subreaper(Some(getpid())).context("cannot become the guardian")?;
    let link = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    link.set_nonblocking(true)?;
    let told = signals()?;
    let mut guardian = Guardian::start(args, link)?;
    bury_orphans(guardian.leader)?;
    guardian.say(Report::Started(guardian.leader.as_raw_nonzero().get()));
    let code = guardian.watch(&told)?;
    guardian.say(Report::Ended(code));
    guardian.linger()
}

struct Guardian {
    leader: Pid,
    ended: OwnedFd,
    link: UnixStream,
    heard: Vec<u8>,
    alarm: Alarm,
    until: Moment,
    stop_ahead: Millis,
    kill_ahead: Millis,
    /// After the command was told to stop: when it will be killed.
    kill_at: Option<Moment>,
}

impl Guardian {
    fn start(args: &GuardArgs, link: UnixStream) -> anyhow::Result<Self> {
        // The running binary, even if its file was replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.args(["elect-exec", "--parent"]).arg(std::process::id().to_string()).arg("--").args(&args.command);
        let child = command.stdin(Stdio::null()).process_group(0).spawn().context("cannot start the command")?;
        // The handle is dropped without a wait: the command stays a zombie and keeps its pid until the guardian ends.
        let leader = Pid::from_child(&child);
        let ended = pidfd_open(leader, PidfdFlags::empty()).context("cannot watch the command")?;
        let until = Moment(args.until);
        let (stop_ahead, kill_ahead) = (Millis(args.stop_ahead), Millis(args.kill_ahead));
        let alarm = Alarm::at(until.before(stop_ahead)).context("cannot set a timer")?;
        Ok(Self { leader, ended, link, heard: Vec::new(), alarm, until, stop_ahead, kill_ahead, kill_at: None })
    }

    /// Waits for the end of the command, and enforces it in time.
    fn watch(&mut self, told: &UnixStream) -> anyhow::Result<u8> {
        let mut link_open = true;
        let mut told_open = true;
        loop {
            let mut ready = [false; 4];
            {
                let nothing = PollFlags::empty();
                let read = |open: bool| if open { PollFlags::IN } else { nothing };
                let mut fds = [
                    PollFd::new(&self.ended, PollFlags::IN),
                    PollFd::new(&self.alarm, PollFlags::IN),
                    PollFd::new(&self.link, read(link_open)),
                    PollFd::new(told, read(told_open)),
                ];
                match poll(&mut fds, None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error).context("cannot wait for the command"),
                }
                for (ready, fd) in ready.iter_mut().zip(&fds) {
                    *ready = !fd.revents().is_empty();
                }
            }
            let [ended, rung, spoken, signalled] = ready;
            if ended {
                return Ok(self.bury());
            }
            if link_open && spoken {
                link_open = self.listen();
                if !link_open {
                    // Elect is dead; the term will not be renewed.
                    self.stop();
                }
            }
            if told_open && signalled {
                told_open = false;
                self.stop();
            }
            if rung || BootClock.now() >= self.next() {
                self.on_time()?;
            }
        }
    }

    /// The next deadline.
    fn next(&self) -> Moment {
        let kill_at = self.until.before(self.kill_ahead);
        self.kill_at.map_or(self.until.before(self.stop_ahead), |at| at.min(kill_at))
    }

    fn on_time(&mut self) -> anyhow::Result<()> {
        let now = BootClock.now();
        if now >= self.until.before(self.stop_ahead) {
            self.stop();
        }
        if self.kill_at.is_some() && now >= self.next() {
            _ = kill_process_group(self.leader, Signal::KILL);
            // Its death is seen through the pidfd; the timer is no longer needed.
            self.alarm.set(now.after(Millis(60_000)))?;
            return Ok(());
        }
        self.alarm.set(self.next()).context("cannot set a timer")
    }

    /// Tells the command to stop; kills it after the grace period, but before the end of the term.
    fn stop(&mut self) {
        if self.kill_at.is_none() {
            _ = kill_process_group(self.leader, Signal::TERM);
            let grace = Millis(self.stop_ahead.0.saturating_sub(self.kill_ahead.0));
            self.kill_at = Some(BootClock.now().after(grace));
            _ = self.alarm.set(self.next());
        }
    }

    /// Reads orders; false once the sender is gone.
    fn listen(&mut self) -> bool {
        let mut bytes = [0; 512];
        let open = match self.link.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.heard.extend_from_slice(bytes.get(..count).unwrap_or_default());
                true
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        while let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            match Order::parse(String::from_utf8_lossy(&line).trim_end()) {
                Some(Order::Until(until)) => {
                    self.until = until;
                    _ = self.alarm.set(self.next());
                }
                Some(Order::Stop) => self.stop(),
                None => {}
            }
        }
        open
    }

    /// The command is dead: ends its remaining descendants, and reports its exit status.
    fn bury(&self) -> u8 {
        _ = kill_process_group(self.leader, Signal::KILL);
        if !strays::end(self.leader, DYING) {
            eprintln!("wayleave: a process started by the command does not die");
        }
        let status = waitid(WaitId::Pid(self.leader), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).ok().flatten();
        let code = status.as_ref().and_then(rustix::process::WaitIdStatus::exit_status);
        let signal = status.as_ref().and_then(rustix::process::WaitIdStatus::terminating_signal);
        let code = code.or(signal.map(|signal| 128 + signal)).unwrap_or(1);
        u8::try_from(code).unwrap_or(1)
    }

    fn say(&self, report: Report) {
        // If elect is gone, there is no reader.
        _ = writeln!(&self.link, "{report}");
    }

    /// Stays until elect has read the report: as long as it does, the command's pid is not reused.
    fn linger(&mut self) -> anyhow::Result<()> {
        loop {
            match poll(&mut [PollFd::new(&self.link, PollFlags::IN)], None) {
                Ok(_) if !self.listen() => return Ok(()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for elect"),
            }
        }
    }
}

/// Reaps orphans of the command while it runs, for as long as it likes. The command itself is not reaped.
fn bury_orphans(leader: Pid) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let mut deaths = signal(SignalKind::child()).context("cannot listen for signals")?;
    drop(entered);
    std::thread::Builder::new().name("orphans".into()).spawn(move || {
        runtime.block_on(async {
            loop {
                strays::bury(Some(leader));
                if deaths.recv().await.is_none() {
                    return;
                }
            }
        });
    })?;
    Ok(())
}

/// Signals that ask the guardian itself to end, as a byte on a socket: a supervisor of elect may send them to the whole
/// group.
fn signals() -> anyhow::Result<UnixStream> {
    let (heard, say) = UnixStream::pair()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let mut signals = Vec::new();
    for kind in kinds {
        signals.push(signal(kind).context("cannot listen for signals")?);
    }
    drop(entered);
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            let waits = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
            futures::future::select_all(waits).await;
        });
        _ = (&say).write_all(b"!");
        // The socket stays open: EOF on it would be a second signal.
        std::mem::forget(say);
        loop {
            std::thread::park();
        }
    })?;
    Ok(heard)
}
