//! Files that were written from real fetches, and malformed files.

use std::io::Write as _;
use std::time::Duration;

use super::*;
use crate::demo_site::{self, Site};
use crate::digest::sha256;
use crate::fetch::{self, Cut, Fetcher, Loopback};
use crate::limits;

fn info() -> Info {
    Info {
        filename: "chunk-7.warc.gz".to_owned(),
        chunk: "chunk 7, attempt 1".to_owned(),
        user_agent: "wayleave/0 (+me@example.org)\r\nEvil: 1".to_owned(),
        date: "2026-01-02T03:04:05.678Z".parse().unwrap(),
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn read(file: &[u8]) -> Result<Vec<Record>, Error> {
    Reader::new(file).collect()
}

async fn fetched(paths: &[&str]) -> Vec<fetch::Fetched> {
    let config = demo_site::Config { hosts: 1, pages: 1, slow: Duration::ZERO, ..demo_site::Config::default() };
    let site = Site::start(config).await.unwrap();
    let fetcher = Fetcher::new(fetch::Config { body_bytes_max: 5_000, ..fetch::Config::default() }).unwrap();
    let mut all = Vec::new();
    for path in paths {
        all.push(fetcher.fetch(&site.url(0, path).unwrap(), Loopback::Open).await.unwrap());
    }
    all
}

fn written(exchanges: &[fetch::Fetched]) -> (Vec<u8>, Written) {
    let mut writer = Writer::new(Vec::new(), info()).unwrap();
    for exchange in exchanges {
        writer.exchange(exchange).unwrap();
    }
    writer.finish().unwrap()
}

#[tokio::test]
async fn what_was_fetched_is_read_back() {
    let exchanges = fetched(&["/", "/compressed", "/moved", "/missing", "/busy"]).await;
    let (file, written) = written(&exchanges);
    assert_eq!((written.bytes, written.records), (file.len() as u64, 11));
    assert_eq!(written.checksum, sha256(&file));

    let records = read(&file).unwrap();
    assert_eq!(records[0].kind, Kind::Info);
    assert_eq!(records[0].field("warc-date"), Some("2026-01-02T03:04:05.678000Z"));
    let text = String::from_utf8(records[0].block.to_vec()).unwrap();
    assert!(text.contains("isPartOf: chunk 7, attempt 1\r\n"), "{text}");
    assert!(!text.contains("\nEvil"), "a field cannot bring in another: {text}");
    let mut ids = std::collections::HashSet::new();
    assert!(records.iter().all(|record| ids.insert(record.field("WARC-Record-ID").unwrap())));

    for (exchange, pair) in exchanges.iter().zip(records[1..].chunks(2)) {
        let response = pair[0].response().unwrap();
        assert_eq!((&response.url, response.status), (&exchange.url, exchange.status));
        assert_eq!(response.headers, exchange.headers);
        assert_eq!(response.raw, exchange.raw);
        assert_eq!(response.body().unwrap(), exchange.body().unwrap());
        assert_eq!(pair[0].field("WARC-Payload-Digest"), Some(sha256(&exchange.raw).as_str()));
        assert_eq!(pair[0].field("WARC-Warcinfo-ID"), records[0].field("WARC-Record-ID"));
        assert_eq!(pair[1].kind, Kind::Request);
        assert_eq!(pair[1].field("WARC-Concurrent-To"), pair[0].field("WARC-Record-ID"));
        assert!(pair[1].response().is_none());
        let request = String::from_utf8(pair[1].block.to_vec()).unwrap();
        assert!(request.starts_with(&format!("GET {} HTTP/1.1\r\nhost: 127.0.0.2:", exchange.url.path())), "{request}");
        assert!(request.contains("user-agent: wayleave/") && request.ends_with("\r\n\r\n"), "{request}");
    }
    assert_eq!(records[3].response().unwrap().header(hyper::header::CONTENT_ENCODING), Some("gzip"));
}

#[tokio::test]
async fn a_cut_body_is_marked_and_the_same_input_gives_the_same_file() {
    let mut exchanges = fetched(&["/"]).await;
    exchanges[0].cut = true;
    let (file, _) = written(&exchanges);
    assert_eq!(read(&file).unwrap()[1].field("WARC-Truncated"), Some("length"));
    assert_eq!(file, written(&exchanges).0);
}

#[tokio::test]
async fn a_password_and_a_fragment_are_not_archived() {
    let mut exchanges = fetched(&["/page/0"]).await;
    let plain = exchanges[0].url.clone();
    exchanges[0].url.set_username("me").unwrap();
    exchanges[0].url.set_password(Some("secret")).unwrap();
    exchanges[0].url.set_fragment(Some("part"));
    for record in &read(&written(&exchanges).0).unwrap()[1..] {
        assert_eq!(record.field("WARC-Target-URI"), Some(plain.as_str()));
        assert!(!String::from_utf8_lossy(&record.block).contains("secret"));
    }
}

/// A well-formed record with these fields and this block.
fn record(fields: &str, block: &str) -> Vec<u8> {
    gzip(format!("WARC/1.1\r\n{fields}Content-Length: {}\r\n\r\n{block}\r\n\r\n", block.len()).as_bytes())
}

#[test]
fn records_of_other_writers_are_read() {
    let http = "HTTP/1.0 200\r\nContent-Type: text/html\nX-Odd: a\r\n\r\nbody";
    let mut file = record("warc-type: response\r\nWARC-Target-URI: <http://a.example/>\r\n", http);
    file.extend(record("WARC-Type: revisit\r\nWARC-Block-Digest: sha1:ABC\r\n", ""));
    let records = read(&file).unwrap();
    let response = records[0].response().unwrap();
    assert_eq!((response.url.as_str(), response.body().unwrap()), ("http://a.example/", ("body".into(), Cut::No)));
    assert_eq!(records[1].kind, Kind::Other("revisit".to_owned()));
    for odd in ["", "HTTP/1.1", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\nno end: 1\r\n"] {
        let file = record("WARC-Type: response\r\nWARC-Target-URI: http://a.example/\r\n", odd);
        assert!(read(&file).unwrap()[0].response().is_none(), "{odd:?}");
    }
    let nowhere = record("WARC-Type: response\r\n", http);
    assert!(read(&nowhere).unwrap()[0].response().is_none());
}

#[tokio::test]
async fn damage_anywhere_is_found_and_what_came_before_is_read() {
    let (file, _) = written(&fetched(&["/", "/page/0"]).await);
    let whole = read(&file).unwrap();
    for cut in [1, 10, file.len() / 2, file.len() - 9, file.len() - 1] {
        let mut reader = Reader::new(&file[..cut]);
        let good: Vec<_> = reader.by_ref().map_while(Result::ok).collect();
        assert!(good.len() < whole.len() && good == whole[..good.len()], "cut at {cut}");
        assert!(read(&file[..cut]).is_err(), "cut at {cut}");
        assert!(reader.next().is_none(), "nothing comes after an error");
    }
    let mut flips = 0;
    for at in (10..file.len()).step_by(37) {
        let mut damaged = file.clone();
        damaged[at] ^= 0x10;
        // A flip in the header of a gzip member (a time, a flag) may do no harm; one in the data must be found.
        flips += usize::from(read(&damaged).is_err());
        assert!(read(&damaged).is_ok_and(|records| records == whole) || read(&damaged).is_err(), "flip at {at}");
    }
    assert!(flips > 10);
}

#[test]
fn hostile_records_are_refused_within_bounds() {
    let too_large = |file: &[u8]| matches!(read(file), Err(Error::TooLarge { .. }));
    let damaged = |file: &[u8]| matches!(read(file), Err(Error::Damaged { .. }));
    // An announced size is not believed, nor reserved.
    assert!(too_large(&gzip(b"WARC/1.1\r\nWARC-Type: response\r\nContent-Length: 99999999999\r\n\r\n")));
    let announced =
        format!("WARC/1.1\r\nWARC-Type: x\r\nContent-Length: {}\r\n\r\nshort", limits::WARC_BLOCK_BYTES_MAX);
    assert!(damaged(&gzip(announced.as_bytes())));
    // A bomb: a head without end, and a block longer than it says.
    assert!(too_large(&gzip(format!("WARC/1.1\r\n{}", "a: b\r\n".repeat(1_000_000)).as_bytes())));
    assert!(too_large(&gzip(format!("WARC/1.1\r\na: {}", "b".repeat(10_000_000)).as_bytes())));
    let long = format!("WARC/1.1\r\nWARC-Type: x\r\nContent-Length: 1\r\n\r\n{}", "b".repeat(10_000_000));
    assert!(damaged(&gzip(long.as_bytes())));
    for wrong in [
        "",
        "WARC/1.1",
        "HTTP/1.1 200 OK\r\n\r\n",
        "WARC/1.1\r\n\r\n",
        "WARC/1.1\r\nContent-Length: 0\r\n\r\n\r\n\r\n",
        "WARC/1.1\r\nWARC-Type: x\r\n\r\n\r\n\r\n",
        "WARC/1.1\r\nWARC-Type: x\r\nContent-Length: -1\r\n\r\n\r\n\r\n",
        "WARC/1.1\r\nWARC-Type: x\r\nContent-Length: 0\r\n\r\n",
        "WARC/1.1\r\nno colon\r\nContent-Length: 0\r\n\r\n\r\n\r\n",
    ] {
        assert!(damaged(&gzip(wrong.as_bytes())), "{wrong:?}");
    }
    assert!(damaged(b"WARC/1.1\r\nWARC-Type: x\r\nContent-Length: 0\r\n\r\n\r\n\r\n"), "not compressed");
    assert!(damaged(&record("WARC-Type: x\r\nWARC-Block-Digest: sha256:00\r\n", "block")));
    assert!(read(b"").unwrap().is_empty());
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>, plain: Vec<u8>) {
        let _ = read(&bytes);
        let _ = read(&gzip(&plain));
    }
}
