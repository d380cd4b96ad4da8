//! Transcripts of the frontier (see `crate::transcript`).
//!
//! The language: one command per line; `at 1000` sets the time (what expires until then is returned first). Indented
//! lines are the decision: `<` the answer, `+` and `-` rows written and removed.

stories! {
    ".", crate::story::replay:
    add, reserve_and_release, politeness, clock_step, back_off, expire, hand_out, alias_move, delete, held_back, turns
}
