//! Matches: transcripts, bad input, random histories with crashes, and an exhaustive model against the order of steps of
//! the design that this one replaces.

mod bad_input;
mod corners;
mod exhaustive;
mod failures;
mod history;
mod in_flight;
mod lost_orders;
mod many_sites;
mod ownership;
mod paused;
mod reasons;
mod replaced_order;
mod runtime;
mod setup;
mod shared_engine;
mod story;
mod unfinished;
mod views;
mod world;
