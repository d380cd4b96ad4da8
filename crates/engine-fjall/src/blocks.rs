//! Block-aligned buffers for `O_DIRECT` writes. Offset, length and memory address must all be multiples of the block
//! size; padding fills the last block.

use std::sync::{Mutex, PoisonError};

use crate::record;

/// The block size: no common disk or file system needs a larger alignment.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// The bytes of padding after data that ends here: none, or enough for a padding record.
pub(crate) fn padding_after(end: usize) -> usize {
    let rest = end.next_multiple_of(BLOCK_BYTES) - end;
    if rest > 0 && rest < record::PADDING_BYTES_MIN { rest + BLOCK_BYTES } else { rest }
}

/// A block-aligned buffer.
#[derive(Default)]
pub(crate) struct Blocks {
    room: Vec<u8>,
    start: usize,
    len: usize,
}

impl Blocks {
    /// A buffer of `len` zero bytes.
    pub(crate) fn zeros(len: usize) -> Self {
        let mut blocks = Self::default();
        blocks.resize(len.next_multiple_of(BLOCK_BYTES)).fill(0);
        blocks
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.room.get(self.start..self.start + self.len).unwrap_or_default()
    }

    /// Fills the buffer with a mark, records of this file, and padding.
    fn fill(&mut self, file: u64, mark: &[u8], records: &[u8]) {
        let len = mark.len() + records.len();
        let room = self.resize(len + padding_after(len));
        let (head, rest) = room.split_at_mut(mark.len());
        let (middle, padding) = rest.split_at_mut(records.len());
        head.copy_from_slice(mark);
        middle.copy_from_slice(records);
        record::pad(file, padding);
    }

    fn resize(&mut self, len: usize) -> &mut [u8] {
        if self.room.len() < len + BLOCK_BYTES {
            self.room = vec![0; len + BLOCK_BYTES];
            self.start = self.room.as_ptr().align_offset(BLOCK_BYTES) % BLOCK_BYTES;
        }
        self.len = len;
        self.room.get_mut(self.start..self.start + len).unwrap_or_default()
    }
}

/// A pool of buffers for reuse.
#[derive(Default)]
pub(crate) struct Spare(Mutex<Vec<Blocks>>);

impl Spare {
    /// A mark and records of this file as blocks. Takes the smallest buffer that fits, so that large ones stay
    /// available for large writes.
    pub(crate) fn fill(&self, file: u64, mark: &[u8], records: &[u8]) -> Blocks {
        let len = mark.len() + records.len();
        let mut blocks = self.take(len + padding_after(len) + BLOCK_BYTES);
        blocks.fill(file, mark, records);
        blocks
    }

    fn take(&self, bytes: usize) -> Blocks {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let least = |fits: bool| {
            let all = spare.iter().enumerate().filter(|(_, blocks)| !fits || blocks.room.len() >= bytes);
            all.min_by_key(|(_, blocks)| blocks.room.len()).map(|(at, _)| at)
        };
        let best = least(true).or_else(|| least(false));
        best.map(|at| spare.swap_remove(at)).unwrap_or_default()
    }

    pub(crate) fn put_back(&self, blocks: Blocks) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_any_length_become_whole_blocks_that_read_back() {
        let spare = Spare::default();
        let gaps = [0, 1, record::PADDING_BYTES_MIN - 1, record::PADDING_BYTES_MIN, 100, BLOCK_BYTES - 1];
        for len in gaps.map(|gap| 3 * BLOCK_BYTES - gap) {
            let body = vec![7; len - record::FRAME_BYTES];
            let records = [&record::frame(5, &body)[..], &body].concat();
            let blocks = spare.fill(5, &[], &records);
            let bytes = blocks.bytes();
            assert_eq!((bytes.len() % BLOCK_BYTES, bytes.as_ptr().align_offset(BLOCK_BYTES)), (0, 0));
            assert_eq!(record::first(5, bytes), Some((body.as_slice(), len)));
            if let Some((padding, rest)) = record::first(5, &bytes[len..]) {
                assert_eq!(record::decode(padding), Ok(record::Record::Padding));
                assert_eq!(len + rest, bytes.len());
            } else {
                assert_eq!(len, bytes.len());
            }
            spare.put_back(blocks);
        }
        assert_eq!(spare.0.lock().unwrap().len(), 1, "one after the other they need one room");
    }

    #[test]
    fn large_room_stays_for_what_is_large() {
        let spare = Spare::default();
        let (small, large) = (spare.fill(1, &[], &[1; 100]), spare.fill(1, &[], &vec![1; 1 << 20]));
        let room = large.room.as_ptr();
        spare.put_back(large);
        spare.put_back(small);
        let small = spare.fill(1, &[], &[1; 200]);
        assert!(small.room.len() < 1 << 20);
        assert_eq!(spare.fill(1, &[], &vec![1; 1 << 20]).room.as_ptr(), room);
    }
}
