//! What is found in a journal after a clean stop, a cut, a loss.

use wayleave_core::time::Time;

use super::*;

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
    journal.write(&[segment(1, &[body(1)])]).unwrap().sync().unwrap();
    journal.write(&[segment(1, &[body(2), record::encode_goes_on()]), segment(2, &[body(3)])]).unwrap().sync().unwrap();
    above
}

fn read(above: &tempfile::TempDir, done: u64) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    let apply = |record| match record {
        Record::Batch { at, .. } => found.push(at.0),
        Record::GoesOn => panic!("the mark is the journal's own"),
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
    journal.write(&[segment(2, &[body(4)])]).unwrap().sync().unwrap();
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
    let whole = segment(2, &[body(3)]).bytes.len() as u64;
    let torn = segment(2, &[body(4)]).bytes;
    let file = OpenOptions::new().write(true).open(file(&above, 2)).unwrap();
    file.write_all_at(&torn[..torn.len() - 3], whole).unwrap();
    assert_eq!(read(&above, 0).unwrap(), [1, 2, 3]);
    let mut journal = Journal::open(&above.path().join("journal"), 0, |_| {}).unwrap();
    journal.write(&[segment(2, &[body(5)])]).unwrap().sync().unwrap();
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
    Journal::open(&folder, 0, |_| {}).unwrap().write(&[segment(1, &[body(1)])]).unwrap().sync().unwrap();
    File::create(file(&above, 2)).unwrap();
    assert_eq!(read(&above, 0).unwrap(), [1]);
    let mut journal = Journal::open(&folder, 0, |_| {}).unwrap();
    journal.write(&[segment(1, &[record::encode_goes_on()]), segment(2, &[body(2)])]).unwrap().sync().unwrap();
    assert_eq!(read(&above, 0).unwrap(), [1, 2]);
}
