//! Generates clients from the OpenAPI document with openapi-generator and openapi-python-client, imports every module of them,
//! and lets them put, reserve and release at a real server, and make the calls whose schemas are the hardest.
//!
//! It needs Java, Python and a package index, so an ordinary run ignores it; `cargo xtask prove generators` runs it. Every run
//! checks the document for what the two cannot read, in `generators` of the server's tests.

use crate::prelude::*;
use crate::support::python::{installed, ran};

/// The folder of this file, with the scripts that use the clients.
fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/binary/generators")
}

/// How many calls the document has.
fn calls(document: &str) -> usize {
    let document: serde_json::Value = serde_json::from_str(document).unwrap();
    let paths = document["paths"].as_object().unwrap();
    paths.values().map(|path| path.as_object().unwrap().len()).sum()
}

/// The files of Python below a folder that contain a text.
fn files_with(folder: &Path, text: &str) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let count = |path: PathBuf| match path.is_dir() {
        true => files_with(&path, text),
        false => std::fs::read_to_string(&path).map_or(0, |code| code.matches(text).count()),
    };
    entries.map(count).sum()
}

/// Runs a worker's round with a client against a server of its own.
fn use_client(programs: &Path, clients: &Path, script: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let mut command = Command::new(programs.join("python"));
    command.arg(here().join(script)).arg(&server.url).env("PYTHONPATH", clients).env("PYTHONDONTWRITEBYTECODE", "1");
    ran(&mut command).unwrap_or_else(|told| panic!("{script}:\n{told}"))
}

#[test]
#[ignore = "needs Java and a package index of Python: `cargo xtask prove generators`"]
fn generated_clients_have_every_call_and_work() {
    let programs = installed("generators", &here().join("requirements.txt"));
    let folder = tempfile::tempdir().unwrap();
    let (clients, document) = (folder.path().join("clients"), folder.path().join("openapi.json"));
    std::fs::create_dir(&clients).unwrap();
    let server = Server::start(&folder.path().join("data"));
    let fetch = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())";
    let mut python = Command::new(programs.join("python"));
    let text = ran(python.args(["-c", fetch, &format!("{}/openapi.json", server.url)])).unwrap();
    std::fs::write(&document, &text).unwrap();
    drop(server);

    let mut java = Command::new(programs.join("openapi-generator-cli"));
    java.args(["generate", "-g", "python", "--package-name", "by_openapi_generator", "-i"]).arg(&document);
    let told = ran(java.arg("-o").arg(&clients)).unwrap_or_else(|told| panic!("openapi-generator:\n{told}"));
    let made = files_with(&clients.join("by_openapi_generator/api"), "_with_http_info(\n        self,");
    assert_eq!(made, calls(&text), "openapi-generator left calls out:\n{told}");
    let used = use_client(&programs, &clients, "use_openapi_generator.py");
    println!("seen: openapi-generator: {made} calls, {}", used.trim());

    let mut python = Command::new(programs.join("openapi-python-client"));
    python.args(["generate", "--meta", "none", "--path"]).arg(&document);
    python.arg("--output-path").arg(clients.join("by_openapi_python_client"));
    let told = ran(&mut python).unwrap_or_else(|told| panic!("openapi-python-client:\n{told}"));
    let made = files_with(&clients.join("by_openapi_python_client/api"), "\ndef sync_detailed(");
    assert_eq!(made, calls(&text), "openapi-python-client left calls out:\n{told}");
    assert!(!told.contains("Unable to process"), "openapi-python-client left types out:\n{told}");
    let used = use_client(&programs, &clients, "use_openapi_python_client.py");
    println!("seen: openapi-python-client: {made} calls, {}", used.trim());
}
