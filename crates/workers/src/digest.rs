//! SHA-256 as `sha256:…`, the form in which artifacts and WARC records name their content.

use std::io::{self, Write};

use sha2::{Digest as _, Sha256};

/// The digest of some bytes.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    label(&Sha256::digest(bytes))
}

/// Whether a string is a digest in this form.
#[must_use]
pub fn is_sha256(text: &str) -> bool {
    text.strip_prefix("sha256:")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
}

/// Passes bytes on to a writer, and counts and digests them.
#[derive(Debug)]
pub struct Digesting<W> {
    inner: W,
    state: Sha256,
    bytes: u64,
}

impl<W> Digesting<W> {
    /// Starts with no bytes.
    pub fn new(inner: W) -> Self {
        Self { inner, state: Sha256::new(), bytes: 0 }
    }

    /// The bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The writer, the number of bytes and their digest.
    pub fn finish(self) -> (W, u64, String) {
        (self.inner, self.bytes, label(&self.state.finalize()))
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.state.update(buffer.get(..written).unwrap_or_default());
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn label(digest: &[u8]) -> String {
    use std::fmt::Write as _;
    digest.iter().fold(String::from("sha256:"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(sha256(b"abc"), ABC);
        let mut writer = Digesting::new(Vec::new());
        writer.write_all(b"a").unwrap();
        writer.write_all(b"bc").unwrap();
        assert_eq!(writer.finish(), (b"abc".to_vec(), 3, ABC.to_owned()));
    }

    #[test]
    fn only_a_full_lower_case_digest_is_one() {
        assert!(is_sha256(ABC));
        for wrong in ["", "sha256:", "sha256:ab", &ABC.to_uppercase(), &ABC.replace("ba", "zz"), &format!("{ABC}0")] {
            assert!(!is_sha256(wrong), "{wrong}");
        }
    }
}
