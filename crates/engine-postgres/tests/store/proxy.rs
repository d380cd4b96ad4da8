//! A line to the database that can be cut in the middle of a commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Where to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cut {
    /// Nowhere.
    None = 0,
    /// The transaction never reaches the database.
    Before = 1,
    /// The transaction is committed, its answer is lost.
    After = 2,
}

/// A proxy before a database.
pub struct Proxy {
    address: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    cut: AtomicU8,
    /// New connections are turned away.
    closed: AtomicBool,
}

impl Proxy {
    /// Listens on a port of its own and passes everything on.
    pub async fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if !shared.closed.load(Ordering::SeqCst) {
                    tokio::spawn(pass(client, target.clone(), Arc::clone(&shared)));
                }
            }
        });
        Self { address, state }
    }

    /// The URL of a database through the proxy.
    pub fn url(&self, direct: &str) -> String {
        let (_, database) = direct.rsplit_once('/').unwrap();
        format!("postgres://postgres@{}/{database}", self.address)
    }

    /// Cuts the line at the next commit.
    pub fn cut_next(&self, cut: Cut) {
        self.state.cut.store(cut as u8, Ordering::SeqCst);
    }

    /// Whether the cut has been made.
    pub fn has_cut(&self) -> bool {
        self.state.cut.load(Ordering::SeqCst) == Cut::None as u8
    }

    /// Turns new connections away, or no longer.
    pub fn close(&self, closed: bool) {
        self.state.closed.store(closed, Ordering::SeqCst);
    }
}

async fn pass(mut client: TcpStream, target: String, state: Arc<State>) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(count @ 1..) = read else { return };
                let chunk = &up[..count];
                // The transactions of the committers, not those of the clock, which begin in another way.
                let commit = contains(chunk, b"BEGIN\0") && contains(chunk, b"COMMIT\0");
                let cut = if commit { state.cut.swap(0, Ordering::SeqCst) } else { 0 };
                if cut == Cut::Before as u8 {
                    return;
                }
                if server.write_all(chunk).await.is_err() {
                    return;
                }
                if cut == Cut::After as u8 {
                    // The database has answered the commit once its tag comes back.
                    let mut answers = Vec::new();
                    while !contains(&answers, b"COMMIT\0") {
                        let Ok(count @ 1..) = server.read(&mut down).await else { return };
                        answers.extend_from_slice(&down[..count]);
                    }
                    return;
                }
            }
            read = server.read(&mut down) => {
                let Ok(count @ 1..) = read else { return };
                if client.write_all(&down[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}
