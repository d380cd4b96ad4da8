//! Transcripts: commands and the decisions on them, as text files in `tests/testdata`.
//! `UPDATE=1 cargo test -p wayleave-core --test decisions` rewrites them; read and understand the difference before you
//! commit it.

use std::fmt::Write as _;
use std::path::PathBuf;

/// Runs the commands of a transcript, and compares what `replay` makes of them with the file.
pub fn check(folder: &str, name: &str, replay: fn(&str) -> String) {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/testdata").join(folder).join(format!("{name}.txt"));
    let text = std::fs::read_to_string(&path).unwrap();
    let actual = replay(&text);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, actual).unwrap();
    } else {
        assert_eq!(actual, text, "{name}.txt differs; see UPDATE=1 in {}", file!());
    }
}

/// Carries out the commands of a transcript, one per line, and writes it anew: each command with what came of it.
pub fn replay_lines(text: &str, mut carry_out: impl FnMut(&str, &[&str]) -> Vec<String>) -> String {
    let mut out = String::new();
    for line in text.lines().filter(|line| !line.starts_with(' ')) {
        writeln!(out, "{line}").unwrap();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        for actual in carry_out(words[0], &words[1..]) {
            writeln!(out, "  {actual}").unwrap();
        }
    }
    out
}

/// The value of an option such as `urls=3`.
pub fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// The same of a number.
pub fn number(words: &[&str], name: &str) -> Option<u64> {
    option(words, name).map(|value| value.parse().unwrap())
}

/// A test for each transcript of a folder.
macro_rules! stories {
    ($folder:literal, $replay:path: $($name:ident),* $(,)?) => {
        $(#[test] fn $name() { $crate::transcript::check($folder, stringify!($name), $replay); })*
    };
}
