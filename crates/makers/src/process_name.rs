//! A name that one process of this machine has at a time: an abstract socket on which it listens. The kernel releases
//! it when the process ends, in whatever way. Names are those of one network namespace.
//!
//! Any local user can take such a name, so the kernel is asked for the user of its holder.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream as StdStream};
use std::time::Duration;

use rustix::process::geteuid;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long it may take to learn who has a name.
const PEER_TIME: Duration = Duration::from_secs(2);

/// Who has a name.
#[derive(Debug)]
pub enum ProcessName {
    /// This process, until the listener is dropped; see [`answer`].
    Ours(UnixListener),
    /// Another process of the same user, as far as is known, and its id.
    Taken(Option<i32>),
    /// A process of another user.
    OtherUser(Peer),
}

/// A process at the other end of a connection, according to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub user: u32,
    /// Its id, if it is in a namespace that is seen from here.
    pub process: Option<i32>,
}

impl Peer {
    fn of(stream: &UnixStream) -> Option<Self> {
        let peer = stream.peer_cred().ok()?;
        Some(Self { user: peer.uid(), process: peer.pid() })
    }
}

/// Takes a name, or returns its holder.
pub async fn take(name: &str) -> io::Result<ProcessName> {
    let address = SocketAddr::from_abstract_name(name)?;
    match UnixListener::bind_addr(&address) {
        Ok(listener) => {
            listener.set_nonblocking(true)?;
            Ok(ProcessName::Ours(listener))
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(match holder(name).await {
            Some(peer) if peer.user != geteuid().as_raw() => ProcessName::OtherUser(peer),
            holder => ProcessName::Taken(holder.and_then(|peer| peer.process)),
        }),
        Err(error) => Err(error),
    }
}

/// Takes and closes connections: the backlog is small, and a full one would keep others from asking who has the name.
/// Returns who asked, as far as the kernel knows. Must be called within tokio.
pub fn answer(listener: &UnixListener) -> Vec<Peer> {
    std::iter::from_fn(|| listener.accept().ok()).filter_map(|(stream, _)| peer(stream)).collect()
}

fn peer(stream: StdStream) -> Option<Peer> {
    stream.set_nonblocking(true).ok()?;
    Peer::of(&UnixStream::from_std(stream).ok()?)
}

/// The user and the process that listen on a name; `None` if that is unknown, which must be taken for the same user.
pub(crate) async fn holder(name: &str) -> Option<Peer> {
    Peer::of(&timeout(PEER_TIME, UnixStream::connect(format!("\0{name}"))).await.ok()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_holder_of_a_name_and_its_challenger_learn_who_the_other_is() {
        let name = format!("wayleave-test-{}", std::process::id());
        let Ok(ProcessName::Ours(listener)) = take(&name).await else { panic!("it is free") };
        assert_eq!(answer(&listener), []);
        let me = Peer { user: geteuid().as_raw(), process: i32::try_from(std::process::id()).ok() };
        assert!(matches!(take(&name).await, Ok(ProcessName::Taken(process)) if process == me.process));
        assert_eq!(answer(&listener), [me]);
    }
}
