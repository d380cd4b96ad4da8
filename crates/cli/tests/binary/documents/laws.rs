//! Checks the numbers of laws and traps that code and tests cite against the page that explains them.

use crate::documents::root;
use crate::prelude::*;

/// The laws (`law 3`) and traps (`f5`) that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("fn ") {
        let name = text[at + 3..].split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        found.extend(name.split('_').take_while(|part| is_trap(part)).map(str::to_owned));
    }
    let lower = text.to_lowercase();
    let after = lower.match_indices("law ").map(|(at, word)| &lower[at + word.len()..]);
    let numbers = after.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()).filter(|no| !no.is_empty());
    found.extend(numbers.map(|number| format!("law {number}")));
    found
}

fn is_trap(part: &str) -> bool {
    let number = part.strip_prefix(['a', 'f']).unwrap_or_default();
    number.len() <= 2 && number.parse::<u8>().is_ok()
}

/// The laws and traps that the page explains: the first cell of each row.
fn explained(page: &str) -> BTreeSet<String> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells.map(|cell| cell.parse::<u8>().map_or_else(|_| cell.to_owned(), |number| format!("law {number}"))).collect()
}

fn sources(folder: &Path, visit: &mut impl FnMut(&Path, &str)) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, visit);
        } else if entry.extension().is_some_and(|ending| ending == "rs") {
            visit(&entry, &std::fs::read_to_string(&entry).unwrap());
        }
    }
}

#[test]
fn every_law_and_trap_that_code_names_is_explained() {
    let page = std::fs::read_to_string(root().join("docs/laws.md")).unwrap();
    let explained = explained(&page);
    let mut wrong = Vec::new();
    sources(&root().join("crates"), &mut |path, text| {
        let unknown: Vec<String> = named(text).difference(&explained).cloned().collect();
        if !unknown.is_empty() {
            wrong.push(format!("{}: {unknown:?}", path.display()));
        }
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!((1..=12).all(|law| explained.contains(&format!("law {law}"))), "{explained:?}");
}

#[test]
fn a_number_that_nothing_explains_is_found() {
    let text = ["// Law ", "13: none\nf", "n a9_f77_x() {} f", "n a_b() {} f", "n f64_y() {}"].concat();
    let unknown = named(&text).difference(&explained("| 9 | x |\n| a9 | x |")).cloned().collect::<Vec<_>>();
    assert_eq!(unknown, ["f64", "f77", &format!("law {}", 13)]);
}
