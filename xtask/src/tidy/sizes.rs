//! Limits on the length of files and functions. Exceptions are listed with their exact length, so that the list shows
//! every growth and is lowered by every cut.

use std::collections::BTreeMap;

use super::mask::mask;
use super::modules::{Modules, Use};
use super::tree::Tree;

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

/// Every length over its limit that is not listed exactly, and every outdated exception.
pub fn check(tree: &Tree, modules: &Modules, exceptions: &str) -> Vec<String> {
    let mut long = BTreeMap::new();
    for (path, source) in tree.files() {
        if modules.usage(path) == Some(Use::Production) {
            measure(path, source, &mut long);
        }
    }
    let mut wrong = Vec::new();
    for (number, line) in (1..).zip(exceptions.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parsed = line.rsplit_once(' ').and_then(|(what, lines)| Some((what.trim(), lines.parse().ok()?)));
        let at = format!("{}:{number}", super::EXCEPTIONS);
        let Some((what, listed)) = parsed else {
            wrong.push(format!("{at}: is not `file PATH LINES` or `fn PATH NAME LINES`"));
            continue;
        };
        match long.remove(what) {
            None => wrong.push(format!("{at}: {what} is within the limit or gone; strike the line")),
            Some(lines) if lines > listed => {
                wrong.push(format!(
                    "{what} has grown to {lines} lines from {listed}; exceptions may shrink, never grow"
                ));
            }
            Some(lines) if lines < listed => {
                wrong.push(format!("{at}: {what} has {lines} lines now; lower the number"))
            }
            Some(_) => {}
        }
    }
    let limit = |what: &str| if what.starts_with("file ") { FILE_LINES_MAX } else { FUNCTION_LINES_MAX };
    wrong.extend(long.iter().map(|(what, lines)| format!("{what} has {lines} lines, the limit is {}", limit(what))));
    wrong
}

fn measure(path: &str, source: &str, long: &mut BTreeMap<String, usize>) {
    let masked = mask(source);
    let lines: Vec<&str> = masked.lines().take_while(|line| !line.trim().starts_with("#[cfg(test)]")).collect();
    if lines.len() > FILE_LINES_MAX {
        long.insert(format!("file {path}"), lines.len());
    }
    for (name, length) in functions(&lines) {
        if length > FUNCTION_LINES_MAX {
            let longest = long.entry(format!("fn {path} {name}")).or_default();
            *longest = length.max(*longest);
        }
    }
}

/// Every function with a body, and the number of lines from its name to its closing brace.
fn functions(lines: &[&str]) -> Vec<(String, usize)> {
    let mut done = Vec::new();
    // Name, first line, and the outer depth; the body is open once a brace was seen.
    let mut open: Vec<(String, usize, usize, bool)> = Vec::new();
    let mut depth = 0_usize;
    // Parentheses and square brackets: a `;` inside them is part of an array type.
    let mut brackets = 0_usize;
    for (number, line) in lines.iter().enumerate() {
        let mut word = String::new();
        let mut after_fn = false;
        for c in line.chars().chain(['\n']) {
            if c.is_alphanumeric() || c == '_' {
                word.push(c);
                continue;
            }
            if after_fn && !word.is_empty() {
                open.push((std::mem::take(&mut word), number, depth, false));
            }
            after_fn = c.is_whitespace() && (word == "fn" || (after_fn && word.is_empty()));
            word.clear();
            match c {
                '{' => {
                    if let Some(function) = open.last_mut().filter(|function| function.2 == depth) {
                        function.3 = true;
                    }
                    depth += 1;
                }
                '}' => {
                    depth = depth.saturating_sub(1);
                    if let Some((name, first, _, _)) = open.pop_if(|function| function.3 && function.2 == depth) {
                        done.push((name, number - first + 1));
                    }
                }
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                // A declaration without a body.
                ';' if brackets == 0 => drop(open.pop_if(|function| !function.3 && function.2 == depth)),
                _ => {}
            }
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(source: &str) -> Vec<(String, usize)> {
        let masked = mask(source);
        functions(&masked.lines().collect::<Vec<_>>())
    }

    fn check_sizes(source: &str, exceptions: &str, expected: &[&str]) {
        let tree = Tree::from([("x/Cargo.toml", ""), ("x/src/lib.rs", source)]);
        assert_eq!(check(&tree, &Modules::find(&tree), exceptions), expected, "{exceptions}");
    }

    #[test]
    fn functions_are_measured_from_name_to_brace() {
        let source = "trait T {\n    fn none(&self) -> [u8; 3];\n}\nfn a() -> [u8; 3] {\n    if x {\n    }\n}\nfn b(\n    f: fn(u8),\n) {}\n";
        assert_eq!(measured(source), [("a".to_owned(), 4), ("b".to_owned(), 3)]);
    }

    #[test]
    fn a_function_within_a_function_counts_for_both() {
        let source = "fn outer() {\n    let s = \"fn no() {\";\n    fn inner() {\n    }\n}\n";
        assert_eq!(measured(source), [("inner".to_owned(), 2), ("outer".to_owned(), 5)]);
    }

    #[test]
    fn a_long_function_is_reported_unless_listed_exactly() {
        let source = |lines: usize| format!("fn long() {{\n{}}}\n", "    x();\n".repeat(lines - 2));
        check_sizes(&source(70), "", &[]);
        check_sizes(&source(71), "", &["fn x/src/lib.rs long has 71 lines, the limit is 70"]);
        check_sizes(&source(80), "# why\n\nfn x/src/lib.rs long 80\n", &[]);
        let grown = "fn x/src/lib.rs long has grown to 81 lines from 80; exceptions may shrink, never grow";
        check_sizes(&source(81), "fn x/src/lib.rs long 80", &[grown]);
        let shrunk = "xtask/tidy-exceptions.txt:1: fn x/src/lib.rs long has 79 lines now; lower the number";
        check_sizes(&source(79), "fn x/src/lib.rs long 80", &[shrunk]);
        let gone = "xtask/tidy-exceptions.txt:1: fn x/src/lib.rs long is within the limit or gone; strike the line";
        check_sizes(&source(70), "fn x/src/lib.rs long 80", &[gone]);
    }

    #[test]
    fn a_files_tests_do_not_count() {
        let source = |code: usize, tests: usize| {
            format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "// x\n".repeat(code), "// x\n".repeat(tests))
        };
        check_sizes(&source(500, 900), "", &[]);
        check_sizes(&source(501, 0), "", &["file x/src/lib.rs has 501 lines, the limit is 500"]);
        check_sizes(&source(501, 0), "file x/src/lib.rs 501", &[]);
    }

    #[test]
    fn an_unreadable_listing_is_reported() {
        let wrong = "xtask/tidy-exceptions.txt:1: is not `file PATH LINES` or `fn PATH NAME LINES`";
        check_sizes("", "file x/src/lib.rs many", &[wrong]);
    }
}
