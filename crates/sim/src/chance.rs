//! All randomness of a run comes from its seed.

use std::cell::Cell;

/// A random number generator (splitmix64). Clients have their own, so that the draws of one do not affect another.
pub struct Chance(Cell<u64>);

impl Chance {
    /// A generator determined by a seed and a name.
    pub fn new(seed: u64, name: u64) -> Self {
        let source = Self(Cell::new(seed ^ name.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        source.draw();
        source
    }

    /// The next number.
    pub fn draw(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let n = self.0.get();
        let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ (n >> 31)
    }

    /// A number below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// One of several values.
    pub fn pick<T: Copy, const N: usize>(&self, things: [T; N]) -> T {
        const { assert!(N > 0, "there must be something to pick") };
        let at = self.below(N as u64) as usize;
        #[expect(clippy::indexing_slicing, reason = "the number drawn is below the length")]
        things[at]
    }

    /// True once in `times`.
    pub fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }
}
