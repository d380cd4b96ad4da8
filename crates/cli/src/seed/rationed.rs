//! A reader that returns a limited number of bytes and then fails, until it is given a new allowance: it bounds a
//! parser that reads a whole token into memory.

use std::io::{BufRead, Error, Read, Result};

/// A reader with an allowance.
pub struct Rationed<R> {
    inner: R,
    left: usize,
}

impl<R: BufRead> Rationed<R> {
    /// A reader with an empty allowance.
    pub const fn new(inner: R) -> Self {
        Self { inner, left: 0 }
    }

    /// Allows this many bytes from here on.
    pub const fn allow(&mut self, bytes: usize) {
        self.left = bytes;
    }

    /// Whether the allowance is used up: an error at that point was caused by it.
    pub const fn is_used_up(&self) -> bool {
        self.left == 0
    }
}

impl<R: BufRead> Read for Rationed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let bytes = self.fill_buf()?.read(buffer)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

impl<R: BufRead> BufRead for Rationed<R> {
    fn fill_buf(&mut self) -> Result<&[u8]> {
        let given = self.inner.fill_buf()?;
        match given.get(..self.left) {
            _ if given.is_empty() => Ok(given),
            Some([]) => Err(Error::other("a part is larger than it may be")),
            Some(some) => Ok(some),
            None => Ok(given),
        }
    }

    fn consume(&mut self, amount: usize) {
        self.left = self.left.saturating_sub(amount);
        self.inner.consume(amount);
    }
}
