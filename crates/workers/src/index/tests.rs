//! Real indexes in folders.

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;
use crate::demo_site::{self, pages};
use crate::digest::sha256;
use crate::limits;

type Doc = (&'static str, &'static str, &'static str);

fn build(folder: &TempDir, name: &str, docs: &[Doc]) -> PathBuf {
    let path = folder.path().join(name);
    fs::create_dir(&path).unwrap();
    let mut builder = Builder::create(&path).unwrap();
    for (url, title, body) in docs {
        builder.add(&Page { url, title, body, crawl: "news" }).unwrap();
    }
    assert_eq!(builder.finish().unwrap(), docs.len() as u64);
    path
}

fn packed(folder: &Path) -> Vec<u8> {
    let mut archive = Vec::new();
    pack(folder, &mut archive).unwrap();
    archive
}

fn urls(indexes: &OpenIndexes, query: &str) -> Vec<String> {
    indexes.search(&query.parse().unwrap(), None, 10).hits.into_iter().map(|hit| hit.url).collect()
}

const DOCS: &[Doc] = &[
    ("http://a.example/1", "Rivers", "The river runs to the sea. Otters live in the river."),
    ("http://a.example/2", "Mountains", "A mountain has snow; its river is cold."),
    ("http://a.example/3", "Café", "Coffee and cake by the sea, every day."),
];

#[test]
fn every_word_is_found_and_all_words_must_be_there() {
    let folder = TempDir::new().unwrap();
    let mut indexes = OpenIndexes::default();
    indexes.add(OpenIndex::open("c1", &build(&folder, "c1", DOCS)).unwrap());
    assert_eq!(indexes.pages(), 3);
    assert_eq!(urls(&indexes, "river"), ["http://a.example/1", "http://a.example/2"], "twice is more than once");
    assert_eq!(urls(&indexes, "COLD river!"), ["http://a.example/2"]);
    assert_eq!(urls(&indexes, "café"), ["http://a.example/3"]);
    assert_eq!(urls(&indexes, "river coffee"), [""; 0]);
    assert_eq!(urls(&indexes, "nowhere"), [""; 0]);
    assert_eq!(urls(&indexes, "title:river AND -sea"), [""; 0], "there is no syntax, only words");
}

#[test]
fn hits_have_title_and_a_snippet_with_the_words_marked() {
    let folder = TempDir::new().unwrap();
    let long: &'static str = format!("{} the otter sleeps {}", "filler ".repeat(500), "more ".repeat(500)).leak();
    let mut indexes = OpenIndexes::default();
    indexes.add(
        OpenIndex::open("c1", &build(&folder, "c1", &[("http://a.example/", "On <b>animals</b>", long)])).unwrap(),
    );
    let hits = indexes.search(&"Otter sleeps".parse().unwrap(), None, 10).hits;
    let hit = &hits[0];
    assert_eq!((hit.chunk.as_str(), hit.title.as_str(), hit.crawl.as_str()), ("c1", "On <b>animals</b>", "news"));
    let words: Vec<_> = hit.snippet.words.iter().map(|range| &hit.snippet.text[range.clone()]).collect();
    assert_eq!(words, ["otter", "sleeps"]);
    assert!(hit.snippet.text.chars().count() <= limits::SNIPPET_CHARS_MAX);
    let hits = indexes.search(&"animals".parse().unwrap(), None, 10).hits;
    assert!(hits[0].snippet.text.starts_with("filler") && hits[0].snippet.words.is_empty());
}

/// Ranked by its own statistics each chunk would put its page first, and the better page of the large chunk, where the
/// word is common, would lose. With the statistics of all, many chunks rank as one index does.
#[test]
fn many_chunks_rank_as_one_index() {
    let folder = TempDir::new().unwrap();
    let mut docs: Vec<Doc> = (0..40)
        .map(|n| (&*format!("http://a.example/{n}").leak(), "", &*format!("otter {} x", "y ".repeat(n)).leak()))
        .collect();
    docs.push(("http://b.example/", "", "otter in a text that is somewhat longer than that of most others here"));
    docs.push(("http://c.example/", "", "nothing of the kind"));
    let mut one = OpenIndexes::default();
    one.add(OpenIndex::open("all", &build(&folder, "all", &docs)).unwrap());
    let mut many = OpenIndexes::default();
    many.add(OpenIndex::open("large", &build(&folder, "large", &docs[..40])).unwrap());
    many.add(OpenIndex::open("small", &build(&folder, "small", &docs[40..])).unwrap());
    let ranked = |indexes: &OpenIndexes| -> Vec<_> {
        let hits = indexes.search(&"otter".parse().unwrap(), None, 100).hits;
        hits.into_iter().map(|hit| (hit.url, hit.score)).collect()
    };
    let (one, many) = (ranked(&one), ranked(&many));
    assert_eq!(one.len(), 41);
    let names = |hits: &[(String, f32)]| hits.iter().map(|(url, _)| url.clone()).collect::<Vec<_>>();
    assert_eq!(names(&many), names(&one));
    assert!(one.iter().zip(&many).all(|(a, b)| (a.1 - b.1).abs() < 1e-4), "{one:?} {many:?}");
    assert_ne!(names(&one)[0], "http://b.example/");
}

#[test]
fn a_url_of_several_chunks_comes_once_and_searches_can_be_narrowed() {
    let folder = TempDir::new().unwrap();
    let mut indexes = OpenIndexes::default();
    indexes.add(OpenIndex::open("c1", &build(&folder, "c1", DOCS)).unwrap());
    indexes.add(OpenIndex::open("c2", &build(&folder, "c2", &DOCS[..1])).unwrap());
    assert_eq!(urls(&indexes, "otters"), ["http://a.example/1"]);
    let query: Query = "otters".parse().unwrap();
    let only = |name: &str| HashSet::from([name.to_owned()]);
    assert_eq!(indexes.search(&query, Some(&only("c2")), 10).hits[0].chunk, "c2");
    assert!(indexes.search(&query, Some(&only("c3")), 10).hits.is_empty());
    assert_eq!(indexes.search(&query.clone().in_crawl("news"), None, 10).hits.len(), 1);
    assert!(indexes.search(&query.clone().in_crawl("sport"), None, 10).hits.is_empty());
    indexes.close("c1");
    assert_eq!(indexes.search(&query, None, 10).hits[0].chunk, "c2");
    indexes.add(OpenIndex::open("c2", &folder.path().join("c1")).unwrap());
    assert_eq!(indexes.pages(), 3, "opened again, a chunk is replaced");
}

#[test]
fn queries_are_bounded() {
    assert_eq!("".parse::<Query>(), Err(Refused::Empty));
    assert_eq!(" !?* ".parse::<Query>(), Err(Refused::Empty));
    assert_eq!("x".repeat(limits::QUERY_BYTES_MAX + 1).parse::<Query>(), Err(Refused::TooLong));
    let words = |count: usize| (0..count).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ");
    assert!(words(limits::QUERY_WORDS_MAX).parse::<Query>().is_ok());
    assert_eq!(words(limits::QUERY_WORDS_MAX + 1).parse::<Query>(), Err(Refused::TooLong));
    assert_eq!("a A a a".parse::<Query>(), "a".parse());
    let folder = TempDir::new().unwrap();
    let docs: Vec<Doc> = (0..150).map(|n| (&*format!("http://a.example/{n}").leak(), "same", "word")).collect();
    let mut indexes = OpenIndexes::default();
    indexes.add(OpenIndex::open("c1", &build(&folder, "c1", &docs)).unwrap());
    let query: Query = "word".parse().unwrap();
    assert_eq!(indexes.search(&query, None, usize::MAX).hits.len(), limits::HITS_MAX);
    assert!(indexes.search(&query, None, 0).hits.is_empty());
}

#[test]
fn a_packed_index_answers_like_the_first_and_packing_is_deterministic() {
    let folder = TempDir::new().unwrap();
    let first = packed(&build(&folder, "first", DOCS));
    assert_eq!(sha256(&first), sha256(&packed(&build(&folder, "second", DOCS))), "the build is deterministic");
    assert_ne!(sha256(&first), sha256(&packed(&build(&folder, "third", &DOCS[..2]))));
    let unpacked = folder.path().join("unpacked");
    unpack(first.as_slice(), &unpacked).unwrap();
    let mut indexes = OpenIndexes::default();
    indexes.add(OpenIndex::open("c1", &unpacked).unwrap());
    assert_eq!(urls(&indexes, "river"), ["http://a.example/1", "http://a.example/2"]);
    assert_eq!(indexes.search(&"otters".parse().unwrap(), None, 10).hits[0].snippet.text.len(), DOCS[0].2.len() - 1);
    assert_eq!(packed(&unpacked), first, "packing again changes nothing");
    assert!(unpack(first.as_slice(), &unpacked).is_err(), "a folder is not overwritten");
}

#[test]
fn an_index_without_pages_is_one_too() {
    let folder = TempDir::new().unwrap();
    let unpacked = folder.path().join("unpacked");
    unpack(packed(&build(&folder, "c1", &[])).as_slice(), &unpacked).unwrap();
    let mut indexes = OpenIndexes::default();
    indexes.add(OpenIndex::open("c1", &unpacked).unwrap());
    assert_eq!(urls(&indexes, "river"), [""; 0]);
}

#[test]
fn every_page_of_the_site_is_found_by_each_of_its_words() {
    let folder = TempDir::new().unwrap();
    let config = demo_site::Config { hosts: 2, pages: 30, ..demo_site::Config::default() };
    let mut indexes = OpenIndexes::default();
    for host in 0..2 {
        let path = folder.path().join(host.to_string());
        fs::create_dir(&path).unwrap();
        let mut builder = Builder::create(&path).unwrap();
        for page in pages::indexable(&config, host, 80) {
            let url = pages::base(host, 80).unwrap().join(&page.path).unwrap();
            let text = crate::text::extract(&page.html());
            builder.add(&Page { url: url.as_str(), title: &text.title, body: &text.body, crawl: "demo" }).unwrap();
        }
        builder.finish().unwrap();
        indexes.add(OpenIndex::open(&host.to_string(), &path).unwrap());
    }
    for host in 0..2 {
        for page in pages::indexable(&config, host, 80) {
            let url = pages::base(host, 80).unwrap().join(&page.path).unwrap().to_string();
            assert_eq!(urls(&indexes, page.own_word()), [url.as_str()]);
            for word in &page.words {
                let hits = indexes.search(&word.parse().unwrap(), None, 100).hits;
                assert!(hits.iter().any(|hit| hit.url == url), "{word} of {url}");
            }
        }
    }
    assert_eq!(urls(&indexes, "neverindexed"), [""; 0]);
}

fn tar_of(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, kind, content) in entries {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_entry_type(*kind);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        archive.append(&header, *content).unwrap();
    }
    archive.into_inner().unwrap()
}

#[test]
fn hostile_archives_are_refused_and_leave_nothing_behind() {
    use tar::EntryType::{Directory, GNULongName, Regular, Symlink};
    let folder = TempDir::new().unwrap();
    let into = folder.path().join("inner/index");
    fs::create_dir(folder.path().join("inner")).unwrap();
    let many: Vec<String> = (0..=limits::INDEX_FILES_MAX).map(|n| format!("f{n}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), Regular, b"".as_slice())).collect();
    let meta = ("meta.json", Regular, b"{}".as_slice());
    let archives = [
        ("a path upwards", tar_of(&[meta, ("../evil", Regular, b"x")])),
        ("an absolute path", tar_of(&[meta, ("/tmp/evil", Regular, b"x")])),
        ("a folder", tar_of(&[meta, ("a/b", Regular, b"x")])),
        ("a dot file", tar_of(&[meta, (".managed.json", Regular, b"x")])),
        ("a link", tar_of(&[meta, ("evil", Symlink, b"")])),
        ("a directory", tar_of(&[meta, ("evil", Directory, b"")])),
        ("a long name", tar_of(&[meta, ("evil", GNULongName, b"x")])),
        ("a name twice", tar_of(&[meta, meta])),
        ("too many files", tar_of(&many)),
        ("no meta.json", tar_of(&[("a", Regular, b"x")])),
        ("half a file", tar_of(&[meta])[..513].to_vec()),
        ("no archive", b"x".repeat(1024)),
        ("nothing", Vec::new()),
    ];
    println!("seen: {} hostile archives: each refused, 0 files left", archives.len());
    for (what, archive) in archives {
        assert!(unpack(archive.as_slice(), &into).is_err(), "{what}");
        let left = fs::read_dir(folder.path().join("inner")).unwrap().count();
        assert_eq!(left, 0, "{what}");
        assert!(!folder.path().join("evil").exists() && !folder.path().join("inner/evil").exists(), "{what}");
    }
}

#[test]
fn a_folder_that_is_no_index_of_a_chunk_is_refused() {
    let folder = TempDir::new().unwrap();
    assert!(OpenIndex::open("c1", &folder.path().join("nothing")).is_err());
    let broken = build(&folder, "broken", DOCS);
    let mut meta = fs::OpenOptions::new().write(true).truncate(true).open(broken.join("meta.json")).unwrap();
    meta.write_all(b"{}").unwrap();
    assert!(OpenIndex::open("c1", &broken).is_err());
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    let mut schema = tantivy::schema::Schema::builder();
    schema.add_text_field("other", tantivy::schema::TEXT);
    tantivy::Index::create_in_dir(&other, schema.build()).unwrap();
    assert!(OpenIndex::open("c1", &other).is_err());
}
