//! All chance in a run comes from its seed.

use std::cell::Cell;

/// A source of numbers (splitmix64). Clients get their own, so that one's draws do not move another's.
pub struct Chance(Cell<u64>);

impl Chance {
    /// A source that a seed and a name decide.
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

    /// True once in `times`.
    pub fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }
}
