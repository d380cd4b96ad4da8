//! Every state of a folder at open, and its error.

use std::fs;

use super::*;
use crate::disk::OsDisk;

const OTHER_SHARDS: u16 = 99;

fn fill(path: &Path) -> Result<(), OpenError> {
    fs::write(path.join("filled"), "").map_err(|error| OpenError::io(path, error))
}

fn open(path: &Path) -> Result<Folder, OpenError> {
    Folder::open(&disk(), path, 16, fill)
}

fn disk() -> Arc<dyn Disk> {
    Arc::new(OsDisk)
}

/// A folder with these files (or folders, with a trailing slash).
fn folder(entries: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in entries {
        match name.strip_suffix('/') {
            Some(name) => fs::create_dir(folder.path().join(name)).unwrap(),
            None => fs::write(folder.path().join(name), text).unwrap(),
        }
    }
    folder
}

fn check_refused(entries: &[(&str, &str)], expected: &str) {
    let folder = folder(entries);
    let before = names(folder.path());
    let text = open(folder.path()).unwrap_err().to_string();
    assert!(text.contains(expected), "{entries:?}: {text}");
    assert!(text.contains(&folder.path().display().to_string()), "the folder is named: {text}");
    let after: Vec<_> = names(folder.path()).into_iter().filter(|name| name != LOCK).collect();
    assert_eq!(after, before, "nothing else is left behind");
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_new_folder_is_made_with_those_above_it() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("a/b");
    let folder = open(&path).unwrap();
    assert_eq!(folder.shards(), 16);
    assert!(folder.database().join("filled").exists());
    let format = fs::read_to_string(path.join(FORMAT)).unwrap();
    assert!(format.starts_with("wayleave 1\nshards 16\nchecksum "), "{format}");
    assert_eq!(names(&path), [FORMAT, LOCK, DB, JOURNAL]);
}

#[test]
fn the_number_of_shards_stays_what_it_was_at_creation() {
    let above = tempfile::tempdir().unwrap();
    drop(open(above.path()).unwrap());
    let again = Folder::open(&disk(), above.path(), OTHER_SHARDS, |_| panic!("must not be filled again")).unwrap();
    assert_eq!(again.shards(), 16);
}

#[test]
fn a_folder_in_use_is_refused_until_it_is_free() {
    let above = tempfile::tempdir().unwrap();
    let first = open(above.path()).unwrap();
    let text = open(above.path()).unwrap_err().to_string();
    assert!(text.contains("in use by another process"), "{text}");
    assert!(text.contains(&above.path().display().to_string()), "{text}");
    drop(first);
    open(above.path()).unwrap();
}

#[test]
fn a_newer_format_asks_for_a_newer_program() {
    let newer = "wayleave 2\nanything\n";
    let whole = format!("{newer}{}", checksum_of(newer));
    check_refused(&[("FORMAT", &whole), ("db/", "")], "use a newer wayleave");
    check_refused(&[("FORMAT", newer), ("db/", "")], "FORMAT does not match its checksum");
}

#[test]
fn an_older_format_is_raised_when_that_is_asked_for_and_not_before() {
    let older = format_text(format::VERSION - 1, 77);
    let folder = folder(&[("FORMAT", &older), ("db/", ""), ("journal/", "")]);
    let read = || fs::read_to_string(folder.path().join(FORMAT)).unwrap();
    let opened = open(folder.path()).unwrap();
    assert_eq!(opened.shards(), 77);
    assert_eq!(read(), older, "the rest is not checked yet");
    // What an interrupted raise leaves.
    fs::write(folder.path().join(FORMAT_NEW), "wayl").unwrap();
    opened.raise_format().unwrap();
    assert_eq!(read(), format_text(format::VERSION, 77));
    drop(opened);
    assert_eq!(open(folder.path()).unwrap().shards(), 77);
    assert_eq!(names(folder.path()), [FORMAT, LOCK, DB, JOURNAL]);
}

#[test]
fn a_format_that_cannot_be_read_is_damage() {
    for text in [
        "",
        "wayleave",
        "wayleave x\nshards 16",
        "wayleave 1\n",
        "wayleave 1\nshards 0\n",
        "wayleave 1\nshards 70000",
        "wayleave 1\nshards 16\n",
    ] {
        check_refused(&[("FORMAT", text), ("db/", "")], "is damaged");
    }
}

#[test]
fn missing_data_is_damage_and_not_a_new_folder() {
    check_refused(&[("FORMAT", &format_text(format::VERSION, 16))], "the folder db is missing");
    check_refused(&[("FORMAT", &format_text(format::VERSION, 16)), ("db/", "")], "the folder journal is missing");
    check_refused(&[("db/", "")], "the file FORMAT is missing");
}

#[test]
fn a_foreign_folder_is_left_alone() {
    check_refused(&[("thesis.txt", "…")], "thesis.txt is in it");
}

#[test]
fn a_file_is_no_folder() {
    let folder = folder(&[("file", "")]);
    let text = open(&folder.path().join("file")).unwrap_err().to_string();
    assert!(text.contains("is not a folder"), "{text}");
    let text = open(&folder.path().join("file/below")).unwrap_err().to_string();
    assert!(text.contains("is not a folder"), "{text}");
}

/// Root may write anywhere, so the folder is opened by a thread that is another user's.
#[test]
fn an_unwritable_folder_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    const NOBODY: u32 = 65_534;
    let folder = folder(&[]);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let open_as_another = || {
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(NOBODY)).unwrap();
        }
        open(folder.path()).unwrap_err().to_string()
    };
    let refusal = std::thread::scope(|scope| scope.spawn(open_as_another).join().unwrap());
    assert!(refusal.contains("no permission for"), "{refusal}");
}

#[test]
fn a_creation_cut_off_anywhere_is_begun_again() {
    let text = format_text(format::VERSION, 99);
    let format = ("FORMAT", text.as_str());
    let cut_off: [&[(&str, &str)]; 5] = [
        &[("LOCK", "")],
        &[("LOCK", ""), ("db.new/", "")],
        &[("LOCK", ""), ("db.new/", ""), ("FORMAT.new", "wayl")],
        &[("LOCK", ""), ("db.new/", ""), format],
        &[("LOCK", ""), ("db.new/", ""), ("FORMAT.new", "wayl"), format],
    ];
    for entries in cut_off {
        let folder = folder(entries);
        let half = folder.path().join("db.new/half");
        if half.parent().unwrap().exists() {
            fs::write(&half, "").unwrap();
        }
        let opened = open(folder.path()).unwrap();
        assert_eq!(opened.shards(), 16);
        assert_eq!(names(&opened.database()), ["filled"], "{entries:?}");
        drop(opened);
        assert_eq!(Folder::open(&disk(), folder.path(), OTHER_SHARDS, fill).unwrap().shards(), 16, "{entries:?}");
    }
}
