//! The store below the frontier, as the server sees it: its health, and how to copy it. The starter of the server
//! provides it; the server itself accesses no engine.

use std::io::{Error, ErrorKind, Result, Write};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use wayleave_api::Problem;
use wayleave_core::limits::BACKUP_STALL_MAX;

/// The health of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It accepts reads and writes.
    Ok,
    /// It accepts reads and writes, but something in it is damaged or stands still: an operator should look.
    Impaired(String),
    /// It cannot accept writes at present, for this reason, and recovers by itself once the cause is gone.
    Degraded(String),
    /// It has failed, for this reason: the process must be restarted.
    Failed(String),
}

impl Health {
    /// Why not all requests can be served, if they cannot.
    #[must_use]
    pub fn trouble(self) -> Option<String> {
        match self {
            Self::Ok | Self::Impaired(_) => None,
            Self::Degraded(reason) | Self::Failed(reason) => Some(reason),
        }
    }

    /// What an operator should look at although all requests are served.
    #[must_use]
    pub fn warning(self) -> Option<String> {
        if let Self::Impaired(reason) = self { Some(reason) } else { None }
    }
}

/// Writes a snapshot, on a thread that may block.
pub type WriteSnapshot = Box<dyn FnOnce(&mut dyn Write) -> Result<()> + Send>;

/// A store as a server sees it.
pub trait Store: Send + Sync {
    /// The kind of store, for people.
    fn kind(&self) -> &'static str;

    /// Its health. Called often, so it must not block.
    fn health(&self) -> Health;

    /// Numbers about it for the metrics: name, help, value. Must not block.
    fn gauges(&self) -> Vec<(&'static str, &'static str, u64)> {
        Vec::new()
    }

    /// Takes a snapshot, and returns the function that writes it; or the problem to answer with. If it is `partial`, what
    /// cannot be read is left out and named in the file; otherwise the file ends with the reason.
    fn snapshot(&self, partial: bool) -> BoxFuture<'static, std::result::Result<WriteSnapshot, Problem>>;
}

/// The chunk size of a body.
const PIECE_BYTES: usize = 64 << 10;

/// Writes into a response body, chunk by chunk, with back-pressure from the client.
pub(crate) struct BodyWriter {
    pieces: mpsc::Sender<Bytes>,
    runtime: tokio::runtime::Handle,
    piece: Vec<u8>,
}

impl BodyWriter {
    /// A writer whose chunks go to a channel, from a thread that may block.
    pub(crate) fn new(pieces: mpsc::Sender<Bytes>, runtime: tokio::runtime::Handle) -> Self {
        Self { pieces, runtime, piece: Vec::with_capacity(PIECE_BYTES) }
    }
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let sent = async {
            tokio::time::timeout(Duration::from_millis(BACKUP_STALL_MAX.0), self.pieces.send(piece.into())).await
        };
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Error::new(ErrorKind::BrokenPipe, "the reader went away")),
            Err(_) => Err(Error::new(ErrorKind::TimedOut, "the reader stopped reading")),
        }
    }
}
