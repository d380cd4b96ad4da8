//! The files of the workspace: those that git tracks or would track. Paths use `/` and start at the root.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Every text file and its content.
#[derive(Debug, Default)]
pub struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Reads the workspace.
    pub fn load(root: &Path) -> Result<Self> {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("cannot start git, which lists the files of the workspace")?;
        if !listed.status.success() {
            bail!("git cannot list the files: {}", String::from_utf8_lossy(&listed.stderr).trim());
        }
        let mut files = BTreeMap::new();
        for path in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|path| !path.is_empty()) {
            // A deleted file that is still in the index is skipped, and so is one that is not text.
            if let Ok(text) = std::fs::read_to_string(root.join(path)) {
                files.insert(path.to_owned(), text);
            }
        }
        Ok(Self(files))
    }

    /// The content of a file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Every file, by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The folders of our crates, each with its manifest.
    pub fn crates(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter_map(|(path, text)| Some((path.strip_suffix("/Cargo.toml")?, text)))
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Tree {
    fn from(files: [(&str, &str); N]) -> Self {
        Self(files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect())
    }
}
