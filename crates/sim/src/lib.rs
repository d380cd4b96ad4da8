//! A deterministic simulator: seed in, history out.
//!
//! Clients of every kind work on one frontier over a store whose time, durability and failures the simulator controls:
//! the memory engine, or the embedded store on a simulated disk. First comes a phase with faults, in which no answer
//! may be wrong (safety); then a calm one, in which everything must finish (liveness). One process owns everything, or
//! three nodes share it that die, are paused and lose each other's calls. A refused or lost response counts as
//! "perhaps". The same seed gives the same bytes.
//!
//! `README.md` of this crate lists all other kinds of proofs.
//!
//! [`Switchboard`] and [`Process`], the network and the tasks of simulated nodes, serve the tests of other crates too.

mod chance;
mod chunk_clients;
mod chunk_operator;
mod chunk_oracle;
mod clients;
mod clock;
mod cluster;
mod cluster_faults;
mod copy_oracle;
mod damage;
mod embedded;
mod faults;
mod index_servers;
mod match_clients;
mod move_oracle;
mod node_client;
mod operator;
mod oracle;
mod process;
mod run;
mod site;
mod store_link;
mod switchboard;
mod world;

pub use chunk_oracle::ChunkCalls;
pub use process::Process;
pub use run::{Report, run, run_embedded, run_hand_overs, run_nodes};
pub use switchboard::{Fate, Line, Switchboard};
