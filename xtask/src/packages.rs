//! Debian packages that only tests need: a real database and its tools, and tools for networks and file systems.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A package and a check for its presence.
pub type Package<'a> = (&'a str, fn() -> bool);

/// What the tests of `verify` need.
pub const TESTS: &[Package<'_>] = &[
    ("postgresql", has_postgresql),
    ("iproute2", || has("ip")),
    ("python3", || has("python3")),
    ("chromium", || has("chromium")),
    ("chromium-driver", || has("chromedriver")),
];
/// The container engine of the tests that start containers.
pub const DOCKER: &[Package<'_>] = &[("docker.io", || has("dockerd"))];
/// A Patroni cluster. The module for etcd is one of its recommended packages.
pub const PATRONI: &[Package<'_>] =
    &[("patroni", || has("patroni")), ("etcd-server", || has("etcd")), ("python3-etcd", has_python_etcd)];
/// Proxies between clients and a cluster.
pub const POOLER: &[Package<'_>] = &[("pgbouncer", || has("pgbouncer")), ("haproxy", || has("haproxy"))];
/// File systems on loop devices.
pub const DISK: &[Package<'_>] =
    &[("e2fsprogs", || has("mkfs.ext4")), ("mount", || has("losetup")), ("perl-base", || has("perl"))];
/// Python virtual environments, for tools that Debian lacks.
pub const SCHEMA: &[Package<'_>] = &[("python3", || has("python3")), ("python3-venv", has_python_venv)];
/// A Java runtime, for a code generator.
pub const GENERATORS: &[Package<'_>] = &[("default-jre-headless", || has("java"))];
/// A container engine, and the tools that build base images. Docker's compose plugin is used if present.
pub const CONTAINERS: &[Package<'_>] = &[
    ("docker.io", || has("dockerd")),
    ("docker-compose", has_compose),
    ("debootstrap", || has("debootstrap")),
    ("iptables", || has("iptables")),
    ("iproute2", || has("ip")),
];

/// Installs what is missing, and says so.
pub fn ensure(packages: &[Package<'_>]) -> Result<()> {
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    println!("the tests need {names}, which will be installed with apt-get, once");
    let install = install(&missing);
    install.with_context(|| format!("cannot install {names}: install them by hand, then run this again"))?;
    match self::missing(packages).as_slice() {
        [] => Ok(()),
        still => bail!("{} still missing after apt-get: install by hand, then run this again", still.join(" ")),
    }
}

fn missing<'a>(packages: &[Package<'a>]) -> Vec<&'a str> {
    packages.iter().filter(|(_, present)| !present()).map(|(name, _)| *name).collect()
}

fn install(packages: &[&str]) -> Result<()> {
    apt_get(&["update"])?;
    let mut words = vec!["install", "--yes", "--no-install-recommends"];
    words.extend(packages);
    apt_get(&words)
}

fn apt_get(words: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    let status = command.status().context("cannot start apt-get (this is not a Debian system?)")?;
    if !status.success() {
        bail!("`apt-get {}` failed ({status}); it needs root and the network", words.join(" "));
    }
    Ok(())
}

/// The server's programs are in one folder per major version.
fn has_postgresql() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.into_iter().any(|version| version.path().join("bin/initdb").exists())
}

fn has_python_etcd() -> bool {
    Path::new("/usr/lib/python3/dist-packages/etcd").exists()
}

/// Debian packages the part of `venv` that provides pip separately.
fn has_python_venv() -> bool {
    Command::new("python3").args(["-c", "import ensurepip"]).output().is_ok_and(|o| o.status.success())
}

fn has_compose() -> bool {
    has("docker-compose")
        || Command::new("docker").args(["compose", "version"]).output().is_ok_and(|o| o.status.success())
}

fn has(program: &str) -> bool {
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(program).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_named() {
        let packages: &[Package<'_>] = &[("here", || true), ("away", || false)];
        assert_eq!(missing(packages), ["away"]);
    }
}
