//! The accept loop: HTTP/1.1 and HTTP/2 without TLS, bounded connections, graceful shutdown.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use bytes::{Bytes, BytesMut};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::bounds::Bounds;
use crate::budget::Budget;
use crate::coalescing_stream::CoalescingStream;
use crate::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::repeated::Repeated;
use crate::waits::{Caller, Waits};

/// The HTTP/2 flow-control window of a stream: batches of URLs are large.
const STREAM_WINDOW: u32 = 1 << 20;
/// The HTTP/2 flow-control window of a connection.
const CONNECTION_WINDOW: u32 = 4 << 20;
/// The number of connections that get such windows; further ones get the protocol's default, because all windows may be
/// full at once.
const ROOMY_CONNECTIONS: i64 = 32;
const SMALL_WINDOW: u32 = (64 << 10) - 1;
/// The limit of request headers, and of an HTTP/1 connection's read and write buffers.
const BUFFER_BYTES: usize = 64 << 10;
/// The HTTP/2 connection preface.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The HTTP/2 keep-alive interval. A live peer answers the ping, so idle streams stay open.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The keep-alive timeout.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The first byte of every TLS connection; no HTTP request begins with it.
const TLS_HELLO: u8 = 0x16;
/// The back-off after failed accepts, from the first to the longest: without file descriptors, retrying at once only
/// burns CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What the connections of a port share with each other and with its handlers. A clone counts references.
#[derive(Clone)]
pub struct Shared {
    /// The memory budget of all connections.
    pub budget: Arc<Budget>,
    /// The calls that wait.
    pub waits: Arc<Waits>,
    /// Rate limits repeated log lines.
    pub repeated: Arc<Repeated>,
    /// The number of open connections.
    pub open: Arc<AtomicI64>,
    /// Cancelled when serving ends: calls that wait answer with what they have.
    pub stopping: CancellationToken,
}

impl Shared {
    /// With a memory budget of this size.
    #[must_use]
    pub fn new(held_bytes_max: usize) -> Self {
        let budget = Arc::new(Budget::new(held_bytes_max));
        let (waits, stopping) = (Arc::new(Waits::new(&budget, usize::MAX)), CancellationToken::new());
        Self { budget, waits, repeated: Arc::default(), open: Arc::default(), stopping }
    }
}

/// The address that a request comes from, of the client or of a proxy; an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// Serves until `shutdown`; then accepts no more connections, ends long polls, lets requests finish, and closes the
/// rest after the grace period.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    shared: Shared,
    shutdown: impl Future<Output = ()>,
) {
    let builders = [CONNECTION_WINDOW, SMALL_WINDOW].map(|window| Arc::new(connection_builder(&bounds, window)));
    let [roomy, tight] = builders;
    let limit = ConnectionLimit::new(bounds.connections_max, shared.waits.clone(), shared.stopping.clone());
    let limit = Arc::new(limit);
    let logged_tls = Arc::<AtomicBool>::default();
    let mut connections = JoinSet::new();
    // Accepted, but still without a slot.
    let mut accepted = None;
    tokio::pin!(shutdown);
    loop {
        let permit = tokio::select! {
            biased;
            () = &mut shutdown => break,
            // Reap ended tasks, or the set would grow with every connection.
            Some(_) = connections.join_next() => continue,
            stream = accept(&listener, &shared.repeated), if accepted.is_none() => {
                accepted = Some(stream);
                continue;
            }
            permit = admit(&limit, &shared.repeated), if accepted.is_some() => permit,
        };
        let Some(stream) = accepted.take() else { continue };
        let few = shared.open.load(Ordering::Relaxed) < ROOMY_CONNECTIONS;
        let builder = if few { roomy.clone() } else { tight.clone() };
        let (router, shared, bounds) = (router.clone(), shared.clone(), bounds.clone());
        let serving = Connection { builder, router, shared, bounds, permit, logged_tls: logged_tls.clone() };
        connections.spawn(serving.run(stream));
    }
    drop(listener);
    shared.stopping.cancel();
    tracing::info!(connections.open = connections.len(), grace.ms = bounds.grace.as_millis(), "stopping");
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(bounds.grace, ended).await.is_err() {
        tracing::warn!(connections.cut = connections.len(), "closed connections that did not finish in time");
    }
    connections.shutdown().await;
}

fn connection_builder(bounds: &Bounds, window: u32) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_timeout)
        .keep_alive(true)
        .max_buf_size(BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW.min(window))
        .initial_connection_window_size(window)
        .max_concurrent_streams(bounds.streams_max)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Accepts the next connection. Cancel-safe.
async fn accept(listener: &TcpListener, repeated: &Repeated) -> TcpStream {
    let mut pause = ACCEPT_PAUSE;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(cause) => {
                if let Some(left_out) = repeated.due(&format!("accept: {cause}"), Instant::now()) {
                    tracing::warn!(error = %cause, log.left_out = left_out, "cannot accept a connection");
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
            }
        }
    }
}

/// Waits for a permit for an accepted connection. Meanwhile further ones wait in the kernel's accept queue instead of our
/// memory, and use none of the file descriptors that the store needs.
async fn admit(limit: &Arc<ConnectionLimit>, repeated: &Repeated) -> ConnectionPermit {
    if let Some(permit) = limit.free() {
        return permit;
    }
    if let Some(left_out) = repeated.due("connections", Instant::now()) {
        let text = "all connections are taken; idle ones end for new ones, then those whose requests all wait: a higher limit \
                    of file descriptors (ulimit -n, LimitNOFILE) may allow more";
        tracing::warn!(log.left_out = left_out, "{text}");
    }
    limit.wait().await
}

struct Connection {
    builder: Arc<auto::Builder<TokioExecutor>>,
    router: Router,
    shared: Shared,
    bounds: Bounds,
    permit: ConnectionPermit,
    /// Whether TLS clients were already logged.
    logged_tls: Arc<AtomicBool>,
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        let responses = Arc::clone(&self.permit.responses);
        tokio::select! {
            () = self.serve(stream) => {}
            () = self.permit.needed.cancelled() => tracing::debug!("evicted an idle connection for a new one"),
            () = self.overstays() => tracing::debug!("closed a connection that ignored a graceful shutdown"),
            () = responses.stalled(self.bounds.answer_timeout) => {
                if let Some(left_out) = self.shared.repeated.due("unread", Instant::now()) {
                    tracing::warn!(log.left_out = left_out, "closed a connection whose client does not read its responses");
                }
            }
        }
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
        drop(self.permit);
    }

    /// Resolves when the connection should have ended some time ago.
    async fn overstays(&self) {
        self.permit.leave.cancelled().await;
        tokio::time::sleep(self.bounds.grace).await;
        if self.shared.stopping.is_cancelled() {
            // Then the accept loop closes what is left.
            std::future::pending::<()>().await;
        }
    }

    async fn serve(&self, mut stream: TcpStream) {
        if let Err(cause) = stream.set_nodelay(true) {
            tracing::debug!(error = %cause, "cannot set TCP_NODELAY");
        }
        // The protocol is unknown until the first bytes, so no protocol's timeout applies yet.
        let spoke = tokio::select! {
            () = self.permit.leave.cancelled() => return,
            spoke = tokio::time::timeout(self.bounds.head_timeout, first_bytes(&mut stream)) => spoke,
        };
        let Ok(Ok(ahead)) = spoke else { return };
        if ahead.first() == Some(&TLS_HELLO) {
            // A TLS client cannot read a cleartext response: closing the connection is all that it understands.
            if !self.logged_tls.swap(true, Ordering::Relaxed) {
                let client = stream.peer_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string());
                let text = "a client speaks TLS to this port, which has none: let it use http://, or put a proxy that ends TLS \
                            before it; logged once";
                tracing::warn!(client.address = client, "{text}");
            }
            return;
        }
        let router = self.router.clone();
        let (responses, budget) = (Arc::clone(&self.permit.responses), Arc::clone(&self.shared.budget));
        let client = stream.peer_addr().ok().map(|address| ClientAddress(address.ip().to_canonical()));
        let address = client.map_or(Ipv4Addr::UNSPECIFIED.into(), |client| client.0);
        let ConnectionPermit { number, leave, .. } = &self.permit;
        let caller = Caller { address, connection: *number, busy: Arc::clone(&responses.busy), leave: leave.clone() };
        let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
            let router = router.clone();
            request.extensions_mut().insert(responses.begin(&budget));
            request.extensions_mut().insert(caller.clone());
            client.map(|client| request.extensions_mut().insert(client));
            async move { Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|never| match never {})) }
        });
        let stream = CoalescingStream::new(stream, ahead);
        let mut connection = pin!(self.builder.serve_connection(TokioIo::new(stream.clone()), service));
        let serving = async {
            tokio::select! {
                // First, so that the responses to hurried calls say that the connection closes.
                biased;
                () = leave.cancelled() => {}
                ended = connection.as_mut() => return ended,
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        };
        if let Err(cause) = stream.run(serving).await {
            tracing::debug!(error = %cause, "connection ended early");
        }
    }
}

/// Reads until the protocol is certain. EOF is an error.
async fn first_bytes(stream: &mut TcpStream) -> std::io::Result<Bytes> {
    let mut ahead = BytesMut::with_capacity(PREFACE.len());
    loop {
        if stream.read_buf(&mut ahead).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if ahead.len() >= PREFACE.len() || !PREFACE.starts_with(&ahead) {
            return Ok(ahead.freeze());
        }
    }
}
