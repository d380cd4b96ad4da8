//! What a server knows of the store beneath the frontier: how it is, and how to copy it. Whoever starts the server says so;
//! the server itself reaches no engine.

use std::io::{Error, ErrorKind, Result, Write};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use wayleave_api::Problem;

/// How a store is, by its own account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It takes reads and writes.
    Ok,
    /// It cannot take writes now, for this reason, and goes on by itself once the cause is gone.
    Degraded(String),
    /// It will not go on, for this reason: the process must be started again.
    Failed(String),
}

impl Health {
    /// Why not all requests can be served, if they cannot.
    #[must_use]
    pub fn trouble(self) -> Option<String> {
        match self {
            Self::Ok => None,
            Self::Degraded(reason) | Self::Failed(reason) => Some(reason),
        }
    }
}

/// Writes a snapshot, on a thread that may block.
pub type WriteSnapshot = Box<dyn FnOnce(&mut dyn Write) -> Result<()> + Send>;

/// A store as a server sees it from outside.
pub trait Store: Send + Sync {
    /// What it is, in a few words for people.
    fn kind(&self) -> &'static str;

    /// How it is. Asked often: it must answer at once.
    fn health(&self) -> Health;

    /// Takes a snapshot, and returns what writes it; or the problem to answer with, if there can be none.
    fn snapshot(&self) -> BoxFuture<'static, std::result::Result<WriteSnapshot, Problem>>;
}

/// Bytes of one piece of a body.
const PIECE_BYTES: usize = 64 << 10;
/// A reader that takes nothing for this long is given up: a snapshot keeps old tables on the disk.
const STALL_MAX: Duration = Duration::from_secs(60);

/// Writes into the body of an answer, piece by piece, as fast as the other side reads.
pub(crate) struct BodyWriter {
    pieces: mpsc::Sender<Bytes>,
    runtime: tokio::runtime::Handle,
    piece: Vec<u8>,
}

impl BodyWriter {
    /// A writer whose pieces go to a channel, from a thread that may block.
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
        let sent = async { tokio::time::timeout(STALL_MAX, self.pieces.send(piece.into())).await };
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Error::new(ErrorKind::BrokenPipe, "the reader went away")),
            Err(_) => Err(Error::new(ErrorKind::TimedOut, "the reader takes nothing any more")),
        }
    }
}
