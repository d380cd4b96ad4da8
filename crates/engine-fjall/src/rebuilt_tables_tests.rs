//! Which blocks of a damaged table are read: rows may contain bytes that look like a block.

use lsm_tree::table::block::BlockType;
use lsm_tree::table::{Block, DataBlock, Writer};
use lsm_tree::{CompressionType, InternalValue, ValueType};

use super::*;

const ROWS: usize = 2_000;
/// The row that contains a block.
const ODD: usize = 1_000;

fn name(n: usize) -> Key {
    format!("row{n:05}").into()
}

/// A whole block with a row that was never stored.
fn block() -> Vec<u8> {
    let row = InternalValue::from_components(name(ODD + 1), "never stored", 0, ValueType::Value);
    let (mut content, mut block) = (Vec::new(), Vec::new());
    DataBlock::encode_into(&mut content, &[row], 16, 0.0).unwrap();
    Block::write_into(&mut block, &content, BlockType::Data, CompressionType::None).unwrap();
    block
}

fn position(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|found| found == part).unwrap()
}

#[test]
fn bytes_of_a_row_that_look_like_a_block_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("7");
    let mut table = Writer::new(path.clone(), 7, 0).unwrap().use_partitioned_index().use_meta_partition_size(1_000);
    for n in 0..ROWS {
        let value = if n == ODD { [b"x".repeat(50), block()].concat() } else { b"v".repeat(100) };
        table.write(InternalValue::from_components(name(n), value, 0, ValueType::Value)).unwrap();
    }
    table.finish().unwrap();
    let sound = fs::read(&path).unwrap();
    let within = position(&sound, &block());
    let around =
        table_blocks::read(&path).unwrap().into_iter().find(|found| (found.at..found.end).contains(&within)).unwrap();
    let around = (around.at, around.end);
    let archive = sfa::Reader::new(&path).unwrap();
    let section = |name: &[u8]| archive.toc().section(name).map(|found| found.pos() as usize).unwrap();
    let (index, top, filter) = (section(b"index"), section(b"tli"), section(b"filter"));
    let (head, content) = (around.0 + 10, around.0 + 60);
    let damages: [(&str, Vec<usize>); 7] = [
        ("its head and the table of contents", vec![head, sound.len() - 60]),
        ("its content", vec![content]),
        ("its head", vec![head]),
        ("its head and the top of the index", vec![head, top + 60]),
        ("its head and a part of the index", vec![head, index + 10]),
        ("its head and all of the index", (index..filter).chain([head]).collect()),
        ("its content and all of the index", (index..filter).chain([content]).collect()),
    ];
    for (what, places) in damages {
        let mut bytes = sound.clone();
        places.into_iter().for_each(|at| bytes[at] ^= 1);
        fs::write(&path, bytes).unwrap();
        let rows = Rows::read(&path).unwrap();
        let read: Vec<Key> = rows.items().map(|item| item.key.user_key.to_vec()).collect();
        assert!(rows.items().all(|item| *item.value != *b"never stored"), "{what}");
        let missing: Vec<Key> = (0..ROWS).map(name).filter(|name| !read.contains(name)).collect();
        assert!(!missing.is_empty() && missing.len() < 60, "{what}: {} rows are missing", missing.len());
        let [(from, to)] = rows.holes.as_slice() else { panic!("{what}: {:?}", rows.holes) };
        assert!(missing.iter().all(|name| from <= name && name < to), "{what}");
    }
    // The head, and half of the file with all that is behind it: what only looks like a row is not read.
    let mut cut = sound[..sound.len() * 3 / 4].to_vec();
    cut[head] ^= 1;
    fs::write(&path, cut).unwrap();
    let read: Vec<Key> = Rows::read(&path).unwrap().items().map(|item| item.key.user_key.to_vec()).collect();
    assert!(read.len() > ODD - 60 && read.len() <= ODD && read == (0..read.len()).map(name).collect::<Vec<_>>());
}
