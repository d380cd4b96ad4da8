//! Removes content codings, within bounds.

use std::io::{self, Read};

use bytes::Bytes;
use hyper::{HeaderMap, header};

use super::UnknownCoding;

/// The codings that [`decode`] knows.
pub(super) const ACCEPTED: &str = "gzip, br";

/// Whether a decoded body is all there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It is.
    No,
    /// It would be longer than the limit.
    TooLong,
    /// The compressed data end early or are damaged; this is what came before.
    Broken,
}

/// The body without its content coding, at most `max` bytes of it. Fails if the coding is none that a request of ours
/// asks for, or several.
pub fn decode(raw: &Bytes, headers: &HeaderMap, max: usize) -> Result<(Bytes, Cut), UnknownCoding> {
    let coding = headers.get(header::CONTENT_ENCODING).map(header::HeaderValue::as_bytes).unwrap_or_default();
    let coding = String::from_utf8_lossy(coding).trim().to_ascii_lowercase();
    match coding.as_str() {
        "" | "identity" => {
            let cut = if raw.len() > max { Cut::TooLong } else { Cut::No };
            Ok((raw.slice(..raw.len().min(max)), cut))
        }
        // An empty body has no frame of its coding: the answer to a redirect, for example.
        _ if raw.is_empty() => Ok((Bytes::new(), Cut::No)),
        "gzip" | "x-gzip" => Ok(read(flate2::read::MultiGzDecoder::new(raw.as_ref()), max)),
        "br" => Ok(read(brotli_decompressor::Decompressor::new(raw.as_ref(), 4096), max)),
        _ => Err(UnknownCoding(coding)),
    }
}

fn read(from: impl Read, max: usize) -> (Bytes, Cut) {
    let mut from = from.take(max as u64 + 1);
    let mut decoded = Vec::new();
    let cut = match io::copy(&mut from, &mut decoded) {
        Ok(_) if decoded.len() > max => Cut::TooLong,
        Ok(_) => Cut::No,
        Err(_) => Cut::Broken,
    };
    decoded.truncate(max);
    (decoded.into(), cut)
}
