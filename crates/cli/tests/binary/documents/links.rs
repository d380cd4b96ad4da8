//! Links from one file of the repository to another.

use std::path::Path;

/// The links of a document that lead to no file, or to no heading of it.
pub fn dead(root: &Path, file: &str, markdown: &str) -> Vec<String> {
    let folder = root.join(file).parent().unwrap().to_owned();
    let mut wrong = Vec::new();
    for link in targets(markdown) {
        let (path, heading) =
            link.split_once('#').map_or((link.as_str(), None), |(path, heading)| (path, Some(heading)));
        let target = if path.is_empty() { root.join(file) } else { folder.join(path) };
        let known = |heading: &str| {
            let text = std::fs::read_to_string(&target).unwrap_or_default();
            prose(&text).filter_map(|line| line.strip_prefix('#')).any(|line| slug(line) == heading)
        };
        if !target.exists() || heading.is_some_and(|heading| !known(heading)) {
            wrong.push(format!("{file}: {link}"));
        }
    }
    wrong
}

/// The lines outside of fenced blocks.
fn prose(markdown: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    markdown.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// What the links of a document name, without those that leave the repository.
fn targets(markdown: &str) -> Vec<String> {
    let of_line = |line: &str| -> Vec<String> {
        line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
    };
    prose(markdown).flat_map(of_line).filter(|link| !link.contains("://") && !link.starts_with("mailto:")).collect()
}

/// The anchor of a heading, as GitHub makes it.
fn slug(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(kept)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn a_link_to_a_missing_file_or_heading_is_found() {
    let root = crate::documents::root();
    let text =
        "[a](README.md) [b](nowhere.md) [c](README.md#no-such-heading) [d](#here)\n## Here\n[e](https://x.example/)";
    assert_eq!(
        dead(&root, "CONTRIBUTING.md", text),
        ["CONTRIBUTING.md: nowhere.md", "CONTRIBUTING.md: README.md#no-such-heading", "CONTRIBUTING.md: #here"]
    );
}
