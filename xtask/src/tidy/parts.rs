//! The parts of a shard's owner. What a function may touch follows from its folder, so each part has all its `impl` blocks
//! in one.

use super::mask::mask;
use super::tree::Tree;

const SHARD: &str = "crates/shard/src/";

/// A type, the folder in which its name means it, and the folder of its `impl` blocks.
const PARTS: &[(&str, &str, &str)] = &[
    ("Owner", "", "owner/"),
    ("Port", "owner/", "owner/port/"),
    ("Frontier", "owner/", "owner/frontier/"),
    ("Pipeline", "owner/", "owner/pipeline/"),
    ("Links", "owner/", "owner/pipeline/"),
    ("Control", "owner/", "owner/control/"),
    ("Pools", "owner/", "owner/pools/"),
];

/// Every `impl` block of a part outside its folder.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, text) in tree.files() {
        let Some(place) = path.strip_prefix(SHARD).filter(|place| place.ends_with(".rs")) else { continue };
        for (number, line) in (1..).zip(mask(text).lines()) {
            let part = PARTS.iter().find(|(name, known, _)| implements(line) == Some(name) && place.starts_with(known));
            if let Some((name, _, folder)) = part.filter(|(_, _, folder)| !place.starts_with(folder)) {
                wrong.push(format!("{path}:{number}: `impl` of {name} outside {SHARD}{folder}"));
            }
        }
    }
    wrong
}

/// The type that an `impl` block of a module is for. Blocks further in are of a test's own types.
fn implements(line: &str) -> Option<&str> {
    let head = line.strip_prefix("impl").filter(|rest| rest.starts_with([' ', '<']))?;
    let head = head.strip_prefix('<').and_then(|generics| generics.split_once("> ")).map_or(head, |(_, head)| head);
    let of = head.rsplit_once(" for ").map_or(head, |(_, of)| of);
    let path = of.split([' ', '<', '{']).find(|path| !path.is_empty())?;
    path.rsplit("::").next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_at(place: &str, text: &str, wrong: bool) {
        let path = format!("{SHARD}{place}");
        let found = check(&Tree::from([(path.as_str(), text)]));
        assert_eq!(found.len(), usize::from(wrong), "{place}: {text}: {found:?}");
    }

    #[test]
    fn a_part_is_implemented_in_its_folder_alone() {
        for text in ["impl Owner {", "impl Drop for Owner {", "impl<T> From<T> for crate::owner::Owner {"] {
            check_at("owner/owner_loop.rs", text, false);
            check_at("shared/quota.rs", text, true);
        }
        for text in ["impl Links<'_> {", "impl<'a> Links<'a> {"] {
            check_at("owner/pipeline/chunks.rs", text, false);
            check_at("owner/frontier/put.rs", text, true);
        }
    }

    #[test]
    fn other_types_and_other_meanings_of_a_name_pass() {
        check_at("handle/frontier.rs", "impl Frontier {", false);
        check_at("owner/pools/put.rs", "impl Frontier {", true);
        check_at("fleet/map.rs", "mod tests {\n    impl Owner {}\n}\n// impl Owner {", false);
        check_at("shared/x.rs", "impl Owners {\nimpl From<Owner> for X {\nimplement Owner", false);
    }
}
