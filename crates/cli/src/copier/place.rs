//! Stores by name: a data folder, or the URL of a database.

use std::fmt;
use std::path::PathBuf;

use tokio::runtime::Handle;
use wayleave_engine::snapshot_file::SnapshotHeader;
use wayleave_engine::transplant::fence_in_new_store;

use super::sink::{DatabaseSink, FolderSink, Sink};
use super::source::{DatabaseSource, FolderSource, Source};

/// A store.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// A data folder.
    Folder(PathBuf),
    /// A database; the URL may have a password.
    Database(String),
}

/// Reads the name of a store.
#[expect(clippy::unnecessary_wraps, reason = "clap wants a result")]
pub fn read_place(text: &str) -> Result<Place, String> {
    let database = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
    Ok(if database { Place::Database(text.into()) } else { Place::Folder(text.into()) })
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => path.display().fmt(f),
            Self::Database(url) => {
                // Without user and password.
                let place = url.split_once("://").map_or("", |(_, place)| place);
                let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
                write!(f, "postgres://{}", place.split('?').next().unwrap_or(place))
            }
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Place {
    /// Opens the store, which no server may use. Fails if there is none, a server uses it, or it cannot be opened.
    pub fn source(&self, runtime: &Handle) -> anyhow::Result<Box<dyn Source>> {
        Ok(match self {
            Self::Folder(path) => Box::new(FolderSource::open(path, runtime.clone())?),
            Self::Database(url) => Box::new(DatabaseSource::open_unused(url, runtime)?),
        })
    }

    /// Begins to make another store of the one that has this header. Fails if there is one already, or it cannot be
    /// written.
    pub fn sink(&self, of: &SnapshotHeader, runtime: &Handle) -> anyhow::Result<Box<dyn Sink>> {
        let fences = of.fences.iter().map(|(shard, fence)| (*shard, fence_in_new_store(*fence))).collect();
        let header = SnapshotHeader { fences, ..of.clone() };
        Ok(match self {
            Self::Folder(path) => Box::new(FolderSink::create(path, &header)?),
            Self::Database(url) => Box::new(DatabaseSink::create(url, &header, &rows_of(of), runtime.clone())?),
        })
    }
}

/// Identifies the rows of a store: whoever starts a server on it raises the epochs of its shards.
fn rows_of(header: &SnapshotHeader) -> String {
    let fences = header.fences.iter().map(|(shard, fence)| format!("{}:{}:{}", shard.0, fence.epoch.0, fence.seq));
    format!("{} shards, {}", header.shards, fences.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_without_its_password() {
        let place = read_place("postgres://u:p@ss@h1,h2:5432/db?sslmode=require&password=x").unwrap();
        assert_eq!(place.to_string(), "postgres://h1,h2:5432/db");
        assert_eq!(format!("{place:?}"), "postgres://h1,h2:5432/db");
        assert_eq!(read_place("./data").unwrap(), Place::Folder("./data".into()));
    }
}
