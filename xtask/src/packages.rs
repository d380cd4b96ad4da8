//! Programs that only the tests need, from Debian's packages: a real database, and tools for networks.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A package and how to tell that it is there.
type Package<'a> = (&'a str, fn() -> bool);

const PACKAGES: &[Package<'_>] = &[("postgresql", has_postgresql), ("iproute2", has_ip)];

/// Installs what is missing, saying so.
pub fn ensure() -> Result<()> {
    let missing = missing(PACKAGES);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    println!("the tests need {names}, which will be installed with apt-get, once");
    let install = install(&missing);
    install.with_context(|| format!("cannot install {names}: install them by hand, then run this again"))?;
    match self::missing(PACKAGES).as_slice() {
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

/// The server's programs lie in a folder for each major version.
fn has_postgresql() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.into_iter().any(|version| version.path().join("bin/initdb").exists())
}

fn has_ip() -> bool {
    ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"].iter().any(|path| Path::new(path).exists())
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
