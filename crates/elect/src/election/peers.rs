//! Communication between candidates of one role: the listener on which a standby receives the primary's questions, and
//! the client that asks them.
//!
//! One small HTTP call: `POST /promise` with the role, the epoch, the time and the secret that the server gives to the
//! primary alone. Bodies, connections and times are bounded; a connection that has not shown the secret yet makes room for a
//! newer one. Any member may announce any address, so a question goes only where the policy allows. The candidate decides the
//! answer, not this module.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use wayleave_api::roles::{Member, Peer};
use wayleave_core::ids::Token;
use wayleave_core::limits::{PEER_BODY_BYTES_MAX, PEER_CONNECTIONS_MAX};
use wayleave_core::time::Millis;
use wayleave_outgoing::{Connector, Kind, Policy, refused};

use crate::candidate::Question;
use crate::options::PeerDoor;

/// The maximum length of a reported reason.
const REASON_CHARS_MAX: usize = 200;
/// The maximum lifetime of a connection.
const CONNECTION_TIME: Duration = Duration::from_secs(2);
/// What to do about an address that is not called.
pub(super) const ALLOW: &str = "allow its network with --allow-net";
/// The back-off after a failed accept, as when there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct PromiseRequest {
    role: String,
    epoch: u64,
    for_ms: u64,
    secret: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct PromiseResponse {
    promised: bool,
    #[serde(default)]
    reason: String,
}

/// A question authenticated as the primary's, and the channel for its answer.
pub(super) struct Asked {
    pub epoch: u64,
    pub span: Millis,
    pub answer: oneshot::Sender<Result<(), String>>,
}

/// The listener; closed on drop.
pub(super) struct Door {
    questions: mpsc::Receiver<Asked>,
    peer: Peer,
    task: AbortHandle,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Door {
    /// Opens the listener.
    pub async fn open(role: &str, door: &PeerDoor) -> std::io::Result<Self> {
        let listener = TcpListener::bind(door.listen).await?;
        let bound = listener.local_addr()?;
        let mut bits = [0_u8; 16];
        getrandom::fill(&mut bits).map_err(std::io::Error::other)?;
        let secret = Token(bits).to_string();
        let address = door.advertised.clone().unwrap_or_else(|| bound.to_string());
        let (sender, questions) = mpsc::channel(PEER_CONNECTIONS_MAX);
        let known = Arc::new(Known { role: role.to_owned(), secret: secret.clone(), sender });
        let task = tokio::spawn(serve(listener, known)).abort_handle();
        tracing::info!(role, listen = %bound, address, "listening for the primary's questions");
        Ok(Self { questions, peer: Peer { address, secret }, task })
    }

    /// What the server announces to the primary.
    pub fn peer(&self) -> Peer {
        self.peer.clone()
    }

    /// The next question.
    pub async fn next(&mut self) -> Option<Asked> {
        self.questions.recv().await
    }
}

struct Known {
    role: String,
    secret: String,
    sender: mpsc::Sender<Asked>,
}

async fn serve(listener: TcpListener, known: Arc<Known>) {
    let mut talks = Talks::default();
    loop {
        tokio::select! {
            // Reaps ended tasks.
            Some(_) = talks.tasks.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => talks.begin(stream, known.clone()).await,
                Err(error) => {
                    tracing::warn!(error = %error, "cannot accept a connection of the primary");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// The open connections. Dropped with the listener's task, and all connections with it.
#[derive(Default)]
struct Talks {
    tasks: JoinSet<()>,
    /// Oldest first; each with whether it has shown the secret.
    open: VecDeque<(Arc<AtomicBool>, AbortHandle)>,
}

impl Talks {
    /// Serves a new connection, in the place of the oldest one that has not shown the secret if there are too many.
    async fn begin(&mut self, stream: TcpStream, known: Arc<Known>) {
        self.open.retain(|(_, task)| !task.is_finished());
        if self.open.len() >= PEER_CONNECTIONS_MAX {
            // A connection that shows the secret meanwhile is closed anyway: the primary asks again.
            let stranger = self.open.iter().position(|(proven, _)| !proven.load(Ordering::Relaxed));
            if let Some((_, task)) = stranger.and_then(|at| self.open.remove(at)) {
                task.abort();
            }
            while self.tasks.len() >= PEER_CONNECTIONS_MAX {
                _ = self.tasks.join_next().await;
            }
        }
        let proven = Arc::<AtomicBool>::default();
        let shown = Arc::clone(&proven);
        let task = self.tasks.spawn(async move {
            _ = tokio::time::timeout(CONNECTION_TIME, talk(stream, known, shown)).await;
        });
        self.open.push_back((proven, task));
    }
}

async fn talk(stream: TcpStream, known: Arc<Known>, proven: Arc<AtomicBool>) {
    let service = service_fn(move |request| {
        let (known, proven) = (known.clone(), proven.clone());
        async move { Ok::<_, Infallible>(answer(request, &known, &proven).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    _ = builder.keep_alive(false).serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, known: &Known, proven: &AtomicBool) -> Response<Full<Bytes>> {
    if request.method() != Method::POST || request.uri().path() != "/promise" {
        return say(StatusCode::NOT_FOUND, Err("this is a Wayleave candidate; it accepts only POST /promise".into()));
    }
    let body = match Limited::new(request.into_body(), PEER_BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return say(StatusCode::BAD_REQUEST, Err("the body is too large or truncated".into())),
    };
    let Ok(asked) = serde_json::from_slice::<PromiseRequest>(&body) else {
        return say(StatusCode::BAD_REQUEST, Err("the body is not a question for a promise".into()));
    };
    let secret_fits: bool = asked.secret.as_bytes().ct_eq(known.secret.as_bytes()).into();
    if !secret_fits || asked.role != known.role {
        return say(StatusCode::FORBIDDEN, Err("the role or the secret is not this candidate's".into()));
    }
    proven.store(true, Ordering::Relaxed);
    let (reply, answer) = oneshot::channel();
    let question = Asked { epoch: asked.epoch, span: Millis(asked.for_ms), answer: reply };
    if known.sender.send(question).await.is_err() {
        return say(StatusCode::OK, Err("it is stopping".into()));
    }
    say(StatusCode::OK, answer.await.unwrap_or_else(|_| Err("it is stopping".into())))
}

fn say(status: StatusCode, what: Result<(), String>) -> Response<Full<Bytes>> {
    let body = PromiseResponse { promised: what.is_ok(), reason: what.err().unwrap_or_default() };
    let body = serde_json::to_vec(&body).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
}

type Http = Client<Connector, Full<Bytes>>;

/// Asks other candidates; dropping it cancels what is in flight.
pub(super) struct Asking {
    role: String,
    policy: Policy,
    calls: JoinSet<(Question, Result<(), String>)>,
}

impl Asking {
    pub fn new(role: &str, policy: Policy) -> Self {
        Self { role: role.to_owned(), policy, calls: JoinSet::new() }
    }

    /// Why a member is not called, if that is known before its name is looked up.
    pub fn refuses(&self, member: &Member) -> Option<Kind> {
        let address: SocketAddr = member.peer.as_ref()?.address.parse().ok()?;
        self.policy.named(member.from).check(address.ip()).err()
    }

    pub fn ask(&mut self, question: Question, timeout: Millis) {
        let request = PromiseRequest {
            role: self.role.clone(),
            epoch: question.epoch,
            for_ms: question.span.0,
            secret: question.peer.secret.clone(),
        };
        // No connection is used again: a promise must arrive at once or not at all.
        let connector = Connector::new(self.policy.named(question.from), None);
        let http = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        let timeout = Duration::from_millis(timeout.0);
        self.calls.spawn(async move {
            let answer = tokio::time::timeout(timeout, promised(http, &question.peer.address, &request)).await;
            (question, answer.unwrap_or_else(|_| Err("it did not answer in time".to_owned())))
        });
    }

    /// The next answer.
    pub async fn next(&mut self) -> (Question, Result<(), String>) {
        loop {
            match self.calls.join_next().await {
                Some(Ok(answer)) => return answer,
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

async fn promised(http: Http, address: &str, request: &PromiseRequest) -> Result<(), String> {
    let body = serde_json::to_vec(request).map_err(|error| error.to_string())?;
    let request = Request::post(format!("http://{address}/promise")).header(CONTENT_TYPE, "application/json");
    let request =
        request.body(Full::new(Bytes::from(body))).map_err(|error| format!("'{address}' is no address: {error}"))?;
    let response = http.request(request).await.map_err(|error| unreached(&error))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), PEER_BODY_BYTES_MAX).collect().await;
    let body = body.map_err(|error| format!("its response was truncated or is too large: {error}"))?.to_bytes();
    match serde_json::from_slice::<PromiseResponse>(&body) {
        Ok(PromiseResponse { promised: true, .. }) if status == StatusCode::OK => Ok(()),
        Ok(PromiseResponse { reason, .. }) => Err(reason.chars().take(REASON_CHARS_MAX).collect()),
        Err(_) => Err("its response is invalid; is the address another program's?".into()),
    }
}

fn unreached(error: &legacy::Error) -> String {
    if let Some(refused) = refused(error) {
        return format!("'{}' is not called: it is {}; {ALLOW}", refused.host, refused.kind);
    }
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("it cannot be reached: {error}{cause}")
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::Moment;

    fn policy(networks: &[&str]) -> Policy {
        Policy::new(networks.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>(), true)
    }

    fn question(peer: Peer, from: Option<&str>) -> Question {
        let from = from.map(|ip| ip.parse::<IpAddr>().unwrap());
        Question { member: "m".into(), peer, from, epoch: 1, sent: Moment(0), span: Millis(1) }
    }

    /// Any member of a role may announce any address, and every primary would call it.
    #[tokio::test]
    async fn a_member_is_called_only_at_its_heartbeat_source_or_an_allowed_address() {
        // A service of the internal network: nothing else listens there.
        let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = inside.local_addr().unwrap().to_string();
        let peer = |address: &str| Peer { address: address.into(), secret: "s".into() };
        for (address, from, kind) in [
            (address.as_str(), None, "a loopback address"),
            (address.as_str(), Some("10.0.0.7"), "a loopback address"),
            ("127.1:80", Some("10.0.0.7"), "a loopback address"),
            ("10.0.0.8:80", Some("10.0.0.7"), "a private address"),
            ("169.254.169.254:80", Some("169.254.169.254"), "an address of metadata services"),
        ] {
            let mut asking = Asking::new("r", policy(&[]));
            asking.ask(question(peer(address), from), Millis(60_000));
            let why = asking.next().await.1.expect_err("no promise");
            assert!(why.contains(&format!("is not called: it is {kind}; allow its network with --allow-net")), "{why}");
            let member =
                Member { uuid: "m".into(), peer: Some(peer(address)), from: from.map(|ip| ip.parse().unwrap()) };
            assert_eq!(asking.refuses(&member).is_none(), address.starts_with("127.1:"), "a name is looked up first");
        }
        let none = tokio::time::timeout(Duration::ZERO, inside.accept()).await;
        assert!(none.is_err(), "no peer has connected");
        for (networks, from) in [(&[][..], Some("127.0.0.1")), (&["127.0.0.0/8"], None)] {
            let mut asking = Asking::new("r", policy(networks));
            asking.ask(question(peer(&address), from), Millis(60_000));
            tokio::select! {
                accepted = inside.accept() => drop(accepted.unwrap()),
                (_, answer) = asking.next() => panic!("{answer:?}"),
            }
        }
        // The loopback of a server elsewhere is another machine.
        let mut asking = Asking::new("r", Policy::new([], false));
        asking.ask(question(peer(&address), Some("127.0.0.1")), Millis(60_000));
        assert!(asking.next().await.1.unwrap_err().contains("a loopback address"));
    }

    /// Any process of the network, and any page in a browser of this machine, can send to the port.
    #[tokio::test]
    async fn a_stranger_gets_no_promise_and_no_secret() {
        let listen = "127.0.0.1:0".parse().unwrap();
        let mut door = Door::open("r", &PeerDoor { listen, advertised: None }).await.unwrap();
        let Peer { address, secret } = door.peer();
        let question = |role: &str, secret: &str| {
            serde_json::to_string(&PromiseRequest { role: role.into(), epoch: 1, for_ms: 1, secret: secret.into() })
                .unwrap()
        };
        let long = "x".repeat(PEER_BODY_BYTES_MAX + 1);
        for (head, body, status) in [
            ("GET /", String::new(), 404),
            ("GET /promise", question("r", &secret), 404),
            ("POST /", question("r", &secret), 404),
            ("POST /promise", String::new(), 400),
            ("POST /promise", "{}".into(), 400),
            ("POST /promise", long, 400),
            ("POST /promise", question("r", ""), 403),
            ("POST /promise", question("r", &secret[1..]), 403),
            ("POST /promise", question("r", &secret.to_lowercase().to_uppercase()), 403),
            ("POST /promise", question("another", &secret), 403),
        ] {
            let mut stranger = TcpStream::connect(&address).await.unwrap();
            let text = format!("{head} HTTP/1.1\r\nhost: evil.example\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            // It may have been refused before it is read to its end.
            _ = stranger.write_all(text.as_bytes()).await;
            let mut answer = Vec::new();
            _ = stranger.read_to_end(&mut answer).await;
            let answer = String::from_utf8(answer).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head} {body:.90}: {answer}");
            assert!(!answer.contains(&secret), "{answer}");
        }
        assert!(door.questions.try_recv().is_err(), "the candidate was asked");
    }

    #[tokio::test]
    async fn the_primary_is_heard_among_strangers_that_send_half_a_question() {
        let listen = "127.0.0.1:0".parse().unwrap();
        let mut door = Door::open("r", &PeerDoor { listen, advertised: None }).await.unwrap();
        let peer = door.peer();
        let mut strangers = Vec::new();
        for n in 0..200 {
            let mut stranger = TcpStream::connect(&peer.address).await.unwrap();
            let half = if n % 2 == 0 {
                "POST /promise HTTP/1.1\r\n"
            } else {
                "POST /promise HTTP/1.1\r\ncontent-length: 9\r\n\r\n{"
            };
            stranger.write_all(half.as_bytes()).await.unwrap();
            strangers.push(stranger);
        }
        let mut asking = Asking::new("r", policy(&[]));
        asking.ask(question(peer, Some("127.0.0.1")), Millis(1_000));
        let promise = async {
            let asked = door.next().await.unwrap();
            asked.answer.send(Ok(())).unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = promise => {}
            (_, answer) = asking.next() => assert_eq!(answer, Ok(())),
        }
        println!("seen: elect --peer: {} half questions, and the primary's was answered", strangers.len());
    }
}
