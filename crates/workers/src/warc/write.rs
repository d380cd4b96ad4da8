//! Writes records.

use std::fmt::Write as _;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::{HeaderMap, Version, header};
use jiff::Timestamp;
use url::{Position, Url};

use crate::digest::{Digesting, sha256};
use crate::fetch::Fetched;

/// Who wrote a file, and of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// The name of the file.
    pub filename: String,
    /// The chunk and attempt that it holds; makes the ids of its records unique.
    pub chunk: String,
    /// The User-Agent of its requests.
    pub user_agent: String,
    /// When the file was begun.
    pub date: Timestamp,
}

/// A finished file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its size.
    pub bytes: u64,
    /// The SHA-256 of the file as `sha256:…`.
    pub checksum: String,
    /// Records, the `warcinfo` included.
    pub records: usize,
}

/// Writes a file record by record.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: Digesting<W>,
    info: Info,
    info_id: String,
    records: usize,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    pub fn new(out: W, info: Info) -> io::Result<Self> {
        let mut writer = Self { out: Digesting::new(out), info, info_id: String::new(), records: 0 };
        let info = &writer.info;
        let mut block = Fields::default();
        block.push("software", concat!("wayleave/", env!("CARGO_PKG_VERSION")));
        block.push("format", "WARC File Format 1.1");
        block.push("isPartOf", &info.chunk);
        block.push("http-header-user-agent", &info.user_agent);
        block.push("robots", "obey");
        let mut head = Fields::default();
        head.push("WARC-Filename", &info.filename);
        head.push("Content-Type", "application/warc-fields");
        let (date, block) = (info.date, block.0.into_bytes());
        writer.info_id = writer.record("warcinfo", date, head, &block)?;
        Ok(writer)
    }

    /// Adds a response and its request.
    pub fn exchange(&mut self, fetched: &Fetched) -> io::Result<()> {
        let mut head = self.http_fields(&fetched.url, "response");
        head.push("WARC-Payload-Digest", &sha256(&fetched.raw));
        if fetched.version == Version::HTTP_2 {
            head.push("WARC-Protocol", "h2");
        }
        if fetched.cut {
            head.push("WARC-Truncated", "length");
        }
        let id = self.record("response", fetched.started, head, &response_block(fetched))?;
        let mut head = self.http_fields(&fetched.url, "request");
        head.push("WARC-Concurrent-To", &id);
        self.record("request", fetched.started, head, &request_block(fetched))?;
        Ok(())
    }

    /// The bytes so far.
    pub fn bytes(&self) -> u64 {
        self.out.bytes()
    }

    /// Ends the file and returns what it was written to.
    pub fn finish(mut self) -> io::Result<(W, Written)> {
        self.out.flush()?;
        let (out, bytes, checksum) = self.out.finish();
        Ok((out, Written { bytes, checksum, records: self.records }))
    }

    fn http_fields(&self, url: &Url, kind: &str) -> Fields {
        let mut head = Fields::default();
        // Neither a fragment nor a login was sent, and a password does not belong into an archive.
        let mut target = url.clone();
        target.set_fragment(None);
        let _ = target.set_username("");
        let _ = target.set_password(None);
        head.push("WARC-Target-URI", target.as_str());
        head.push("WARC-Warcinfo-ID", &self.info_id);
        head.push("Content-Type", &format!("application/http;msgtype={kind}"));
        head
    }

    fn record(&mut self, kind: &str, date: Timestamp, fields: Fields, block: &[u8]) -> io::Result<String> {
        let digest = sha256(block);
        let id = self.id(kind, date, &digest);
        let mut head = Fields(String::from("WARC/1.1\r\n"));
        head.push("WARC-Type", kind);
        head.push("WARC-Record-ID", &id);
        head.push("WARC-Date", &format!("{date:.6}"));
        head.0.push_str(&fields.0);
        head.push("WARC-Block-Digest", &digest);
        head.push("Content-Length", &block.len().to_string());
        let mut member = GzEncoder::new(&mut self.out, Compression::default());
        member.write_all(head.0.as_bytes())?;
        member.write_all(b"\r\n")?;
        member.write_all(block)?;
        member.write_all(b"\r\n\r\n")?;
        member.finish()?;
        self.records += 1;
        Ok(id)
    }

    /// A UUID of version 8, made from what is recorded, where and when: writing the same again gives the same file.
    fn id(&self, kind: &str, date: Timestamp, digest: &str) -> String {
        let text = format!("{}\n{}\n{}\n{kind}\n{date}\n{digest}", self.info.chunk, self.info.filename, self.records);
        let hash = sha256(text.as_bytes());
        let hex = |from: usize, to: usize| hash.get(from + 7..to + 7).unwrap_or_default().to_owned();
        format!("<urn:uuid:{}-{}-8{}-8{}-{}>", hex(0, 8), hex(8, 12), hex(12, 15), hex(15, 18), hex(18, 30))
    }
}

/// Named fields, one a line.
#[derive(Debug, Default)]
struct Fields(String);

impl Fields {
    /// Control characters would end the line.
    fn push(&mut self, name: &str, value: &str) {
        let value: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = write!(self.0, "{name}: {value}\r\n");
    }
}

fn response_block(fetched: &Fetched) -> Vec<u8> {
    let reason = fetched.status.canonical_reason().unwrap_or_default();
    let mut block = format!("HTTP/1.1 {} {reason}\r\n", fetched.status.as_u16()).into_bytes();
    headers(&mut block, &fetched.headers);
    block.extend_from_slice(&fetched.raw);
    block
}

fn request_block(fetched: &Fetched) -> Vec<u8> {
    let url = &fetched.url;
    let path = &url[Position::BeforePath..Position::AfterQuery];
    let host = &url[Position::BeforeHost..Position::AfterPort];
    let mut block = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n").into_bytes();
    headers(&mut block, &fetched.request_headers);
    block
}

/// All headers but the chunking, which the body no longer has, and the empty line.
fn headers(block: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers.iter().filter(|(name, _)| **name != header::TRANSFER_ENCODING) {
        block.extend_from_slice(name.as_str().as_bytes());
        block.extend_from_slice(b": ");
        block.extend_from_slice(value.as_bytes());
        block.extend_from_slice(b"\r\n");
    }
    block.extend_from_slice(b"\r\n");
}
