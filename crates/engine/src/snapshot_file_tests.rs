use super::*;

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

const AT: Time = Time(1_700_000_000_123);

fn rows() -> Rows {
    // Enough for several frames, with an empty value and an empty key among them.
    let row = |n: u32| (n.to_be_bytes().to_vec(), vec![n as u8; 1_000]);
    let first = (Vec::new(), Vec::new());
    std::iter::once(first).chain((1..700).map(row)).collect()
}

fn header() -> SnapshotHeader {
    let fence = |shard, epoch, seq| (ShardId(shard), FenceState { epoch: Epoch(epoch), seq });
    SnapshotHeader { shards: 16, at: AT, fences: [fence(0, 7, 1), fence(15, 1, u64::MAX)].into() }
}

fn losses() -> Vec<Loss> {
    let loss =
        |what: &str, hosts: &[&str]| Loss { what: what.into(), hosts: hosts.iter().map(|h| (*h).into()).collect() };
    vec![loss("URLs", &["a.example", "b.example"]), loss("a role", &[])]
}

fn written() -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = SnapshotWriter::begin(&mut out, &header()).unwrap();
    rows().iter().for_each(|(key, value)| writer.row(key, value).unwrap());
    assert_eq!(writer.finish(&losses()).unwrap().rows, 700);
    out
}

fn read(file: &[u8]) -> Result<Rows, SnapshotError> {
    let mut reader = SnapshotReader::begin(file)?;
    assert_eq!(*reader.header(), header());
    let mut found = Vec::new();
    while let Some(rows) = reader.next_rows()? {
        found.extend(rows.into_iter().map(|row| (row.key, row.value)));
    }
    assert_eq!(reader.losses(), losses());
    Ok(found)
}

/// The offset of each frame, and the end.
fn frames(file: &[u8]) -> Vec<usize> {
    let mut places = vec![MAGIC.len()];
    while let Some(length) = file.get(places[places.len() - 1]..).and_then(|rest| rest.first_chunk::<4>()) {
        places.push(places[places.len() - 1] + 12 + u32::from_le_bytes(*length) as usize);
    }
    places
}

#[test]
fn rows_read_back_as_they_were_written() {
    let file = written();
    assert!(frames(&file).len() > 4, "it has several frames");
    assert_eq!(read(&file).unwrap(), rows());
}

#[test]
fn a_file_that_was_cut_off_anywhere_is_refused_with_the_place() {
    let file = written();
    let ends = frames(&file);
    // In the magic, at every frame boundary, and inside every frame.
    let cuts = [0, 5].into_iter().chain(ends.iter().flat_map(|end| [*end, end + 1, end + 6, end + 13]));
    for cut in cuts.filter(|cut| *cut < file.len()) {
        match read(&file[..cut]) {
            Err(SnapshotError::NotOne) => assert!(cut < MAGIC.len(), "{cut}"),
            Err(SnapshotError::Truncated { at }) => assert_eq!(at, cut as u64),
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let file = written();
    for at in (0..file.len()).step_by(997).chain(frames(&file)).filter(|at| *at < file.len()) {
        let mut damaged = file.clone();
        damaged[at] ^= 0x10;
        assert!(read(&damaged).is_err(), "byte {at}");
    }
    let mut damaged = file.clone();
    damaged[MAGIC.len() + 200_000] ^= 1;
    let refusal = read(&damaged).unwrap_err().to_string();
    assert!(refusal.contains(&format!("damaged at byte {}", frames(&file)[1])), "{refusal}");
}

#[test]
fn frames_that_are_missing_repeated_or_swapped_are_noticed() {
    let file = written();
    let ends = frames(&file);
    let frame = |n: usize| &file[ends[n]..ends[n + 1]];
    let last = ends.len() - 2;
    let put = |order: &[usize]| {
        let frames = order.iter().flat_map(|n| frame(*n)).copied();
        file[..MAGIC.len()].iter().copied().chain(frames).collect::<Vec<u8>>()
    };
    assert_eq!(put(&(0..=last).collect::<Vec<_>>()), file);
    for order in [&[0, 2, 3][..], &[0, 1, 1, 2, 3], &[0, 2, 1, 3], &[0, last], &[1, 2, 3]] {
        assert!(read(&put(order)).is_err(), "{order:?}");
    }
    let longer = [&file[..], b"x"].concat();
    assert!(read(&longer).unwrap_err().to_string().contains("behind its end mark"));
}

#[test]
fn a_newer_format_is_not_called_damage() {
    let mut file = MAGIC.to_vec();
    let body = [HEADER, 9, 1, 2, 3];
    file.extend_from_slice(&(body.len() as u32).to_le_bytes());
    file.extend_from_slice(&check(&body, 0).to_le_bytes());
    file.extend_from_slice(&body);
    let refusal = read(&file).unwrap_err().to_string();
    assert_eq!(refusal, "it has format 9, this program reads formats up to 1: use a newer wayleave");
}
