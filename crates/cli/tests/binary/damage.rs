//! A damaged journal, with the real binary: refused with its offset, left unchanged, and repaired on demand.

use std::fs;
use std::path::Path;

use crate::support::{Server, folder, run, wayleave};

/// Flips a byte in the middle of the newest journal's content; returns the file's bytes after that.
fn damage(data: &Path) -> (std::path::PathBuf, Vec<u8>) {
    let files = fs::read_dir(data.join("journal")).unwrap().map(|entry| entry.unwrap().path());
    let newest = files.filter(|path| path.extension().is_some_and(|suffix| suffix == "journal")).max().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end / 2] ^= 1;
    fs::write(&newest, &bytes).unwrap();
    (newest, bytes)
}

#[test]
fn one_flipped_byte_in_the_journal_refuses_to_start_and_is_repaired_on_demand() {
    let (_keep, data) = folder();
    let server = Server::start(&data);
    for n in 0..40 {
        server.run(&["put", &format!("http://h{n}.example/")]).ok();
    }
    server.kill();
    let (newest, bytes) = damage(&data);
    let serve = ["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let refused = run(wayleave(&serve), "");
    let name = newest.file_name().unwrap().to_str().unwrap();
    for said in [name, "at byte ", "damaged", "backup", "--repair", "bytes of this file"] {
        assert!(refused.err.contains(said), "{said}: {}", refused.err);
    }
    assert!(refused.code != 0 && fs::read(&newest).unwrap() == bytes, "the evidence is left as it is");
    let repaired = Server::start_with(&data, &["--repair"]);
    assert!(repaired.log().contains("the journal is damaged"), "{}", repaired.log());
    let queued = repaired.stats()["urls"]["queued"].as_u64().unwrap();
    assert!((1..40).contains(&queued), "what came before the damage is there: {queued}");
    assert_eq!(repaired.stop(), 0);
    let copy = fs::read_dir(data.join("journal")).unwrap();
    assert!(copy.flatten().any(|entry| entry.file_name().to_string_lossy().contains("dropped")));
    assert_eq!(Server::start(&data).stop(), 0, "and it starts without the flag from then on");
}

#[test]
fn no_epoch_is_granted_again_after_a_repair() {
    let (_keep, data) = folder();
    let server = Server::start(&data);
    server.run(&["roles", "set", "r", "--ttl", "7s"]).ok();
    for _ in 0..8 {
        server.run(&["elect", "r", "--once", "--", "true"]).ok();
    }
    server.kill();
    damage(&data);
    let repaired = Server::start_with(&data, &["--repair"]);
    let told = repaired.run(&["elect", "r", "--once", "--", "sh", "-c", "echo epoch=$WAYLEAVE_EPOCH"]).ok();
    let epoch: u64 = told.split("epoch=").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!(epoch > 8, "eight were granted before: {epoch}");
    assert_eq!(repaired.stop(), 0);
}

/// A server with tables on disk, stopped in good order.
fn with_tables(data: &Path) {
    let server = Server::start_with(data, &["--memtable-mb", "1"]);
    let urls: String = (0..30_000).map(|n| format!("http://h{}.example/{n}/{}\n", n % 300, "x".repeat(60))).collect();
    server.run_with(&["seed", "-"], &urls).ok();
    assert_eq!(server.stop(), 0);
}

/// Every file below a folder, with its length.
fn files(folder: &Path) -> Vec<(std::path::PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.metadata().unwrap() {
            known if known.is_dir() => found.extend(files(&entry.path())),
            known => found.push((entry.path(), known.len())),
        }
    }
    found.sort();
    found
}

/// A regression: without `db/keyspaces/*/current` a start deleted all tables.
#[test]
fn a_missing_small_file_is_named_and_no_table_is_removed() {
    let (_keep, data) = folder();
    with_tables(&data);
    for missing in ["db/current", "FORMAT"] {
        let bytes = fs::read(data.join(missing)).unwrap();
        fs::remove_file(data.join(missing)).unwrap();
        let before = files(&data);
        let refused = run(wayleave(&["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"]), "");
        assert!(
            refused.code != 0 && refused.err.contains("damaged") && refused.err.contains(missing),
            "{}",
            refused.err
        );
        assert_eq!(files(&data), before, "nothing is removed or made");
        fs::write(data.join(missing), bytes).unwrap();
    }
    let server = Server::start_with(&data, &["--memtable-mb", "1"]);
    assert_eq!(server.stats()["urls"]["queued"], 30_000);
    assert_eq!(server.stop(), 0);
}

/// A regression: one unreadable block took a core, made readiness flap and ended the process in a loop of restarts.
#[test]
fn an_unreadable_block_costs_the_hosts_in_it_and_nothing_else() {
    let (_keep, data) = folder();
    with_tables(&data);
    let tables = files(&data.join("db/tables"));
    let (largest, len) = tables.iter().max_by_key(|(_, len)| *len).unwrap();
    let mut bytes = fs::read(largest).unwrap();
    // In the middle of the file there are rows of URLs.
    bytes[*len as usize / 2] ^= 1;
    fs::write(largest, bytes).unwrap();
    let mut server = Server::start_with(&data, &["--memtable-mb", "1"]);
    let taken = server.run(&["get", "--groups", "290", "--urls", "10", "--json"]).ok();
    assert!(taken.lines().count() > 100, "other hosts are served: {} lines", taken.lines().count());
    server.run(&["put", "http://new.example/"]).ok();
    let more: String = (0..40_000).map(|n| format!("http://n{}.example/{n}/{}\n", n % 300, "y".repeat(60))).collect();
    server.run_with(&["seed", "-"], &more).ok();
    assert_eq!(server.ended(), None, "merges that meet the damage do not end it: {}", server.log());
    let panics = server.log().lines().filter(|line| line.contains("panicked")).count();
    assert_eq!(panics, 0, "{}", server.log());
    assert_eq!(server.stop(), 0);
    let again = Server::start_with(&data, &["--memtable-mb", "1"]);
    assert_eq!(again.stop(), 0, "and it starts again");
}
