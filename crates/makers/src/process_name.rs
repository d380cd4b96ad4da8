//! A name that one process of this machine has at a time: an abstract socket on which it listens. The kernel takes it back
//! when the process ends, however it does. Names are those of one network namespace.
//!
//! Any local user can take such a name, so whoever has it is asked for its user, which the kernel tells.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use rustix::process::geteuid;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long it may take to be told who has a name.
const PEER_TIME: Duration = Duration::from_secs(2);

/// Who has a name.
#[derive(Debug)]
pub enum ProcessName {
    /// This process, until the listener is dropped; see [`answer`].
    Ours(UnixListener),
    /// Another process of the same user, as far as can be told, and its id.
    Taken(Option<i32>),
    /// A process of another user.
    OtherUser(u32),
}

/// Takes a name, or tells who has it.
///
/// # Errors
/// If the system refuses the name.
pub async fn take(name: &str) -> io::Result<ProcessName> {
    let address = SocketAddr::from_abstract_name(name)?;
    match UnixListener::bind_addr(&address) {
        Ok(listener) => {
            listener.set_nonblocking(true)?;
            Ok(ProcessName::Ours(listener))
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(match holder(name).await {
            Some((user, _)) if user != geteuid().as_raw() => ProcessName::OtherUser(user),
            holder => ProcessName::Taken(holder.and_then(|(_, process)| process)),
        }),
        Err(error) => Err(error),
    }
}

/// Takes and closes connections: those who wait are few, and one more could not ask who has the name. Returns how many there
/// were.
pub fn answer(listener: &UnixListener) -> usize {
    std::iter::from_fn(|| listener.accept().ok()).count()
}

/// The user and the process that listen on a name; `None` if that cannot be told, which must be taken for the same user.
pub(crate) async fn holder(name: &str) -> Option<(u32, Option<i32>)> {
    let stream = timeout(PEER_TIME, UnixStream::connect(format!("\0{name}"))).await.ok()?.ok()?;
    let peer = stream.peer_cred().ok()?;
    Some((peer.uid(), peer.pid()))
}
