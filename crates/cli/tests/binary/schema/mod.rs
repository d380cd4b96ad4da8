//! Checks the OpenAPI document and a real server against each other with schemathesis: thousands of requests that the
//! document allows must be accepted, those that it forbids must be refused, and every response must be one that it
//! describes. The files beside this one configure schemathesis, including what no schema can express.
//!
//! It needs Python and a package index, so an ordinary run ignores it; `cargo xtask prove schema` runs it,
//! with the seeds in `WAYLEAVE_SCHEMA_SEEDS`. Every run checks the bodies of all calls against the document, in `document_stories` of the server.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Server;

/// The folder of this file, with the configuration of schemathesis.
fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/binary/schema")
}

/// The output of a command, as an error with its status if it failed.
fn ran(command: &mut Command) -> Result<String, String> {
    let ended = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let text = [ended.stdout, ended.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    if ended.status.success() { Ok(text) } else { Err(format!("{text}\n{}", ended.status)) }
}

/// schemathesis in the requested version, in a virtual environment below `target`.
fn schemathesis() -> PathBuf {
    let requirements = here().join("requirements.txt");
    let wanted = std::fs::read_to_string(&requirements).unwrap();
    let version = wanted.trim().rsplit('=').next().unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemathesis");
    let program = folder.join("bin/schemathesis");
    let is_there = || ran(Command::new(&program).arg("--version")).is_ok_and(|told| told.contains(version));
    if !is_there() {
        let made = ran(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
        made.unwrap_or_else(|told| panic!("cannot make a virtual environment; install python3-venv:\n{told}"));
        let pip = folder.join("bin/pip");
        let installed = ran(Command::new(pip).args(["install", "--quiet", "--requirement"]).arg(&requirements));
        if let Err(told) = installed {
            panic!(
                "{told}\npip cannot install {}: name a package index that it reaches (PIP_INDEX_URL) or a folder with the packages \
                 (PIP_NO_INDEX=1 PIP_FIND_LINKS=folder), then run this again",
                wanted.trim()
            );
        }
        assert!(is_there(), "{} is not version {version}", program.display());
    }
    program
}

#[test]
#[ignore = "needs a package index of Python: `cargo xtask prove schema`"]
fn the_document_says_what_the_server_does() {
    let seeds = std::env::var("WAYLEAVE_SCHEMA_SEEDS").unwrap_or_else(|_| "7".to_owned());
    let program = schemathesis();
    for seed in seeds.split(' ') {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(&folder.path().join("data"));
        let mut command = Command::new(&program);
        command.arg("--config-file").arg(here().join("schemathesis.toml"));
        command.args(["run", &format!("{}/openapi.json", server.url), "--seed", seed, "--max-examples", "25"]);
        // A snapshot is the whole store, and not JSON.
        command.args(["--phases", "examples,coverage,fuzzing,stateful", "--exclude-path", "/v1/snapshot"]);
        command.env("PYTHONPATH", here()).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(folder.path());
        let told =
            ran(&mut command).unwrap_or_else(|told| panic!("{told}\nseed {seed}: the document and the server differ"));
        let cases = told.lines().find(|line| line.contains(" generated")).expect(&told);
        println!("seen: seed {seed}: {}, and the document says what the server did", cases.trim());
    }
}
