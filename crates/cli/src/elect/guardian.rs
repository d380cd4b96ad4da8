//! The guardian: parent of the command, which it ends in time, whatever happens to elect.
//!
//! It has its own process group, so that neither Ctrl-C nor Ctrl-Z at elect's terminal reaches it, and no async
//! runtime: one poll loop over a socket, a timer on the boot clock, and a pidfd of the command.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpgid, getpid, kill_process, kill_process_group, pidfd_open,
    set_child_subreaper, waitid,
};
use rustix::time::Timespec;
use tokio::signal::unix::{SignalKind, signal};
use wayleave_core::time::Millis;
use wayleave_elect::{Alarm, BootClock, Clock, Moment};

use super::args::GuardArgs;
use super::protocol::{Order, Report};
use super::strays::{self, Survivor};
use crate::exec;

/// How long killed processes may take to die before stderr says so.
const DYING: Millis = Millis(2_000);
/// A supervisor that ends a whole control group signals the command as well, perhaps first: after a command that exited
/// by itself the guardian waits this long for such a signal.
const SETTLE: Millis = Millis(100);
/// The pause between two looks at what a dead command has left, and at what was killed.
const LOOK_AGAIN: Millis = Millis(10);
/// The same, of processes that have not died in time.
const LOOK_SELDOM: Millis = Millis(200);

/// Supervises one run of the command.
pub fn run(args: &GuardArgs) -> anyhow::Result<()> {
    // Orphans of the command are reparented to this process, so that it can find them.
    set_child_subreaper(Some(getpid())).context("cannot become the guardian")?;
    let link = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    link.set_nonblocking(true)?;
    let told = signals()?;
    let mut guardian = Guardian::start(args, link)?;
    bury_orphans(guardian.leader)?;
    guardian.say(Report::Started(guardian.leader.as_raw_nonzero().get()));
    guardian.watch(&told)?;
    let stopped = guardian.wind_down(&told)?;
    let code = guardian.code();
    guardian.say(if stopped { Report::Stopped(code) } else { Report::Ended(code) });
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
    /// Once the command was told to stop: when it is killed.
    kill_at: Option<Moment>,
    /// When it was killed for the first time, and whether stderr has said that something has not died.
    killed_at: Option<Moment>,
    told_of_survivors: bool,
    link_open: bool,
    told_open: bool,
}

impl Guardian {
    fn start(args: &GuardArgs, link: UnixStream) -> anyhow::Result<Self> {
        let mut command = exec::tied_to(std::process::id());
        let child = command
            .args(&args.command)
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start the command")?;
        // The handle is dropped without a wait: the command stays a zombie and keeps its pid until the guardian ends.
        let leader = Pid::from_child(&child);
        let ended = pidfd_open(leader, PidfdFlags::empty()).context("cannot watch the command")?;
        let until = Moment(args.until);
        let (stop_ahead, kill_ahead) = (Millis(args.stop_ahead), Millis(args.kill_ahead));
        let alarm = Alarm::at(until.before(stop_ahead)).context("cannot set a timer")?;
        Ok(Self {
            leader,
            ended,
            link,
            heard: Vec::new(),
            alarm,
            until,
            stop_ahead,
            kill_ahead,
            kill_at: None,
            killed_at: None,
            told_of_survivors: false,
            link_open: true,
            told_open: true,
        })
    }

    /// Waits for the end of the command, and enforces it in time.
    fn watch(&mut self, told: &UnixStream) -> anyhow::Result<()> {
        while !self.wait(told, None)? {}
        Ok(())
    }

    /// The command is dead. What it has started gets the rest of the grace period, and then is killed. Returns when all
    /// are dead: whether the command had been told to stop.
    fn wind_down(&mut self, told: &UnixStream) -> anyhow::Result<bool> {
        let settled_at = BootClock.now().after(SETTLE);
        let mut asked: HashSet<Pid> = HashSet::new();
        let mut stopped = self.kill_at.is_some();
        loop {
            let left = strays::living(&|child| child == self.leader);
            let settled = stopped || BootClock.now() >= settled_at;
            if left.is_empty() && settled {
                return Ok(stopped);
            }
            if settled && !left.is_empty() {
                self.stop();
            }
            // What had left the group did not get the signal that the group got.
            for stray in left.iter().filter(|stray| getpgid(Some(**stray)).ok() != Some(self.leader)) {
                if self.kill_at.is_some() && asked.insert(*stray) {
                    _ = kill_process(*stray, Signal::TERM);
                }
            }
            self.wait(told, Some(self.pause()))?;
            stopped |= !settled && self.kill_at.is_some();
        }
    }

    /// Waits for something to happen, at most this long, and reacts to it. True if the command is dead.
    fn wait(&mut self, told: &UnixStream, at_most: Option<Millis>) -> anyhow::Result<bool> {
        // A command that is known to be dead stays ready, and a closed socket too, whatever is asked of it.
        let open = [at_most.is_none(), true, self.link_open, self.told_open];
        let mut ready = [false; 4];
        {
            let all = [self.ended.as_fd(), self.alarm.as_fd(), self.link.as_fd(), told.as_fd()];
            let listened = all.iter().zip(open).filter(|(_, open)| *open);
            let mut fds: Vec<PollFd<'_>> = listened.map(|(fd, _)| PollFd::new(fd, PollFlags::IN)).collect();
            let timeout =
                at_most.map(|span| Timespec { tv_sec: 0, tv_nsec: i64::try_from(span.0).unwrap_or(0) * 1_000_000 });
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for the command"),
            }
            for ((ready, _), fd) in ready.iter_mut().zip(open).filter(|(_, open)| *open).zip(&fds) {
                *ready = !fd.revents().is_empty();
            }
        }
        let [ended, rung, spoken, signalled] = ready;
        if self.link_open && spoken {
            self.link_open = self.listen();
            if !self.link_open {
                // Elect is dead; the term will not be renewed.
                self.stop();
            }
        }
        if self.told_open && signalled {
            self.told_open = false;
            self.stop();
        }
        if rung || BootClock.now() >= self.next() {
            self.on_time()?;
        }
        Ok(ended)
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
            self.kill(now);
            self.alarm.set(now.after(self.pause())).context("cannot set a timer")?;
            return Ok(());
        }
        self.alarm.set(self.next()).context("cannot set a timer")
    }

    const fn pause(&self) -> Millis {
        if self.told_of_survivors { LOOK_SELDOM } else { LOOK_AGAIN }
    }

    /// Kills the command, what is left of its group, and what it has left behind; repeated until all are dead.
    fn kill(&mut self, now: Moment) {
        _ = kill_process_group(self.leader, Signal::KILL);
        // Nobody is kept: killing a zombie does nothing, and does not reap it.
        let living = strays::living(&|_| false);
        let refused: Vec<_> = living.iter().map(|pid| kill_process(*pid, Signal::KILL).err()).collect();
        let killed_at = *self.killed_at.get_or_insert(now);
        if !self.told_of_survivors && now.since(killed_at) >= DYING {
            let left: Vec<Survivor> = living.iter().zip(refused).map(|(pid, why)| Survivor::of(*pid, why)).collect();
            eprintln!("wayleave: the command has not stopped: {}", strays::describe(&left));
            self.told_of_survivors = true;
        }
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

    /// The exit status of the dead command.
    fn code(&self) -> u8 {
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
                strays::bury(&|child| child == leader);
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
    let mut signals = Vec::new();
    for kind in super::stop_signals() {
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
