//! The WARC file of one attempt at a chunk, or of one visit: written beside the work, then published.
//!
//! Its name has a digest of the lease's token, so that no two attempts write to one place: a crawler whose lease has
//! ended cannot replace what its successor published.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tempfile::NamedTempFile;

use crate::digest::sha256;
use crate::fetch::Fetched;
use crate::store::{self, Artifact, Name, Store};
use crate::warc::{Info, Writer};

/// The name of an attempt's artifact: what it is of, a digest of the token, the kind of file.
pub(crate) fn attempt_name(of: &str, token: &str, kind: &str) -> Result<Name, store::BadName> {
    let digest = sha256(token.as_bytes());
    let digest = digest.get(7..23).unwrap_or_default();
    format!("{of}-{digest}.{kind}").parse()
}

/// Why pages could not be recorded or published.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot write a WARC file: {0}")]
    Write(#[from] io::Error),
    #[error("{0}")]
    Store(#[from] store::Error),
    #[error("{0}")]
    Name(#[from] store::BadName),
    #[error("a task has stopped: {0}")]
    Stopped(#[from] tokio::task::JoinError),
}

/// A WARC file that is being written. Dropped, it is removed.
#[derive(Debug, Clone)]
pub(super) struct Recorder {
    name: Name,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug)]
struct Open {
    /// None once it has ended.
    writer: Option<Writer<File>>,
    file: Option<NamedTempFile>,
}

impl Recorder {
    /// Begins a file of its own in `folder`.
    pub async fn begin(of: &str, token: &str, user_agent: &str, folder: &Path) -> Result<Self, Error> {
        let name = attempt_name(of, token, "warc.gz")?;
        let info = Info {
            filename: name.as_ref().to_owned(),
            chunk: of.to_owned(),
            user_agent: user_agent.to_owned(),
            date: Timestamp::now(),
        };
        let folder = folder.to_owned();
        let open = tokio::task::spawn_blocking(move || -> io::Result<Open> {
            // The store sweeps files of this name that a killed crawler left behind.
            let file = tempfile::Builder::new().prefix(".part-").tempfile_in(folder)?;
            let writer = Writer::new(file.as_file().try_clone()?, info)?;
            Ok(Open { writer: Some(writer), file: Some(file) })
        });
        Ok(Self { name, open: Arc::new(Mutex::new(open.await??)) })
    }

    /// Adds a response. It compresses and writes: not for the threads of the runtime.
    pub fn record(&self, fetched: &Fetched) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut open.writer {
            Some(writer) => writer.exchange(fetched),
            None => Err(io::Error::other("the file has ended")),
        }
    }

    /// Ends the file and publishes it.
    pub async fn publish(self, store: &Store) -> Result<Artifact, Error> {
        let open = self.open;
        let ended = tokio::task::spawn_blocking(move || -> io::Result<Option<NamedTempFile>> {
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(writer) = open.writer.take() {
                writer.finish()?;
            }
            Ok(open.file.take())
        });
        let file = ended.await??.ok_or_else(|| io::Error::other("the file has ended"))?;
        Ok(store.put(&self.name, file.path()).await?)
    }
}
