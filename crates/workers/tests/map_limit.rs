//! An index server at the limit of memory maps. A process of its own: it uses all that there are.

use std::fs;

use memmap2::{Mmap, MmapMut};
use wayleave_workers::digest::sha256;
use wayleave_workers::index::{Builder, Page, pack};
use wayleave_workers::index_server::ChunkFiles;

/// Takes memory maps until none is left, but for some. Neighbours with other rights are not merged.
fn take_maps(left: usize) -> (Vec<MmapMut>, Vec<Mmap>) {
    let (mut writable, mut readable) = (Vec::with_capacity(1 << 20), Vec::with_capacity(1 << 20));
    while let Ok(map) = MmapMut::map_anon(4096) {
        writable.push(map);
        let Ok(map) = MmapMut::map_anon(4096) else { break };
        match map.make_read_only() {
            Ok(map) => readable.push(map),
            Err(_) => break,
        }
    }
    writable.truncate(writable.len() - left);
    readable.truncate(readable.len() - left);
    (writable, readable)
}

/// A regression: 588 of 11,500 good chunks were removed as damaged.
#[test]
fn chunks_beyond_the_limit_of_memory_maps_stay_and_are_served_later() {
    let folder = tempfile::tempdir().unwrap();
    let chunk_files = ChunkFiles::open(folder.path()).unwrap();
    let mut chunks = Vec::new();
    for number in 0..20 {
        let index = tempfile::tempdir().unwrap();
        let mut builder = Builder::create(index.path()).unwrap();
        let url = format!("http://a.example/{number}");
        builder.add(&Page { url: &url, title: "", body: "river", crawl: "c" }).unwrap();
        builder.finish().unwrap();
        let mut content = Vec::new();
        pack(index.path(), &mut content).unwrap();
        let (chunk, checksum) = (number.to_string(), sha256(&content));
        fs::write(chunk_files.place(&chunk, &checksum), &content).unwrap();
        chunks.push((chunk, checksum));
    }
    drop(chunk_files);
    let taken = take_maps(20);
    let chunk_files = ChunkFiles::open(folder.path()).unwrap();
    let (served, _) = chunk_files.served();
    let files = fs::read_dir(folder.path().join("chunks")).unwrap().count();
    drop(taken);
    assert!(0 < served && served < 20, "{served} of 20 chunks are served: the test needs the limit in between");
    assert_eq!(files, 20);
    assert_eq!(chunk_files.search(&"river".parse().unwrap(), None, 100).1.len() as u64, 20 - served);
    for (chunk, checksum) in &chunks {
        assert!(chunk_files.reopen(chunk, checksum).unwrap());
    }
    assert_eq!(
        (chunk_files.served(), chunk_files.search(&"river".parse().unwrap(), None, 100).0.len()),
        ((20, 20), 20)
    );
}
