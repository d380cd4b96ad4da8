//! A damaged journal, with the real binary: refused with its offset, left unchanged, and repaired on demand.

use std::fs;

use crate::prelude::*;

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

type Spoil = fn(&mut Vec<u8>) -> bool;

/// Each in one line; what is quoted here is in the documentation too.
#[test]
fn a_start_names_each_file_that_is_missing_or_damaged_once_and_the_remedy() {
    let (keep, data) = folder();
    with_tables(&data);
    let largest = |of: &str| files(&data.join(of)).into_iter().max_by_key(|(_, len)| *len).unwrap().0;
    let version = fs::read_dir(data.join("db")).unwrap().flatten().map(|entry| entry.path());
    let version = version.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with('v')).max().unwrap();
    let (table, journal) = (largest("db/tables"), largest("journal"));
    let (format, current) = (data.join("FORMAT"), data.join("db/current"));
    let gone: Spoil = |_| false;
    let cut: Spoil = |bytes| {
        bytes.truncate(bytes.len() / 2);
        true
    };
    let first: Spoil = |bytes| {
        bytes[9] ^= 1;
        true
    };
    let description: Spoil = |bytes| {
        let at = bytes.len() - 300;
        bytes[at] ^= 1;
        true
    };
    let documented = include_str!("../../../../docs/operating.md");
    for (file, spoil, said) in [
        (&format, gone, "the file FORMAT is missing"),
        (&format, first, "FORMAT does not match its checksum"),
        (&current, gone, "db/current: it is missing"),
        (&current, cut, "db/current: it is too short"),
        (&version, gone, "it is missing"),
        (&version, cut, "its list of tables cannot be read"),
        (&version, first, "its checksum is not the one that the file current names"),
        (&table, gone, "it is missing"),
        (&table, cut, "its layout cannot be read: it may be cut off"),
        (&table, description, "the checksum of a block does not match"),
        (&journal, gone, "the file is missing"),
        (&journal, first, "its beginning cannot be read"),
    ] {
        let sound = fs::read(file).unwrap();
        let mut bytes = sound.clone();
        if spoil(&mut bytes) {
            fs::write(file, bytes).unwrap()
        } else {
            fs::remove_file(file).unwrap()
        }
        let refused = run(wayleave(&["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"]), "");
        let name = file.strip_prefix(&data).unwrap().to_str().unwrap();
        assert!(refused.code != 0 && refused.err.lines().count() == 1, "{name}: {}", refused.err);
        for part in [name, said, "nothing was changed", "backup"] {
            assert!(refused.err.contains(part), "{name}, {part}: {}", refused.err);
        }
        let saved = keep.path().join("saved");
        let salvaged = run(wayleave(&["salvage", data.to_str().unwrap(), saved.to_str().unwrap()]), "");
        let is_advised = refused.err.contains("`wayleave salvage`");
        assert_eq!(is_advised, [0, 6].contains(&salvaged.code), "{name}: {}{}", refused.err, salvaged.err);
        if is_advised {
            fs::remove_dir_all(&saved).unwrap();
        } else {
            let said = salvaged.err;
            assert!(said.contains("backup") && said.contains(name) && !said.contains("`wayleave salvage`"), "{said}");
        }
        assert!(documented.contains(said), "{said}");
        fs::write(file, sound).unwrap();
    }
    let mut bytes = fs::read(&table).unwrap();
    bytes[100] ^= 1;
    fs::write(&table, bytes).unwrap();
    let server = Server::start(&data);
    let log = server.log();
    assert!(log.contains("not ready: ") && log.contains("shard closed: rows that it needs cannot be read"), "{log}");
    assert!(log.contains(table.strip_prefix(&data).unwrap().to_str().unwrap()) && !log.contains("Block"), "{log}");
    assert_eq!(server.stop(), 0);
}

/// A regression: what is stored was called the last that was acknowledged, also where the journal has newer rows.
#[test]
fn a_salvage_names_the_hosts_whose_rows_the_journal_has_newer() {
    let (keep, data) = folder();
    let server = Server::start(&data);
    for n in 0..40 {
        server.run(&["put", &format!("http://h{n}.example/")]).ok();
    }
    server.run(&["put", "http://h0.example/later"]).ok();
    server.kill();
    damage(&data);
    let saved = keep.path().join("saved");
    let said = run(wayleave(&["salvage", data.to_str().unwrap(), saved.to_str().unwrap()]), "");
    assert_eq!(said.code, 6, "{}{}", said.out, said.err);
    let list = fs::read_to_string(keep.path().join("saved.lost")).unwrap();
    let older = |host: &str| list.contains(&format!("{host}.example\tnewer versions of rows of these hosts"));
    assert!(older("h39") && older("h0") && !older("h1"), "{list}");
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

/// A regression: where the end of a table with rows was lost, a salvage did not end.
#[test]
fn a_table_that_has_lost_its_end_is_salvaged_wherever_it_is_cut() {
    let (keep, data) = folder();
    let server = Server::start(&data);
    let urls: String = (0..2_400).map(|n| format!("http://h{}.example/page/{n}\n", n % 240)).collect();
    server.run_with(&["seed", "-"], &urls).ok();
    // A snapshot writes all rows to tables.
    server.run(&["snapshot", keep.path().join("snapshot").to_str().unwrap()]).ok();
    assert_eq!(server.stop(), 0);
    let (table, len) = files(&data.join("db/tables")).into_iter().max_by_key(|(_, len)| *len).unwrap();
    let whole = fs::read(&table).unwrap();
    let (saved, mut rows) = (keep.path().join("saved"), Vec::new());
    let lengths = (1..10).map(|tenth| len as usize * tenth / 10).chain([len as usize - 20_000, len as usize - 2_000]);
    for length in lengths {
        for cut in [true, false] {
            let mut bytes = whole.clone();
            if cut {
                bytes.truncate(length)
            } else {
                bytes[length..].fill(0)
            }
            fs::write(&table, bytes).unwrap();
            let said = run(wayleave(&["salvage", data.to_str().unwrap(), saved.to_str().unwrap(), "--json"]), "");
            assert!([0, 6].contains(&said.code), "{length} of {len}: {}{}", said.out, said.err);
            let made: Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
            rows.push((length, made["rows"].as_u64().unwrap(), said.code));
            run(wayleave(&["check", saved.to_str().unwrap()]), "").ok();
            fs::remove_dir_all(&saved).unwrap();
        }
    }
    let (parts, ends): (Vec<_>, Vec<_>) = rows.iter().partition(|(length, ..)| length * 10 <= len as usize * 8);
    assert!(parts.is_sorted_by_key(|(_, rows, _)| rows), "the more there is of it, the more is saved: {rows:?}");
    assert!(parts.iter().all(|(.., code)| *code == 6) && ends.last().unwrap().2 == 0, "{rows:?}");
    println!("seen: of a table of {len} bytes with 2400 URLs, rows saved by length: {rows:?}");
}
