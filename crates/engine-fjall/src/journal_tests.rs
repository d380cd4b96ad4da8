//! What is found in a journal after a clean stop, a cut, a loss.

use wayleave_core::time::Time;

use super::*;
use crate::blocks::BLOCK_BYTES;

fn body(at: u64) -> Vec<u8> {
    record::encode_batch(Time(at), &[], &[])
}

fn segment(file: u64, bodies: &[Vec<u8>]) -> Segment {
    let bytes = bodies.iter().flat_map(|body| [&record::frame(file, body)[..], body].concat()).collect();
    Segment { file, bytes }
}

/// A journal of two files: the first with the records 1 and 2, the second with 3.
fn written() -> tempfile::TempDir {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("journal");
    Journal::create(&folder).unwrap();
    let mut journal = Journal::open(&folder, 0, |_| panic!("a new journal is empty")).unwrap();
    journal.place(&[segment(1, &[body(1)])]).unwrap().write().unwrap();
    journal
        .place(&[segment(1, &[body(2), record::encode_goes_on()]), segment(2, &[body(3)])])
        .unwrap()
        .write()
        .unwrap();
    above
}

fn read(above: &tempfile::TempDir, done: u64) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    let apply = |record| match record {
        Record::Batch { at, .. } => found.push(at.0),
        Record::GoesOn | Record::Padding => panic!("these are the journal's own"),
    };
    Journal::open(&above.path().join("journal"), done, apply)?;
    Ok(found)
}

fn file(above: &tempfile::TempDir, number: u64) -> PathBuf {
    path(&above.path().join("journal"), number)
}

#[test]
fn all_records_are_read_in_order_and_more_can_be_added() {
    let above = written();
    assert_eq!(read(&above, 0).unwrap(), [1, 2, 3]);
    let mut journal = Journal::open(&above.path().join("journal"), 0, |_| {}).unwrap();
    assert_eq!(journal.number(), 2);
    journal.place(&[segment(2, &[body(4)])]).unwrap().write().unwrap();
    assert_eq!(read(&above, 0).unwrap(), [1, 2, 3, 4]);
}

#[test]
fn files_whose_rows_are_in_tables_are_removed() {
    let above = written();
    assert_eq!(read(&above, 1).unwrap(), [3]);
    assert!(!file(&above, 1).exists());
}

#[test]
fn a_record_that_was_cut_off_is_dropped_and_written_over() {
    let above = written();
    let whole = BLOCK_BYTES as u64;
    let torn = segment(2, &[body(4)]).bytes;
    let file = OpenOptions::new().write(true).open(file(&above, 2)).unwrap();
    file.write_all_at(&torn[..torn.len() - 3], whole).unwrap();
    assert_eq!(read(&above, 0).unwrap(), [1, 2, 3]);
    let mut journal = Journal::open(&above.path().join("journal"), 0, |_| {}).unwrap();
    journal.place(&[segment(2, &[body(5)])]).unwrap().write().unwrap();
    assert_eq!(read(&above, 0).unwrap(), [1, 2, 3, 5]);
}

#[test]
fn a_lost_file_is_noticed_wherever_it_was() {
    for (lost, done, what) in [(1, 0, "journal 1 is missing"), (2, 0, "journal 2 is missing"), (2, 1, "journal 2")] {
        let above = written();
        fs::remove_file(file(&above, lost)).unwrap();
        let error = read(&above, done).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidData && error.to_string().contains(what), "{error}");
    }
}

#[test]
fn damage_before_the_newest_file_is_noticed() {
    let above = written();
    let first = OpenOptions::new().write(true).open(file(&above, 1)).unwrap();
    first.write_all_at(&[0xff], 14).unwrap();
    let error = read(&above, 0).unwrap_err().to_string();
    assert!(error.contains("journal 1 ends before its time"), "{error}");
}

#[test]
fn a_change_of_files_that_was_cut_off_is_begun_again() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("journal");
    Journal::create(&folder).unwrap();
    Journal::open(&folder, 0, |_| {}).unwrap().place(&[segment(1, &[body(1)])]).unwrap().write().unwrap();
    File::create(file(&above, 2)).unwrap();
    assert_eq!(read(&above, 0).unwrap(), [1]);
    let mut journal = Journal::open(&folder, 0, |_| {}).unwrap();
    journal.place(&[segment(1, &[record::encode_goes_on()]), segment(2, &[body(2)])]).unwrap().write().unwrap();
    assert_eq!(read(&above, 0).unwrap(), [1, 2]);
}

#[test]
fn a_journal_whose_records_lie_close_together_is_read_and_goes_on() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("journal");
    Journal::create(&folder).unwrap();
    fs::write(file(&above, 1), segment(1, &[body(1), body(2)]).bytes).unwrap();
    for at in 3..6 {
        let mut journal = Journal::open(&folder, 0, |_| {}).unwrap();
        journal.place(&[segment(1, &[body(at)])]).unwrap().write().unwrap();
    }
    assert_eq!(read(&above, 0).unwrap(), [1, 2, 3, 4, 5]);
}

#[test]
fn what_was_written_before_something_that_is_missing_is_all_that_is_read() {
    let above = written();
    let mut journal = Journal::open(&above.path().join("journal"), 0, |_| {}).unwrap();
    let missing = journal.place(&[segment(2, &[body(4)])]).unwrap();
    journal.place(&[segment(2, &[body(5)])]).unwrap().write().unwrap();
    journal.place(&[segment(2, &[vec![7; 3 * AHEAD_BYTES]])]).unwrap().write().unwrap();
    drop(missing);
    assert_eq!(read(&above, 0).unwrap(), [1, 2, 3]);
}

#[test]
fn writes_of_all_sizes_end_in_any_order_and_read_back_with_and_without_the_cache() {
    for direct in [true, false] {
        let above = written();
        let mut journal = Journal::open(&above.path().join("journal"), 0, |_| {}).unwrap();
        journal.direct &= direct;
        journal.files = open_files(&journal.folder, 2, journal.direct).unwrap();
        let long = |at: u64| vec![body(at); 1 + at as usize * 1_000];
        let writes: Vec<_> =
            (4..4 + WRITES_MAX as u64).map(|at| journal.place(&[segment(2, &long(at))]).unwrap()).collect();
        assert!(journal.place(&[segment(2, &[body(99)])]).is_err(), "as many as there may be");
        writes.into_iter().rev().for_each(|write| write.write().unwrap());
        let mut all = vec![1, 2, 3];
        (4..4 + WRITES_MAX as u64).for_each(|at| all.extend(vec![at; 1 + at as usize * 1_000]));
        assert_eq!(read(&above, 0).unwrap(), all);
    }
}
