//! One port: bound before anything is created, then served with everything that the server offers.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket};
use wayleave_listen::Shared;

use crate::config::{BadConfig, Config};
use crate::http::{self, App};
use crate::{Metrics, Services};

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
    /// Validates the configuration and binds the address. Fails if the configuration is invalid or the address cannot
    /// be bound.
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

    /// Serves until `shutdown`; then accepts no more connections, answers calls that wait, lets requests finish, and closes the
    /// rest after the grace period.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { listener, address, config, app } = self;
        tracing::info!(listen.address = %address, "listening");
        let shared = Shared {
            budget: Arc::clone(&app.budget),
            waits: Arc::clone(&app.waits),
            repeated: Arc::clone(&app.repeated),
            open: Arc::clone(&app.metrics.connections),
            stopping: app.stopping.clone(),
        };
        wayleave_listen::serve(listener, http::router(&app), config.bounds, shared, shutdown).await;
    }
}
