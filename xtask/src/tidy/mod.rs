//! Rules that no compiler checks. Each rule is a function from the tree to its violations.

mod arrows;
mod dead;
mod lints;
mod mask;
mod modules;
mod parts;
mod sizes;
mod tree;
mod words;

use std::path::Path;

use anyhow::{Context, Result, bail};

use tree::Tree;

const EXCEPTIONS: &str = "xtask/tidy-exceptions.txt";

/// Checks every rule and reports all violations.
pub fn run(root: &Path) -> Result<()> {
    let tree = Tree::load(root)?;
    let exceptions = tree.text(EXCEPTIONS).with_context(|| format!("{EXCEPTIONS} is missing"))?;
    let modules = modules::Modules::find(&tree);
    let mut wrong = arrows::check(&tree);
    wrong.extend(lints::check(&tree));
    wrong.extend(dead::check(&tree, &modules));
    wrong.extend(sizes::check(&tree, &modules, exceptions));
    wrong.extend(parts::check(&tree));
    wrong.extend(words::check(&tree));
    if wrong.is_empty() {
        println!("tidy: {} files in order", tree.len());
        return Ok(());
    }
    for line in &wrong {
        eprintln!("{line}");
    }
    bail!("tidy: {} violations", wrong.len())
}
