//! Proves: a deterministic simulator. Seed in, history out.
//!
//! Clients of every kind work on one frontier over a store whose time, durability and failures are in the simulator's hands:
//! the memory engine, or the embedded store on a simulated disk. First a phase with faults, in which nothing wrong may be answered; then a calm one, in which
//! everything must finish. One process owns everything, or three nodes share it that die, stand still and lose each
//! other's calls. An answer that was refused or lost counts as "perhaps". The same seed gives the same bytes.

mod chance;
mod clients;
mod clock;
mod door;
mod embedded;
mod faults;
mod fleet;
mod fleet_faults;
mod operator;
mod oracle;
mod run;
mod store_link;
mod world;

pub use run::{Report, run, run_embedded, run_hand_overs, run_nodes};
