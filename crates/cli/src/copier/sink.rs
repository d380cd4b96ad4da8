//! Where rows go.

use std::path::Path;

use tokio::runtime::Handle;
use wayleave_engine::snapshot_file::SnapshotHeader;
use wayleave_engine::{Key, Row};
use wayleave_engine_fjall::LoadError;

/// A store that is being made. If it is dropped before its end, no server opens what is left of it.
pub trait Sink {
    /// The last row that an interrupted copy of the same rows has left.
    fn after(&self) -> Option<&Key>;

    /// Takes rows, each with a greater key than the one before.
    fn write(&mut self, rows: Vec<Row>) -> anyhow::Result<()>;

    /// Completes the store.
    fn finish(self: Box<Self>) -> anyhow::Result<()>;
}

/// A new data folder. An interrupted copy begins anew.
pub struct FolderSink(wayleave_engine_fjall::BulkLoad);

impl FolderSink {
    /// Begins to fill a folder. Fails if it is not empty, or cannot be written.
    pub fn create(path: &Path, header: &SnapshotHeader) -> Result<Self, LoadError> {
        wayleave_engine_fjall::BulkLoad::create(path, header).map(Self)
    }
}

impl Sink for FolderSink {
    fn after(&self) -> Option<&Key> {
        None
    }

    fn write(&mut self, rows: Vec<Row>) -> anyhow::Result<()> {
        Ok(self.0.write(rows)?)
    }

    fn finish(self: Box<Self>) -> anyhow::Result<()> {
        Ok(self.0.finish()?)
    }
}

/// A new store in a database. An interrupted copy goes on.
pub struct DatabaseSink {
    load: wayleave_engine_postgres::BulkLoad,
    runtime: Handle,
}

impl DatabaseSink {
    /// Begins to fill the store of a database. `what` identifies the rows. Fails if it has a store, or cannot be used.
    pub fn create(url: &str, header: &SnapshotHeader, what: &str, runtime: Handle) -> anyhow::Result<Self> {
        let load = runtime.block_on(wayleave_engine_postgres::BulkLoad::create(url, header, what))?;
        Ok(Self { load, runtime })
    }
}

impl Sink for DatabaseSink {
    fn after(&self) -> Option<&Key> {
        self.load.after()
    }

    fn write(&mut self, rows: Vec<Row>) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(self.load.write(&rows))?)
    }

    fn finish(self: Box<Self>) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(self.load.finish())?)
    }
}
