//! A small worker that serves the reservation protocol with the standard library, and ends on SIGTERM.
//!
//! | call | answer |
//! |---|---|
//! | `POST /reservation/{client}` | 200 if the client has a slot now, 409 if there is none |
//! | `GET /reservation/{client}` | 200 if the client has a slot, else 404; a yes extends it |
//! | `DELETE /reservation/{client}` | 200 if the slot was given back, 404 if there was none |
//! | `GET /` | 200, with slots, clients and connections so far |
//!
//! The header `wayleave-reservation` has the reservation's token, and `wayleave-reservation-ms` says how long to keep it
//! unless it is confirmed. A token that is not the client's own changes nothing. The answer repeats the token, so that
//! nobody takes an answer for the one to another question.
//!
//! The environment gives `HOST` and `PORT` to listen on, the worker's name in `WAYLEAVE_WORKER`, and its `SLOTS`.
//! `MISBEHAVE` makes it fail, for tests: see [`Misdeed`].

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

/// Bounds on what a request may be.
const LINE_BYTES_MAX: u64 = 8 * 1024;
const HEADERS_MAX: usize = 64;
const BODY_BYTES_MAX: u64 = 64 * 1024;
/// A connection that says nothing for this long is closed.
const IDLE: Duration = Duration::from_secs(60);
/// How long a reservation lasts if the request does not say.
const RESERVATION: Duration = Duration::from_secs(60);

/// What it does wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Misdeed {
    /// Answers every reservation with 500.
    Error,
    /// Takes requests for reservations and never answers them.
    Hang,
    /// Answers for another reservation.
    Other,
    /// Answers with a redirection.
    Redirect,
    /// Answers with a body that does not end.
    Flood,
    /// Runs, and never listens.
    Deaf,
    /// Exits at once with this code.
    Exit(u8),
    /// Writes to its output without end.
    Chatter,
    /// Starts a child that would outlive it.
    Parent,
    /// Takes a gigabyte of memory.
    Eat,
}

impl Misdeed {
    fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            Some(("exit", code)) => code.parse().ok().map(Self::Exit),
            Some(_) => None,
            None => match text {
                "error" => Some(Self::Error),
                "hang" => Some(Self::Hang),
                "other" => Some(Self::Other),
                "redirect" => Some(Self::Redirect),
                "flood" => Some(Self::Flood),
                "deaf" => Some(Self::Deaf),
                "chatter" => Some(Self::Chatter),
                "parent" => Some(Self::Parent),
                "eat" => Some(Self::Eat),
                _ => None,
            },
        }
    }
}

/// A slot that is taken.
struct Reservation {
    token: String,
    until: Instant,
}

/// What all connections share.
struct Worker {
    name: String,
    slots: usize,
    misdeed: Option<Misdeed>,
    taken: Mutex<HashMap<String, Reservation>>,
    connections: AtomicU64,
}

/// A request, as far as it matters.
struct Request {
    method: String,
    path: String,
    token: String,
    keep: Duration,
    close: bool,
}

/// An answer.
struct Answer {
    status: u16,
    token: String,
    body: String,
}

fn main() -> ExitCode {
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let misdeed = variable("MISBEHAVE", "");
    let misdeed = if misdeed.is_empty() { None } else { Misdeed::parse(&misdeed) };
    let address = format!("{}:{}", variable("HOST", "127.0.0.1"), variable("PORT", "8080"));
    let worker = Arc::new(Worker {
        name: variable("WAYLEAVE_WORKER", "worker"),
        slots: variable("SLOTS", "1").parse().unwrap_or(1),
        misdeed,
        taken: Mutex::default(),
        connections: AtomicU64::new(0),
    });
    let (ready, is_ready) = mpsc::channel();
    std::thread::spawn(move || end_on_sigterm(&ready));
    _ = is_ready.recv();
    match misdeed {
        Some(Misdeed::Exit(code)) => {
            eprintln!("told to exit with code {code}");
            return ExitCode::from(code);
        }
        Some(Misdeed::Deaf) => loop {
            std::thread::sleep(IDLE);
        },
        Some(Misdeed::Eat) => eat(),
        Some(Misdeed::Chatter) => _ = std::thread::spawn(chatter),
        Some(Misdeed::Parent) => match Command::new("sleep").arg("1000").spawn() {
            Ok(child) => println!("child {}", child.id()),
            Err(error) => eprintln!("cannot start a child: {error}"),
        },
        _ => {}
    }
    let listener = match TcpListener::bind(&address) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("cannot listen on {address}: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{} listens on {address} with {} slots", worker.name, worker.slots);
    for stream in listener.incoming().flatten() {
        let worker = Arc::clone(&worker);
        std::thread::spawn(move || worker.serve(&stream));
    }
    ExitCode::SUCCESS
}

/// The first process of a container does not end on SIGTERM unless it says so: Docker would wait, and kill it.
fn end_on_sigterm(ready: &mpsc::Sender<()>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        if let Ok(mut signals) = signal(SignalKind::terminate()) {
            _ = ready.send(());
            signals.recv().await;
            println!("ends as it was asked to");
            std::process::exit(0);
        }
    });
}

/// Lines that are numbered, so that a reader sees which ones are left.
fn chatter() {
    for line in 0_u64.. {
        println!("chatter {line}");
    }
}

fn eat() {
    let mut eaten = Vec::new();
    for _ in 0..1_024 {
        eaten.push(vec![1_u8; 1 << 20]);
        std::hint::black_box(&eaten);
    }
}

impl Worker {
    /// Serves one connection until it ends.
    fn serve(&self, stream: &TcpStream) {
        _ = stream.set_read_timeout(Some(IDLE));
        _ = stream.set_nodelay(true);
        self.connections.fetch_add(1, Ordering::Relaxed);
        let mut reader = BufReader::new(stream);
        while let Some(request) = read(&mut reader) {
            if self.misdeed == Some(Misdeed::Hang) && request.path.starts_with("/reservation/") {
                std::thread::sleep(IDLE);
                return;
            }
            let answer = self.answer(&request);
            if self.write(stream, &answer).is_err() || request.close {
                return;
            }
        }
    }

    fn write(&self, mut stream: &TcpStream, answer: &Answer) -> std::io::Result<()> {
        let Answer { status, token, body } = answer;
        let mut text = format!("HTTP/1.1 {status} {}\r\ncontent-type: application/json\r\n", phrase(*status));
        if !token.is_empty() {
            _ = write!(text, "wayleave-reservation: {token}\r\n");
        }
        if *status == 302 {
            text.push_str("location: /elsewhere\r\n");
        }
        if self.misdeed == Some(Misdeed::Flood) && !token.is_empty() {
            text.push_str("\r\n");
            stream.write_all(text.as_bytes())?;
            loop {
                stream.write_all(&[b'x'; 1024])?;
            }
        }
        _ = write!(text, "content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(text.as_bytes())
    }

    fn answer(&self, request: &Request) -> Answer {
        let plain = |status: u16, body: String| Answer { status, token: request.token.clone(), body };
        if request.path == "/" {
            let used = self.taken().len();
            let connections = self.connections.load(Ordering::Relaxed);
            let slots = self.slots;
            return plain(200, format!("{{\"slots\":{slots},\"used\":{used},\"connections\":{connections}}}"));
        }
        let client = request.path.strip_prefix("/reservation/").filter(|client| !client.contains('/'));
        let Some(client) = client.and_then(decoded) else {
            return plain(404, "{\"error\":\"no such path\"}".into());
        };
        match self.misdeed {
            Some(Misdeed::Error) => return plain(500, "{\"error\":\"told to fail\"}".into()),
            Some(Misdeed::Redirect) => return plain(302, String::new()),
            Some(Misdeed::Other) => {
                return Answer { status: 200, token: "AAAAAAAAAAAAAAAAAAAAAA".into(), body: "{}".into() };
            }
            _ => {}
        }
        let status = match request.method.as_str() {
            "POST" => self.reserve(client, request),
            "GET" => self.check(&client, request),
            "DELETE" => self.release(&client, request),
            _ => 405,
        };
        plain(status, "{}".into())
    }

    /// Asking twice with one token is asking once.
    fn reserve(&self, client: String, request: &Request) -> u16 {
        let mut taken = self.taken();
        let until = Instant::now() + request.keep;
        let full = taken.len() >= self.slots;
        match taken.get_mut(&client) {
            Some(known) if known.token == request.token => known.until = until,
            Some(_) => return 409,
            None if full => return 409,
            None => _ = taken.insert(client, Reservation { token: request.token.clone(), until }),
        }
        200
    }

    fn check(&self, client: &str, request: &Request) -> u16 {
        match self.taken().get_mut(client).filter(|known| known.token == request.token) {
            Some(known) => {
                known.until = Instant::now() + request.keep;
                200
            }
            None => 404,
        }
    }

    fn release(&self, client: &str, request: &Request) -> u16 {
        let mut taken = self.taken();
        if taken.get(client).is_none_or(|known| known.token != request.token) {
            return 404;
        }
        taken.remove(client);
        200
    }

    /// The reservations, without those that nobody confirmed in time.
    fn taken(&self) -> MutexGuard<'_, HashMap<String, Reservation>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        taken.retain(|_, known| now < known.until);
        taken
    }
}

/// The next request of a connection; `None` at its end, or if this is not HTTP.
fn read(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let first = line(reader)?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut request = Request { method, path, token: String::new(), keep: RESERVATION, close: false };
    let mut body_bytes = 0;
    for _ in 0..HEADERS_MAX {
        let header = line(reader)?;
        if header.is_empty() {
            let read = std::io::copy(&mut reader.by_ref().take(body_bytes), &mut std::io::sink()).ok()?;
            return (read == body_bytes).then_some(request);
        }
        let (name, value) = header.split_once(':')?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => body_bytes = value.parse().ok().filter(|bytes| *bytes <= BODY_BYTES_MAX)?,
            "connection" => request.close = value.eq_ignore_ascii_case("close"),
            "wayleave-reservation" => request.token = value.to_owned(),
            "wayleave-reservation-ms" => request.keep = Duration::from_millis(value.parse().ok()?),
            _ => {}
        }
    }
    None
}

fn line(reader: &mut BufReader<&TcpStream>) -> Option<String> {
    let mut line = String::new();
    reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut line).ok()?;
    Some(line.strip_suffix("\r\n")?.to_owned())
}

/// Percent-decodes a path segment.
fn decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

const fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        302 => "Found",
        404 => "Not Found",
        409 => "Conflict",
        _ => "Error",
    }
}
