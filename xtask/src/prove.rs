//! `prove`: the long tests, which are not part of `verify` because they take from minutes to an hour. Each has a name,
//! runs a test on the release binary (or on `WAYLEAVE_BIN`) with more rounds, kills or seeds than `verify` does, and
//! prints the figures it observed. The counts can be changed by environment variables.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::packages::{self, Package};
use crate::steps;

/// What marks lines of figures in the output of tests.
const FIGURES: [&str; 4] = ["seen: ", " kills", " seeds", " states in "];

/// One long test run.
struct Proof {
    name: &'static str,
    about: &'static str,
    /// The crate of the tests, their target, and the module that they are in.
    tests: &'static [(&'static str, &'static str, &'static str)],
    /// Variables and their values, unless they are set already.
    settings: &'static [(&'static str, &'static str)],
    packages: &'static [&'static [Package<'static>]],
    /// Whether it mounts file systems: in its own mount namespace no other process can keep them from being unmounted.
    mounts: bool,
}

const fn proof(name: &'static str, tests: &'static [(&'static str, &'static str, &'static str)]) -> Proof {
    Proof { name, about: "", tests, settings: &[], packages: &[], mounts: false }
}

impl Proof {
    const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    const fn with(self, settings: &'static [(&'static str, &'static str)]) -> Self {
        Self { settings, ..self }
    }

    const fn needs(self, packages: &'static [&'static [Package<'static>]]) -> Self {
        Self { packages, ..self }
    }

    const fn alone(self) -> Self {
        Self { mounts: true, ..self }
    }

    /// Whether a test runs the binary; those inside a crate do not.
    fn needs_binary(&self) -> bool {
        self.tests.iter().any(|(_, target, _)| *target != "lib")
    }
}

const SIM: &str = "wayleave-sim";
const CLI: &str = "wayleave-cli";
const FJALL: &str = "wayleave-engine-fjall";

const PROOFS: &[Proof] = &[
    proof("nodes", &[(SIM, "proofs", "three_nodes")])
        .about("three nodes over a primary with a synchronous standby: 10 rounds of every fault")
        .with(&[("WAYLEAVE_DATABASE", "pair"), ("WAYLEAVE_ROUNDS", "10")])
        .needs(&[packages::TESTS]),
    proof("patroni", &[(SIM, "proofs", "three_nodes")])
        .about("three nodes over three PostgreSQL under Patroni and etcd: switchover, kills, a lost and a cut machine")
        .with(&[("WAYLEAVE_DATABASE", "patroni"), ("WAYLEAVE_ROUNDS", "2")])
        .needs(&[packages::TESTS, packages::PATRONI]),
    proof("pgbouncer", &[(SIM, "proofs", "three_nodes")])
        .about("the same through HAProxy and PgBouncer in session mode")
        .with(&[("WAYLEAVE_DATABASE", "pgbouncer"), ("WAYLEAVE_ROUNDS", "2")])
        .needs(&[packages::TESTS, packages::PATRONI, packages::POOLER]),
    proof("upgrade", &[(SIM, "proofs", "upgrade")])
        .about("three nodes replaced one by one by a program of the next format, back once, while clients work")
        .needs(&[packages::TESTS]),
    proof("kills", &[(SIM, "proofs", "kill_loop")])
        .about("the embedded store, killed 1,000 times while clients work")
        .with(&[("WAYLEAVE_KILLS", "1000")]),
    proof("crawl", &[(CLI, "binary", "great_crawl")])
        .about("a crawl of 100,000 URLs of 1,000 hosts through each door, to its end, while workers die")
        .with(&[("WAYLEAVE_CRAWL_HOSTS", "1000"), ("WAYLEAVE_CRAWL_PAGES", "100")]),
    proof("pipeline", &[(CLI, "binary", "pipeline")])
        .about("10,000 links crawled, built and served in two rows, while workers, servers and whole machines die; and three nodes")
        .with(&[("WAYLEAVE_PIPELINE_HOSTS", "250"), ("WAYLEAVE_PIPELINE_PAGES", "25")])
        .needs(&[packages::TESTS]),
    proof("matches", &[(CLI, "binary", "concurrent_matches")])
        .about("200 clients at once on an empty pool of 5 workers with 10 slots each, processes and containers, the server killed three times")
        .with(&[
            ("WAYLEAVE_RUSH_CLIENTS", "200"),
            ("WAYLEAVE_RUSH_WORKERS", "5"),
            ("WAYLEAVE_RUSH_SLOTS", "10"),
            ("WAYLEAVE_RUSH_SECONDS", "60"),
        ])
        .needs(&[packages::CONTAINERS]),
    proof("deploy", &[(CLI, "binary", "containers")])
        .about("the image and the compose files by their documented lines, in a container engine of its own")
        .needs(&[packages::CONTAINERS]),
    proof("schema", &[(CLI, "binary", "schema")])
        .about("the OpenAPI document against a server: thousands of requests of schemathesis, which pip installs below target")
        .with(&[("WAYLEAVE_SCHEMA_SEEDS", "7 11 23")])
        .needs(&[packages::SCHEMA]),
    proof("generators", &[(CLI, "binary", "generators")])
        .about("clients that openapi-generator and openapi-python-client make of the OpenAPI document, at work with a server")
        .needs(&[packages::SCHEMA, packages::GENERATORS]),
    proof("disk", &[(SIM, "proofs", "power_cut"), (CLI, "binary", "full_disk")])
        .about("the embedded store on file systems of its own: one loses power 100 times, others fill up while tables are merged")
        .with(&[("WAYLEAVE_POWER_CUTS", "100"), ("WAYLEAVE_FULL_DISK_LARGE", "1")])
        .needs(&[packages::DISK])
        .alone(),
    proof("copy", &[(CLI, "binary", "copy")])
        .about("a store of a million URLs copied to PostgreSQL and back, every row compared; and all other tests of copies")
        .with(&[("WAYLEAVE_COPY_URLS", "1000000")])
        .needs(&[packages::TESTS]),
    proof("damage", &[(FJALL, "lib", "damage_tests")])
        .about("400 flipped bits in every file of a data folder, after a clean stop and after a kill"),
    proof("seeds", &[(SIM, "proofs", "seeds"), (FJALL, "lib", "simulated")])
        .about("the simulators with 2,000 seeds each, and 20,000 of the simulated disk")
        .with(&[("WAYLEAVE_SIM_SEEDS", "2000"), ("WAYLEAVE_DISK_SEEDS", "20000")]),
    proof("takeovers", &[(CLI, "binary", "elect")])
        .about("how long a role's work stands still after its primary was killed or stopped, ten times each"),
    proof(
        "strangers",
        &[
            (CLI, "binary", "strangers"),
            ("wayleave-server", "doors", "browsers"),
            ("wayleave-server", "doors", "pool_stories"),
            ("wayleave-workers", "lib", "fetch"),
            ("wayleave-workers", "lib", "store"),
            ("wayleave-workers", "lib", "index"),
            ("wayleave-workers", "lib", "index_server"),
            ("wayleave-elect", "lib", "election"),
        ],
    )
    .about("what strangers try at every port and in every file, and what they get, in numbers"),
    proof("models", &[(SIM, "proofs", "timed_model")])
        .about("the timed models with all of their settings, also those that take minutes"),
];

/// The names with their descriptions, one per line.
pub fn listing() -> String {
    PROOFS.iter().map(|proof| format!("    {:<10} {}\n", proof.name, proof.about)).collect()
}

/// Runs the named ones, or all; a failure does not stop the others.
pub fn run(root: &Path, names: &[String]) -> Result<()> {
    let chosen = choose(names)?;
    let needs_binary = chosen.iter().any(|proof| proof.needs_binary());
    let next = chosen.iter().any(|proof| proof.name == "upgrade").then(|| next_binary(root)).transpose()?;
    let binary = needs_binary.then(|| binary(root)).transpose()?;
    let mut verdicts = Vec::new();
    for proof in chosen {
        steps::heading(&format!("{}: {}", proof.name, proof.about));
        let start = Instant::now();
        let outcome = prove(root, proof, binary.as_deref(), next.as_deref());
        if let Err(error) = &outcome {
            eprintln!("{error:#}");
        }
        verdicts.push((proof.name, start.elapsed(), outcome.ok()));
    }
    steps::heading("what was seen");
    for (name, took, seen) in &verdicts {
        let minutes = took.as_secs_f64() / 60.0;
        match seen {
            Some(seen) => println!("{name}: holds ({minutes:.1} min)\n  {}", seen.join("\n  ")),
            None => println!("{name}: FAILED ({minutes:.1} min); see above"),
        }
    }
    match verdicts.iter().filter(|(_, _, seen)| seen.is_none()).count() {
        0 => Ok(()),
        failed => bail!("prove: {failed} of {} FAILED", verdicts.len()),
    }
}

fn choose(names: &[String]) -> Result<Vec<&'static Proof>> {
    if names.is_empty() {
        return Ok(PROOFS.iter().collect());
    }
    let find = |name: &String| {
        let proof = PROOFS.iter().find(|proof| proof.name == name);
        proof.with_context(|| format!("there is no proof '{name}'; these are:\n{}", listing()))
    };
    names.iter().map(find).collect()
}

/// Runs the tests; returns the lines of figures that they printed.
fn prove(root: &Path, proof: &Proof, binary: Option<&Path>, next: Option<&Path>) -> Result<Vec<String>> {
    for packages in proof.packages {
        packages::ensure(packages)?;
    }
    let mut seen = Vec::new();
    for (package, target, module) in proof.tests {
        let mut words = vec!["test", "--locked", "--package", package];
        words.extend(if *target == "lib" { vec!["--lib"] } else { vec!["--test", target] });
        // What an ordinary run leaves out for its length or its needs is what is asked for here.
        let filter = format!("{module}::");
        words.extend(["--", &filter, "--nocapture", "--include-ignored"]);
        let mut command = steps::command(root, &words);
        if proof.mounts {
            command = alone(&command);
        }
        command.stdout(Stdio::piped());
        for (name, binary) in [("WAYLEAVE_BIN", binary), ("WAYLEAVE_BIN_NEXT", next)] {
            if let Some(binary) = binary {
                command.env(name, binary);
            }
        }
        for (name, value) in proof.settings.iter().filter(|(name, _)| std::env::var_os(name).is_none()) {
            command.env(name, value);
        }
        seen.extend(watch(&mut command).with_context(|| format!("proof {}, {target} {module}", proof.name))?);
    }
    if seen.is_empty() {
        bail!("proof {}: its tests passed without a line of figures: did they do anything?", proof.name);
    }
    Ok(seen)
}

/// The same command in its own mount namespace.
fn alone(command: &Command) -> Command {
    let mut alone = Command::new("unshare");
    alone.arg("--mount").arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        alone.current_dir(folder);
    }
    alone
}

/// Runs a command, shows its output and keeps the lines of figures.
fn watch(command: &mut Command) -> Result<Vec<String>> {
    let mut child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let output = child.stdout.take().context("the output of a test")?;
    let mut seen = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line.context("cannot read the output of a test")?;
        println!("{line}");
        if FIGURES.iter().any(|mark| line.contains(mark)) {
            // The test harness may print the name of the test on the same line.
            seen.push(line.rsplit(" ... ").next().unwrap_or_default().trim_start_matches("seen: ").to_owned());
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("its test failed ({status})");
    }
    Ok(seen)
}

/// The release binary, built now; or the one that `WAYLEAVE_BIN` names.
fn binary(root: &Path) -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("WAYLEAVE_BIN") {
        return std::fs::canonicalize(&given).with_context(|| format!("WAYLEAVE_BIN={}", given.display()));
    }
    build(root, &[])
}

/// The same of the next format, kept beside it; or the one that `WAYLEAVE_BIN_NEXT` names.
fn next_binary(root: &Path) -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("WAYLEAVE_BIN_NEXT") {
        return std::fs::canonicalize(&given).with_context(|| format!("WAYLEAVE_BIN_NEXT={}", given.display()));
    }
    let built = build(root, &["--features", "next-format"])?;
    let kept = built.with_file_name("wayleave-next");
    std::fs::copy(&built, &kept).with_context(|| format!("cannot make {}", kept.display()))?;
    Ok(kept)
}

fn build(root: &Path, more: &[&str]) -> Result<PathBuf> {
    steps::cargo(root, &[&["build", "--locked", "--release", "--package", "wayleave-cli"], more].concat())?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder));
    Ok(target.join("release/wayleave"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_are_chosen_by_name_and_unknown_names_are_answered_with_the_list() {
        assert_eq!(choose(&[]).unwrap().len(), PROOFS.len());
        assert_eq!(choose(&["disk".into(), "kills".into()]).unwrap().len(), 2);
        let refused = choose(&["kill".into()]).err().unwrap().to_string();
        assert!(
            refused.contains("'kill'") && refused.contains("kills  ") && refused.contains("pgbouncer"),
            "{refused}"
        );
    }

    /// A regression: a test had moved to another crate, and its proof could no longer be run.
    #[test]
    fn every_proof_names_tests_that_are_there() {
        for (package, target, module) in PROOFS.iter().flat_map(|proof| proof.tests) {
            let folder = crate::root().join("crates").join(package.trim_start_matches("wayleave-"));
            let folder = if *target == "lib" { folder.join("src") } else { folder.join("tests").join(target) };
            let there = folder.join(format!("{module}.rs")).is_file() || folder.join(module).join("mod.rs").is_file();
            assert!(there, "there is no module {module} in {}", folder.display());
        }
    }

    /// A regression: a proof failed after it had passed, because its tests printed no figures.
    #[test]
    fn every_proof_has_tests_that_print_figures() {
        let sources = |folder: &Path| -> String {
            let (mut folders, mut all) = (vec![folder.to_owned()], String::new());
            while let Some(folder) = folders.pop() {
                for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
                    if path.is_dir() {
                        folders.push(path)
                    } else {
                        all += &std::fs::read_to_string(path).unwrap_or_default()
                    }
                }
            }
            all
        };
        for proof in PROOFS {
            let mut all = String::new();
            for (package, target, module) in proof.tests {
                let krate = crate::root().join("crates").join(package.trim_start_matches("wayleave-"));
                let folder = if *target == "lib" { krate.join("src") } else { krate.join("tests").join(target) };
                all += &std::fs::read_to_string(folder.join(format!("{module}.rs"))).unwrap_or_default();
                all += &sources(&folder.join(module));
            }
            assert!(FIGURES.iter().any(|mark| all.contains(mark)), "{}: no test of it prints figures", proof.name);
        }
    }

    #[test]
    fn figures_are_kept_and_a_failed_test_is_an_error() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdout(Stdio::piped());
            watch(&mut command)
        };
        let figures = shell("echo noise; echo 'test a ... 3 kills: none lost'; echo 'seen: 4 cuts'").unwrap();
        assert_eq!(figures, ["3 kills: none lost", "4 cuts"]);
        assert!(shell("echo 'seen: 3 kills'; exit 1").is_err());
    }
}
