//! The registry: small shared records that any node may change. One node looks, decides, and writes only if nothing has
//! changed since (optimistic concurrency); others who wait for the record are woken by a hint.
//!
//! It must not know what a record means: roles, nodes, HTTP, shards, or a particular store. In: a [`Subject`] (rows to
//! read) and a pure function of a [`Look`](wayleave_engine::Look). Out: an answer that is durable, or the error that
//! says what the caller must do next.
//!
//! A hint is never needed for correctness. It names a row that has changed, and costs one look if it was wrong. It wakes
//! waiters of the same process at once, and those of linked nodes after one message; if it is lost, they find the change
//! with the next poll.
//!
//! # Interleavings
//!
//! *Updates.* A and B are two processes, or two nodes.
//!
//! 1. (A looks) (B looks) (A writes) (B writes): B's write expects the rows of its look and is a conflict. B looks again
//!    and its decision is made on A's rows. After a bounded number of conflicts B is refused; it has changed nothing.
//! 2. (A writes; the answer is lost): A looks again and decides again, knowing that a write of its own may have been
//!    applied. Only the rows show it. If the first write arrives after the second look, it is a conflict for one of
//!    the two. Later failures of the same call are reported as "outcome unknown", never as "unavailable".
//! 3. (A writes, not durable yet) (C of the same process looks): the store may show a row that it could still lose, so C
//!    waits for A. Callers of one process queue for a record instead of overtaking each other.
//! 4. (A writes) (A's caller goes away): [`Registry::update`] continues to its end; otherwise C could look too early.
//!
//! *Watches.* W waits on another node than the writer A.
//!
//! 5. (W looks) (A writes) (the hint arrives) (W begins to wait): the hint is kept as a permit, and W looks again at once.
//! 6. (W's look is in flight) (A writes) (the hint arrives) (the look returns the old rows): as 5.
//! 7. (A writes) (the hint is lost): W finds the change with its next poll.
//! 8. (A's write is in doubt): the hint is sent anyway, because others may see the write.
//! 9. (the hint arrives) (A's lock is still held, on A's own node): hints are sent after the lock is released.
//! 10. (the last waiter leaves) (another one comes): the task ends under the lock of the table, or stays for both.
//! 11. (W's node loses the store): the next look fails and W gets the error; it does not sleep beside a store that is
//!     gone.
//! 12. (a lease in the rows ends): there is no write and no hint. The subject names the time, and the task looks
//!     then.

mod config;
mod hints;
mod locks;
mod registry;
mod subject;
mod watch;

pub use config::Config;
pub use hints::{Hints, Listener, SendHints};
pub use registry::Registry;
pub use subject::{Decision, News, Subject, batch, only, value};
pub use watch::{Observation, Watch};
