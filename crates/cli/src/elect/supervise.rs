//! The guarded work of elect: one guardian per term, which is told the end of the term and asked to stop.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use wayleave_elect::{Hold, Options, Term};

use super::args::Args;
use super::pids::Pids;
use super::protocol::{Order, Report};
use super::strays::{self, Survivor};

/// The first and the longest pause after a command that exited by itself.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A command that ran this long does not fail at startup: the back-off is reset.
const RAN_WELL: Duration = Duration::from_secs(60);
/// How often survivors of the command are looked at, and how often the log repeats that there are some.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// How long the guardian may take to report why it ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Runs the command, once per term.
#[derive(Debug)]
pub struct Supervisor {
    role: String,
    command: Vec<String>,
    once: bool,
    slot: Option<String>,
    stop_ahead: Duration,
    kill_ahead: Duration,
    pids: Arc<Pids>,
    /// The number of consecutive runs that ended soon after their start.
    short_runs: AtomicU32,
}

impl Supervisor {
    /// For the command of these arguments.
    pub fn new(args: &Args, options: &Options, pids: Arc<Pids>) -> Self {
        let kill_ahead = options.reserve();
        Self {
            role: args.role.clone(),
            command: args.command.clone(),
            once: args.once,
            slot: args.slot.clone(),
            stop_ahead: options.grace + kill_ahead,
            kill_ahead,
            pids,
            short_runs: AtomicU32::new(0),
        }
    }

    /// Runs the command in a term. When this returns or is dropped, the command is dead, or its term is held.
    pub async fn run(self: Arc<Self>, term: Term) -> ControlFlow<u8, Duration> {
        let begun = Instant::now();
        match self.watch(&term).await {
            Ok(Exit { code, asked: false }) => {
                if code == 0 {
                    term.mark_slot_run();
                }
                self.ended_by_itself(code, begun.elapsed())
            }
            Ok(Exit { code, asked: true }) => {
                tracing::info!(role = self.role, epoch = term.epoch(), code, "the command has stopped");
                ControlFlow::Continue(Duration::ZERO)
            }
            Err(error) => {
                tracing::error!(role = self.role, epoch = term.epoch(), "{error:#}");
                ControlFlow::Continue(self.pause())
            }
        }
    }

    fn ended_by_itself(&self, code: u8, ran: Duration) -> ControlFlow<u8, Duration> {
        if self.once {
            return ControlFlow::Break(code);
        }
        if ran >= RAN_WELL {
            self.short_runs.store(0, Ordering::Relaxed);
        }
        let pause = self.pause();
        tracing::warn!(role = self.role, code, pause.ms = pause.as_millis(), "the command exited by itself");
        ControlFlow::Continue(pause)
    }

    fn pause(&self) -> Duration {
        let before = self.short_runs.fetch_add(1, Ordering::Relaxed);
        PAUSE_MIN.saturating_mul(1 << before.min(16)).min(PAUSE_MAX)
    }

    async fn watch(self: &Arc<Self>, term: &Term) -> anyhow::Result<Exit> {
        let mut guarded = Guarded::start(self, term)?;
        let mut ends = term.ends();
        let mut asked = false;
        loop {
            tokio::select! {
                report = guarded.reports.next_line() => match report.ok().flatten().as_deref().map(Report::parse) {
                    Some(Some(Report::Started(pid))) => self.pids.group(Pid::from_raw(pid)),
                    Some(Some(Report::Ended(code))) => {
                        self.pids.forget();
                        return Ok(Exit { code, asked });
                    }
                    // The guardian enforces the deadline by itself, and a supervisor may have told it to stop.
                    Some(Some(Report::Stopped(code))) => {
                        self.pids.forget();
                        return Ok(Exit { code, asked: true });
                    }
                    Some(None) => {}
                    None => return Err(guarded.lost().await),
                },
                () = term.stopping(), if !asked => {
                    asked = true;
                    guarded.tell(Order::Stop).await;
                }
                moved = ends.changed() => {
                    moved.context("the term is gone")?;
                    let until = *ends.borrow_and_update();
                    guarded.tell(Order::Until(until)).await;
                }
            }
        }
    }
}

/// The exit status of the command, and whether it had been asked to stop.
struct Exit {
    code: u8,
    asked: bool,
}

/// A guardian and its connection. Dropping this kills the guardian and the command, unless they are known to be dead.
struct Guarded {
    child: Child,
    orders: OwnedWriteHalf,
    reports: Lines<BufReader<OwnedReadHalf>>,
    supervisor: Arc<Supervisor>,
    /// The role is kept as long as this is.
    hold: Option<Hold>,
}

impl Guarded {
    fn start(supervisor: &Arc<Supervisor>, term: &Term) -> anyhow::Result<Self> {
        let (ours, theirs) = StdStream::pair().context("cannot connect to the guardian")?;
        ours.set_nonblocking(true).context("cannot connect to the guardian")?;
        // Before there is a guardian: if this fails, none is left behind.
        let (reports, orders) = UnixStream::from_std(ours).context("cannot connect to the guardian")?.into_split();
        let millis = |span: Duration| span.as_millis().to_string();
        let mut command = Command::new("/proc/self/exe");
        command.args(["elect-guard", "--until", &term.until().0.to_string()]);
        command.args(["--stop-ahead", &millis(supervisor.stop_ahead), "--kill-ahead", &millis(supervisor.kill_ahead)]);
        command.arg("--").args(&supervisor.command);
        command.env("WAYLEAVE_ROLE", &supervisor.role).env("WAYLEAVE_EPOCH", term.epoch().to_string());
        command.env("WAYLEAVE_UUID", term.uuid());
        command.envs(supervisor.slot.as_ref().map(|slot| ("WAYLEAVE_SLOT", slot)));
        command.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
        let pid_of = |child: &Child| child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let child = supervisor.pids.start(|| {
            let child = command.spawn()?;
            let pid = pid_of(&child);
            Ok((child, pid))
        });
        let child = child.context("cannot start the guardian")?;
        let (reports, supervisor) = (BufReader::new(reports).lines(), supervisor.clone());
        Ok(Self { child, orders, reports, supervisor, hold: Some(term.hold()) })
    }

    /// A guardian that does not read knows its last deadline, and is killed when that has passed.
    async fn tell(&mut self, order: Order) {
        _ = self.orders.write_all(format!("{order}\n").as_bytes()).await;
    }

    /// The guardian ended without a report.
    async fn lost(&mut self) -> anyhow::Error {
        let status: Option<ExitStatus> =
            tokio::time::timeout(LAST_WORDS, self.child.wait()).await.ok().and_then(Result::ok);
        let status = status.map_or_else(|| "does not respond".to_owned(), |status| format!("ended: {status}"));
        anyhow::anyhow!("the guardian of the command {status}; killing the command and all that it has started")
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let left = self.supervisor.pids.kill();
        let runtime = tokio::runtime::Handle::try_current();
        if let (Some(hold), Ok(runtime)) = (self.hold.take().filter(|_| !left.is_empty()), runtime) {
            runtime.spawn(outlive(self.supervisor.clone(), left, hold));
        }
    }
}

/// Keeps the role until everything that was killed is dead, and says so.
async fn outlive(supervisor: Arc<Supervisor>, mut left: Vec<Survivor>, hold: Hold) {
    let (role, mut say_in) = (&supervisor.role, Duration::ZERO);
    while !left.is_empty() {
        if say_in.is_zero() {
            tracing::error!(
                role,
                "the command has not stopped, so the role is neither released nor led again: {}",
                strays::describe(&left)
            );
            say_in = SAY_AGAIN;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        say_in = say_in.saturating_sub(LOOK_AGAIN);
        left = supervisor.pids.left();
    }
    tracing::info!(role, "all that the command had started is dead now");
    drop(hold);
}
