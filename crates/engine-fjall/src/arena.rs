//! A bump arena: byte strings stored back to back in blocks and freed together, so that many small ones cost no more
//! than their length. It knows nothing about their meaning.

/// The size of the first block; each further block is twice as large.
const BLOCK_MIN: usize = 1024;
/// The largest block size. A larger string gets a block of its own.
const BLOCK_MAX: usize = 64 * 1024;

/// The position of a string in the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    block: u32,
    at: u32,
    len: u32,
}

impl Span {
    pub(crate) const fn len(self) -> usize {
        self.len as usize
    }

    /// The string without its first `count` bytes.
    pub(crate) const fn without_first(self, count: usize) -> Self {
        Self { at: self.at + count as u32, len: self.len - count as u32, ..self }
    }

    /// The first `len` bytes of the string.
    pub(crate) const fn first(self, len: usize) -> Self {
        Self { len: len as u32, ..self }
    }
}

/// The arena.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    blocks: Vec<Vec<u8>>,
}

impl Arena {
    /// Stores the concatenation of two strings.
    pub(crate) fn add(&mut self, first: &[u8], second: &[u8]) -> Span {
        let len = first.len() + second.len();
        if self.blocks.last().is_none_or(|block| block.capacity() - block.len() < len) {
            let room = BLOCK_MIN << self.blocks.len().min(6);
            self.blocks.push(Vec::with_capacity(room.min(BLOCK_MAX).max(len)));
        }
        let number = self.blocks.len().saturating_sub(1) as u32;
        let at = self.blocks.last_mut().map_or(0, |block| {
            let at = block.len();
            block.extend_from_slice(first);
            block.extend_from_slice(second);
            at
        });
        Span { block: number, at: at as u32, len: len as u32 }
    }

    /// Returns a string.
    pub(crate) fn get(&self, span: Span) -> &[u8] {
        let block = self.blocks.get(span.block as usize);
        block.and_then(|block| block.get(span.at as usize..)?.get(..span.len())).unwrap_or_default()
    }

    /// Overwrites the end of a string.
    pub(crate) fn overwrite_end(&mut self, span: Span, bytes: &[u8]) {
        let end = span.at as usize + span.len();
        let block = self.blocks.get_mut(span.block as usize);
        if let Some(place) = block.and_then(|block| block.get_mut(end - bytes.len()..end)) {
            place.copy_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_are_found_again() {
        let mut arena = Arena::default();
        let piece = |n: usize| (vec![n as u8; n % 300], vec![!n as u8; n * 7 % 900]);
        let mut spans: Vec<Span> = Vec::new();
        for n in 0..3_000 {
            let (first, second) = piece(n);
            spans.push(arena.add(&first, &second));
        }
        let large = arena.add(&[7; BLOCK_MAX], &[8; BLOCK_MAX]);
        spans.push(arena.add(&[], &[]));
        for (n, span) in spans.iter().take(3_000).enumerate() {
            let (first, second) = piece(n);
            assert_eq!(arena.get(*span), [first, second].concat());
        }
        assert_eq!(arena.get(large.without_first(BLOCK_MAX)), [8; BLOCK_MAX]);
        assert!(
            arena.blocks.iter().all(|block| block.capacity() <= 2 * BLOCK_MAX),
            "no block is larger than it must be"
        );
    }

    #[test]
    fn the_end_of_a_piece_can_be_written_over() {
        let mut arena = Arena::default();
        let (span, next) = (arena.add(b"key", b"value"), arena.add(b"next", b""));
        arena.overwrite_end(span.first(6), b"new");
        assert_eq!((arena.get(span.first(6)), arena.get(next)), (&b"keynew"[..], &b"next"[..]));
    }
}
