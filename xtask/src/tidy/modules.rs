//! Finds the source files of each crate: from its roots, along `mod`.

use std::collections::{BTreeMap, VecDeque};

use toml::{Table, Value};

use super::mask::mask;
use super::tree::Tree;

/// Every reachable source file, and whether production code reaches it.
#[derive(Debug, Default)]
pub struct Modules(BTreeMap<String, Use>);

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Reached by tests, benches and examples only.
    Test,
    /// Part of the product, or of its build.
    Production,
}

impl Modules {
    /// Follows every crate of the tree.
    pub fn find(tree: &Tree) -> Self {
        let mut found = Self::default();
        let mut open: VecDeque<(String, Use, bool)> = VecDeque::new();
        for (folder, manifest) in tree.crates() {
            open.extend(roots(tree, folder, manifest).into_iter().map(|(path, usage)| (path, usage, true)));
        }
        while let Some((path, usage, is_root)) = open.pop_front() {
            let Some(source) = tree.text(&path) else { continue };
            if found.0.get(&path).is_some_and(|known| *known >= usage) {
                continue;
            }
            found.0.insert(path.clone(), usage);
            for link in links(source) {
                let usage = if link.test { Use::Test } else { usage };
                let target = link.targets(&path, is_root).into_iter().find(|target| tree.text(target).is_some());
                open.extend(target.map(|target| (target, usage, link.path.is_some())));
            }
        }
        found
    }

    /// What a file is for; `None` if it is unreachable.
    pub fn usage(&self, path: &str) -> Option<Use> {
        self.0.get(path).copied()
    }
}

/// The crate roots that cargo compiles.
fn roots(tree: &Tree, folder: &str, manifest: &str) -> Vec<(String, Use)> {
    let mut roots = Vec::new();
    for (path, _) in tree.files() {
        let Some(inside) = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) else { continue };
        let parts: Vec<&str> = inside.split('/').collect();
        let usage = match parts.as_slice() {
            ["build.rs"] | ["src", "lib.rs" | "main.rs"] | ["src", "bin", _] | ["src", "bin", _, "main.rs"] => {
                Use::Production
            }
            ["tests" | "benches" | "examples", _] | ["tests" | "benches" | "examples", _, "main.rs"] => Use::Test,
            _ => continue,
        };
        if path.ends_with(".rs") {
            roots.push((path.to_owned(), usage));
        }
    }
    let manifest: Table = manifest.parse().unwrap_or_default();
    for (kind, usage) in [("bin", Use::Production), ("test", Use::Test), ("bench", Use::Test), ("example", Use::Test)] {
        let named = manifest.get(kind).and_then(Value::as_array).into_iter().flatten();
        let paths = named.filter_map(|target| target.get("path")?.as_str());
        roots.extend(paths.map(|path| (normal(&format!("{folder}/{path}")), usage)));
    }
    roots
}

/// A `mod name;` or an `include!`.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    name: String,
    /// The enclosing inline modules.
    around: Vec<String>,
    /// The path in `#[path]` or `include!`.
    path: Option<String>,
    test: bool,
}

impl Link {
    /// Where the file may be, relative to the file that names it.
    fn targets(&self, from: &str, is_root: bool) -> Vec<String> {
        let (folder, file) = from.rsplit_once('/').unwrap_or(("", from));
        let stem = file.trim_end_matches(".rs");
        let own_folder = is_root || stem == "mod" || ["lib", "main"].contains(&stem);
        let mut base: Vec<&str> = folder.split('/').collect();
        if !own_folder && (self.path.is_none() || !self.around.is_empty()) {
            base.push(stem);
        }
        base.extend(self.around.iter().map(String::as_str));
        let base = base.join("/");
        match &self.path {
            Some(path) => vec![normal(&format!("{base}/{path}"))],
            None => vec![format!("{base}/{}.rs", self.name), format!("{base}/{}/mod.rs", self.name)],
        }
    }
}

/// The path without `.` and `..`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The links that a source file holds.
fn links(source: &str) -> Vec<Link> {
    let masked = mask(source);
    let mut links = Vec::new();
    let mut around: Vec<(String, bool, usize)> = Vec::new();
    let mut depth = 0_usize;
    let mut attributes = String::new();
    for (line, plain) in masked.lines().zip(source.lines()) {
        let code = line.trim();
        if code.starts_with("#[") {
            attributes.push_str(plain);
        } else if let Some((name, inline)) = module(code) {
            let test = attributes.contains("cfg(test)") || around.iter().any(|(_, test, _)| *test);
            if inline {
                around.push((name, test, depth));
            } else {
                let names = around.iter().map(|(name, _, _)| name.clone()).collect();
                links.push(Link { name, around: names, path: quoted(&attributes, "path"), test });
            }
        } else if let Some(path) = code.contains("include!").then(|| quoted(plain, "include!")).flatten() {
            let test = around.iter().any(|(_, test, _)| *test);
            links.push(Link { name: String::new(), around: Vec::new(), path: Some(path), test });
        }
        if !code.is_empty() && !code.starts_with("#[") {
            attributes.clear();
        }
        depth = (depth + line.matches('{').count()).saturating_sub(line.matches('}').count());
        around.retain(|(_, _, outside)| depth > *outside);
    }
    links
}

/// The module that a line declares, and whether its body follows.
fn module(code: &str) -> Option<(String, bool)> {
    let after = code.strip_prefix("pub").map_or(code, |rest| match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')').map_or(rest, |(_, rest)| rest),
        None => rest,
    });
    let rest = after.trim_start().strip_prefix("mod ")?.trim_start();
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    let (name, tail) = rest.split_at_checked(end)?;
    Some((name.to_owned(), tail.trim_start().starts_with('{')))
}

/// The first string after a word.
fn quoted(text: &str, word: &str) -> Option<String> {
    let after = text.split_once(word)?.1;
    after.split('"').nth(1).filter(|path| path.ends_with(".rs")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const N: usize>(files: [(&str, &str); N], expected: &[(&str, Option<Use>)]) {
        let modules = Modules::find(&Tree::from(files));
        for (path, usage) in expected {
            assert_eq!(modules.usage(path), *usage, "{path}");
        }
    }

    #[test]
    fn modules_are_followed_from_the_roots() {
        check(
            [
                ("x/Cargo.toml", ""),
                ("x/src/lib.rs", "mod a;\npub(crate) mod b;\n// mod e;\n"),
                ("x/src/a.rs", "pub mod c;"),
                ("x/src/a/c.rs", ""),
                ("x/src/b/mod.rs", "mod d;"),
                ("x/src/b/d.rs", ""),
                ("x/src/e.rs", ""),
                ("x/src/bin/tool.rs", ""),
                ("x/tests/t.rs", "mod help;"),
                ("x/tests/help/mod.rs", ""),
            ],
            &[
                ("x/src/a/c.rs", Some(Use::Production)),
                ("x/src/b/d.rs", Some(Use::Production)),
                ("x/src/e.rs", None),
                ("x/src/bin/tool.rs", Some(Use::Production)),
                ("x/tests/help/mod.rs", Some(Use::Test)),
            ],
        );
    }

    #[test]
    fn files_behind_cfg_test_are_tests_unless_production_reaches_them_too() {
        check(
            [
                ("x/Cargo.toml", ""),
                ("x/src/lib.rs", "#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;\n#[cfg(test)]\nmod b;\nmod a;"),
                ("x/src/a_tests.rs", "mod deep;"),
                ("x/src/deep.rs", ""),
                ("x/src/a.rs", "#[path = \"b.rs\"]\nmod again;"),
                ("x/src/b.rs", ""),
            ],
            &[
                ("x/src/a_tests.rs", Some(Use::Test)),
                ("x/src/deep.rs", Some(Use::Test)),
                ("x/src/b.rs", Some(Use::Production)),
            ],
        );
    }

    #[test]
    fn modules_written_out_count_as_folders() {
        check(
            [
                ("x/Cargo.toml", ""),
                ("x/src/lib.rs", "mod a {\n    mod b;\n}\nmod c;"),
                ("x/src/a/b.rs", ""),
                ("x/src/c.rs", "mod d { mod_nothing!(); }\nmod e;"),
                ("x/src/c/e.rs", "include!(\"../part.rs\");"),
                ("x/src/part.rs", ""),
                ("x/src/a/e.rs", ""),
            ],
            &[
                ("x/src/a/b.rs", Some(Use::Production)),
                ("x/src/c/e.rs", Some(Use::Production)),
                ("x/src/part.rs", Some(Use::Production)),
                ("x/src/a/e.rs", None),
            ],
        );
    }

    #[test]
    fn targets_with_a_path_in_the_manifest_are_roots() {
        check(
            [("x/Cargo.toml", "[[bench]]\nname = 'n'\npath = 'speed/n.rs'"), ("x/speed/n.rs", "")],
            &[("x/speed/n.rs", Some(Use::Test))],
        );
    }
}
