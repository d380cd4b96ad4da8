//! Ensures that one server at a time uses a state folder or a copy of it.
//!
//! A lock on a file of the folder keeps a second server out of the same folder. A copy has a file of its own, and records
//! that name the same processes: a second server there would adopt, and end, what the first one has started. So the folder
//! has a random id, which a copy repeats, and the server that uses the folder listens on an abstract socket of that name.
//! The kernel gives such a name to one process at a time, in one network namespace, and takes it back when the process
//! ends, however it does.
//!
//! Any local user can take such a name. So the kernel is asked for the user of its holder: a server of another user
//! is not kept out by it, and the lock on the file still holds. A server in another network namespace, and a copy
//! that was made before the folder had an id, are not noticed.
//!
//! | interleaving | what keeps it right |
//! |---|---|
//! | two servers open the same folder, which has no id yet | the lock is taken first |
//! | a server dies after it has written the id, before it is durable | nothing is started before the id is durable |
//! | another user takes the name while the server restarts | the name is done without, and that is logged |
//! | others connect to the name and do not go away | connections are accepted and closed, so that a copy is always answered |
//! | a copy is opened while the first server restarts | one of them has the name, and the other starts no processes |
//! | a copy is used on another machine, or after a restart of this one | records of another boot are of processes that ended |

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;

use tokio::runtime::Handle;

use super::random_mark;
use crate::private;
use crate::process_name::{self, ProcessName};
use crate::runtime::Failure;

const LOCK_FILE: &str = "lock";
const ID_FILE: &str = "id";

/// A state folder that is in use, until this is dropped.
#[derive(Debug)]
pub struct StateLock {
    _lock: File,
    /// None if another user has the name.
    name: Option<UnixListener>,
}

impl StateLock {
    /// Claims a folder that exists. Called on a blocking thread.
    pub fn take(state: &Path, handle: &Handle) -> Result<Self, Failure> {
        let shown = state.display();
        let unusable = |error: io::Error| Failure::new(format!("the state folder {shown} cannot be used: {error}"));
        let lock = private::create(&state.join(LOCK_FILE)).map_err(unusable)?;
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
        let name = format!("wayleave-makers-{}", id.trim());
        let name = match handle.block_on(process_name::take(&name)).map_err(unusable)? {
            ProcessName::Ours(listener) => Some(listener),
            ProcessName::OtherUser(peer) => {
                tracing::warn!(
                    folder = %shown, user = peer.user, process.id = peer.process,
                    "a process of another user has the name by which copies of this folder are noticed; do not start a \
                     server on a copy"
                );
                None
            }
            ProcessName::Taken(_) => {
                return Err(Failure::new(format!(
                    "the state folder {shown} is a copy of one that another server of this machine uses, and whose workers \
                     belong to that server: stop it, or remove the copy"
                )));
            }
        };
        Ok(Self { _lock: lock, name })
    }

    /// Answers processes that ask who has the name.
    pub fn answer(&self) {
        self.name.iter().for_each(|name| _ = process_name::answer(name));
    }
}

/// Durable before the first worker is started.
fn write(state: &Path, id: &str) -> io::Result<()> {
    let new = state.join("id.new");
    let mut file = private::create(&new)?;
    file.write_all(id.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, state.join(ID_FILE))?;
    File::open(state)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    use rustix::process::Uid;
    use rustix::thread::set_thread_uid;

    use super::*;

    fn take(state: &Path) -> Result<StateLock, Failure> {
        let (state, handle) = (state.to_owned(), Handle::current());
        std::thread::spawn(move || StateLock::take(&state, &handle)).join().unwrap()
    }

    fn address(state: &Path) -> SocketAddr {
        let id = fs::read_to_string(state.join(ID_FILE)).unwrap();
        SocketAddr::from_abstract_name(format!("wayleave-makers-{id}")).unwrap()
    }

    /// A regression: any holder of the name locked the server out.
    #[tokio::test(flavor = "multi_thread")]
    async fn another_users_process_with_the_name_does_not_keep_the_server_out() {
        let state = tempfile::tempdir().unwrap();
        drop(take(state.path()).unwrap());
        let folder = state.path().to_owned();
        // The kernel returns the user of the listening thread.
        let stranger = std::thread::spawn(move || {
            let address = address(&folder);
            set_thread_uid(Uid::from_raw(65_534)).ok().map(|()| UnixListener::bind_addr(&address).unwrap())
        });
        match stranger.join().unwrap() {
            Some(stranger) => {
                let state_lock = take(state.path()).unwrap();
                assert!(state_lock.name.is_none());
                drop((state_lock, stranger));
            }
            None => eprintln!("NOT TESTED: only root may play another user"),
        }
        let same = UnixListener::bind_addr(&address(state.path())).unwrap();
        let why = take(state.path()).unwrap_err().to_string();
        assert!(why.contains("is a copy of one that another server of this machine uses"), "{why}");
        drop(same);
        assert!(take(state.path()).unwrap().name.is_some());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_holder_of_a_name_answers_any_number_of_challengers() {
        let state = tempfile::tempdir().unwrap();
        let state_lock = take(state.path()).unwrap();
        let id = fs::read_to_string(state.path().join(ID_FILE)).unwrap();
        for _ in 0..500 {
            state_lock.answer();
            assert!(process_name::holder(&format!("wayleave-makers-{id}")).await.is_some());
        }
    }
}
