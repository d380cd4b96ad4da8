//! Forbidden words: folders of a developer's machine.

use super::tree::Tree;

/// Concatenated, so that this file does not contain them.
const FOLDERS: &[&str] = &[concat!("/", "work/"), concat!("/", "root/")];

/// Every line that names such a folder.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, text) in tree.files() {
        for (number, line) in (1..).zip(text.lines()) {
            for folder in FOLDERS.iter().filter(|folder| names(line, folder)) {
                wrong.push(format!("{path}:{number}: names {folder}, a folder of one machine"));
            }
        }
    }
    wrong
}

/// Whether a line contains a folder as an absolute path, and not as part of a longer one.
fn names(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || "./-_~*}".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machines_folder_is_found_and_a_part_of_a_path_is_not() {
        let line = |before: &str, folder: &str| format!("one\n{before}{folder}x");
        for folder in FOLDERS {
            for before in ["", "see ", "\"", "dir=", "("] {
                let text = line(before, folder);
                let found = check(&Tree::from([("README.md", text.as_str())]));
                assert_eq!(found, [format!("README.md:2: names {folder}, a folder of one machine")], "{text}");
            }
            for before in ["https://example.com", "/v1", ".", "home-", "*"] {
                let text = line(before, folder);
                assert_eq!(check(&Tree::from([("README.md", text.as_str())])), [""; 0], "{text}");
            }
        }
    }
}
