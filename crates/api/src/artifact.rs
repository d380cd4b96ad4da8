//! What a stage of a chunk leaves behind, and ids of chunks, as texts that are checked when they are parsed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wayleave_core::ids::ChunkId;
use wayleave_core::limits;
use wayleave_core::pipeline::row;

use crate::BadValue;
use crate::bounds::{Bounded, CHECKSUM, EXACT, bounds, text};

/// The kind of checksum that is taken.
const KIND: &str = "sha256:";

/// A description of what a stage left behind. The content stays where the worker put it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// Its URL, of any scheme (`https`, `s3`, `file` …); at most 2,048 bytes.
    #[schema(format = "uri")]
    pub location: String,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256: `sha256:` and 64 hexadecimal digits.
    pub checksum: String,
}

bounds!(Artifact { bytes: EXACT } { location: text(0, limits::LOCATION_BYTES_MAX, ""), checksum: CHECKSUM });

impl From<row::Artifact> for Artifact {
    fn from(artifact: row::Artifact) -> Self {
        let digits: String = artifact.checksum.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { location: artifact.location.into(), bytes: artifact.bytes, checksum: format!("{KIND}{digits}") }
    }
}

impl TryFrom<&Artifact> for row::Artifact {
    type Error = BadValue;

    fn try_from(artifact: &Artifact) -> Result<Self, BadValue> {
        artifact.check_bounds()?;
        Ok(Self {
            location: location(&artifact.location)?.into(),
            bytes: artifact.bytes,
            checksum: checksum(&artifact.checksum)?,
            from: None,
        })
    }
}

fn location(text: &str) -> Result<&str, BadValue> {
    let bad = |reason: String| Err(BadValue::new("location", reason));
    let (found, most) = (text.len(), limits::LOCATION_BYTES_MAX);
    if found > most {
        return bad(format!("has {found} bytes; the limit is {most}"));
    }
    let whole =
        "give the whole URL under which others can fetch it, such as https://store.example/1.warc.gz or s3://bucket/1";
    match url::Url::parse(text) {
        Err(error) => bad(format!("is not a URL ({error}): {whole}")),
        // The parser would strip them, and the stored text would be another URL.
        Ok(_) if text.chars().any(|c| c.is_control() || c.is_whitespace()) => {
            bad("must not contain spaces or control characters: write a space as %20".to_owned())
        }
        Ok(url) if !url.has_host() && url.path().trim_matches('/').is_empty() => {
            bad(format!("'{text}' names a scheme and nothing else: {whole}"))
        }
        Ok(_) => Ok(text),
    }
}

pub(crate) fn checksum(text: &str) -> Result<[u8; 32], BadValue> {
    let wrong = || {
        let shape = "is not 'sha256:' and 64 hexadecimal digits";
        let hint = match text.strip_prefix(KIND) {
            Some(digits) => format!("there are {} characters after 'sha256:'", digits.chars().count()),
            None if text.len() == 64 => "write 'sha256:' in front of the digits".to_owned(),
            None => "other kinds of checksum are not taken".to_owned(),
        };
        BadValue::new("checksum", format!("{shape}; {hint}"))
    };
    let digits = text.strip_prefix(KIND).ok_or_else(wrong)?.as_bytes();
    if digits.len() != 64 {
        return Err(wrong());
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).ok_or_else(wrong);
    let mut sum = [0; 32];
    for (place, pair) in sum.iter_mut().zip(digits.chunks_exact(2)) {
        for byte in pair {
            *place = (*place << 4) | digit(*byte)? as u8;
        }
    }
    Ok(sum)
}

/// The text is not the id of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not the id of a chunk: it is a whole number, as in the answer to the claim")]
pub struct BadChunkId(String);

/// Parses the id of a chunk. Fails if it is not written as it was issued.
pub fn chunk_id(text: &str) -> Result<ChunkId, BadChunkId> {
    let number = text.parse::<u64>().ok().filter(|number| number.to_string() == text);
    number.map(ChunkId).ok_or_else(|| BadChunkId(text.chars().take(40).collect()))
}
