//! Transcripts: commands and the core's decisions as text. `UPDATE=1 cargo test -p wayleave-core --test decisions`
//! rewrites them; read and understand the difference before you commit it.
//!
//! The language: one command per line; `at 1000` sets the time (what expires until then is returned first). Indented
//! lines are the decision: `<` the answer, `+` and `-` rows written and removed.

use std::path::PathBuf;

fn check(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/testdata").join(format!("{name}.txt"));
    let text = std::fs::read_to_string(&path).unwrap();
    let told = crate::story::tell(&text);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, told).unwrap();
    } else {
        assert_eq!(told, text, "{name}.txt tells another story; see UPDATE=1 in this file's header");
    }
}

macro_rules! stories {
    ($($name:ident),* $(,)?) => { $(#[test] fn $name() { check(stringify!($name)); })* };
}

stories! { add, reserve_and_release, politeness, clock_step, back_off, expire, hand_out, alias_move, delete, held_back, turns }
