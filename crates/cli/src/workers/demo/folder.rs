//! The folder of a demonstration.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::exit::Usage;

const PREFIX: &str = "wayleave-demo-";

/// A folder that is the user's, or a temporary one.
pub enum Folder {
    Kept(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Folder {
    /// Makes the folder. A temporary one that a killed demonstration has left behind is removed. Fails if it cannot be
    /// made, or the user's is in use.
    pub fn make(kept: Option<&Path>) -> anyhow::Result<Self> {
        let Some(folder) = kept else {
            sweep(&std::env::temp_dir());
            let prefix = format!("{PREFIX}{}-", std::process::id());
            return Ok(Self::Temporary(tempfile::Builder::new().prefix(&prefix).tempdir()?));
        };
        if std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Usage(format!("{} is not empty: a demonstration begins with nothing", folder.display())).into());
        }
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self::Kept(folder.canonicalize()?))
    }

    pub fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Temporary(folder) => folder.path(),
        }
    }
}

/// Removes folders of processes that no longer live.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_are_removed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let names =
            [format!("{PREFIX}999999999-x"), format!("{PREFIX}{}-y", std::process::id()), "other-1-z".to_owned()];
        for name in &names {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        sweep(folder.path());
        let left = names.map(|name| folder.path().join(name).exists());
        assert_eq!(left, [false, true, true]);
    }

    #[test]
    fn a_folder_with_something_in_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Folder::make(Some(folder.path())).is_ok());
        std::fs::write(folder.path().join("mine"), "").unwrap();
        assert!(Folder::make(Some(folder.path())).is_err());
    }
}
