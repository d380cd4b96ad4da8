//! A real server on a loopback port, and clients that talk to it byte by byte.

use std::net::SocketAddr;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use wayleave_server::{Port, Server};

use crate::prelude::*;

/// A server that runs until it is stopped.
pub struct Running {
    pub address: SocketAddr,
    pub stop: oneshot::Sender<()>,
    pub ended: JoinHandle<()>,
}

/// Starts a server with these settings on a free port.
pub async fn start(config: Config) -> Running {
    serve(config, services()).await
}

/// Starts a server of these services on a free port.
pub async fn serve(config: Config, services: Services) -> Running {
    let config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..config };
    let server = Server::on(Port::take(config).unwrap(), services).unwrap();
    let address = server.local_addr();
    let (stop, stopped) = oneshot::channel();
    let ended = tokio::spawn(server.run(async { drop(stopped.await) }));
    Running { address, stop, ended }
}

impl Running {
    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends one HTTP/1.1 request on a new connection and reads the response until the server closes.
    pub async fn exchange(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}
