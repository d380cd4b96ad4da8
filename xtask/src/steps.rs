//! `verify`, `check` and `fix`: run other programs, each under a heading.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::jobs::{self, Job, in_background};
use crate::suite;

/// Runs every check and stops at the first step that fails. The last line is the result.
///
/// The tests are built first: while they run, and mostly wait, clippy and rustdoc take the time that they leave. Without
/// Docker, the tests that need its engine are built and not run, and the last line says so.
pub fn verify(root: &Path, with_docker: bool) -> Result<()> {
    let begun = Instant::now();
    step("format", || cargo(root, &["fmt", "--all", "--check"]))?;
    step("tidy", || crate::tidy::run(root))?;
    step("licences and sources", || deny(root))?;
    let binaries = step("build of the tests", || {
        crate::packages::ensure(crate::packages::TESTS)?;
        if with_docker {
            let installed = crate::packages::ensure(crate::packages::DOCKER);
            installed
                .context("some tests need a Docker engine; `cargo xtask verify --without docker` leaves them out")?;
        }
        let mut binaries = suite::build(root, &[])?;
        binaries.retain(|binary| with_docker || !suite::NEED_DOCKER.contains(&binary.name.as_str()));
        Ok(binaries)
    })?;
    let (ran, left_out) = step("tests, clippy and rustdoc", || {
        let mut tracks = suite::plan(&binaries);
        tracks.push(vec![
            background("clippy", clippy(root)),
            background("rustdoc", rustdoc(root)),
            background("examples", examples(root)),
        ]);
        suite::judge(&binaries, &jobs::run(tracks)?)
    })?;
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    let docker = if with_docker { "" } else { "; WITHOUT the tests that need Docker" };
    println!(
        "\nverify: all checks passed in {minutes:.1} min: {ran} tests, {left_out} ignored (`cargo xtask prove` has the long ones){docker}"
    );
    Ok(())
}

/// The inner loop: format, tidy, clippy, and the tests that start no programs but a database.
pub fn check(root: &Path) -> Result<()> {
    let begun = Instant::now();
    step("format", || cargo(root, &["fmt", "--all", "--check"]))?;
    step("tidy", || crate::tidy::run(root))?;
    step("clippy", || run(&mut clippy(root)))?;
    let mut words = vec!["--lib"];
    words.extend(suite::QUICK.iter().flat_map(|target| ["--test", target]));
    let binaries = step("build of the tests", || suite::build(root, &words))?;
    let (ran, _) = step("tests", || suite::judge(&binaries, &jobs::run(suite::plan(&binaries))?))?;
    println!("\ncheck: passed in {:.0} s: {ran} tests; `cargo xtask verify` runs all", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Applies automatic fixes.
pub fn fix(root: &Path) -> Result<()> {
    heading("clippy");
    cargo(root, &["clippy", "--fix", "--allow-dirty", "--allow-staged", "--workspace", "--all-targets"])?;
    heading("format");
    cargo(root, &["fmt", "--all"])
}

/// Makes the fixtures of the storage format.
pub fn fixtures(root: &Path) -> Result<()> {
    let rows: &[&str] = &["--package", "wayleave-engine", "--lib", "rows::fixtures::make"];
    let stores: &[&str] = &["--package", "wayleave-sim", "--test", "proofs", "fixtures::make"];
    [rows, stores]
        .iter()
        .try_for_each(|make| cargo(root, &[&["test"], *make, &["--", "--exact", "--ignored"]].concat()))
}

fn step<T>(name: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
    heading(name);
    let begun = Instant::now();
    let done = act().with_context(|| format!("FAILED at {name} (`cargo xtask fix` repairs what can be repaired)"))?;
    println!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
    Ok(done)
}

fn clippy(root: &Path) -> Command {
    command(root, &["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

fn rustdoc(root: &Path) -> Command {
    let mut command = command(root, &["doc", "--locked", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// Code in the documentation of items, which no test binary holds.
fn examples(root: &Path) -> Command {
    command(root, &["test", "--locked", "--workspace", "--doc"])
}

fn background(name: &str, command: Command) -> Job {
    Job { name: name.to_owned(), command: in_background(&command) }
}

/// Advisories are excluded: they need a database that is downloaded, and a check must not depend on the day it is run.
fn deny(root: &Path) -> Result<()> {
    let present = command(root, &["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !present.is_ok_and(|status| status.success()) {
        println!("cargo-deny is missing and will be installed; this takes a minute or two, once");
        // Its release profile spends minutes on link-time optimisation that a check of two seconds does not win back.
        cargo(root, &["install", "cargo-deny", "--locked", "--debug", "--config", "profile.dev.debug=false"])
            .context("cannot install cargo-deny: install it by hand, then run this again")?;
    }
    cargo(root, &["deny", "check", "licenses", "bans", "sources"])
}

/// Prints a heading.
pub fn heading(name: &str) {
    println!("\n== {name} ==");
}

/// Runs cargo in the workspace.
pub fn cargo(root: &Path, args: &[&str]) -> Result<()> {
    run(&mut command(root, args))
}

/// A command of cargo, in the workspace.
pub fn command(root: &Path, args: &[&str]) -> Command {
    // The cargo that runs us, so that a toolchain given on the command line applies to every step.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root);
    // What `cargo run` passed to this program about itself. Build scripts that watch these (as that of ring does)
    // would run again, and all that depends on them be built again, whenever cargo is started here after it was
    // started by hand.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_about_a_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

fn is_about_a_package(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"].iter().any(|start| variable.starts_with(start))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !status.success() {
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        bail!("`cargo {}` failed ({status})", args.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What went wrong once: `cargo test` and `cargo xtask verify` took turns in building ring, rustls and all above them again.
    #[test]
    fn cargo_does_not_learn_which_package_started_it() {
        let command = command(Path::new("/"), &["test"]);
        let removed = |name: &str| command.get_envs().any(|(other, value)| other == name && value.is_none());
        assert!(removed("CARGO_MANIFEST_DIR") && removed("CARGO_PKG_NAME"), "{command:?}");
        assert!(!removed("CARGO") && !removed("CARGO_HOME"), "{command:?}");
    }
}
