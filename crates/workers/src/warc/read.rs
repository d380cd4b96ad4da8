//! Reads records, of any origin and within bounds.

use std::io::{self, BufRead, BufReader, Read};

use bytes::Bytes;
use flate2::bufread::GzDecoder;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use url::Url;

use crate::digest::sha256;
use crate::fetch::{Cut, UnknownCoding, decode};
use crate::limits;

/// The headers of a recorded response that are read.
const HTTP_HEADERS_MAX: usize = 256;

/// Why a file cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file itself.
    #[error("cannot read the WARC file: {0}")]
    Io(io::Error),
    /// Not gzip, or it ends early, or its checksum is wrong.
    #[error("record {record} is damaged: {cause}")]
    Damaged {
        /// The number of the record, from 0.
        record: usize,
        /// What is wrong.
        cause: String,
    },
    /// More than a bound allows.
    #[error("record {record} has {what}")]
    TooLarge {
        /// The number of the record, from 0.
        record: usize,
        /// What there is too much of.
        what: &'static str,
    },
}

/// What a record holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// About the file.
    Info,
    /// A response.
    Response,
    /// A request.
    Request,
    /// Another kind, by its name.
    Other(String),
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it holds.
    pub kind: Kind,
    /// Its named fields.
    pub fields: Vec<(String, String)>,
    /// Its content.
    pub block: Bytes,
}

/// A recorded HTTP response.
#[derive(Debug, Clone)]
pub struct Response {
    /// The URL that was fetched.
    pub url: Url,
    /// Its status.
    pub status: StatusCode,
    /// Its headers; those that are no valid HTTP are left out.
    pub headers: HeaderMap,
    /// Its body as received.
    pub raw: Bytes,
}

impl Record {
    /// The value of a field. Names are not case-sensitive.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The HTTP response of a response record, if it is one.
    #[must_use]
    pub fn response(&self) -> Option<Response> {
        if self.kind != Kind::Response {
            return None;
        }
        // Some writers put the URI in angle brackets, as WARC/1.0 seemed to ask.
        let url = self.field("WARC-Target-URI")?.trim_start_matches('<').trim_end_matches('>').parse().ok()?;
        let mut headers = [httparse::EMPTY_HEADER; HTTP_HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(length) = head.parse(&self.block).ok()? else { return None };
        let pairs = head.headers.iter().filter_map(|header| {
            let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
            Some((name, HeaderValue::from_bytes(header.value).ok()?))
        });
        let headers = pairs.fold(HeaderMap::new(), |mut headers, (name, value)| {
            headers.append(name, value);
            headers
        });
        let status = StatusCode::from_u16(head.code?).ok()?;
        Some(Response { url, status, headers, raw: self.block.slice(length..) })
    }
}

impl Response {
    /// The body without its content coding. Fails if the coding is unknown.
    pub fn body(&self) -> Result<(Bytes, Cut), UnknownCoding> {
        decode(&self.raw, &self.headers, limits::DECODED_BYTES_MAX)
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Reads a file record by record. It ends after an error.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    records: usize,
    bytes: u64,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads from the start of a file.
    pub fn new(input: R) -> Self {
        Self { input, records: 0, bytes: 0, ended: false }
    }

    fn read(&mut self) -> Result<Option<Record>, Error> {
        if self.input.fill_buf().map_err(Error::Io)?.is_empty() {
            return Ok(None);
        }
        if self.records >= limits::WARC_RECORDS_MAX {
            return Err(self.too_large("too many others before it"));
        }
        let member = Member { number: self.records, input: BufReader::new(GzDecoder::new(&mut self.input)), bytes: 0 };
        let (record, bytes) = member.record()?;
        self.records += 1;
        self.bytes += bytes;
        if self.bytes > limits::WARC_BYTES_MAX {
            return Err(self.too_large("too many bytes with those before it"));
        }
        Ok(Some(record))
    }

    fn too_large(&self, what: &'static str) -> Error {
        Error::TooLarge { record: self.records, what }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.read().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// One gzip member, which is one record.
struct Member<R> {
    number: usize,
    input: R,
    bytes: u64,
}

impl<R: BufRead> Member<R> {
    fn record(mut self) -> Result<(Record, u64), Error> {
        let version = self.line()?;
        if version != "WARC/1.1" && version != "WARC/1.0" {
            return Err(self.damaged("it does not begin with WARC/1.1 or WARC/1.0"));
        }
        let fields = self.fields()?;
        let mut record = Record { kind: Kind::Info, fields, block: Bytes::new() };
        record.kind = match record.field("WARC-Type") {
            None => return Err(self.damaged("it has no WARC-Type")),
            Some("warcinfo") => Kind::Info,
            Some("response") => Kind::Response,
            Some("request") => Kind::Request,
            Some(other) => Kind::Other(other.to_owned()),
        };
        let length = record.field("Content-Length").and_then(|length| length.parse::<u64>().ok());
        let length = length.ok_or_else(|| self.damaged("it has no valid Content-Length"))?;
        if length > limits::WARC_BLOCK_BYTES_MAX as u64 {
            return Err(Error::TooLarge { record: self.number, what: "a block that is too long" });
        }
        record.block = self.block(length)?;
        if let Some(digest) = record.field("WARC-Block-Digest").filter(|digest| digest.starts_with("sha256:"))
            && digest != sha256(&record.block)
        {
            return Err(self.damaged("its block does not match its digest"));
        }
        Ok((record, self.bytes))
    }

    fn fields(&mut self) -> Result<Vec<(String, String)>, Error> {
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(fields);
            }
            let Some((name, value)) = line.split_once(':') else {
                return Err(self.damaged("it has a field without a colon"));
            };
            fields.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }

    /// A line without its end. All lines together are bounded.
    fn line(&mut self) -> Result<String, Error> {
        let room = (limits::WARC_HEAD_BYTES_MAX as u64).saturating_sub(self.bytes);
        let mut line = Vec::new();
        let read = self.input.by_ref().take(room).read_until(b'\n', &mut line);
        let read = read.map_err(|error| self.damaged(error))?;
        self.bytes += read as u64;
        match line.strip_suffix(b"\r\n") {
            Some(text) => Ok(String::from_utf8_lossy(text).into_owned()),
            None if read as u64 == room => {
                Err(Error::TooLarge { record: self.number, what: "a head that is too long" })
            }
            None => Err(self.damaged("a line of its head does not end")),
        }
    }

    /// The block and what must follow it: two line ends, and the end of the member with its checksum.
    fn block(&mut self, length: u64) -> Result<Bytes, Error> {
        let mut block = Vec::new();
        let read = self.input.by_ref().take(length).read_to_end(&mut block);
        read.map_err(|error| self.damaged(error))?;
        let mut rest = Vec::new();
        self.input.by_ref().take(5).read_to_end(&mut rest).map_err(|error| self.damaged(error))?;
        if block.len() as u64 != length || rest != b"\r\n\r\n" {
            return Err(self.damaged("its length is not what it says"));
        }
        self.bytes += length;
        Ok(block.into())
    }

    fn damaged(&self, cause: impl ToString) -> Error {
        Error::Damaged { record: self.number, cause: cause.to_string() }
    }
}
