//! Runs the tests: every binary is built once, then all run in parallel.
//!
//! Cargo runs one binary after the other and most of them wait: for leases, restarts, a database. Here long parts of a binary run in a
//! process of their own, and what only computes runs at the lowest priority, so that no test that watches the clock waits for
//! it. The parts of a binary are counted against its own list: a test that no part runs fails the whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::jobs::{Done, Job, in_background, leaving_nothing};
use crate::steps;

/// A test binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// The crate's folder and the target: `cli binary`, `core lib`.
    pub name: String,
    pub path: PathBuf,
    /// The crate's folder, where its tests run.
    folder: PathBuf,
}

/// Who may run beside whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Track {
    /// Nearly everything, one binary after the other.
    Rest,
    /// The command line and its servers: waits for leases, browsers and restarts.
    Binary,
    /// Three nodes under faults, then servers that fail over: waits nearly all the time.
    Nodes,
    /// Only computes and reads no clock.
    Background,
}

const TRACKS: [Track; 4] = [Track::Nodes, Track::Binary, Track::Rest, Track::Background];

/// Tests that do not run with all others: their binary, what their paths contain (all, if empty), and their track.
const PARTS: &[(&str, &str, Track)] = &[
    ("sim proofs", "three_nodes::", Track::Nodes),
    ("sim proofs", "kill_loop::", Track::Binary),
    ("sim proofs", "timed_model::", Track::Background),
    ("sim proofs", "seeds::", Track::Background),
    ("engine-fjall lib", "simulated::", Track::Background),
    ("testbed lib", "", Track::Nodes),
    ("cli binary", "", Track::Binary),
];

/// Binaries whose tests start a Docker engine of their own.
pub const NEED_DOCKER: &[&str] = &["makers docker"];

/// Targets whose tests take seconds and start no programs but a database: those of `cargo xtask check`.
pub const QUICK: &[&str] =
    &["decisions", "doors", "elections", "frontier", "memory", "nodes", "registry", "requests", "roles"];

/// Builds the test binaries of the workspace, all or those that the words choose.
pub fn build(root: &Path, words: &[&str]) -> Result<Vec<Binary>> {
    let mut all = vec!["test", "--locked", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
    all.extend(words);
    let mut command = steps::command(root, &all);
    let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the tests cannot be built ({})", output.status);
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut binaries: Vec<Binary> = messages.lines().filter_map(binary).collect();
    binaries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(binaries)
}

/// The test binary in a message of cargo.
fn binary(message: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(message).ok()?;
    let text = |path: &str| message.pointer(path).and_then(Value::as_str);
    let is_test = message.pointer("/profile/test").and_then(Value::as_bool)?;
    let path = text("/executable").filter(|_| is_test && text("/reason") == Some("compiler-artifact"))?;
    let folder = Path::new(text("/manifest_path")?).parent()?;
    let target = match text("/target/kind/0")? {
        "test" => text("/target/name")?,
        kind => kind,
    };
    let name = format!("{} {target}", folder.file_name()?.to_str()?);
    Some(Binary { name, path: path.into(), folder: folder.into() })
}

/// The processes that run all tests of these binaries, in tracks.
pub fn plan(binaries: &[Binary]) -> Vec<Vec<Job>> {
    TRACKS.map(|track| binaries.iter().flat_map(|binary| jobs(binary, track)).collect()).into()
}

/// The part of a binary's tests that a track runs.
fn jobs(binary: &Binary, track: Track) -> Vec<Job> {
    let parts: Vec<_> = PARTS.iter().filter(|(name, ..)| *name == binary.name).collect();
    let mine = parts.iter().filter(|(.., its)| *its == track);
    let mut jobs: Vec<Job> = mine.map(|(_, tests, _)| binary.job(tests, tests, track)).collect();
    if track == Track::Rest && parts.iter().all(|(_, tests, _)| !tests.is_empty()) {
        let skipped: Vec<String> = parts.iter().map(|(_, tests, _)| format!("--skip={tests}")).collect();
        jobs.push(binary.job("", &skipped.join(" "), track));
    }
    jobs
}

impl Binary {
    fn job(&self, part: &str, words: &str, track: Track) -> Job {
        let mut command = self.command();
        command.args(words.split_whitespace());
        let command = if track == Track::Background { in_background(&command) } else { command };
        let mut command = leaving_nothing(&command);
        command.stdin(Stdio::null());
        let part = part.trim_end_matches(':');
        Job { name: format!("{} {part}", self.name).trim_end().to_owned(), command }
    }

    /// The binary as cargo would start it.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).stdin(Stdio::null());
        command
    }

    /// How many tests it has.
    fn count(&self) -> Result<usize> {
        let listed = self.command().args(["--list", "--format=terse"]).output();
        let listed = listed.with_context(|| format!("cannot start {}", self.path.display()))?;
        Ok(String::from_utf8_lossy(&listed.stdout).lines().filter(|line| line.ends_with(": test")).count())
    }
}

/// How many tests were run and how many left out with a reason. Fails if a binary has more or fewer tests than were run
/// of it.
pub fn judge(binaries: &[Binary], done: &[Done]) -> Result<(usize, usize)> {
    let mut sums = (0, 0);
    for binary in binaries {
        let parts =
            done.iter().filter(|done| done.name == binary.name || done.name.starts_with(&format!("{} ", binary.name)));
        let (ran, left_out) = parts.fold((0, 0), |sum, done| {
            let counts = counts(&done.out);
            (sum.0 + counts.0, sum.1 + counts.1)
        });
        let listed = binary.count()?;
        if ran + left_out != listed {
            bail!(
                "{}: {listed} tests are listed, {ran} were run and {left_out} ignored: see PARTS in {}",
                binary.name,
                file!()
            );
        }
        sums = (sums.0 + ran, sums.1 + left_out);
    }
    Ok(sums)
}

/// The tests that passed and those that were ignored, by the last line of a test binary.
fn counts(out: &str) -> (usize, usize) {
    let result = out.lines().rev().find(|line| line.starts_with("test result: ")).unwrap_or_default();
    let words: Vec<&str> = result.split([' ', ';']).filter(|word| !word.is_empty()).collect();
    let counts: BTreeMap<&str, usize> =
        words.windows(2).filter_map(|pair| Some((*pair.get(1)?, pair.first()?.parse().ok()?))).collect();
    let count = |word| counts.get(word).copied().unwrap_or_default();
    (count("passed"), count("ignored"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Binary {
        Binary { name: name.to_owned(), path: "/t/deps/x".into(), folder: "/t".into() }
    }

    fn summary(passed: usize, ignored: usize) -> String {
        format!(
            "running\ntest result: ok. {passed} passed; 0 failed; {ignored} ignored; 0 measured; 7 filtered out; finished in 0s\n"
        )
    }

    #[test]
    fn test_binaries_are_found_in_cargos_messages() {
        let message = |test: bool, kind: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/cli/Cargo.toml","executable":"/t/x",
                "target":{{"kind":["{kind}"],"name":"binary"}},"profile":{{"test":{test}}}}}"#
            )
            .replace('\n', " ")
        };
        assert_eq!(binary(&message(true, "test")).unwrap().name, "cli binary");
        assert_eq!(binary(&message(true, "lib")).unwrap().name, "cli lib");
        assert_eq!(binary(&message(false, "bin")), None, "the program itself is no test");
        assert_eq!(binary(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(binary("no JSON"), None);
    }

    /// Whatever is run apart is left out of the rest, and nothing else is.
    #[test]
    fn every_test_of_a_binary_is_in_one_part_of_the_plan() {
        let tracks = plan(&[named("sim proofs"), named("cli binary"), named("core lib")]);
        let words = |job: &Job| {
            let args = job.command.get_args().map(|arg| arg.to_string_lossy().into_owned());
            args.collect::<Vec<_>>().join(" ")
        };
        let all: Vec<(&str, String)> = tracks.iter().flatten().map(|job| (job.name.as_str(), words(job))).collect();
        let expected = [
            ("sim proofs three_nodes", "leaves-nothing /t/deps/x three_nodes::"),
            ("sim proofs kill_loop", "leaves-nothing /t/deps/x kill_loop::"),
            ("cli binary", "leaves-nothing /t/deps/x"),
            (
                "sim proofs",
                "leaves-nothing /t/deps/x --skip=three_nodes:: --skip=kill_loop:: --skip=timed_model:: --skip=seeds::",
            ),
            ("core lib", "leaves-nothing /t/deps/x"),
            ("sim proofs timed_model", "leaves-nothing nice -n 19 /t/deps/x timed_model::"),
            ("sim proofs seeds", "leaves-nothing nice -n 19 /t/deps/x seeds::"),
        ];
        assert_eq!(all, expected.map(|(name, words)| (name, words.to_owned())));
    }

    #[test]
    fn the_last_line_of_a_binary_says_how_many_tests_it_ran() {
        assert_eq!(counts(&summary(12, 3)), (12, 3));
        assert_eq!(counts("it ended before"), (0, 0));
    }

    /// What went wrong once: a proof passed because it was never run.
    #[test]
    fn a_test_that_no_part_ran_fails_the_whole() {
        let me = Binary {
            name: "xtask bin".to_owned(),
            path: std::env::current_exe().unwrap(),
            folder: crate::root().join("xtask"),
        };
        let there = me.count().unwrap();
        let done = |passed| {
            [Done {
                name: "xtask bin".to_owned(),
                took: std::time::Duration::ZERO,
                out: summary(passed, 0),
                succeeded: true,
            }]
        };
        assert_eq!(judge(std::slice::from_ref(&me), &done(there)).unwrap(), (there, 0));
        let refused = judge(std::slice::from_ref(&me), &done(there - 1)).unwrap_err().to_string();
        assert!(refused.contains("xtask bin") && refused.contains("PARTS"), "{refused}");
    }

    #[test]
    fn parts_and_quick_targets_are_there() {
        let crates = crate::root().join("crates");
        let there = |folder: &Path, target: &str| {
            folder.join("tests").join(target).join("main.rs").is_file()
                || folder.join("tests").join(format!("{target}.rs")).is_file()
        };
        for (name, part, _) in PARTS {
            let (folder, target) = name.split_once(' ').unwrap();
            let folder = crates.join(folder);
            assert!(folder.is_dir() && (target == "lib" || there(&folder, target)), "{name}");
            let modules = if target == "lib" { folder.join("src") } else { folder.join("tests").join(target) };
            let module = modules.join(part.trim_end_matches(':'));
            assert!(part.is_empty() || module.is_dir() || module.with_extension("rs").is_file(), "{name} {part}");
        }
        for target in QUICK {
            let mut folders = std::fs::read_dir(&crates).unwrap().map(|entry| entry.unwrap().path());
            assert!(folders.any(|folder| there(&folder, target)), "no crate has tests/{target}");
        }
    }
}
