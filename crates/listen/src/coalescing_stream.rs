//! A write-coalescing connection: everything written during one poll of its task is sent in one `write` at the end of
//! the poll. A gRPC response is three HTTP/2 frames; sending each separately costs more than the response itself, and
//! wakes the client for each.
//!
//! Hand-written because tokio's `BufWriter` passes on every flush, and HTTP/2 flushes after each of these frames.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, Result};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The maximum number of buffered bytes; beyond it writers wait for the network.
const OUT_BYTES_MAX: usize = 64 << 10;
/// The buffer capacity that an idle connection keeps.
const OUT_BYTES_KEPT: usize = 16 << 10;

/// A connection. Clones share it.
#[derive(Clone)]
pub(crate) struct CoalescingStream(Arc<Mutex<Both>>);

struct Both {
    stream: TcpStream,
    /// What was read while detecting the protocol.
    ahead: Bytes,
    /// The output buffer.
    out: Vec<u8>,
}

impl CoalescingStream {
    /// A connection whose first bytes, these, were already read.
    pub(crate) fn new(stream: TcpStream, ahead: Bytes) -> Self {
        Self(Arc::new(Mutex::new(Both { stream, ahead, out: Vec::new() })))
    }

    /// Runs the task that reads and writes this connection, and flushes its output at the end of every poll.
    pub(crate) async fn run<F: Future>(self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let done = work.as_mut().poll(cx);
            // The next read or write reports the error: the connection is closed.
            _ = self.lock().poll_send(cx);
            done
        })
        .await
    }

    /// Only one task uses a connection, so this lock is uncontended.
    fn lock(&self) -> MutexGuard<'_, Both> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Both {
    /// Sends the output buffer.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while !self.out.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.out))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                sent => _ = self.out.drain(..sent),
            }
        }
        self.out.shrink_to(OUT_BYTES_KEPT);
        Poll::Ready(Ok(()))
    }

    /// Makes room in the output buffer, sending it if it is full.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.out.len() < OUT_BYTES_MAX { Poll::Ready(Ok(())) } else { self.poll_send(cx) }
    }

    fn gather(&mut self, bytes: &[u8]) -> usize {
        let room = OUT_BYTES_MAX.saturating_sub(self.out.len());
        let bytes = bytes.get(..room).unwrap_or(bytes);
        self.out.extend_from_slice(bytes);
        bytes.len()
    }
}

impl AsyncRead for CoalescingStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let mut both = self.lock();
        if !both.ahead.is_empty() {
            let most = both.ahead.len().min(buf.remaining());
            buf.put_slice(&both.ahead.split_to(most));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut both.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for CoalescingStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let mut both = self.lock();
        ready!(both.poll_room(cx))?;
        Poll::Ready(Ok(both.gather(bytes)))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, all: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        let mut both = self.lock();
        ready!(both.poll_room(cx))?;
        Poll::Ready(Ok(all.iter().map(|bytes| both.gather(bytes)).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// A no-op: the end of the poll flushes.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut both = self.lock();
        ready!(both.poll_send(cx))?;
        Pin::new(&mut both.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (CoalescingStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (CoalescingStream::new(listener.accept().await.unwrap().0, Bytes::new()), there)
    }

    #[tokio::test]
    async fn what_one_turn_writes_leaves_at_its_end_in_one_piece() {
        let (here, mut there) = pair().await;
        let mut writer = here.clone();
        let work = async {
            for piece in ["head ", "body ", "end"] {
                writer.write_all(piece.as_bytes()).await.unwrap();
                writer.flush().await.unwrap();
            }
            assert_eq!(writer.lock().out, b"head body end", "nothing has left yet");
        };
        here.run(work).await;
        let mut got = [0; 64];
        assert_eq!(there.read(&mut got).await.unwrap(), 13);
        assert_eq!(&got[..13], b"head body end");
    }

    #[tokio::test]
    async fn a_writer_beyond_the_buffer_waits_for_its_reader_and_loses_nothing() {
        let (here, mut there) = pair().await;
        let mut writer = here.clone();
        let all: Vec<u8> = (0..8 << 20).map(|n: u32| (n % 251) as u8).collect();
        let mut got = Vec::new();
        let work = async {
            for piece in all.chunks(10_007) {
                writer.write_all(piece).await.unwrap();
                assert!(writer.lock().out.len() <= OUT_BYTES_MAX);
            }
            writer.shutdown().await.unwrap();
        };
        let (_, read) = tokio::join!(here.run(work), there.read_to_end(&mut got));
        assert_eq!(read.unwrap(), all.len());
        assert!(got == all);
    }

    #[tokio::test]
    async fn a_writer_learns_that_its_reader_is_gone() {
        let (here, there) = pair().await;
        let mut writer = here.clone();
        drop(there);
        let work = async {
            let piece = vec![0; OUT_BYTES_MAX];
            // The first chunks may still fit into the socket buffer.
            while writer.write_all(&piece).await.is_ok() {}
        };
        here.run(work).await;
    }
}
