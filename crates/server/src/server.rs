//! The accept loop: one port, HTTP/1.1 and HTTP/2 without TLS, bounded connections, graceful shutdown.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use bytes::{Bytes, BytesMut};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::coalescing_stream::CoalescingStream;
use crate::config::{BadConfig, Config};
use crate::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::http::{self, App, ClientAddress};
use crate::repeated::Repeated;
use crate::{Metrics, Services};

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

/// The length of the accept queue.
const BACKLOG: u32 = 1024;

/// Why the server could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] BadConfig),
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {cause}; {}", remedy(cause))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        #[source]
        cause: std::io::Error,
    },
}

/// What to do when an address cannot be bound.
fn remedy(cause: &std::io::Error) -> &'static str {
    match cause.kind() {
        ErrorKind::AddrInUse => {
            "is another server running there? stop it, or give this one an address of its own with --listen (port 0 takes a \
             free port)"
        }
        ErrorKind::AddrNotAvailable => "this machine has no such address: choose one of its addresses with --listen",
        ErrorKind::PermissionDenied => "the system does not allow it: choose a port from 1024 on with --listen",
        _ => "give it another address with --listen",
    }
}

/// A bound address that does not listen yet. A process that creates files before it can serve binds the address first,
/// so that it leaves nothing behind if the address is taken.
pub struct Port {
    socket: TcpSocket,
    config: Config,
}

impl Port {
    /// Validates the configuration and binds the address.
    ///
    /// # Errors
    /// If the configuration is invalid or the address cannot be bound.
    pub fn take(config: Config) -> Result<Self, BindError> {
        config.validate()?;
        let socket = bound(config.listen).map_err(|cause| BindError::Listen { address: config.listen, cause })?;
        Ok(Self { socket, config })
    }
}

fn bound(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted server must not wait for the connections of its predecessor.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// A server that is bound and ready to run.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    config: Config,
    app: App,
}

impl Server {
    /// Listens on a bound port.
    ///
    /// # Errors
    /// If listening fails.
    pub fn on(port: Port, services: Services) -> Result<Self, BindError> {
        let Port { socket, mut config } = port;
        let failed = |cause| BindError::Listen { address: config.listen, cause };
        let listener = socket.listen(BACKLOG).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // From here on the actual port, if 0 was requested: it is announced to others.
        config.listen = address;
        let app = App::new(config.clone(), services);
        Ok(Self { listener, address, config, app })
    }

    /// The address that it listens on, with the actual port if 0 was requested.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The metrics of the server.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.app.metrics
    }

    /// Serves until `shutdown`; then accepts no more connections, ends long polls, lets requests finish, and closes the
    /// rest after the grace period.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { listener, address, config, app } = self;
        let router = http::router(&app);
        let builders = [CONNECTION_WINDOW, SMALL_WINDOW].map(|window| Arc::new(connection_builder(&config, window)));
        let [roomy, tight] = builders;
        let limit = Arc::new(ConnectionLimit::new(config.connections_max));
        let graceful = GracefulShutdown::new();
        let told_tls = Arc::<AtomicBool>::default();
        let mut connections = JoinSet::new();
        // Accepted, but still without a slot.
        let mut accepted = None;
        tokio::pin!(shutdown);
        tracing::info!(listen.address = %address, "listening");
        loop {
            let permit = tokio::select! {
                biased;
                () = &mut shutdown => break,
                // Reap ended tasks, or the set would grow with every connection.
                Some(_) = connections.join_next() => continue,
                stream = accept(&listener, &app.repeated), if accepted.is_none() => {
                    accepted = Some(stream);
                    continue;
                }
                permit = admit(&limit, &app.repeated), if accepted.is_some() => permit,
            };
            let Some(stream) = accepted.take() else { continue };
            let few = app.metrics.connections.load(Ordering::Relaxed) < ROOMY_CONNECTIONS;
            let builder = if few { roomy.clone() } else { tight.clone() };
            let (router, app) = (router.clone(), app.clone());
            let serving = Connection { builder, router, app, permit, told_tls: told_tls.clone() };
            connections.spawn(serving.run(stream, graceful.watcher()));
        }
        drop(listener);
        app.stopping.cancel();
        tracing::info!(connections.open = connections.len(), grace.ms = config.grace.as_millis(), "stopping");
        if tokio::time::timeout(config.grace, graceful.shutdown()).await.is_err() {
            tracing::warn!(connections.cut = connections.len(), "closed connections that did not finish in time");
        }
        connections.shutdown().await;
    }
}

fn connection_builder(config: &Config, window: u32) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(config.head_timeout)
        .keep_alive(true)
        .max_buf_size(BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW.min(window))
        .initial_connection_window_size(window)
        .max_concurrent_streams(config.streams_max)
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
        let text = "all connections are taken; those without a request end for new ones, which wait while there are none: a \
                    higher limit of file descriptors (ulimit -n, LimitNOFILE) may allow more";
        tracing::warn!(log.left_out = left_out, "{text}");
    }
    limit.wait().await
}

struct Connection {
    builder: Arc<auto::Builder<TokioExecutor>>,
    router: Router,
    app: App,
    permit: ConnectionPermit,
    /// Whether TLS clients were already logged.
    told_tls: Arc<AtomicBool>,
}

impl Connection {
    async fn run(self, stream: TcpStream, watcher: Watcher) {
        self.app.metrics.connections.fetch_add(1, Ordering::Relaxed);
        let responses = Arc::clone(&self.permit.responses);
        tokio::select! {
            () = self.serve(stream, watcher) => {}
            () = self.permit.needed.cancelled() => tracing::debug!("evicted an idle connection for a new one"),
            () = responses.stalled(self.app.config.answer_timeout) => {
                if let Some(left_out) = self.app.repeated.due("unread", Instant::now()) {
                    tracing::warn!(log.left_out = left_out, "closed a connection whose client does not read its responses");
                }
            }
        }
        self.app.metrics.connections.fetch_sub(1, Ordering::Relaxed);
        drop(self.permit);
    }

    async fn serve(&self, mut stream: TcpStream, watcher: Watcher) {
        if let Err(cause) = stream.set_nodelay(true) {
            tracing::debug!(error = %cause, "cannot set TCP_NODELAY");
        }
        // The protocol is unknown until the first bytes, so no protocol's timeout applies yet.
        let spoke = tokio::select! {
            () = self.app.stopping.cancelled() => return,
            spoke = tokio::time::timeout(self.app.config.head_timeout, first_bytes(&mut stream)) => spoke,
        };
        let Ok(Ok(ahead)) = spoke else { return };
        if ahead.first() == Some(&TLS_HELLO) {
            // A TLS client cannot read a cleartext response: closing the connection is all that it understands.
            if !self.told_tls.swap(true, Ordering::Relaxed) {
                let client = stream.peer_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string());
                let text = "a client speaks TLS to this port, which has none: let it use http://, or put a proxy that ends TLS \
                            before it; told once";
                tracing::warn!(client.address = client, "{text}");
            }
            return;
        }
        let router = self.router.clone();
        let (responses, budget) = (Arc::clone(&self.permit.responses), Arc::clone(&self.app.budget));
        let client = stream.peer_addr().ok().map(|address| ClientAddress(address.ip().to_canonical()));
        let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
            let router = router.clone();
            request.extensions_mut().insert(responses.begin(&budget));
            client.map(|client| request.extensions_mut().insert(client));
            async move { Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|never| match never {})) }
        });
        let stream = CoalescingStream::new(stream, ahead);
        let connection = self.builder.serve_connection(TokioIo::new(stream.clone()), service);
        if let Err(cause) = stream.run(watcher.watch(connection)).await {
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
