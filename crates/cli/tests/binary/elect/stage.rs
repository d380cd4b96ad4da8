//! A server, candidates that run a command which keeps a diary, and the diary.

use rustix::process::test_kill_process;

use crate::prelude::*;

/// An upper bound for everything here.
const PATIENCE: Duration = Duration::from_secs(20);

/// The command: it holds a lock that the kernel releases at its death, records in the diary when it began, that it is
/// alive and that it was told to stop, and reports an error if another process holds the lock.
const COMMAND: &str = r#"
say() { echo "$1 $NAME $WAYLEAVE_EPOCH $$ $(date +%s%N)" >> "$DIARY"; }
exec 9> "$DIARY.lock"
flock -n 9 || say overlap
say begin
trap 'say end; exit 0' TERM
while :; do say alive; sleep 0.02; done
"#;

/// One line of the diary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub what: String,
    pub name: String,
    pub epoch: u64,
    pub pid: i32,
    pub at_ns: u128,
}

pub struct Stage {
    pub server: Server,
    pub diary: PathBuf,
    folder: tempfile::TempDir,
}

impl Stage {
    /// A server with a role `duty` of this T.
    pub fn set(ttl: &str) -> Self {
        Self::with_data(ttl).0
    }

    /// The same, and where the server keeps its data.
    pub fn with_data(ttl: &str) -> (Self, PathBuf) {
        let (folder, data) = folder();
        let server = Server::start(&data);
        server.run(&["roles", "set", "duty", "--ttl", ttl]).ok();
        (Self { server, diary: folder.path().join("diary"), folder }, data)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a candidate that runs the diarist.
    pub fn candidate(&self, name: &'static str) -> Candidate {
        self.diarist(name, &["--grace", "200ms"])
    }

    /// Starts such a candidate with options of one's own.
    pub fn diarist(&self, name: &'static str, options: &[&str]) -> Candidate {
        self.candidate_with(name, options, &["sh", "-c", COMMAND])
    }

    /// Starts a candidate for a command of one's own.
    pub fn candidate_with(&self, name: &'static str, options: &[&str], command: &[&str]) -> Candidate {
        let mut elect = wayleave(&["elect", "duty"]);
        elect.args(options).arg("--").args(command);
        self.spawn(name, elect)
    }

    /// Starts a candidate by a command that becomes it.
    pub fn spawn(&self, name: &'static str, mut command: Command) -> Candidate {
        let log = std::fs::File::create(self.path(name)).unwrap();
        command.env("WAYLEAVE_SERVER", &self.server.url).env("NAME", name).env("DIARY", &self.diary);
        Candidate { child: command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap() }
    }

    pub fn entries(&self) -> Vec<Entry> {
        let text = std::fs::read_to_string(&self.diary).unwrap_or_default();
        text.lines().filter_map(entry).collect()
    }

    pub fn begins(&self) -> Vec<Entry> {
        self.entries().into_iter().filter(|entry| entry.what == "begin").collect()
    }

    /// Waits until this many commands have begun in total; returns the last.
    pub fn wait_for_begin(&self, count: usize) -> Entry {
        self.wait_for(&format!("begin number {count}"), || self.begins().get(count - 1).cloned())
    }

    /// Waits until something is there.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "no {what}: {:#?}\n{}", self.begins(), self.logs());
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// What the candidates said.
    pub fn logs(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.path(name)).unwrap_or_default();
        format!("A: {}\nB: {}\nC: {}", read("A"), read("B"), read("C"))
    }

    /// The laws of the diary: no two commands concurrently, increasing epochs, and none alive after the next has begun.
    #[track_caller]
    pub fn check(&self) {
        let entries = self.entries();
        assert!(!entries.iter().any(|entry| entry.what == "overlap"), "{entries:#?}");
        let begins = self.begins();
        for pair in begins.windows(2) {
            assert!(pair[0].epoch < pair[1].epoch, "epochs grow: {begins:#?}");
            let last = entries.iter().filter(|entry| entry.pid == pair[0].pid).map(|entry| entry.at_ns).max().unwrap();
            assert!(last < pair[1].at_ns, "{} was alive after {} began", pair[0].name, pair[1].name);
        }
    }
}

fn entry(line: &str) -> Option<Entry> {
    let mut words = line.split(' ');
    let (what, name) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (epoch, pid) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Entry { what, name, epoch, pid, at_ns: words.next()?.parse().ok()? })
}

/// An elect process; killed with its command on drop.
pub struct Candidate {
    child: Child,
}

impl Candidate {
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit code, if it has ended.
    pub fn ended_by_now(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(code) = self.ended_by_now() {
                return code;
            }
            assert!(begun.elapsed() < PATIENCE, "elect does not end");
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Its guardian.
    pub fn guardian(&self) -> Option<Pid> {
        let pid = self.child.id();
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let pids: Vec<i32> =
            lists.flat_map(|l| l.split_whitespace().map(|p| p.parse().unwrap()).collect::<Vec<_>>()).collect();
        pids.into_iter().find_map(Pid::from_raw)
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Whether a process exists and is not a zombie.
pub fn lives(pid: i32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let zombie = state.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'));
    Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok()) && !zombie
}

pub fn now_ns() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
}

/// Runs `elect` to its end.
pub fn elect(stage: &Stage, options: &[&str], command: &[&str]) -> Ended {
    let mut elect = wayleave(&["elect", "duty"]);
    elect.args(options).arg("--").args(command).env("WAYLEAVE_SERVER", &stage.server.url);
    elect.env("DIARY", &stage.diary);
    crate::support::run(elect, "")
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
