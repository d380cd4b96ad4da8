//! A connection whose output is gathered: all that one turn of it writes leaves in one piece at the turn's end. An answer to
//! a call is three frames, and HTTP/2 would give each of them to the network by itself, which costs more than the answer;
//! its reader would wake up for each as well.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, Result};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes that are gathered at most; whoever has more to say waits for the network.
const OUT_BYTES_MAX: usize = 64 << 10;
/// Room that a connection keeps when it has nothing to say.
const OUT_BYTES_KEPT: usize = 16 << 10;

/// A connection. Its clones are the same one.
#[derive(Clone)]
pub(crate) struct CoalescingStream(Arc<Mutex<Both>>);

struct Both {
    stream: TcpStream,
    /// What was read before anybody knew which protocol it is.
    ahead: Bytes,
    /// What is to be sent.
    out: Vec<u8>,
}

impl CoalescingStream {
    /// A connection of which these bytes were read already.
    pub(crate) fn new(stream: TcpStream, ahead: Bytes) -> Self {
        Self(Arc::new(Mutex::new(Both { stream, ahead, out: Vec::new() })))
    }

    /// Runs what reads and writes this connection, and sends at the end of its every turn what it has written.
    pub(crate) async fn run<F: Future>(self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let done = work.as_mut().poll(cx);
            // An error is told to whoever writes next, or reads: the connection is no more.
            _ = self.lock().poll_send(cx);
            done
        })
        .await
    }

    /// Only one task has to do with a connection: nobody ever waits for this.
    fn lock(&self) -> MutexGuard<'_, Both> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Both {
    /// Sends all that was gathered.
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

    /// Makes room for more, or sends what is too much to be gathered.
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

    /// Nothing: that is what the end of the turn is for.
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
    async fn whoever_says_more_than_is_gathered_waits_for_its_reader_and_loses_nothing() {
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
    async fn a_reader_that_is_gone_is_told_to_whoever_writes() {
        let (here, there) = pair().await;
        let mut writer = here.clone();
        drop(there);
        let work = async {
            let piece = vec![0; OUT_BYTES_MAX];
            // The first pieces may still find room in the network.
            while writer.write_all(&piece).await.is_ok() {}
        };
        here.run(work).await;
    }
}
