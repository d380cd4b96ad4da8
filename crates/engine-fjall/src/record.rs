//! Journal records: a batch with its fences, the continuation mark at the end of a file, padding, the mark at the start
//! of every write, or the head of a file.
//!
//! Layout: length of the body (4 bytes, little-endian) · checksum (8 bytes) · body. The checksum covers the body and is
//! seeded with the file number, so a record from another file is never valid. A length of zero ends the file. Body: 1 ·
//! time · fences (shard, epoch, number) · writes (key, value); 2 alone for the continuation mark; 3 · zeros for
//! padding; 4 · offset · life · previous life (8 bytes each); or 5 · offset · zeros for
//! the head.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::Write;
use wayleave_engine::fences::FenceState;

use crate::blocks::BLOCK_BYTES;

/// The length of a record header.
pub(crate) const FRAME_BYTES: usize = 12;
const BATCH: u8 = 1;
const CONTINUATION: u8 = 2;
const PADDING: u8 = 3;
const WRITE: u8 = 4;
const HEAD: u8 = 5;

/// A decoded record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A batch was committed.
    Batch {
        /// The commit time.
        at: Time,
        /// The fence states of its shards after the commit.
        fence_states: Vec<(ShardId, FenceState)>,
        /// Its writes.
        writes: Vec<Write>,
    },
    /// The journal continues in the next file.
    Continuation,
    /// Padding up to the next block.
    Padding,
    /// The start of a write.
    Write(WriteMark),
    /// The start of a file.
    Head {
        /// Where the write with the continuation mark of the file before begins; 0 if there is none.
        continues_at: u64,
    },
}

/// The mark at the start of every write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteMark {
    /// Everything below this offset of the file was durable when the write was placed.
    pub(crate) durable: u64,
    /// The life that wrote it: random, drawn at every open.
    pub(crate) life: u64,
    /// The life whose content the writer found in the file; 0 for none. It exposes a stale write of an earlier life
    /// that reappears after later ones.
    pub(crate) before: u64,
}

/// Encodes the body of a batch.
pub(crate) fn encode_batch(at: Time, fence_states: &[(ShardId, FenceState)], writes: &[Write]) -> Vec<u8> {
    let bytes: usize = writes.iter().map(|w| w.key.len() + w.value.as_ref().map_or(0, Vec::len) + 6).sum();
    let mut out = Writer::with_capacity(bytes + 24 * fence_states.len() + 24);
    out.byte(BATCH);
    out.number(at.0);
    out.number(fence_states.len() as u64);
    for (shard, fence) in fence_states {
        out.number(shard.0.into());
        out.number(fence.epoch.0);
        out.number(fence.seq);
    }
    out.number(writes.len() as u64);
    for Write { key, value } in writes {
        out.bytes(key);
        match value {
            None => out.number(0),
            Some(value) => {
                out.number(value.len() as u64 + 1);
                out.raw(value);
            }
        }
    }
    out.into()
}

/// Encodes the body of a continuation mark.
pub(crate) fn encode_continuation() -> Vec<u8> {
    vec![CONTINUATION]
}

/// Encodes the whole record at the start of a write to this file.
pub(crate) fn write_mark(file: u64, mark: WriteMark) -> Vec<u8> {
    let mut body = Writer::with_capacity(27);
    body.byte(WRITE);
    body.number(mark.durable);
    body.raw(&mark.life.to_be_bytes());
    body.raw(&mark.before.to_be_bytes());
    [&frame(file, body.as_bytes())[..], body.as_bytes()].concat()
}

/// Encodes the record at the start of a file, which fills a block.
pub(crate) fn head(file: u64, continues_at: u64) -> Vec<u8> {
    let mut body = Writer::with_capacity(BLOCK_BYTES);
    body.byte(HEAD);
    body.number(continues_at);
    let mut body: Vec<u8> = body.into();
    body.resize(BLOCK_BYTES - FRAME_BYTES, 0);
    [&frame(file, &body)[..], &body].concat()
}

/// The smallest padding record.
pub(crate) const PADDING_BYTES_MIN: usize = FRAME_BYTES + 1;

/// Fills `room` with a padding record of this file. It is empty, or at least as large as the smallest record.
pub(crate) fn pad(file: u64, room: &mut [u8]) {
    room.fill(0);
    if let Some((head, body)) = room.split_at_mut_checked(FRAME_BYTES)
        && let Some(kind) = body.first_mut()
    {
        *kind = PADDING;
        head.copy_from_slice(&frame(file, body));
    }
}

/// The header of a record of this file.
pub(crate) fn frame(file: u64, body: &[u8]) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    let (length, sum) = frame.split_at_mut(4);
    length.copy_from_slice(&(body.len() as u32).to_le_bytes());
    sum.copy_from_slice(&check(file, body).to_le_bytes());
    frame
}

fn check(file: u64, body: &[u8]) -> u64 {
    rapidhash_v3_seeded(body, &RapidSecrets::seed(file))
}

/// The body of the first record in `bytes`, from this file, and its length; `None` if no complete record begins there.
pub(crate) fn first(file: u64, bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<8>()?;
    let length = u32::from_le_bytes(*length) as usize;
    let body = rest.get(..length).filter(|body| !body.is_empty())?;
    (check(file, body) == u64::from_le_bytes(*sum)).then_some((body, FRAME_BYTES + length))
}

/// Decodes a body.
pub(crate) fn decode(body: &[u8]) -> Result<Record, Damaged> {
    let mut input = Reader::new(body);
    match input.byte()? {
        CONTINUATION => return Ok(Record::Continuation),
        PADDING => return Ok(Record::Padding),
        HEAD => return Ok(Record::Head { continues_at: input.number()? }),
        WRITE => {
            let durable = input.number()?;
            let mut id = || input.raw(8).map(|bytes| bytes.iter().fold(0, |id, byte| id << 8 | u64::from(*byte)));
            return Ok(Record::Write(WriteMark { durable, life: id()?, before: id()? }));
        }
        BATCH => {}
        _ => return Err(Damaged("a journal record has an unknown kind")),
    }
    let at = Time(input.number()?);
    let mut fence_states = Vec::new();
    for _ in 0..input.number()? {
        let shard = ShardId(u16::try_from(input.number()?).map_err(|_| Damaged("a shard's number is too large"))?);
        fence_states.push((shard, FenceState { epoch: Epoch(input.number()?), seq: input.number()? }));
    }
    let mut writes = Vec::new();
    for _ in 0..input.number()? {
        let key = input.bytes()?.to_vec();
        let value = match input.number()?.checked_sub(1) {
            None => None,
            Some(length) => Some(input.raw(length as usize)?.to_vec()),
        };
        writes.push(Write { key, value });
    }
    Ok(Record::Batch { at, fence_states, writes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> (Vec<(ShardId, FenceState)>, Vec<Write>) {
        let fence_states = vec![(ShardId(3), FenceState { epoch: Epoch(2), seq: 300 })];
        let write = |key: &str, value: Option<&str>| Write { key: key.into(), value: value.map(Into::into) };
        (fence_states, vec![write("a", Some("1")), write("b", None), write("c", Some(""))])
    }

    #[test]
    fn a_batch_reads_back_and_keeps_its_layout() {
        let (fence_states, writes) = batch();
        let body = encode_batch(Time(300), &fence_states, &writes);
        assert_eq!(body, [1, 0xac, 2, 1, 3, 2, 0xac, 2, 3, 1, b'a', 2, b'1', 1, b'b', 0, 1, b'c', 1]);
        assert_eq!(decode(&body), Ok(Record::Batch { at: Time(300), fence_states, writes }));
        assert_eq!(decode(&encode_continuation()), Ok(Record::Continuation));
        let mark = WriteMark { durable: 300, life: 0x0102, before: 9 };
        let bytes = write_mark(7, mark);
        assert_eq!(bytes[FRAME_BYTES..], [4, 0xac, 2, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(first(7, &bytes).map(|(body, _)| decode(body)), Some(Ok(Record::Write(mark))));
        let bytes = head(7, 300);
        assert_eq!((bytes.len(), &bytes[FRAME_BYTES..][..4]), (BLOCK_BYTES, &[5, 0xac, 2, 0][..]));
        assert_eq!(first(7, &bytes).map(|(body, _)| decode(body)), Some(Ok(Record::Head { continues_at: 300 })));
    }

    #[test]
    fn a_record_is_found_only_whole_unchanged_and_in_its_own_file() {
        let (fence_states, writes) = batch();
        let body = encode_batch(Time(300), &fence_states, &writes);
        let whole = [&frame(7, &body)[..], &body, b"more"].concat();
        assert_eq!(first(7, &whole), Some((body.as_slice(), FRAME_BYTES + body.len())));
        assert_eq!(first(8, &whole), None, "another file's");
        assert_eq!(first(7, &whole[..FRAME_BYTES + body.len() - 1]), None, "cut off");
        for at in 0..FRAME_BYTES + body.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert_eq!(first(7, &changed), None, "changed at {at}");
        }
        assert_eq!(first(7, &[0; 64]), None, "room set aside");
    }
}
