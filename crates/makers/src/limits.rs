//! Every bound of this crate: queues, calls at a time, output that is kept, and the time that things may take. Deadlines of
//! single orders come with the orders.

use std::time::Duration;

use wayleave_core::limits::STOP_TIME;

/// A worker gets this long to end by itself after SIGTERM, at most; then it is killed. Shorter than the deadline of
/// an order to stop it, so that the outcome is reported in time.
pub const STOP_GRACE: Duration = Duration::from_secs(25);
/// What a worker that ended by itself has left behind gets this long to end after SIGTERM.
pub const LEFT_GRACE: Duration = Duration::from_secs(10);
const _: () = assert!(STOP_GRACE.as_millis() + 2_000 < STOP_TIME.0 as u128);

/// Concurrent calls of one kind to the workers of a pool.
pub const CALLS_MAX: usize = 256;
/// Concurrent calls of one kind to one worker.
pub const CALLS_PER_WORKER_MAX: usize = 16;
/// Calls of one kind to one worker, queued or in flight.
pub const CALLS_WAITING_PER_WORKER_MAX: usize = 256;
/// Bytes of a worker's answer; a longer one is not read.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Addresses of a worker's name that are tried.
pub const ADDRESSES_MAX: usize = 8;
/// Idle connections to one worker.
pub const IDLE_CONNECTIONS_MAX: usize = 64;

/// Concurrent runtime calls for one pool.
pub const ORDERS_MAX: usize = 32;
/// Orders of one pool, queued or in progress. Further ones are dropped; the pool repeats them.
pub const ORDERS_ACCEPTED_MAX: usize = 4_096;
/// Outcomes in one batch.
pub const OUTCOMES_PER_BATCH_MAX: usize = 256;
/// Outcomes that wait in one queue. Beyond that the oldest are dropped; the pool repeats orders whose outcome it misses.
pub const OUTCOMES_WAITING_MAX: usize = 4_096;
/// Reports of ended workers that wait to be taken. Beyond that they are dropped, and lists show the same.
pub const EVENTS_MAX: usize = 1_024;

/// Characters of a reason.
pub const REASON_CHARS_MAX: usize = 500;
/// Bytes of each of the two files of a worker's output, and of the output that is kept of a removed container.
pub const OUTPUT_BYTES_MAX: u64 = 256 * 1024;
/// Removed workers of a pool whose output is kept.
pub const KEPT_PER_POOL_MAX: usize = 8;
/// Removed workers whose output is kept, of all pools, also of those that are gone.
pub const KEPT_MAX: usize = 128;
/// How long it is kept.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Containers that a Docker engine is creating for this node, also those whose order was given up. Beyond that no other one
/// is asked for: an engine that does not answer must not collect calls.
pub const CREATES_MAX: usize = 64;
/// How long an engine may still answer an order to create a container after its deadline. Then the call is dropped; a container
/// that comes later is found by lists.
pub const CREATE_ANSWER_AWAITED: Duration = Duration::from_secs(2 * 60);
/// How long an engine may say nothing of a pull. Then the call is dropped, and the next order starts another one.
pub const PULL_SILENCE_MAX: Duration = Duration::from_secs(10 * 60);
/// Containers that are looked at side by side.
pub const LOOKS_AT_ONCE_MAX: usize = 8;
