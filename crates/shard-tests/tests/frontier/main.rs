//! Behaviour of the frontier, tested through its handle over the in-memory engine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod bounds;
mod chunk_bytes;
mod chunk_corners;
mod chunks;
mod claim_waits;
mod crawl_waits;
mod damage;
mod damaged_chunks;
mod damaged_holds;
mod deletes;
mod failures;
mod fairness;
mod faulty;
mod finished;
mod fleet;
mod groups;
mod hand_over;
mod job_bounds;
mod jobs;
mod limits;
mod listings;
mod paced;
mod panics;
mod partial_calls;
mod placed;
mod politeness;
mod pools;
mod prelude;
mod puts;
mod repeats;
mod reservations;
mod restarts;
mod slices;
mod support;
mod unavailable;
mod waiting;
