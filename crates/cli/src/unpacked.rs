//! Decompresses gzip, up to a ratio that honest files stay far below.
//!
//! A list of URLs may be of any length, so its size is not limited. A decompression bomb is recognised by its ratio:
//! gzip reaches 1,032 to 1, lists and sitemaps 5 to 30, and the most monotonous ones about 100.

use std::io::{BufRead, Error, Read, Result};

use flate2::bufread::MultiGzDecoder;

use crate::limits::{GZIP_FREE_BYTES, GZIP_RATIO_MAX};

/// The decompressed content; an error once it is too much for its input.
pub struct Unpacked<R> {
    decoder: MultiGzDecoder<Counted<R>>,
    bytes: u64,
}

impl<R: BufRead> Unpacked<R> {
    /// Decompresses `packed`.
    pub fn new(packed: R) -> Self {
        Self { decoder: MultiGzDecoder::new(Counted { inner: packed, bytes: 0 }), bytes: 0 }
    }
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = self.decoder.read(buffer)?;
        self.bytes += read as u64;
        let packed = self.decoder.get_ref().bytes;
        if self.bytes > GZIP_FREE_BYTES && self.bytes / GZIP_RATIO_MAX > packed {
            let (mib, kib) = (self.bytes >> 20, packed >> 10);
            return Err(Error::other(format!(
                "{kib} KiB of gzip unpack to more than {mib} MiB; the limit is {GZIP_RATIO_MAX} to 1. If this is no bomb, unpack it \
                 yourself and name the result"
            )));
        }
        Ok(read)
    }
}

/// Counts what is read from a reader.
struct Counted<R> {
    inner: R,
    bytes: u64,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.bytes += amount as u64;
        self.inner.consume(amount);
    }
}
