//! Decompression bombs and other hostile files for `seed`: each ends at a limit with an error that names it, within a
//! memory bound that the kernel enforces.

use crate::prelude::*;

/// The address space of `seed`, in KiB. The bombs expand to more.
const MEMORY_KIB: &str = "800000";
const MIB: usize = 1 << 20;

fn packed(text: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(text).unwrap();
    packed.finish().unwrap()
}

/// A gzip file of several members: repeating one costs nothing.
fn bomb(path: &Path, head: &str, unit: &str, times: usize) {
    let member = packed(unit.repeat(MIB / unit.len()).as_bytes());
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(&packed(head.as_bytes())).unwrap();
    for _ in 0..times {
        file.write_all(&member).unwrap();
    }
}

fn seed_bounded(server: &Server, file: &Path) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {MEMORY_KIB}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_wayleave"), "seed"]);
    command.arg(file).env("WAYLEAVE_SERVER", &server.url).stdout(Stdio::piped()).stderr(Stdio::piped());
    run(command, "")
}

#[test]
fn bombs_end_at_a_limit_with_an_error_that_names_it() {
    let (folder, server) = Server::fresh();
    let file = folder.path().join("file");
    // The bound leaves room for honest work, or the rest would prove nothing.
    std::fs::write(&file, "http://a.example/\n").unwrap();
    assert_eq!(seed_bounded(&server, &file).ok(), "1 added, 0 known, 0 rejected, 0 failed\n");
    let entry = format!("<sitemap><loc>http://a.example/{}</loc></sitemap>", "x".repeat(8_000));
    for (what, head, unit, times, limit) in [
        ("a text", "<urlset><url><loc>http://a.example/", "x", 3_000, "longer than 1048576 bytes"),
        ("a comment", "<urlset><!--", "x", 3_000, "longer than 1048576 bytes"),
        ("a tag", "<urlset a='", "x", 3_000, "longer than 1048576 bytes"),
        ("a document type", "<!DOCTYPE a [", "x", 3_000, "longer than 1048576 bytes"),
        ("a location in pieces", "<urlset><url><loc>", "&amp;", 3_000, "longer than 16384 bytes"),
        ("depth", "<urlset>", "<a>", 3_000, "nested more than 64 deep"),
        ("an index", "<sitemapindex>", entry.as_str(), 3_000, "names too many sitemaps"),
        ("entries", "<urlset>", "<url></url>", 3_000, "250 to 1"),
        ("a line", "http://a.example/", "x", 3_000, "line 1 is longer than 16777216 bytes"),
        ("lines", "", "#\n", 3_000, "250 to 1"),
    ] {
        bomb(&file, head, unit, times);
        let ended = seed_bounded(&server, &file);
        assert_eq!(ended.code, 1, "{what}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(limit) && ended.err.contains("file"), "{what}: {}", ended.err);
    }
}

#[test]
fn a_list_that_packs_well_is_no_bomb() {
    let (folder, server) = Server::fresh();
    let file = folder.path().join("file");
    // Past the size from which the ratio counts.
    let lines: String = (0..400_000).map(|n| format!("# {n}{}\n", " the same words".repeat(12))).collect();
    std::fs::write(&file, packed(format!("{lines}http://a.example/\n").as_bytes())).unwrap();
    assert!(lines.len() > 64 * MIB && std::fs::metadata(&file).unwrap().len() < 4 * MIB as u64);
    assert_eq!(seed_bounded(&server, &file).ok(), "1 added, 0 known, 0 rejected, 0 failed\n");
}
