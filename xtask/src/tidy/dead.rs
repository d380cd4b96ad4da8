//! Source files that no `mod` reaches.

use super::modules::Modules;
use super::tree::Tree;

/// Every source file that belongs to no crate.
pub fn check(tree: &Tree, modules: &Modules) -> Vec<String> {
    let sources = tree.files().map(|(path, _)| path).filter(|path| path.ends_with(".rs"));
    let dead = sources.filter(|path| modules.usage(path).is_none());
    dead.map(|path| format!("{path}: no `mod` reaches this file; delete it, git remembers")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_nothing_reaches_is_dead() {
        let tree = Tree::from([
            ("x/Cargo.toml", ""),
            ("x/src/lib.rs", "mod a;"),
            ("x/src/a.rs", ""),
            ("x/src/b.rs", ""),
            ("x/notes.txt", ""),
        ]);
        let found = check(&tree, &Modules::find(&tree));
        assert_eq!(found, ["x/src/b.rs: no `mod` reaches this file; delete it, git remembers"]);
    }
}
