//! Reads the state of processes from `/proc`.
//!
//! "No such process" is one answer, "unknown" (no descriptors are left, say) is another: a worker is not dead because
//! of that.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// The variable that marks everything that a worker's run has started, unless it clears its environment.
pub const MARK: &str = "WAYLEAVE_MARK";

/// The machine's boot: process ids and start times of another one mean nothing.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// A line of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Whether it has ended, and only its parent has not asked how. One whose first thread has ended lives as long as it has
    /// others.
    pub ended: bool,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// When it was started, in clock ticks since boot (field 22).
    pub started: u64,
}

impl Stat {
    /// Of a process; `None` if there is none.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        match unless_gone(std::fs::read(format!("/proc/{pid}/stat")))? {
            None if is_hidden(pid) => Err(io::Error::new(io::ErrorKind::PermissionDenied, "/proc hides it (hidepid)")),
            None => Ok(None),
            Some(line) => {
                Self::parse(&line).map(Some).ok_or_else(|| io::Error::other("/proc has an unexpected format"))
            }
        }
    }

    /// The name, in parentheses, may hold any bytes, also parentheses, blanks and what is not UTF-8: fields are counted
    /// after its end.
    fn parse(line: &[u8]) -> Option<Self> {
        let end = line.iter().rposition(|byte| *byte == b')')?;
        let mut fields = std::str::from_utf8(line.get(end + 1..)?).ok()?.split_ascii_whitespace();
        let is_zombie = matches!(fields.next()?, "Z" | "X" | "x");
        let group = fields.nth(1)?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        let threads: u32 = fields.nth(13)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        let ended = is_zombie && threads <= 1;
        Some(Self { ended, group, session, started })
    }
}

/// `None` if what was read is that of a process that is not there, or has just gone.
fn unless_gone<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Mounted with `hidepid`, `/proc` hides processes of other users, also those that this one has started.
fn is_hidden(raw: i32) -> bool {
    pid(raw).is_some_and(|pid| test_kill_process(pid) == Err(Errno::PERM))
}

/// Whether a process runs that has this id and start time. If that is unknown, it counts as running.
pub fn runs(pid: i32, started: u64) -> bool {
    match Stat::of(pid) {
        Ok(stat) => stat.is_some_and(|stat| stat.started == started && !stat.ended),
        Err(error) => {
            tracing::warn!(pid, %error, "it is unknown whether a worker's process runs");
            true
        }
    }
}

/// Every process that has not ended, without those that may not be looked at, or end meanwhile. Fails if that is
/// unknown for some process.
pub fn running() -> io::Result<Vec<(i32, Stat)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Where only own processes may be looked at, others are of another user.
        let stat = match Stat::of(pid) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
            other => other?,
        };
        found.extend(stat.filter(|stat| !stat.ended).map(|stat| (pid, stat)));
    }
    Ok(found)
}

/// Whether a process carries a run's mark. The environment of a process of another user may not be looked at; one that is
/// left of a run is found by its group.
pub fn is_marked(pid: i32, mark: &str) -> io::Result<bool> {
    let wanted = format!("{MARK}={mark}");
    let read = std::fs::read(Path::new("/proc").join(pid.to_string()).join("environ"));
    let environment = match unless_gone(read) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
        other => other?.unwrap_or_default(),
    };
    Ok(environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()))
}

/// A process id as the kernel's calls take it.
pub fn pid(raw: i32) -> Option<Pid> {
    Pid::from_raw(raw).filter(|_| raw > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let rest = "S 1 77 3 4 5 6 7 8 9 10 11 12 13 14 15 16 1 18 4242 20";
        let want = Stat { ended: false, group: 77, session: 3, started: 4242 };
        for name in ["sh", "a b", "x) Z 9 (y", ")"] {
            assert_eq!(Stat::parse(format!("123 ({name}) {rest}").as_bytes()), Some(want), "{name}");
        }
        let zombie = rest.replacen('S', "Z", 1);
        let ended = |line: &str| Stat::parse(format!("1 (a) {line}").as_bytes()).unwrap().ended;
        assert!(ended(&zombie) && !ended(&zombie.replace(" 1 18", " 2 18")), "others of its threads run");
        assert_eq!(Stat::parse(b"1 (a) S 1"), None);
    }

    /// Any user may run a program of such a name.
    #[test]
    fn a_process_whose_name_is_not_utf_8_hides_no_other() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(std::ffi::OsStr::from_bytes(b"odd \xff)"));
        std::fs::copy("/bin/sleep", &program).unwrap();
        let mut odd = std::process::Command::new(&program).arg("1000").spawn().unwrap();
        let pid = odd.id() as i32;
        let (stat, running) = (Stat::of(pid), running());
        odd.kill().unwrap();
        odd.wait().unwrap();
        assert!(stat.is_ok_and(|stat| stat.is_some_and(|stat| !stat.ended)));
        assert!(running.unwrap().iter().any(|(other, _)| *other == pid));
    }

    /// A regression: a worker that runs as another user was taken for dead by the next server, and started once more.
    #[test]
    fn a_process_that_proc_hides_is_not_taken_for_dead() {
        use std::os::unix::fs::PermissionsExt;
        const INSIDE: &str = "WAYLEAVE_TEST_INSIDE";
        const NAME: &str = "runtime::process::system::tests::a_process_that_proc_hides_is_not_taken_for_dead";
        const HIDE: &str =
            "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid=65534 --regid=65534 --clear-groups";
        if let Some(other) = std::env::var_os(INSIDE) {
            let other = other.to_str().unwrap().parse().unwrap();
            assert!(!Path::new("/proc").join(format!("{other}")).exists() && Stat::of(other).is_err());
            assert!(runs(other, 1) && !runs(i32::MAX, 1));
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        // The build folder may be closed to others.
        let test = folder.path().join("test");
        std::fs::copy(std::env::current_exe().unwrap(), &test).unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut inside = std::process::Command::new("unshare");
        inside.args(["-m", "sh", "-c", &format!("{HIDE} \"$0\" --exact {NAME}")]).arg(&test);
        let ended = inside.env(INSIDE, std::process::id().to_string()).output().unwrap();
        assert!(ended.status.success(), "this test must be root: {ended:?}");
    }

    #[test]
    fn this_process_runs_and_one_that_started_at_another_time_does_not() {
        let own = std::process::id() as i32;
        let stat = Stat::of(own).unwrap().unwrap();
        assert!(runs(own, stat.started) && !runs(own, stat.started + 1) && !runs(own, stat.started - 1));
    }
}
