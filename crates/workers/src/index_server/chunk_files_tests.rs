//! Real chunks on disk, good ones and malformed ones.

use tempfile::TempDir;

use super::*;
use crate::digest::sha256;
use crate::index::{Builder, Page};

/// The index of one page, in a folder.
fn built(word: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let mut builder = Builder::create(folder.path()).unwrap();
    builder.add(&Page { url: &format!("http://{word}.example/"), title: "", body: word, crawl: "c" }).unwrap();
    builder.finish().unwrap();
    folder
}

fn packed(folder: &TempDir) -> Vec<u8> {
    let mut packed = Vec::new();
    index::pack(folder.path(), &mut packed).unwrap();
    packed
}

/// Puts a packed index in its place, as a fetch does.
fn place(chunk_files: &ChunkFiles, chunk: &str, content: &[u8]) -> (PathBuf, String) {
    let checksum = sha256(content);
    let place = chunk_files.place(chunk, &checksum);
    fs::write(&place, content).unwrap();
    (place, checksum)
}

fn add(chunk_files: &ChunkFiles, chunk: &str, word: &str) -> PathBuf {
    let (place, checksum) = place(chunk_files, chunk, &packed(&built(word)));
    chunk_files.keep(chunk, &checksum).unwrap();
    place
}

fn hits(chunk_files: &ChunkFiles, word: &str) -> usize {
    chunk_files.search(&word.parse().unwrap(), None, 10).0.len()
}

fn missing(chunk_files: &ChunkFiles, word: &str) -> Vec<String> {
    chunk_files.search(&word.parse().unwrap(), None, 10).1
}

#[test]
fn chunks_outlast_a_restart_if_they_are_whole() {
    let folder = TempDir::new().unwrap();
    let chunk_files = ChunkFiles::open(folder.path()).unwrap();
    let whole = add(&chunk_files, "1", "river");
    let damaged = add(&chunk_files, "2", "otter");
    assert_eq!((hits(&chunk_files, "river"), hits(&chunk_files, "otter"), chunk_files.served()), (1, 1, (2, 2)));
    drop(chunk_files);
    let mut content = fs::read(&damaged).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(&damaged, &content).unwrap();
    let foreign = folder.path().join("chunks/notes.txt");
    fs::write(&foreign, "of the operator").unwrap();
    let half = folder.path().join("chunks/.part-x");
    fs::write(&half, "half").unwrap();
    let chunk_files = ChunkFiles::open(folder.path()).unwrap();
    assert_eq!(chunk_files.chunks(), ["1"]);
    assert_eq!((hits(&chunk_files, "river"), hits(&chunk_files, "otter")), (1, 0));
    assert_eq!([&whole, &foreign, &damaged, &half].map(|file| file.exists()), [true, true, false, false]);
}

#[test]
fn a_chunk_is_replaced_by_another_build_of_it_and_removed() {
    let folder = TempDir::new().unwrap();
    let chunk_files = ChunkFiles::open(folder.path()).unwrap();
    let first = add(&chunk_files, "1", "river");
    let first_sum = chunk_files.checksum("1").unwrap();
    let second = add(&chunk_files, "1", "otter");
    let second_sum = chunk_files.checksum("1").unwrap();
    assert_eq!((hits(&chunk_files, "river"), hits(&chunk_files, "otter")), (0, 1));
    assert!(chunk_files.has("1", &second_sum) && !chunk_files.has("1", &first_sum));
    assert_eq!(chunk_files.packed("1"), Some(second.clone()));
    chunk_files.discard("1", &first_sum);
    chunk_files.remove("1");
    assert_eq!((hits(&chunk_files, "otter"), chunk_files.packed("1")), (0, None));
    assert_eq!([first, second].map(|file| file.exists()), [false; 2]);
}

/// Zeroes a part of every file with this extension: from, to, as parts of eight.
fn damage(folder: &TempDir, extension: &str, (from, to): (usize, usize)) {
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|found| found == extension) {
            let mut content = fs::read(&path).unwrap();
            let length = content.len();
            // Text stays text, or it could not be packed.
            let fill = if extension == "json" { b'{' } else { 0xff };
            content[length * from / 8..length * to / 8].fill(fill);
            fs::write(path, content).unwrap();
        }
    }
}

/// A regression: one malformed chunk with a right checksum failed all searches, and ended the server at every start.
#[test]
fn a_malformed_chunk_is_reported_and_the_others_are_searched() {
    let (mut refused, mut later) = (0, 0);
    for extension in ["store", "term", "idx", "pos", "fieldnorm", "json"] {
        for part in [(0, 1), (0, 4), (3, 6), (4, 8), (7, 8), (0, 8)] {
            let folder = TempDir::new().unwrap();
            let chunk_files = ChunkFiles::open(folder.path()).unwrap();
            let good = add(&chunk_files, "1", "river");
            let bad = built("otter");
            damage(&bad, extension, part);
            let (file, checksum) = place(&chunk_files, "2", &packed(&bad));
            let kept = chunk_files.keep("2", &checksum);
            let found = missing(&chunk_files, "otter");
            match kept {
                Err(fault) => {
                    assert!(!fault.is_of_system(), "{extension} {part:?}: {fault}");
                    assert_eq!(found, ["2"], "{extension} {part:?}");
                    assert_eq!(chunk_files.packed("2"), None, "no server fetches it from here");
                    assert!(chunk_files.reopen("2", &checksum).is_err());
                    refused += 1;
                }
                Ok(()) if !found.is_empty() => {
                    assert_eq!(found, ["2"], "{extension} {part:?}");
                    later += 1;
                }
                // The damage is where nothing is read: its page is found, and whole.
                Ok(()) => {
                    let found = chunk_files.search(&"otter".parse().unwrap(), None, 10).0;
                    let found: Vec<_> = found.iter().map(|hit| (hit.chunk.as_str(), hit.url.as_str())).collect();
                    assert_eq!(found, [("2", "http://otter.example/")], "{extension} {part:?}");
                }
            }
            assert_eq!(
                (hits(&chunk_files, "river"), missing(&chunk_files, "river").contains(&"1".to_owned())),
                (1, false)
            );
            drop(chunk_files);
            let again = ChunkFiles::open(folder.path()).unwrap();
            assert_eq!((hits(&again, "river"), good.exists(), file.exists()), (1, true, true), "{extension} {part:?}");
        }
    }
    println!("seen: 36 malformed chunks: {refused} refused at once, {later} found in a search, 0 good ones lost");
    assert!(refused > 10, "{refused} of 36 were refused when they were opened, {later} when they were searched");
}

/// Whatever ends the process while a chunk is tried cannot be contained, and would at every start.
#[test]
fn a_chunk_whose_trial_ended_the_process_twice_is_not_tried_for_a_day() {
    let folder = TempDir::new().unwrap();
    let chunk_files = ChunkFiles::open(folder.path()).unwrap();
    add(&chunk_files, "1", "river");
    let bad = add(&chunk_files, "2", "otter");
    let mark = bad.with_extension("trying");
    assert!(!mark.exists(), "a trial that ends leaves no mark");
    for (died, served) in [(1, 2), (2, 1), (2, 1)] {
        fs::write(&mark, vec![b'x'; died]).unwrap();
        let chunk_files = ChunkFiles::open(folder.path()).unwrap();
        assert_eq!((chunk_files.served().0, hits(&chunk_files, "river")), (served, 1), "after {died}");
        assert_eq!((mark.exists(), bad.exists()), (served == 1, true));
        let missing = missing(&chunk_files, "river");
        assert_eq!(missing, if served == 1 { vec!["2".to_owned()] } else { Vec::new() });
    }
    let chunk_files = ChunkFiles::open(folder.path()).unwrap();
    let fault = chunk_files.reopen("2", &sha256(&fs::read(&bad).unwrap())).unwrap_err();
    assert!(fault.is_of_system() && fault.to_string().contains(mark.to_str().unwrap()), "{fault}");
    fs::File::options().write(true).open(&mark).unwrap().set_modified(SystemTime::now() - LAPSE).unwrap();
    assert_eq!(ChunkFiles::open(folder.path()).unwrap().served().0, 2);
    assert!(!mark.exists());
    chunk_files.remove("2");
    assert!(!bad.exists() && !mark.exists());
}

#[test]
fn a_stop_that_was_ordered_leaves_no_mark_of_a_trial() {
    let folder = TempDir::new().unwrap();
    let chunk_files = ChunkFiles::open(folder.path()).unwrap();
    let mark = add(&chunk_files, "1", "river").with_extension("trying");
    let trying = chunk_files.trials.begin(mark.clone()).unwrap();
    assert!(mark.exists());
    chunk_files.end_trials();
    assert!(!mark.exists());
    assert!(chunk_files.trials.begin(mark.clone()).is_err_and(|fault| fault.is_of_system()));
    std::mem::forget(trying);
    assert!(!mark.exists());
    let again = ChunkFiles::create(folder.path()).unwrap();
    again.end_trials();
    again.open_all().unwrap();
    assert!(again.chunks().is_empty(), "no chunk is opened by a server that stops");
}

/// A regression: a text whose length is as large as it likes ended the process, which no trial contains.
#[test]
fn a_stored_page_with_a_length_beyond_its_block_is_malformed() {
    // What does not repeat is stored as it is, so that the length of a title can be found and changed.
    const TITLES: [&str; 2] = ["Abcdefgh", "Zyxwvutsr"];
    for (page, title) in TITLES.into_iter().enumerate() {
        let folder = TempDir::new().unwrap();
        let chunk_files = ChunkFiles::open(folder.path()).unwrap();
        add(&chunk_files, "1", "river");
        let bad = TempDir::new().unwrap();
        let mut builder = Builder::create(bad.path()).unwrap();
        for title in TITLES {
            builder.add(&Page { url: "http://otter.example/", title, body: "otter", crawl: "c" }).unwrap();
        }
        builder.finish().unwrap();
        lengthen(&bad, title.as_bytes());
        let (_, checksum) = place(&chunk_files, "2", &packed(&bad));
        let fault = chunk_files.keep("2", &checksum).unwrap_err();
        assert!(fault.to_string().contains("a stored page cannot be read"), "{page}: {fault}");
        assert_eq!((hits(&chunk_files, "river"), missing(&chunk_files, "river")), (1, vec!["2".to_owned()]));
    }
}

/// Makes the byte before a text in the stored pages, its length, the first of a number that is not over there.
fn lengthen(folder: &TempDir, text: &[u8]) {
    let store = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let store = store.into_iter().find(|path| path.extension().is_some_and(|found| found == "store")).unwrap();
    let mut content = fs::read(&store).unwrap();
    let at = content.windows(text.len()).position(|part| part == text).expect("the text is stored as it is");
    assert_eq!(content[at - 1], 0x80 | u8::try_from(text.len()).unwrap());
    content[at - 1] = 0x7f;
    fs::write(store, content).unwrap();
}

/// A regression: chance decided which of them was served, and the other's file could stay.
#[test]
fn of_two_builds_of_a_chunk_the_newest_servable_one_stays() {
    let folder = TempDir::new().unwrap();
    let chunk_files = ChunkFiles::open(folder.path()).unwrap();
    let age = |file: &Path, secs| {
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(secs);
        File::options().write(true).open(file).unwrap().set_modified(at).unwrap();
    };
    let builds = ["river", "otter", "heron"].map(|word| place(&chunk_files, "1", &packed(&built(word))).0);
    let malformed = place(&chunk_files, "1", b"no archive").0;
    for (file, secs) in [(&builds[0], 20), (&builds[1], 30), (&builds[2], 10), (&malformed, 40)] {
        age(file, secs);
    }
    let chunk_files = ChunkFiles::open(folder.path()).unwrap();
    assert_eq!(["river", "otter", "heron"].map(|word| hits(&chunk_files, word)), [0, 1, 0]);
    assert_eq!(builds.each_ref().map(|file| file.exists()), [false, true, false]);
}

/// The trial looks for one word; another one may meet the damage.
#[test]
fn a_chunk_that_fails_in_a_search_is_not_served_from_then_on() {
    let folder = TempDir::new().unwrap();
    let chunk_files = ChunkFiles::open(folder.path()).unwrap();
    add(&chunk_files, "1", "river");
    add(&chunk_files, "2", "otter");
    let checksum = chunk_files.checksum("2").unwrap();
    let opened_in = chunk_files.folder("2", &checksum);
    chunk_files.take_down("2", Path::new("/another/build"), Fault::of_chunk("late"));
    assert!(chunk_files.has("2", &checksum), "another build of it has failed");
    chunk_files.take_down("2", &opened_in, Fault::of_chunk("malformed"));
    assert!(!chunk_files.has("2", &checksum));
    assert_eq!((missing(&chunk_files, "river"), hits(&chunk_files, "river")), (vec!["2".to_owned()], 1));
    let only = HashSet::from(["1".to_owned(), "9".to_owned()]);
    let (_, missing) = chunk_files.search(&"river".parse().unwrap(), Some(&only), 10);
    assert_eq!(missing, ["9"], "only what was asked for");
}

/// A regression: what could not be read at a start was removed as damaged.
#[test]
fn what_the_system_does_not_let_us_read_stays() {
    let folder = TempDir::new().unwrap();
    let chunk_files = ChunkFiles::open(folder.path()).unwrap();
    add(&chunk_files, "1", "river");
    let content = packed(&built("otter"));
    // A folder can be opened and not read, by any user.
    let unreadable = chunk_files.place("2", &sha256(&content));
    fs::create_dir(&unreadable).unwrap();
    drop(chunk_files);
    let chunk_files = ChunkFiles::open(folder.path()).unwrap();
    assert_eq!((chunk_files.chunks(), hits(&chunk_files, "river")), (vec!["1".to_owned(), "2".to_owned()], 1));
    assert!(chunk_files.reopen("2", &sha256(&content)).unwrap_err().is_of_system());
    assert!(unreadable.exists());
    fs::remove_dir(&unreadable).unwrap();
    fs::write(&unreadable, &content).unwrap();
    assert!(chunk_files.reopen("2", &sha256(&content)).unwrap());
    assert_eq!(hits(&chunk_files, "otter"), 1);
}
