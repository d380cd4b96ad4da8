//! The accept loop: one port, HTTP/1.1 and HTTP/2 without TLS, bounded connections, a stop that lets requests finish.

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
use wayleave_roles::Roles;
use wayleave_shard::Frontier;

use crate::coalescing_stream::CoalescingStream;
use crate::config::{BadConfig, Config};
use crate::connection_slots::{ConnectionSlots, Place};
use crate::http::{self, App};
use crate::repeated::Repeated;
use crate::{Metrics, Peers, Store};

/// Bytes that a peer may send on one stream before it must wait: batches of URLs are large.
const STREAM_WINDOW: u32 = 1 << 20;
/// The same for all streams of a connection together.
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Connections that get such windows; further ones get the protocol's own, for all of them may be full at once.
const ROOMY_CONNECTIONS: i64 = 32;
const SMALL_WINDOW: u32 = (64 << 10) - 1;
/// Bytes of a head, and of what one HTTP/1 connection reads or writes ahead.
const BUFFER_BYTES: usize = 64 << 10;
/// How every HTTP/2 connection begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How often a silent HTTP/2 peer is asked whether it is still there. A live one answers, so idle streams stay open.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long it may take to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The first byte of every TLS connection; no HTTP request begins with it.
const TLS_HELLO: u8 = 0x16;
/// Pauses after failed accepts, from the first to the longest: out of file descriptors, asking again at once only burns the
/// processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Why the server could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The settings cannot be used.
    #[error(transparent)]
    Config(#[from] BadConfig),
    /// The address cannot be had.
    #[error("cannot listen on {address}: {cause}; {}", remedy(cause))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        cause: std::io::Error,
    },
}

/// What to do when an address cannot be had.
fn remedy(cause: &std::io::Error) -> &'static str {
    match cause.kind() {
        ErrorKind::AddrInUse => {
            "is another server running there? stop it, or give this one an address of its own with --listen (port 0 takes a \
             free port)"
        }
        ErrorKind::AddrNotAvailable => "this machine has no such address: give it one that it has with --listen",
        ErrorKind::PermissionDenied => "the system does not allow it: choose a port from 1024 on with --listen",
        _ => "give it another address with --listen",
    }
}

/// An address that nobody else can take any more, but on which nobody is heard yet. Whoever makes things on disk before it
/// can answer takes the address first, so that nothing is left behind where there is none.
pub struct Port {
    socket: TcpSocket,
    config: Config,
}

impl Port {
    /// Checks the settings and takes the address.
    ///
    /// # Errors
    /// If the settings cannot be used or the address cannot be had.
    pub fn take(config: Config) -> Result<Self, BindError> {
        config.validate()?;
        let socket = bound(config.listen).map_err(|cause| BindError::Listen { address: config.listen, cause })?;
        Ok(Self { socket, config })
    }
}

fn bound(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A server that comes back must not wait for the connections of the one before it.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// A server that has its port and waits to be run.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    config: Config,
    app: App,
}

impl Server {
    /// Opens a port that was taken.
    ///
    /// # Errors
    /// If the address cannot be had after all.
    pub fn on(port: Port, frontier: Frontier, roles: Roles, peers: Option<Peers>) -> Result<Self, BindError> {
        let Port { socket, mut config } = port;
        let failed = |cause| BindError::Listen { address: config.listen, cause };
        let listener = socket.listen(BACKLOG).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // The real port from here on, where 0 was asked for: it is what others are told.
        config.listen = address;
        let app = App::new(config.clone(), frontier, roles, peers);
        Ok(Self { listener, address, config, app })
    }

    /// The same server, told of the store beneath its frontier.
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn Store>) -> Self {
        self.app.store = Some(store);
        self
    }

    /// The address that it listens on; the real port, where 0 was asked for.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The numbers that it keeps.
    #[must_use]
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.app.metrics
    }

    /// Serves until `shutdown`; then takes no more connections, ends long polls, lets requests finish, and after the
    /// grace time cuts what is left.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { listener, address, config, app } = self;
        let router = http::router(&app);
        let builders = [CONNECTION_WINDOW, SMALL_WINDOW].map(|window| Arc::new(connection_builder(&config, window)));
        let [roomy, tight] = builders;
        let places = Arc::new(ConnectionSlots::new(config.connections_max));
        let graceful = GracefulShutdown::new();
        let told_tls = Arc::<AtomicBool>::default();
        let mut connections = JoinSet::new();
        // Accepted, and without a place yet.
        let mut accepted = None;
        tokio::pin!(shutdown);
        tracing::info!(listen.address = %address, "listening");
        loop {
            let place = tokio::select! {
                biased;
                () = &mut shutdown => break,
                // Ended tasks are collected, else the set would grow with every connection ever made.
                Some(_) = connections.join_next() => continue,
                stream = accept(&listener, &app.repeated), if accepted.is_none() => {
                    accepted = Some(stream);
                    continue;
                }
                place = place(&places, &app.repeated), if accepted.is_some() => place,
            };
            let Some(stream) = accepted.take() else { continue };
            let few = app.metrics.connections.load(Ordering::Relaxed) < ROOMY_CONNECTIONS;
            let builder = if few { roomy.clone() } else { tight.clone() };
            let (router, app) = (router.clone(), app.clone());
            let serving = Connection { builder, router, app, place, told_tls: told_tls.clone() };
            connections.spawn(serving.run(stream, graceful.watcher()));
        }
        drop(listener);
        app.stopping.cancel();
        tracing::info!(connections.open = connections.len(), grace.ms = config.grace.as_millis(), "stopping");
        if tokio::time::timeout(config.grace, graceful.shutdown()).await.is_err() {
            tracing::warn!(connections.cut = connections.len(), "cut connections that did not finish in time");
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

/// The next connection. Dropped half-way it has accepted none.
async fn accept(listener: &TcpListener, repeated: &Repeated) -> TcpStream {
    let mut pause = ACCEPT_PAUSE;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(cause) => {
                if let Some(left_out) = repeated.due(&format!("accept: {cause}"), Instant::now()) {
                    tracing::warn!(error = %cause, log.left_out = left_out, "a connection cannot be accepted");
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
            }
        }
    }
}

/// A place for a connection that was accepted. Further ones meanwhile wait in the system's queue instead of our memory, and
/// take none of the file descriptors that the store needs.
async fn place(places: &Arc<ConnectionSlots>, repeated: &Repeated) -> Place {
    if let Some(place) = places.free() {
        return place;
    }
    if let Some(left_out) = repeated.due("connections", Instant::now()) {
        let text = "all connections are taken; those without a request end for new ones, which wait while there are none: a \
                    higher limit of file descriptors (ulimit -n, LimitNOFILE) may allow more";
        tracing::warn!(log.left_out = left_out, "{text}");
    }
    places.wait().await
}

struct Connection {
    builder: Arc<auto::Builder<TokioExecutor>>,
    router: Router,
    app: App,
    place: Place,
    /// Whether somebody was told of clients that speak TLS.
    told_tls: Arc<AtomicBool>,
}

impl Connection {
    async fn run(self, stream: TcpStream, watcher: Watcher) {
        self.app.metrics.connections.fetch_add(1, Ordering::Relaxed);
        let answers = Arc::clone(&self.place.answers);
        tokio::select! {
            () = self.serve(stream, watcher) => {}
            () = self.place.needed.cancelled() => tracing::debug!("an idle connection made room for a new one"),
            () = answers.stalled(self.app.config.answer_timeout) => {
                if let Some(left_out) = self.app.repeated.due("unread", Instant::now()) {
                    tracing::warn!(log.left_out = left_out, "closed a connection whose client does not read its answers");
                }
            }
        }
        self.app.metrics.connections.fetch_sub(1, Ordering::Relaxed);
        drop(self.place);
    }

    async fn serve(&self, mut stream: TcpStream, watcher: Watcher) {
        if let Err(cause) = stream.set_nodelay(true) {
            tracing::debug!(error = %cause, "cannot set TCP_NODELAY");
        }
        // Until the first bytes nobody knows which protocol it will be, so no protocol's timeout runs yet.
        let spoke = tokio::select! {
            () = self.app.stopping.cancelled() => return,
            spoke = tokio::time::timeout(self.app.config.head_timeout, first_bytes(&mut stream)) => spoke,
        };
        let Ok(Ok(ahead)) = spoke else { return };
        if ahead.first() == Some(&TLS_HELLO) {
            // Whoever speaks TLS cannot read what this port would say: an end without a word is all that it understands.
            if !self.told_tls.swap(true, Ordering::Relaxed) {
                let client = stream.peer_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string());
                let text = "a client speaks TLS to this port, which has none: let it use http://, or put a proxy that ends TLS \
                            before it; told once";
                tracing::warn!(client.address = client, "{text}");
            }
            return;
        }
        let router = self.router.clone();
        let (answers, budget) = (Arc::clone(&self.place.answers), Arc::clone(&self.app.budget));
        let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
            let router = router.clone();
            request.extensions_mut().insert(answers.begin(&budget));
            async move { Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|never| match never {})) }
        });
        let stream = CoalescingStream::new(stream, ahead);
        let connection = self.builder.serve_connection(TokioIo::new(stream.clone()), service);
        if let Err(cause) = stream.run(watcher.watch(connection)).await {
            tracing::debug!(error = %cause, "connection ended early");
        }
    }
}

/// Reads until it is certain whether HTTP/2 is spoken. The end of the connection is an error.
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
