//! Cleans up after a test process that ended without doing so: by a panic, a kill, or because the server was a static.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Blocks until the test process is gone, however it ended, then stops the server and removes the folder.
const SCRIPT: &str = r#"
trap '' INT HUP TERM
cat > /dev/null
pid=$(head -n 1 "$0/data/postmaster.pid" 2> /dev/null) && kill -CONT "$pid" && kill -QUIT "$pid" &&
    while kill -0 "$pid" 2> /dev/null; do sleep 0.1; done
rm -rf "$0"
"#;

/// A shell that waits for the end of this process.
pub(crate) struct Cleanup(Child);

impl Cleanup {
    /// Watches over a server's folder.
    pub(crate) fn start(folder: &Path) -> Self {
        let mut command = Command::new("sh");
        command.arg("-c").arg(SCRIPT).arg(folder).current_dir("/").process_group(0);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        _ = self.0.wait();
    }
}
