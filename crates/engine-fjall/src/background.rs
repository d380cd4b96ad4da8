//! Threads that work in the background give way to those that clients wait for.

use rustix::process::setpriority_process;

/// How much a thread in the background gives way: it gets a third of the time of others where all want more than there is.
const NICE: i32 = 5;

/// Lets this thread, and those that it makes from now on, give way. A machine that does not allow it only answers later.
pub(crate) fn give_way() {
    _ = setpriority_process(None, NICE);
}
