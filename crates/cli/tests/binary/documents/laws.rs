//! Checks the numbers of laws and traps that code and tests cite against the page that explains them, and that the tests which
//! the page names exist.

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

/// The names in backticks of the last cell of each row of a section's table.
fn tests_of<'a>(page: &'a str, section: &str) -> Vec<Vec<&'a str>> {
    let (_, rest) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let rows = rest.lines().take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| ")).skip(1);
    let last = rows.map(|row| row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default());
    last.map(|cell| cell.split('`').skip(1).step_by(2).collect()).collect()
}

#[test]
fn every_test_against_strangers_that_the_page_names_is_there() {
    let page = std::fs::read_to_string(root().join("docs/laws.md")).unwrap();
    let rows = tests_of(&page, "Strangers");
    let mut there = BTreeSet::new();
    sources(&root().join("crates"), &mut |_, text| {
        // What follows the attribute, but for other attributes.
        for after in text.split("test]\n").skip(1).chain(text.split("test(flavor").skip(1)) {
            let name = after.split_once("fn ").and_then(|(_, rest)| rest.split('(').next());
            there.extend(name.map(str::to_owned));
        }
    });
    assert!(rows.len() == 10 && rows.iter().all(|tests| !tests.is_empty()), "{rows:?}");
    let missing: Vec<_> = rows.iter().flatten().filter(|test| !there.contains(**test)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    println!("seen: strangers: {} rows, {} tests", rows.len(), rows.iter().flatten().count());
}

#[test]
fn a_test_that_is_not_there_is_found() {
    let page =
        "# x\n\n## S\n\n| try | gets | tests |\n|---|---|---|\n| `a` | `b` | `one`, `two` |\n\n## T\n| c | d | `e` |";
    assert_eq!(tests_of(page, "S"), [["one", "two"]]);
}
