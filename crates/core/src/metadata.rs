//! Client metadata of a URL: names with values, in a compact opaque encoding that the core passes through.

use crate::codec::{Reader, Writer};
use crate::limits;
use serde::{Deserialize, Serialize};

/// Metadata of one URL in its encoded form.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Metadata(Box<[u8]>);

/// The metadata exceeds its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("metadata has {found} bytes; the limit is {} bytes", limits::METADATA_BYTES_MAX)]
pub struct TooLarge {
    /// Its size.
    pub found: usize,
}

impl Metadata {
    /// Builds metadata from names and values.
    pub fn new<'a, V>(entries: impl IntoIterator<Item = (&'a str, V)>) -> Result<Self, TooLarge>
    where
        V: ExactSizeIterator<Item = &'a str>,
    {
        let mut out = Writer::default();
        for (name, values) in entries {
            out.text(name);
            out.number(values.len() as u64);
            for value in values {
                out.text(value);
            }
        }
        Self::from_bytes(out.into())
    }

    /// Accepts the encoded form; undecodable parts are ignored.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, TooLarge> {
        if bytes.len() > limits::METADATA_BYTES_MAX {
            return Err(TooLarge { found: bytes.len() });
        }
        Ok(Self(bytes.into()))
    }

    /// The encoded form.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names and values, in the order given.
    #[must_use]
    pub fn entries(&self) -> Vec<(&str, Vec<&str>)> {
        let mut input = Reader::new(&self.0);
        let mut entries = Vec::new();
        while !input.is_empty() {
            let Ok(name) = input.text() else { break };
            let Ok(count) = input.number() else { break };
            let values = (0..count).map_while(|_| input.text().ok()).collect();
            entries.push((name, values));
        }
        entries
    }
}

impl std::fmt::Debug for Metadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.entries()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back() {
        let made = Metadata::new([("a", ["1", "2"].iter().copied()), ("b", ["", "x"].iter().copied())]);
        assert_eq!(made.map(|m| format!("{m:?}")), Ok(r#"{"a": ["1", "2"], "b": ["", "x"]}"#.to_owned()));
    }
}
