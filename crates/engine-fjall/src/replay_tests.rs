//! Replay after a clean shutdown, a torn write, a lost file, damage.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use wayleave_core::time::Time;

use super::*;
use crate::disk::OsDisk;
use crate::journal::{Journal, UnwrittenRecords, WRITES_MAX};

fn body(at: u64) -> Vec<u8> {
    record::encode_batch(Time(at), &[], &[])
}

fn framed(file: u64, bodies: &[Vec<u8>]) -> Vec<u8> {
    bodies.iter().flat_map(|body| [&record::frame(file, body)[..], body].concat()).collect()
}

/// A new life.
fn life() -> u64 {
    static LIVES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    LIVES.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

fn disk() -> Arc<dyn Disk> {
    Arc::new(OsDisk)
}

/// A journal in its own folder, ready for appends.
fn open(above: &tempfile::TempDir) -> Journal {
    open_after(above, 0)
}

fn open_after(above: &tempfile::TempDir, done: u64) -> Journal {
    let folder = above.path().join("journal");
    let tail = Replay { disk: &disk(), folder: &folder, done, repair: false }.run(|_| {}).unwrap();
    Journal::resume(disk(), &folder, &tail, life()).unwrap()
}

fn place(journal: &mut Journal, bodies: &[Vec<u8>]) -> UnwrittenRecords {
    let (file, durable) = (journal.number(), 0);
    journal.place(&framed(file, bodies), durable).unwrap()
}

/// Appends records and marks everything before them as durable.
fn add(journal: &mut Journal, bodies: &[Vec<u8>]) {
    let (file, durable) = (journal.number(), journal.end());
    journal.place(&framed(file, bodies), durable).unwrap().write().unwrap();
}

fn new() -> tempfile::TempDir {
    let above = tempfile::tempdir().unwrap();
    Journal::create(&OsDisk, &above.path().join("journal")).unwrap();
    above
}

/// A journal of two files: the first with the records 1 and 2, the second with 3.
fn written() -> tempfile::TempDir {
    let above = new();
    let mut journal = open(&above);
    add(&mut journal, &[body(1)]);
    add(&mut journal, &[body(2)]);
    journal.rotate().unwrap();
    add(&mut journal, &[body(3)]);
    above
}

fn try_read(above: &tempfile::TempDir, done: u64, repair: bool) -> (std::result::Result<Tail, Failure>, Vec<u64>) {
    let mut found = Vec::new();
    let apply = |record| match record {
        Record::Batch { at, .. } => found.push(at.0),
        _ => panic!("these are the journal's own"),
    };
    let folder = above.path().join("journal");
    let tail = Replay { disk: &disk(), folder: &folder, done, repair }.run(apply);
    (tail, found)
}

fn read(above: &tempfile::TempDir, done: u64) -> Vec<u64> {
    let (tail, found) = try_read(above, done, false);
    tail.map(drop).unwrap();
    found
}

fn damage(above: &tempfile::TempDir, done: u64) -> Damage {
    match try_read(above, done, false).0 {
        Err(Failure::Damaged(damage)) => damage,
        Err(Failure::Io(error, _)) => panic!("{error}"),
        Ok(_) => panic!("the damage was not noticed"),
    }
}

fn file(above: &tempfile::TempDir, number: u64) -> PathBuf {
    journal::path(&above.path().join("journal"), number)
}

fn flip(above: &tempfile::TempDir, number: u64, at: u64) {
    let path = file(above, number);
    let byte = fs::read(&path).unwrap()[at as usize];
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(&[byte ^ 1], at).unwrap();
}

#[test]
fn all_records_are_read_in_order_and_more_can_be_added() {
    let above = written();
    assert_eq!(read(&above, 0), [1, 2, 3]);
    let mut journal = open(&above);
    assert_eq!(journal.number(), 2);
    add(&mut journal, &[body(4)]);
    assert_eq!(read(&above, 0), [1, 2, 3, 4]);
}

#[test]
fn files_whose_rows_are_in_tables_are_not_read_and_go_with_the_next_flush() {
    let above = written();
    assert_eq!(read(&above, 1), [3]);
    assert!(file(&above, 1).exists(), "that its rows are in tables may not be durable yet");
    journal::remove_until(&OsDisk, &above.path().join("journal"), 1).unwrap();
    assert!(!file(&above, 1).exists());
    assert_eq!(read(&above, 1), [3]);
}

#[test]
fn a_record_that_was_cut_off_is_dropped_and_written_over() {
    let above = written();
    let torn = framed(2, &[body(4)]);
    let newest = OpenOptions::new().write(true).open(file(&above, 2)).unwrap();
    newest.write_all_at(&torn[..torn.len() - 3], 2 * BLOCK).unwrap();
    assert_eq!(read(&above, 0), [1, 2, 3]);
    add(&mut open(&above), &[body(5)]);
    assert_eq!(read(&above, 0), [1, 2, 3, 5]);
}

#[test]
fn a_lost_file_is_noticed_wherever_it_was() {
    for (lost, done) in [(1, 0), (2, 0), (2, 1)] {
        let above = written();
        fs::remove_file(file(&above, lost)).unwrap();
        let damage = damage(&above, done);
        assert_eq!((damage.file, damage.what.as_str()), (file(&above, lost), "the file is missing"));
        assert_eq!(damage.repair, None);
    }
}

#[test]
fn damage_before_the_newest_file_is_noticed() {
    let above = written();
    flip(&above, 1, BLOCK + 42);
    let damage = damage(&above, 0);
    assert_eq!((damage.file, damage.offset), (file(&above, 1), BLOCK + 31), "behind the mark of the first write");
}

/// One flipped byte anywhere in what a later write calls durable: refused with its offset, and nothing is changed on
/// disk.
#[test]
fn a_flipped_byte_below_a_durable_offset_refuses_to_open() {
    let above = new();
    let mut journal = open(&above);
    (1..=4).for_each(|at| add(&mut journal, &[body(at)]));
    let block = BLOCK_BYTES as u64;
    for at in [0, 13, 40, block + 5, block + 2_000, 2 * block + 30, 3 * block + 30] {
        flip(&above, 1, at);
        let before = fs::read(file(&above, 1)).unwrap();
        let found = damage(&above, 0);
        assert!(found.offset <= at && found.offset + block > at, "{found:?} at {at}");
        let dropped = found.repair.unwrap();
        assert!(at < block && dropped == Dropped::default() || dropped.bytes > 0 && dropped.batches > 0, "{found:?}");
        assert_eq!(fs::read(file(&above, 1)).unwrap(), before, "nothing is written over");
        flip(&above, 1, at);
    }
    assert_eq!(read(&above, 0), [1, 2, 3, 4]);
}

#[test]
fn after_a_clean_stop_the_last_record_counts_as_durable_too() {
    let above = new();
    let mut journal = open(&above);
    add(&mut journal, &[body(1)]);
    journal.seal().unwrap();
    drop(journal);
    flip(&above, 1, BLOCK + 45);
    assert_eq!(damage(&above, 0).offset, BLOCK + 31, "behind the mark of the first write");
}

#[test]
fn a_repair_drops_what_follows_the_damage_and_keeps_a_copy() {
    let above = written();
    let copy = |name: &str| above.path().join("journal").join(name);
    flip(&above, 1, 2 * BLOCK + 35);
    let dropped = damage(&above, 0).repair.unwrap();
    assert_eq!((dropped.batches, dropped.files), (1, 1), "batch 3, in the second file");
    let (tail, found) = try_read(&above, 0, true);
    assert_eq!((tail.unwrap().number, found), (1, vec![1]));
    let kept = fs::read(copy(&format!("1.dropped-from-{}", 2 * BLOCK + 31))).unwrap();
    assert_eq!(kept.len() as u64, dropped.bytes);
    assert!(copy("2.dropped").exists() && !file(&above, 2).exists());
    add(&mut open(&above), &[body(9)]);
    assert_eq!(read(&above, 0), [1, 9], "and the journal goes on");
}

/// It is the last thing in its file, so no batch can be lost with it.
#[test]
fn a_damaged_end_mark_is_repaired_and_no_later_file_is_dropped() {
    for at in [5, 35, 43] {
        let above = written();
        flip(&above, 1, 3 * BLOCK + at);
        damage(&above, 0);
        let (tail, found) = try_read(&above, 0, true);
        assert_eq!((tail.unwrap().number, found), (2, vec![1, 2, 3]), "byte {at} of the mark's block");
        assert_eq!(read(&above, 0), [1, 2, 3]);
        let dropped = fs::read_dir(above.path().join("journal")).unwrap().flatten();
        assert_eq!(dropped.filter(|entry| entry.file_name().to_string_lossy().contains("dropped")).count(), 0);
    }
}

/// The head of the next file says that all of its batches can be read.
#[test]
fn a_lost_end_mark_is_repaired_and_no_later_file_is_dropped() {
    let (mark, end) = (3 * BLOCK, 4 * BLOCK);
    for (damaged, byte) in [(mark..end, 0), (mark..end, 0xa5), (mark + 31..mark + 60, 0xff), (mark..mark + 9, 0)] {
        let above = written();
        let first = OpenOptions::new().write(true).open(file(&above, 1)).unwrap();
        first.write_all_at(&vec![byte; (damaged.end - damaged.start) as usize], damaged.start).unwrap();
        let found = damage(&above, 0);
        assert_eq!(found.repair, Some(Dropped::default()), "{found:?}");
        assert!(found.repair.unwrap().to_string().contains("drops nothing"));
        let (tail, found) = try_read(&above, 0, true);
        assert_eq!((tail.unwrap().number, found), (2, vec![1, 2, 3]), "{damaged:?}");
        assert_eq!(read(&above, 0), [1, 2, 3]);
    }
    // Cut off with the mark.
    let above = written();
    OpenOptions::new().write(true).open(file(&above, 1)).unwrap().set_len(mark).unwrap();
    assert_eq!(try_read(&above, 0, true).1, [1, 2, 3]);
    // Together with the last batch: what follows it must not be kept.
    let above = written();
    let first = OpenOptions::new().write(true).open(file(&above, 1)).unwrap();
    first.write_all_at(&vec![0; 2 * BLOCK_BYTES], 2 * BLOCK).unwrap();
    assert_eq!(damage(&above, 0).repair.unwrap().files, 1);
    assert_eq!(try_read(&above, 0, true).1, [1]);
    assert!(above.path().join("journal/2.dropped").exists());
}

/// Not every batch has a fence, so one that was between them may have left no other trace.
#[test]
fn a_lost_end_mark_before_a_lost_head_differs_from_a_lost_batch() {
    let lose = |above: &tempfile::TempDir, blocks: std::ops::Range<u64>| {
        let first = OpenOptions::new().write(true).open(file(above, 1)).unwrap();
        let zeros = vec![0; (blocks.end - blocks.start) as usize * BLOCK_BYTES];
        first.write_all_at(&zeros, blocks.start * BLOCK).unwrap();
    };
    for (blocks, head, may_be_whole) in [(3..4, true, true), (3..4, false, false), (2..3, true, false)] {
        let above = written();
        lose(&above, blocks.clone());
        if head {
            flip(&above, 2, 100);
        }
        let dropped = damage(&above, 0).repair.unwrap();
        // The mark alone is written again.
        assert_eq!(dropped.files, u64::from(head), "{blocks:?}");
        let text = dropped.to_string();
        assert_eq!(
            text.contains("it is not known, and they are set aside: copy the folder first"),
            may_be_whole,
            "{text}"
        );
        let (tail, found) = try_read(&above, 0, true);
        tail.unwrap();
        let expected: &[u64] = if !head {
            &[1, 2, 3]
        } else if may_be_whole {
            &[1, 2]
        } else {
            &[1]
        };
        assert_eq!((found.as_slice(), above.path().join("journal/2.dropped").exists()), (expected, head), "{blocks:?}");
    }
}

/// A head that was written again still reveals a damaged mark.
#[test]
fn heads_and_end_marks_are_repaired_one_after_the_other() {
    let above = written();
    flip(&above, 2, 100);
    assert_eq!(try_read(&above, 0, true).1, [1, 2, 3]);
    let first = OpenOptions::new().write(true).open(file(&above, 1)).unwrap();
    first.write_all_at(&vec![0; BLOCK_BYTES], 3 * BLOCK).unwrap();
    assert_eq!(try_read(&above, 0, true).1, [1, 2, 3]);
    assert_eq!(read(&above, 0), [1, 2, 3]);
}

#[test]
fn a_damaged_head_is_repaired_and_no_batch_is_dropped() {
    for number in [1, 2] {
        let above = written();
        flip(&above, number, 100);
        assert_eq!(damage(&above, 0).offset, 0);
        let (tail, found) = try_read(&above, 0, true);
        assert_eq!((tail.unwrap().number, found), (2, vec![1, 2, 3]));
        assert_eq!(read(&above, 0), [1, 2, 3]);
    }
}

#[test]
fn a_second_repair_overwrites_nothing_that_the_first_put_aside() {
    let above = written();
    let kept = |name: &str| fs::read(above.path().join("journal").join(name));
    flip(&above, 1, 2 * BLOCK + 35);
    try_read(&above, 0, true).0.unwrap();
    let first = kept("2.dropped").unwrap();
    let mut journal = open(&above);
    add(&mut journal, &[body(8)]);
    journal.rotate().unwrap();
    add(&mut journal, &[body(9)]);
    drop(journal);
    flip(&above, 1, 3 * BLOCK + 35);
    try_read(&above, 0, true).0.unwrap();
    assert_eq!(kept("2.dropped").unwrap(), first);
    assert_ne!(kept("2.dropped-2").unwrap(), first);
}

/// A file begins with its head before anything refers to it, so an empty one has lost what it held.
#[test]
fn a_file_that_has_lost_its_content_is_damage() {
    for (number, done, left) in [(1, 0, 0), (2, 0, 0), (2, 1, 0), (1, 0, BLOCK), (1, 0, 2 * BLOCK)] {
        let above = written();
        OpenOptions::new().write(true).open(file(&above, number)).unwrap().set_len(left).unwrap();
        let found = damage(&above, done);
        let expected =
            if left == 0 { "its beginning cannot be read" } else { "it ends here, and the next file has begun" };
        assert_eq!((found.file, found.what.as_str()), (file(&above, number), expected));
        let (tail, _) = try_read(&above, done, true);
        assert_eq!(tail.unwrap().number, number);
        add(&mut open_after(&above, done), &[body(7)]);
        assert_eq!(read(&above, done).last(), Some(&7), "after a repair the journal goes on");
    }
}

/// The zeros over a torn tail were lost with a failed sync, and a complete write of that tail follows newer ones
/// directly.
#[test]
fn a_write_of_an_earlier_life_that_comes_to_light_again_is_not_read() {
    let above = new();
    let mut journal = open(&above);
    add(&mut journal, &[body(1)]);
    let missing = place(&mut journal, &[body(2)]);
    place(&mut journal, &[body(3)]).write().unwrap();
    drop((missing, journal));
    let torn = fs::read(file(&above, 1)).unwrap();
    let mut journal = open(&above);
    add(&mut journal, &[body(4)]);
    drop(journal);
    let (from, to) = (3 * BLOCK_BYTES, 4 * BLOCK_BYTES);
    OpenOptions::new().write(true).open(file(&above, 1)).unwrap().write_all_at(&torn[from..to], from as u64).unwrap();
    assert_eq!(read(&above, 0), [1, 4]);
    add(&mut open(&above), &[body(5)]);
    assert_eq!(read(&above, 0), [1, 4, 5]);
}

#[test]
fn a_change_of_files_that_was_cut_off_is_begun_again() {
    let above = new();
    add(&mut open(&above), &[body(1)]);
    File::create(file(&above, 2)).unwrap();
    assert_eq!(read(&above, 0), [1]);
    let mut journal = open(&above);
    journal.rotate().unwrap();
    add(&mut journal, &[body(2)]);
    assert_eq!(read(&above, 0), [1, 2]);
}

#[test]
fn a_journal_of_dense_records_is_read_and_continued() {
    let above = new();
    let first = OpenOptions::new().write(true).open(file(&above, 1)).unwrap();
    first.write_all_at(&framed(1, &[body(1), body(2)]), BLOCK).unwrap();
    for at in 3..6 {
        add(&mut open(&above), &[body(at)]);
    }
    assert_eq!(read(&above, 0), [1, 2, 3, 4, 5]);
}

#[test]
fn what_was_written_before_something_that_is_missing_is_all_that_is_read() {
    let above = written();
    let mut journal = open(&above);
    let missing = place(&mut journal, &[body(4)]);
    place(&mut journal, &[body(5)]).write().unwrap();
    place(&mut journal, &[vec![7; 800_000]]).write().unwrap();
    drop(missing);
    assert_eq!(read(&above, 0), [1, 2, 3]);
}

#[test]
fn writes_of_all_sizes_in_any_order_read_back_with_and_without_o_direct() {
    for direct in [true, false] {
        let above = written();
        let folder = above.path().join("journal");
        let mut tail = Replay { disk: &disk(), folder: &folder, done: 0, repair: false }.run(|_| {}).unwrap();
        tail.direct &= direct;
        let mut journal = Journal::resume(disk(), &folder, &tail, life()).unwrap();
        let long = |at: u64| vec![body(at); 1 + at as usize * 1_000];
        let writes: Vec<_> = (4..4 + WRITES_MAX as u64).map(|at| place(&mut journal, &long(at))).collect();
        assert!(journal.place(&[], 0).is_err(), "as many as there may be");
        writes.into_iter().rev().for_each(|write| write.write().unwrap());
        let mut all = vec![1, 2, 3];
        (4..4 + WRITES_MAX as u64).for_each(|at| all.extend(vec![at; 1 + at as usize * 1_000]));
        assert_eq!(read(&above, 0), all);
    }
}

/// An open pads the last block through the page cache, its sync fails, and the next open finds the padding in the page
/// cache only. What is appended after it must still be readable after a power cut.
#[test]
fn padding_that_only_the_page_cache_knows_is_written_again() {
    use crate::simulated::{Fault, SimDisk};
    let folder = Path::new("/journal");
    for seed in (1..400).step_by(2) {
        let sim = SimDisk::new(seed);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let replay = || Replay { disk: &disk, folder, done: 0, repair: false };
        Journal::create(&sim, folder).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        // A group that a power cut has cut after its first record.
        let first = disk.open(&journal::path(folder, 1), true).unwrap();
        first.write_all_at(&framed(1, &[body(1)]), BLOCK).unwrap();
        first.sync().unwrap();
        sim.fail_after(4, Fault::Io);
        assert!(replay().run(|_| {}).is_err(), "the sync of the padding fails");
        let tail = replay().run(|_| {}).unwrap();
        let mut journal = Journal::resume(Arc::clone(&disk), folder, &tail, life()).unwrap();
        add(&mut journal, &[body(2)]);
        drop(journal);
        sim.power_cut();
        let mut found = Vec::new();
        let apply = |record| {
            if let Record::Batch { at, .. } = record {
                found.push(at.0)
            }
        };
        assert!(replay().run(apply).is_ok(), "seed {seed}");
        assert_eq!(found, [1, 2], "seed {seed}");
    }
}
