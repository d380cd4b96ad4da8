//! Placement: transcripts, balance and movement in figures, and the laws against random histories.

mod balance;
mod history;
mod lost_servers;
mod reports;
mod story;
mod unready;
mod with_fleet;
mod world;
