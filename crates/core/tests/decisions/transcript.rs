//! Transcripts: commands and the decisions on them, as text files in `tests/testdata`.
//! `UPDATE=1 cargo test -p wayleave-core --test decisions` rewrites them; read and understand the difference before you
//! commit it.

use std::path::PathBuf;

/// Runs the commands of a transcript, and compares what `tell` makes of them with the file.
pub fn check(folder: &str, name: &str, tell: fn(&str) -> String) {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/testdata").join(folder).join(format!("{name}.txt"));
    let text = std::fs::read_to_string(&path).unwrap();
    let told = tell(&text);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, told).unwrap();
    } else {
        assert_eq!(told, text, "{name}.txt tells another story; see UPDATE=1 in {}", file!());
    }
}

/// A test for each transcript of a folder.
macro_rules! stories {
    ($folder:literal, $tell:path: $($name:ident),* $(,)?) => {
        $(#[test] fn $name() { $crate::transcript::check($folder, stringify!($name), $tell); })*
    };
}
