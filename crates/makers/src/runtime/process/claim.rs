//! One server at a time uses a state folder, or a copy of it.
//!
//! A lock on a file of the folder keeps a second server out of the same folder. A copy has a file of its own, and records
//! that name the same processes: a second server there would adopt, and end, what the first one has started. So the folder
//! has a random id, which a copy repeats, and the server that uses the folder listens on an abstract socket of that name.
//! The kernel gives such a name to one process at a time, in one network namespace, and takes it back when the process
//! ends, however it does.
//!
//! | interleaving | what keeps it right |
//! |---|---|
//! | two servers open the same folder, which has no id yet | the lock is taken first |
//! | a server dies after it has written the id, before it is durable | nothing is started before the id is durable |
//! | a copy is opened while the first server restarts | one of them has the name, and the other starts no processes |
//! | a copy is used on another machine, or after a restart of this one | records of another boot are of processes that ended |

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use super::random_mark;
use crate::runtime::Failure;

const LOCK_FILE: &str = "lock";
const ID_FILE: &str = "id";

/// A state folder that is in use, until this is dropped.
#[derive(Debug)]
pub struct Claim {
    _lock: File,
    _name: UnixListener,
}

impl Claim {
    /// Claims a folder that exists.
    pub fn take(state: &Path) -> Result<Self, Failure> {
        let shown = state.display();
        let unusable = |error: io::Error| Failure::new(format!("the state folder {shown} cannot be used: {error}"));
        let lock = File::create(state.join(LOCK_FILE)).map_err(unusable)?;
        if lock.try_lock().is_err() {
            let remedy = "stop it, or give this one another folder";
            return Err(Failure::new(format!("another server uses the state folder {shown}: {remedy}")));
        }
        let id = match fs::read_to_string(state.join(ID_FILE)) {
            Ok(id) => id,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let id = random_mark()?;
                write(state, &id).map_err(unusable)?;
                id
            }
            Err(error) => return Err(unusable(error)),
        };
        let name = SocketAddr::from_abstract_name(format!("wayleave-makers-{}", id.trim())).map_err(unusable)?;
        let name = UnixListener::bind_addr(&name).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Failure::new(format!(
                "the state folder {shown} is a copy of one that another server of this machine uses, and whose workers \
                 belong to that server: stop it, or remove the copy"
            )),
            _ => unusable(error),
        })?;
        Ok(Self { _lock: lock, _name: name })
    }
}

/// Durable before the first worker is started.
fn write(state: &Path, id: &str) -> io::Result<()> {
    let new = state.join("id.new");
    let mut file = File::create(&new)?;
    file.write_all(id.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, state.join(ID_FILE))?;
    File::open(state)?.sync_all()
}
