//! Ports for servers that are restarted, or that are named before they listen.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// Below what the system gives to outgoing connections.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// A port that stays this process's own until it ends, even without a listener. A port that was only free a moment
/// ago may be the source port of another connection by the time it is used.
#[must_use]
pub fn free_port() -> u16 {
    // Each is claimed by a socket in the abstract namespace, which is gone with its process.
    static CLAIMED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let claim = |port: &u16| {
        let name = SocketAddr::from_abstract_name(format!("wayleave-test-port-{port}")).ok()?;
        let claimed = UnixListener::bind_addr(&name).ok()?;
        TcpListener::bind(("127.0.0.1", *port)).is_ok().then_some(claimed)
    };
    // Processes begin at different ones, so that they seldom try those of others.
    let first = std::process::id().wrapping_mul(101) % u32::from(PORTS.end - PORTS.start);
    let mut ports = PORTS.cycle().skip(first as usize).take(PORTS.len());
    let (port, claimed) = ports.find_map(|port| claim(&port).map(|claimed| (port, claimed))).expect("a free port");
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).push(claimed);
    port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_handed_out_twice() {
        let (one, other) = (free_port(), free_port());
        assert!(PORTS.contains(&one) && PORTS.contains(&other) && one != other, "{one}, {other}");
    }
}
