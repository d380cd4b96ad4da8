//! `snapshot`, `export`, `restore` and `salvage` killed with SIGKILL on their way, and run again; `copy` has its own test.
//!
//! What could break a promise: a half-written file or folder is taken for a whole one; what is left of the first run keeps the
//! second one from its work, or is never removed; the folder that is salvaged is changed.

use std::fs;

use crate::prelude::*;

const URLS: usize = 20_000;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A server with many URLs, all of them in tables.
fn filled(data: &Path) -> Server {
    let server = Server::start_with(data, &["--memtable-mb", "1"]);
    let urls: String = (0..URLS).map(|n| format!("http://h{}.example/page/{n}\n", n % 200)).collect();
    server.run_with(&["seed"], &urls).ok();
    server
}

fn urls_of(data: &Path) -> usize {
    let server = Server::start(data);
    let count = server.run(&["urls", "list", "--all", "--json"]).json().len();
    assert_eq!(server.stop(), 0);
    count
}

/// The bytes in a file, or in all files of a folder, that is being written.
fn written(path: &Path) -> u64 {
    let Ok(known) = path.metadata() else { return 0 };
    if known.is_file() {
        return known.len();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| written(&entry.path())).sum()
}

/// Runs a command and kills it when this much is in a file or folder; false if it has ended before.
fn kill_at(args: &[&str], server: Option<&Server>, part: &Path, bytes: u64) -> bool {
    let mut command = wayleave(args);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    if let Some(server) = server {
        command.env("WAYLEAVE_SERVER", &server.url);
    }
    let mut child = command.spawn().unwrap();
    let mut ended = false;
    while written(part) < bytes && !ended {
        ended = child.try_wait().unwrap().is_some();
        std::thread::yield_now();
    }
    child.kill().unwrap();
    // It may have had nothing left to do but to exit.
    child.wait().unwrap().code().is_none() && part.exists()
}

/// Kills a command at several points of its way; `undo` makes room for another try where it came too late.
fn kill(args: &[&str], server: Option<&Server>, part: &Path, mut undo: impl FnMut(), mut check: impl FnMut(u64)) {
    for bytes in [1, 40_000, 200_000] {
        // On a busy machine it may have ended before it was looked at.
        while !kill_at(args, server, part, bytes) {
            undo();
        }
        check(bytes);
    }
}

#[test]
fn a_snapshot_and_an_export_that_were_killed_are_made_anew() {
    let (keep, data) = folder();
    let server = filled(&data);
    for (command, name) in [(&["snapshot"][..], "all.snapshot"), (&["export", "--partial"], "all.jsonl")] {
        let file = keep.path().join(name);
        let part = keep.path().join(format!("{name}.part"));
        let args = [command, &[text(&file)]].concat();
        let undo = || _ = fs::remove_file(&file);
        kill(&args, Some(&server), &part, undo, |bytes| {
            assert!(!file.exists() && part.exists(), "{name} after {bytes} bytes");
        });
        let half = fs::read(&part).unwrap();
        server.run(&args).ok();
        assert!(file.exists() && !part.exists() && fs::read(&file).unwrap().len() > half.len());
        // What something else has left under that name is no hindrance either, and an existing file is kept.
        fs::write(&part, "x".repeat(1 << 20)).unwrap();
        assert_ne!(server.run(&args).code, 0);
        fs::remove_file(&file).unwrap();
        server.run(&args).ok();
        assert!(file.exists() && !part.exists());
    }
    let lines = fs::read_to_string(keep.path().join("all.jsonl")).unwrap();
    assert_eq!(lines.lines().filter(|line| line.contains("example/page/")).count(), URLS);
    assert_eq!(server.stop(), 0);
    let restored = keep.path().join("restored");
    run(wayleave(&["restore", text(&keep.path().join("all.snapshot")), "--data", text(&restored)]), "").ok();
    assert_eq!(urls_of(&restored), URLS);
    println!(
        "seen: snapshot and export killed at 3 points each: no file of that name; run again, all {URLS} URLs are in it"
    );
}

fn refused(data: &Path) {
    let refused = run(wayleave(&["serve", "--data", text(data), "--listen", "127.0.0.1:0"]), "");
    assert!(refused.code != 0 && refused.err.contains(text(data)), "{}", refused.err);
    assert!(
        refused.err.contains("was interrupted") && refused.err.contains("run the same command again"),
        "{}",
        refused.err
    );
}

#[test]
fn a_restore_that_was_killed_is_never_opened_and_is_made_anew() {
    let ((keep, data), (_keep_other, other)) = (folder(), folder());
    let file = keep.path().join("all.snapshot");
    let server = filled(&data);
    server.run(&["snapshot", text(&file)]).ok();
    assert_eq!(server.stop(), 0);
    let args = ["restore", text(&file), "--data", text(&other)];
    let undo = || _ = fs::remove_dir_all(&other);
    kill(&args, None, &other.join("load.part/db"), undo, |_| refused(&other));
    run(wayleave(&args), "").ok();
    assert!(!other.join("load.part").exists());
    run(wayleave(&["check", text(&other)]), "").ok();
    assert_eq!(urls_of(&other), URLS);
    println!("seen: a restore killed at 3 points: serve refuses each; run again, all {URLS} URLs are there");
}

/// All files with their content, but the lock.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.file_name() != "LOCK") {
        let path = entry.path();
        if path.is_dir() {
            found.extend(contents(&path))
        } else {
            _ = found.insert(path.clone(), fs::read(&path).unwrap())
        }
    }
    found
}

/// A store whose largest table cannot be opened, so that a salvage makes it anew beside the new folder.
fn damaged(data: &Path) {
    let server = filled(data);
    server.run(&["snapshot", text(&data.with_extension("snapshot"))]).ok();
    server.kill();
    let tables = contents(&data.join("db/tables"));
    let (largest, mut bytes) = tables.into_iter().max_by_key(|(_, bytes)| bytes.len()).unwrap();
    let at = bytes.len() - 60;
    bytes[at] ^= 0x40;
    fs::write(largest, bytes).unwrap();
}

fn salvage(data: &Path, other: &Path) -> Ended {
    run(wayleave(&["salvage", text(data), text(other)]), "")
}

#[test]
fn a_salvage_that_was_killed_has_changed_nothing_and_is_made_anew() {
    let ((_keep, data), (keep, other)) = (folder(), folder());
    damaged(&data);
    let before = contents(&data);
    let (scratch, list) = (keep.path().join("data.salvage"), keep.path().join("data.lost"));
    let args = ["salvage", text(&data), text(&other)];
    let undo = || _ = fs::remove_dir_all(&other);
    for part in [scratch.join("salvage.part"), other.join("load.part/db")] {
        kill(&args, None, &part, undo, |_| {
            if other.exists() {
                refused(&other);
            }
            assert!(contents(&data) == before && scratch.exists(), "the damaged folder is as it was");
        });
    }
    // What an earlier salvage has listed as missing, of another folder perhaps.
    fs::write(&list, "h.example\tsomething\n").unwrap();
    salvage(&data, &other).ok();
    assert!(!scratch.exists() && !list.exists() && contents(&data) == before);
    run(wayleave(&["check", text(&other)]), "").ok();
    assert_eq!(urls_of(&other), URLS);
    println!(
        "seen: a salvage killed at 6 points: FROM is as it was; run again, all {URLS} URLs are saved and nothing is left"
    );
}

/// The kernel mounts a failing disk read-only.
#[test]
fn a_folder_on_a_read_only_disk_is_checked_and_salvaged() {
    let ((_keep, data), (_keep_other, other)) = (folder(), folder());
    damaged(&data);
    let before = contents(&data);
    // Also without a lock file, which cannot be created there.
    fs::remove_file(data.join("LOCK")).unwrap();
    let read_only = |args: &[&str]| {
        let mount = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && ! touch \"$0/x\" 2>/dev/null && exec \"$@\"";
        let plain = wayleave(args);
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "sh", "-c", mount]).arg(&data).arg(plain.get_program()).args(plain.get_args());
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        run(command, "")
    };
    let checked = read_only(&["check", text(&data)]);
    assert!(
        checked.code == 1 && checked.err.contains("1 file of ") && checked.err.contains("salvage"),
        "{}",
        checked.err
    );
    let slash = format!("{}/", text(&other));
    let saved = read_only(&["salvage", text(&data), &slash]);
    assert!(saved.code == 0 && saved.err.contains("cannot be opened"), "{}{}", saved.out, saved.err);
    assert!(contents(&data) == before && !data.join("LOCK").exists());
    assert_eq!(urls_of(&other), URLS);
    let refused = read_only(&["serve", "--data", text(&data), "--listen", "127.0.0.1:0"]);
    assert!(refused.code != 0 && refused.err.contains("no permission for"), "{}", refused.err);
    println!("seen: check and salvage of a folder on a read-only file system: all {URLS} URLs saved");
}

/// Small files and the journal, through the command.
#[test]
fn what_is_lost_of_the_journal_is_listed() {
    let ((_keep, data), (keep, other)) = (folder(), folder());
    let server = Server::start(&data);
    server.run(&["put", "http://a.example/"]).ok();
    server.run(&["snapshot", text(&data.with_extension("snapshot"))]).ok();
    server.run(&["put", "http://b.example/"]).ok();
    server.kill();
    fs::remove_file(data.join("FORMAT")).unwrap();
    let journals = fs::read_dir(data.join("journal")).unwrap().flatten().map(|entry| entry.path());
    let newest =
        journals.max_by_key(|path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap()).unwrap();
    fs::remove_file(&newest).unwrap();
    let name = newest.file_name().unwrap().to_str().unwrap();
    let said = salvage(&data, &other);
    assert!(said.code == 6 && said.out.contains(&format!("{name} (the file is missing)")), "{}{}", said.out, said.err);
    let list = fs::read_to_string(keep.path().join("data.lost")).unwrap();
    assert!(list.contains(name) && list.starts_with("-\t"), "{list}");
    let server = Server::start(&other);
    let urls = server.run(&["urls", "list", "--all", "--json"]).ok();
    assert!(urls.contains("a.example") && !urls.contains("b.example"), "{urls}");
    // Chunk ids and epochs go on well above those that the lost part may have given out.
    let claim = ["chunks", "claim", "--stage", "crawl", "--worker", "w1", "--lease", "1h", "--wait", "10s", "--json"];
    let id = server.run(&claim).json()[0]["id"].to_string();
    assert!(id.len() > 4, "{id}");
}
