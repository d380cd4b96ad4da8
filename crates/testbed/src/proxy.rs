//! A proxy in front of a database that understands the wire protocol, so that it can break a pipelined transaction at a
//! chosen step: cancel that step, cut the connection around it, or answer in the database's place as a pooler would.
//!
//! A *step* is what the database answers with one `ReadyForQuery`: a simple query, or everything up to a `Sync`. The
//! steps of a transaction are counted from its plain `BEGIN`, which is step 0, to its `COMMIT`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The fault at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The database cancels the step, by its own `pg_cancel_backend`.
    Cancel,
    /// The connection is cut before the step reaches the database. All earlier steps have been answered.
    CutBefore,
    /// The whole transaction reaches the database; the connection is cut before this step's response reaches the
    /// client.
    CutAnswer,
    /// The whole transaction reaches the database; instead of this step's response the client gets an error that the
    /// database never sent. A fatal one ends the connection.
    MakeUp {
        /// `ERROR` or `FATAL`.
        severity: &'static str,
        /// The SQLSTATE.
        code: &'static str,
    },
}

/// A proxy in front of a database.
pub struct Proxy {
    address: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    armed: Mutex<Option<(usize, Fault)>>,
    /// The number of steps of the last transaction.
    steps: AtomicUsize,
    closed: AtomicBool,
}

impl Proxy {
    /// Listens on a free port and forwards everything to `target`. Panics if it cannot listen.
    pub async fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared::default());
        let state = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if !state.closed.load(Ordering::SeqCst) {
                    tokio::spawn(pass(client, target.clone(), Arc::clone(&state)));
                }
            }
        });
        Self { address, shared }
    }

    /// The URL of a database through the proxy. Panics if `direct` names no database.
    #[must_use]
    pub fn url(&self, direct: &str) -> String {
        let (_, database) = direct.rsplit_once('/').unwrap();
        format!("postgres://postgres@{}/{database}", self.address)
    }

    /// Breaks the next transaction at a step.
    pub fn arm(&self, step: usize, fault: Fault) {
        *self.shared.armed.lock().unwrap_or_else(PoisonError::into_inner) = Some((step, fault));
    }

    /// Whether a transaction has met the armed fault.
    #[must_use]
    pub fn has_struck(&self) -> bool {
        self.shared.armed.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// The number of steps that the last transaction has sent.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.shared.steps.load(Ordering::SeqCst)
    }

    /// Refuses new connections, or accepts them again.
    pub fn close(&self, closed: bool) {
        self.shared.closed.store(closed, Ordering::SeqCst);
    }
}

/// One connection.
struct Line {
    client: TcpStream,
    server: TcpStream,
    shared: Arc<Shared>,
    /// Bytes of an incomplete message.
    up: Vec<u8>,
    down: Vec<u8>,
    /// Messages of an incomplete step.
    step: Vec<u8>,
    /// Steps that the database has yet to answer.
    unanswered: VecDeque<Sent>,
    /// The number of the next step within a transaction.
    next: Option<usize>,
    plan: Option<(usize, Fault)>,
}

#[derive(Clone, Copy, Default)]
struct Sent {
    number: Option<usize>,
    is_commit: bool,
}

/// The connection has ended.
struct Ended;

async fn pass(mut client: TcpStream, target: String, shared: Arc<Shared>) -> Option<()> {
    let startup = read_startup(&mut client).await?;
    let mut server = TcpStream::connect(target).await.ok()?;
    server.write_all(&startup).await.ok()?;
    let (up, down, step) = (Vec::new(), Vec::new(), Vec::new());
    // The database sends one ReadyForQuery unasked.
    let unanswered = VecDeque::from([Sent::default()]);
    let mut line = Line { client, server, shared, up, down, step, unanswered, next: None, plan: None };
    loop {
        let (mut up, mut down) = ([0; 1 << 14], [0; 1 << 14]);
        let copied = tokio::select! {
            read = line.client.read(&mut up) => match read {
                Ok(count @ 1..) => line.on_client(&up[..count]).await,
                _ => Err(Ended),
            },
            read = line.server.read(&mut down) => match read {
                Ok(count @ 1..) => line.on_server(&down[..count]).await,
                _ => Err(Ended),
            },
        };
        copied.ok()?;
    }
}

/// Reads the startup message; a request for TLS is declined.
async fn read_startup(client: &mut TcpStream) -> Option<Vec<u8>> {
    const TLS: i32 = 80_877_103;
    loop {
        let length = client.read_i32().await.ok()?;
        let mut message = length.to_be_bytes().to_vec();
        message.resize(usize::try_from(length).ok()?, 0);
        client.read_exact(&mut message[4..]).await.ok()?;
        if message.len() == 8 && message[4..] == TLS.to_be_bytes() {
            client.write_all(b"N").await.ok()?;
        } else {
            return Some(message);
        }
    }
}

impl Line {
    async fn on_client(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.up.extend_from_slice(bytes);
        while let Some(message) = take_message(&mut self.up) {
            let kind = message[0];
            self.step.extend(message);
            if matches!(kind, b'Q' | b'S' | b'X' | b'p') {
                let step = std::mem::take(&mut self.step);
                if matches!(kind, b'Q' | b'S') { self.send(step).await? } else { to(&mut self.server, &step).await? }
            }
        }
        Ok(())
    }

    async fn send(&mut self, step: Vec<u8>) -> Result<(), Ended> {
        let says = |words: &[u8]| step.first() == Some(&b'Q') && step[5..].starts_with(words);
        if says(b"BEGIN") && !says(b"BEGIN ISOLATION") {
            self.plan = self.shared.armed.lock().unwrap_or_else(PoisonError::into_inner).take();
            self.next = Some(0);
        }
        let sent = Sent { number: self.next, is_commit: says(b"COMMIT") && self.next.is_some() };
        if let Some(number) = sent.number {
            self.next = (!sent.is_commit).then_some(number + 1);
            self.shared.steps.store(number + 1, Ordering::SeqCst);
        }
        match self.plan.filter(|(at, _)| sent.number == Some(*at)) {
            Some((_, Fault::CutBefore)) => {
                while !self.unanswered.is_empty() {
                    let mut down = [0; 1 << 14];
                    let count = self.server.read(&mut down).await.map_err(|_| Ended)?;
                    self.on_server(&down[..count]).await?;
                }
                return Err(Ended);
            }
            Some((_, Fault::Cancel)) => {
                // Returns no rows: the client may be waiting for those of a prepared statement.
                let cancel = "DO $$ BEGIN PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(60); END $$";
                self.unanswered.push_back(sent);
                return to(&mut self.server, &query(cancel)).await;
            }
            _ => {}
        }
        self.unanswered.push_back(sent);
        to(&mut self.server, &step).await
    }

    async fn on_server(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.down.extend_from_slice(bytes);
        while let Some(message) = take_message(&mut self.down) {
            let sent = self.unanswered.front().copied().unwrap_or_default();
            let ready = message[0] == b'Z';
            if ready {
                self.unanswered.pop_front();
            }
            match self.plan {
                Some((at, fault @ (Fault::CutAnswer | Fault::MakeUp { .. }))) if sent.number >= Some(at) => {
                    // Swallowed, until the database has certainly done all of it.
                    if ready && sent.is_commit {
                        self.plan = None;
                        self.strike(fault).await?;
                    }
                }
                _ => to(&mut self.client, &message).await?,
            }
        }
        Ok(())
    }

    async fn strike(&mut self, fault: Fault) -> Result<(), Ended> {
        let Fault::MakeUp { severity, code } = fault else { return Err(Ended) };
        to(&mut self.client, &error(severity, code)).await?;
        if severity != "ERROR" {
            // What was written must arrive before the end of the connection.
            _ = self.client.shutdown().await;
            return Err(Ended);
        }
        to(&mut self.client, b"Z\0\0\0\x05I").await
    }
}

async fn to(socket: &mut TcpStream, bytes: &[u8]) -> Result<(), Ended> {
    socket.write_all(bytes).await.map_err(|_| Ended)
}

/// Takes the first complete message: its type, its length without the type, its body.
fn take_message(buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = buffer.get(1..5)?.try_into().map(u32::from_be_bytes).ok()?;
    let end = 1 + usize::try_from(length).ok()?;
    (buffer.len() >= end).then(|| buffer.drain(..end).collect())
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', &[text.as_bytes(), b"\0"].concat())
}

fn error(severity: &str, code: &str) -> Vec<u8> {
    message(b'E', format!("S{severity}\0V{severity}\0C{code}\0Mmade up by the proxy\0\0").as_bytes())
}
