//! Random bits, given by the caller: one value per token, and the last one for jitter.

use super::row::Secret;
use crate::ids::{ShardId, Token};
use crate::time::Millis;

/// Random values that are used up.
pub(super) struct Randomness<'a> {
    shard: ShardId,
    tokens: &'a [u128],
    jitter: u64,
}

impl<'a> Randomness<'a> {
    pub fn new(shard: ShardId, values: &'a [u128]) -> Self {
        // Jitter is public, so its bits must not be those of a token.
        let (jitter, tokens) = values.split_last().map_or((0, values), |(last, rest)| (*last as u64, rest));
        Self { shard, tokens, jitter }
    }

    /// A fresh token; none if the values are used up, and the rest must wait for the next call.
    pub fn token(&mut self) -> Option<Token> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(Token::new(self.shard, *first))
    }

    /// A fresh secret, under the same rule.
    pub fn secret(&mut self) -> Option<Secret> {
        self.token().map(Secret)
    }

    /// Any number (splitmix64).
    pub const fn number(&mut self) -> u64 {
        self.jitter = self.jitter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.jitter ^ (self.jitter >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A span, more or less a quarter.
    pub fn about(&mut self, span: Millis) -> Millis {
        let number = self.number();
        spread(span, number)
    }
}

/// A span, more or less a quarter, as a random number says.
pub(super) const fn spread(span: Millis, number: u64) -> Millis {
    Millis(span.0 - span.0 / 4 + number % (span.0 / 2 + 1))
}
