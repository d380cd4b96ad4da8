//! Where rows come from.

use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use tokio::runtime::Handle;
use wayleave_engine::rows::node;
use wayleave_engine::snapshot_file::{Loss, SnapshotHeader, SnapshotReader};
use wayleave_engine::{Engine, Error, Key, Row, Scan, Write};
use wayleave_engine_fjall::{Fjall, Options, Snapshot};
use wayleave_engine_postgres::Reader;

use crate::exit::{Ended, REFUSED};

/// After every key of a store.
pub const END: [u8; 3] = [0xff; 3];

/// Why rows cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// They are damaged; others may be readable.
    Damaged(String),
    /// Nothing can be read.
    Failed(anyhow::Error),
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        match error {
            Error::Corrupt(why) => Self::Damaged(why),
            other => Self::Failed(other.into()),
        }
    }
}

impl From<ReadError> for anyhow::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Damaged(why) => Error::Corrupt(why).into(),
            ReadError::Failed(error) => error,
        }
    }
}

/// The rows of a store at one moment.
pub trait Source {
    /// What a copy must know besides the rows.
    fn header(&self) -> &SnapshotHeader;

    /// At most `limit` rows from a key on, in order, without the engine's own; none after the last. Callers go forward only,
    /// unless [`Source::seeks`].
    fn page(&mut self, from: &[u8], limit: usize) -> Result<Vec<Row>, ReadError>;

    /// Where the damage ends that a page from this key meets, and at most about `limit` rows before its end that it does not
    /// concern: all others of the interval may be older than what cannot be read.
    fn past_damage(&mut self, _from: &[u8], _limit: usize) -> anyhow::Result<(Key, Vec<Row>)> {
        Ok((END.into(), Vec::new()))
    }

    /// Whether rows can be read again.
    fn seeks(&self) -> bool {
        true
    }

    /// Writes of commits that are lost in the source itself, as far as they are known: what it has instead may be older.
    fn lost_writes(&self) -> &[Write] {
        &[]
    }

    /// What is missing in the source itself; known after the last row.
    fn losses(&self) -> &[Loss] {
        &[]
    }
}

/// A data folder that no server uses.
pub struct FolderSource {
    engine: Fjall,
    header: SnapshotHeader,
    losses: Vec<Loss>,
    runtime: Handle,
}

impl FolderSource {
    /// Opens and locks a data folder. Fails if it is none, a server uses it, or it cannot be opened.
    pub fn open(path: &Path, runtime: Handle) -> anyhow::Result<Self> {
        // An open would create it.
        refuse_other(path, &["FORMAT"])?;
        Ok(Self::of(Fjall::open(path, Options::default())?, runtime))
    }

    /// Opens what can be read of a damaged folder, in which nothing is changed: what has to be made for that is in the folder
    /// `scratch`.
    ///
    /// Fails if it is none, a server uses it, or too little can be read.
    pub fn salvage(path: &Path, scratch: &Path, runtime: Handle) -> anyhow::Result<Self> {
        refuse_other(path, &["FORMAT", "db"])?;
        let engine = Fjall::salvage(path, scratch, &Options::default())?;
        for (table, has_holes) in engine.rebuilt_tables() {
            let missing = if *has_holes { "some of them are missing" } else { "all of them are there" };
            eprintln!(
                "table {} cannot be opened: its rows were read without its index, and {missing}",
                table.display()
            );
        }
        Ok(Self::of(engine, runtime))
    }

    fn of(engine: Fjall, runtime: Handle) -> Self {
        let losses = engine.losses().iter().map(|what| Loss { what: what.clone(), hosts: Vec::new() }).collect();
        Self { header: engine.header(), losses, engine, runtime }
    }
}

/// Refuses a folder that has nothing of these names.
fn refuse_other(path: &Path, names: &[&str]) -> anyhow::Result<()> {
    if names.iter().any(|name| path.join(name).exists()) {
        return Ok(());
    }
    let message = format!("{} is no data folder: the file FORMAT is missing", path.display());
    Err(Ended { code: crate::exit::NOT_FOUND, message }.into())
}

impl Source for FolderSource {
    fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    fn page(&mut self, from: &[u8], limit: usize) -> Result<Vec<Row>, ReadError> {
        let mut from = from.to_vec();
        loop {
            let scan = Scan { from, to: END.into(), limit };
            let found = self.runtime.block_on(self.engine.scan_many(std::slice::from_ref(&scan)))?;
            let mut rows = found.into_iter().next().unwrap_or_default();
            let last = rows.last().map(|row| after(&row.key));
            // The engine's own rows, of kind 0, are in the header.
            rows.retain(|row| row.key.get(2) != Some(&0));
            match last {
                Some(next) if rows.is_empty() => from = next,
                _ => return Ok(rows),
            }
        }
    }

    fn past_damage(&mut self, from: &[u8], limit: usize) -> anyhow::Result<(Key, Vec<Row>)> {
        let scan = Scan { from: from.to_vec(), to: END.into(), limit };
        Ok(self.runtime.block_on(self.engine.past_damage(&scan))?)
    }

    fn lost_writes(&self) -> &[Write] {
        self.engine.lost_writes()
    }

    fn losses(&self) -> &[Loss] {
        &self.losses
    }
}

/// The key right after another one.
pub fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// A snapshot of a server's embedded store.
impl Source for Snapshot {
    fn header(&self) -> &SnapshotHeader {
        Self::header(self)
    }

    fn page(&mut self, from: &[u8], limit: usize) -> Result<Vec<Row>, ReadError> {
        Ok(Self::page(self, from, limit)?)
    }

    fn past_damage(&mut self, from: &[u8], limit: usize) -> anyhow::Result<(Key, Vec<Row>)> {
        Ok(Self::past_damage(self, from, limit)?)
    }
}

/// A database.
pub struct DatabaseSource {
    reader: Reader,
    runtime: Handle,
}

impl DatabaseSource {
    /// Opens the store in a database at one moment, whether nodes use it or not.
    pub async fn begin(url: &str) -> anyhow::Result<Self> {
        Ok(Self { reader: Reader::open(url).await?, runtime: Handle::current() })
    }

    /// The same, if no node uses it. Fails if a node does, or it cannot be opened.
    pub fn open_unused(url: &str, runtime: &Handle) -> anyhow::Result<Self> {
        let mut source = runtime.block_on(Self::begin(url))?;
        let (mut from, now) = (node::all(1).from, source.header().at);
        let mut alive = Vec::new();
        loop {
            let page = source.page(&from, 100)?;
            let nodes = page.iter().filter(|row| row.key < node::all(1).to);
            let decoded: Result<Vec<_>, _> = nodes.map(|row| node::decode(&row.value)).collect();
            let decoded = decoded.context("the rows of nodes cannot be read")?;
            let over = decoded.len() < page.len() || page.is_empty();
            alive.extend(decoded.into_iter().filter(|node| node.is_alive(now)).map(|node| node.name.to_string()));
            match page.last() {
                Some(last) if !over => from = after(&last.key),
                _ => break,
            }
        }
        if alive.is_empty() {
            return Ok(source);
        }
        let names = alive.join(", ");
        let message = format!("the store is in use by {names}: stop these nodes first, or use `wayleave snapshot`");
        Err(Ended { code: REFUSED, message }.into())
    }
}

impl Source for DatabaseSource {
    fn header(&self) -> &SnapshotHeader {
        self.reader.header()
    }

    fn page(&mut self, from: &[u8], limit: usize) -> Result<Vec<Row>, ReadError> {
        Ok(self.runtime.block_on(self.reader.page(from, limit))?)
    }

    fn past_damage(&mut self, from: &[u8], _limit: usize) -> anyhow::Result<(Key, Vec<Row>)> {
        Ok((self.runtime.block_on(self.reader.past_damage(from, &END))?, Vec::new()))
    }
}

/// A snapshot file.
pub struct FileSource<R> {
    reader: SnapshotReader<R>,
    waiting: VecDeque<Row>,
}

impl<R: Read> FileSource<R> {
    /// Reads the header. Fails if it is no snapshot that this program reads.
    pub fn open(input: R) -> anyhow::Result<Self> {
        Ok(Self { reader: SnapshotReader::begin(input)?, waiting: VecDeque::new() })
    }
}

impl<R: Read> Source for FileSource<R> {
    fn header(&self) -> &SnapshotHeader {
        self.reader.header()
    }

    fn page(&mut self, from: &[u8], limit: usize) -> Result<Vec<Row>, ReadError> {
        loop {
            while self.waiting.front().is_some_and(|row| row.key.as_slice() < from) {
                self.waiting.pop_front();
            }
            if !self.waiting.is_empty() {
                let count = limit.min(self.waiting.len());
                return Ok(self.waiting.drain(..count).collect());
            }
            match self.reader.next_rows() {
                Ok(Some(rows)) => self.waiting.extend(rows),
                Ok(None) => return Ok(Vec::new()),
                Err(error) => return Err(ReadError::Failed(error.into())),
            }
        }
    }

    fn seeks(&self) -> bool {
        false
    }

    fn losses(&self) -> &[Loss] {
        self.reader.losses()
    }
}
