//! `verify` and `fix`: other programs, one after the other, under headings.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs every check and stops at the first failure. The last line is the result.
pub fn verify(root: &Path) -> Result<()> {
    let checks: [(&str, &dyn Fn() -> Result<()>); 6] = [
        ("format", &|| cargo(root, &["fmt", "--all", "--check"])),
        ("clippy", &|| cargo(root, &["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"])),
        ("rustdoc", &|| {
            run(command(root, &["doc", "--locked", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
        }),
        ("tidy", &|| crate::tidy::run(root)),
        ("licences and sources", &|| deny(root)),
        ("tests", &|| {
            crate::packages::ensure(crate::packages::TESTS)?;
            cargo(root, &["test", "--locked", "--workspace"])
        }),
    ];
    for (name, check) in checks {
        heading(name);
        check()
            .with_context(|| format!("verify: FAILED at {name} (`cargo xtask fix` repairs what can be repaired)"))?;
    }
    println!("\nverify: all {} checks passed", checks.len());
    Ok(())
}

/// Applies automatic fixes.
pub fn fix(root: &Path) -> Result<()> {
    heading("clippy");
    cargo(root, &["clippy", "--fix", "--allow-dirty", "--allow-staged", "--workspace", "--all-targets"])?;
    heading("format");
    cargo(root, &["fmt", "--all"])
}

/// Advisories are excluded: they need a database that is downloaded, and a check must not depend on the day it is run.
fn deny(root: &Path) -> Result<()> {
    let present = command(root, &["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !present.is_ok_and(|status| status.success()) {
        println!("cargo-deny is missing and will be installed; this takes some minutes, once");
        cargo(root, &["install", "cargo-deny", "--locked"])
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
    command
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !status.success() {
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        bail!("`cargo {}` failed ({status})", args.join(" "));
    }
    Ok(())
}
