//! Checks the OpenAPI document and a real server against each other with schemathesis: thousands of requests that the
//! document allows must be accepted, those that it forbids must be refused, and every response must be one that it
//! describes. The files beside this one configure schemathesis, including what no schema can express.
//!
//! It needs Python and a package index, so an ordinary run ignores it; `cargo xtask prove schema` runs it,
//! with the seeds in `WAYLEAVE_SCHEMA_SEEDS`. Every run checks the bodies of all calls against the document, in `document_stories` of the server.

use crate::prelude::*;
use crate::support::python::{installed, ran};

/// The folder of this file, with the configuration of schemathesis.
fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/binary/schema")
}

#[test]
#[ignore = "needs a package index of Python: `cargo xtask prove schema`"]
fn the_document_says_what_the_server_does() {
    let seeds = std::env::var("WAYLEAVE_SCHEMA_SEEDS").unwrap_or_else(|_| "7".to_owned());
    let program = installed("schemathesis", &here().join("requirements.txt")).join("schemathesis");
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
