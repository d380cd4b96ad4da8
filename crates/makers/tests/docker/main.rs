//! The Docker runtime against a real Docker engine, with the worker of the examples in an image that is made here.
//!
//! Each run starts an engine of its own: own data, socket and bridge, no packet filters. Ports are published by Docker's
//! proxy. It needs root, dockerd and `ip`; without them these tests fail and say so. They are a binary of their own so that
//! `cargo xtask verify --without docker` can leave them out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod containers;
mod engine;
mod maker;
#[path = "../support/mod.rs"]
mod support;

use wayleave_core::matches::{Make, Recipe, RuntimeKind};

use self::engine::IMAGE;

/// How to start the worker of the examples in a container.
fn recipe(env: &[(&str, &str)]) -> Recipe {
    let env: Vec<_> = [("SLOTS", "2")].into_iter().chain(env.iter().copied()).collect();
    Recipe {
        runtime: RuntimeKind::Docker,
        image: Some(IMAGE.into()),
        port: Some(8080),
        ..support::recipe(&["/worker"], &env)
    }
}

fn worker(no: u64, env: &[(&str, &str)]) -> Make {
    support::make(no, recipe(env))
}
