//! Every crate inherits the workspace's lints, and a crate's own clippy.toml repeats the root's: clippy reads only the
//! nearest one.

use toml::{Table, Value};

use super::tree::Tree;

const CLIPPY: &str = "clippy.toml";

/// Every crate that does not.
pub fn check(tree: &Tree) -> Vec<String> {
    let root = table(tree.text(CLIPPY));
    let mut wrong = Vec::new();
    for (folder, manifest) in tree.crates() {
        let lints = table(Some(manifest)).remove("lints");
        if lints.and_then(|lints| lints.get("workspace")?.as_bool()) != Some(true) {
            wrong.push(format!("{folder}/Cargo.toml: has no `[lints] workspace = true`"));
        }
        let own = format!("{folder}/{CLIPPY}");
        let Some(text) = tree.text(&own) else { continue };
        let settings = table(Some(text));
        for (key, value) in &root {
            if settings.get(key) != Some(value) {
                wrong.push(format!("{own}: must say `{key} = {value}`, as the root's does"));
            }
        }
    }
    wrong
}

/// An unparsable file is ignored; cargo and clippy report it themselves.
fn table(text: Option<&str>) -> toml::map::Map<String, Value> {
    text.and_then(|text| text.parse::<Table>().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[lints]\nworkspace = true";

    #[test]
    fn a_crate_without_the_lints_is_found() {
        let tree = Tree::from([
            ("crates/a/Cargo.toml", GOOD),
            ("crates/b/Cargo.toml", "[package]"),
            ("crates/c/Cargo.toml", "[lints]\nworkspace = false"),
        ]);
        let wrong = ["b", "c"].map(|name| format!("crates/{name}/Cargo.toml: has no `[lints] workspace = true`"));
        assert_eq!(check(&tree), wrong);
    }

    #[test]
    fn a_clippy_file_of_its_own_repeats_the_roots() {
        let own = |text| {
            check(&Tree::from([
                ("clippy.toml", "too-many-lines-threshold = 70\nallow-unwrap-in-tests = true"),
                ("crates/a/Cargo.toml", GOOD),
                ("crates/a/clippy.toml", text),
            ]))
        };
        assert_eq!(own("too-many-lines-threshold = 70\nallow-unwrap-in-tests = true\nmore = 1"), [""; 0]);
        let wrong = "crates/a/clippy.toml: must say `too-many-lines-threshold = 70`, as the root's does";
        assert_eq!(own("too-many-lines-threshold = 90\nallow-unwrap-in-tests = true"), [wrong]);
        assert_eq!(own("allow-unwrap-in-tests = true"), [wrong]);
    }
}
