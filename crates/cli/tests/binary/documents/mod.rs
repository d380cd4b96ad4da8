//! Runs every code block of the documents, so that none of them can go stale.
//!
//! | block | what happens to it |
//! |---|---|
//! | `sh` | run by a shell, all blocks of a document in one session, against a real server on a free port |
//! | `console` | the same for its `$` lines; the output must match, `…` stands for anything |
//! | `python` | run by `python3` in the same session |
//! | `toml` | loaded by `wayleave serve --config` |
//! | `json` | parsed; a problem must have a code that the API knows |
//! | `ini`, `crontab` | parsed |
//! | `text` | a diagram or a timeline, no code |
//! | any with `part-of=FILE` | its lines must be in that file, in this order and without a gap |
//! | `sh` with `with=postgres` | run with a real database in `WAYLEAVE_ENGINE` |
//! | `sh` or `console` with `no-run=REASON` | not run, and listed in [`NOT_RUN`] |
//!
//! In any case, every `wayleave …` command in a block must parse against the real command-line definition. So must
//! every command in running text, where arguments may be omitted.

mod block;
mod broken;
mod commands;
mod laws;
mod links;
mod session;
mod site;

use block::{Block, Use};

use crate::prelude::*;

/// Blocks that no test runs, each with its reason: the whole list, so that it cannot grow unnoticed.
const NOT_RUN: [&str; 16] = [
    "CONTRIBUTING.md: runs-all-tests",
    "CONTRIBUTING.md: runs-all-tests",
    "README.md: builds-the-release-binary",
    "bench/README.md: takes-minutes",
    "bench/README.md: takes-minutes",
    "bench/README.md: takes-minutes",
    "docs/elect.md: runs-forever",
    "docs/elect.md: runs-forever",
    "docs/nodes.md: needs-three-machines",
    "docs/nodes.md: needs-three-machines",
    "docs/nodes.md: needs-three-machines",
    "docs/operating.md: needs-a-database",
    "docs/operating.md: needs-docker",
    "docs/urlfrontier.md: needs-a-running-urlfrontier",
    "docs/workers.md: crawls-the-web",
    "docs/workers.md: runs-forever",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The documents whose blocks are checked, with their text.
fn documents() -> Vec<(String, String)> {
    let mut names: Vec<String> = ["README.md", "CONTRIBUTING.md", "bench/README.md"].map(str::to_owned).into();
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    names.extend(docs.map(|name| format!("docs/{}", name.to_str().unwrap())).filter(|name| name.ends_with(".md")));
    names.sort();
    names.into_iter().map(|name| (name.clone(), std::fs::read_to_string(root().join(name)).unwrap())).collect()
}

/// The results of the blocks of a document.
#[derive(Debug, Default)]
struct Tally {
    run: usize,
    parsed: usize,
    not_run: Vec<String>,
}

/// Checks one document: parses every block and every command, then runs what can be run.
fn check(file: &str, markdown: &str) -> Result<Tally, String> {
    let blocks = block::blocks(file, markdown)?;
    commands::check(file, markdown, &blocks)?;
    let mut tally = Tally::default();
    for block in &blocks {
        match block.purpose()? {
            Use::Run => tally.run += 1,
            Use::Parse => tally.parsed += usize::from(block.parse()?),
            Use::NotRun(reason) => tally.not_run.push(format!("{}: {reason}", block.file)),
        }
    }
    let run: Vec<&Block> = blocks.iter().filter(|block| matches!(block.purpose(), Ok(Use::Run))).collect();
    if !run.is_empty() {
        session::run(&run)?;
    }
    Ok(tally)
}

#[test]
fn every_block_of_the_documents_works() {
    let only = std::env::var("WAYLEAVE_DOCUMENT").unwrap_or_default();
    let documents: Vec<_> = documents().into_iter().filter(|(file, _)| file.contains(&only)).collect();
    let checked: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = documents
            .iter()
            .map(|(file, text)| scope.spawn(move || check(file, text).map_err(|why| why + "\n")))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let wrong: String = checked.iter().filter_map(|result| result.as_ref().err()).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{wrong}");
    let mut all = Tally::default();
    for tally in checked.into_iter().flatten() {
        all.run += tally.run;
        all.parsed += tally.parsed;
        all.not_run.extend(tally.not_run);
    }
    all.not_run.sort();
    println!("{} blocks run, {} parsed, {} not run: {:#?}", all.run, all.parsed, all.not_run.len(), all.not_run);
    assert!(!only.is_empty() || all.not_run == NOT_RUN, "blocks that are not run: {:#?}", all.not_run);
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut documents = documents();
    for name in ["ARCHITECTURE.md", "CHANGELOG.md"] {
        documents.push((name.to_owned(), std::fs::read_to_string(root().join(name)).unwrap()));
    }
    let wrong: Vec<String> = documents.iter().flat_map(|(file, text)| links::dead(&root(), file, text)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_settings_page_lists_every_flag_of_serve() {
    let page = std::fs::read_to_string(root().join("docs/settings.md")).unwrap();
    let cli = <wayleave_cli::Cli as clap::CommandFactory>::command();
    let serve = cli.get_subcommands().find(|command| command.get_name() == "serve").unwrap();
    let flags = serve.get_arguments().filter_map(|arg| arg.get_long()).map(|flag| format!("\n| `--{flag}` |"));
    let missing: Vec<String> = flags.filter(|flag| !page.contains(flag)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_readme_has_at_most_a_thousand_words() {
    let words = std::fs::read_to_string(root().join("README.md")).unwrap().split_whitespace().count();
    assert!(words <= 1_000, "{words} words");
}
