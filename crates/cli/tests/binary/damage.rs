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
