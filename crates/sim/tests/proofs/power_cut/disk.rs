//! A separate file system on a loop device that loses power on request: unsynced data is lost.

use std::process::Command;

use crate::prelude::*;

const BYTES: &str = "2G";
/// The kernel releases a loop device some moments after the file system is unmounted.
const PATIENCE: Duration = Duration::from_secs(10);
/// FS_IOC_SHUTDOWN with FS_SHUTDOWN_FLAGS_NOLOGFLUSH: from this moment on nothing reaches the device, neither pages nor
/// the file system's own journal, and every call fails. The next mount sees what a disk would have after a power cut.
const CUT: &str = r#"
my $without_flush = pack("L", 2);
open(my $folder, "<", $ARGV[0]) or die "open: $!";
defined ioctl($folder, 0x8004587d, $without_flush) or die "FS_IOC_SHUTDOWN: $!";
"#;

/// A mounted file system.
pub struct Disk {
    folder: TempDir,
}

impl Disk {
    /// Makes and mounts one. Panics if this process lacks the privileges: a test that cannot run must fail visibly.
    pub fn new() -> Self {
        let disk = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(disk.mounted()).unwrap();
        let image = disk.image();
        run(Command::new("truncate").args(["--size", BYTES]).arg(&image));
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
        disk.mount();
        disk
    }

    /// The folder on it.
    pub fn mounted(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    /// The power is cut.
    pub fn cut(&self) {
        run(Command::new("perl").args(["-e", CUT]).arg(self.mounted()));
    }

    /// The power is back. All users of the file system must have ended.
    pub fn restore(&self) {
        run(Command::new("umount").arg(self.mounted()));
        let start = Instant::now();
        while !run(Command::new("losetup").arg("--associated").arg(self.image())).is_empty() {
            assert!(
                start.elapsed() < PATIENCE,
                "the file system is still mounted somewhere: a process that began meanwhile in a mount namespace of its own \
                 has taken it along; run this under `unshare --mount`"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        self.mount();
    }

    fn mount(&self) {
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.mounted()));
    }

    fn image(&self) -> PathBuf {
        Path::join(self.folder.path(), "image")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("--lazy").arg(self.mounted()).status();
    }
}

/// Runs a program to its end; returns what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?} failed: {why}\nthis needs root, loop devices and an ext4 that takes FS_IOC_SHUTDOWN"
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Tests the test: a cut that loses nothing would prove nothing.
#[test]
#[ignore = "needs root and loop devices: `cargo xtask prove disk`"]
fn a_cut_loses_what_was_not_synced_and_nothing_else() {
    let disk = Disk::new();
    let (synced, unsynced) = (disk.mounted().join("synced"), disk.mounted().join("unsynced"));
    std::fs::write(&synced, "kept").unwrap();
    std::fs::File::open(&synced).unwrap().sync_all().unwrap();
    std::fs::write(&unsynced, "lost").unwrap();
    disk.cut();
    assert!(std::fs::write(disk.mounted().join("late"), "").is_err(), "nothing is written after the cut");
    disk.restore();
    assert_eq!(std::fs::read_to_string(&synced).unwrap(), "kept");
    assert!(!unsynced.exists(), "what was not synced is gone");
}
