//! The reference workers: real processes, a real server on the embedded store, and the built-in site, whose access log
//! says how it was treated.

mod build;
mod crawl;
mod cut;
mod demo;
mod fleet;
mod index;
mod stage;
mod strangers;
