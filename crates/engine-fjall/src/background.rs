//! Lowers the priority of background threads below that of threads that serve clients.

use rustix::process::setpriority_process;

/// The nice value of a background thread: under full load it gets about a third of the CPU time of the others.
const NICE: i32 = 5;

/// Lowers the priority of this thread and of those it spawns. A failure is ignored: it only costs latency.
pub(crate) fn give_way() {
    _ = setpriority_process(None, NICE);
}
