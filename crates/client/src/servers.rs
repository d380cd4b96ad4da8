//! The server addresses of a client, and the current one. All clones share it: after one call has failed over from an
//! unavailable node, the next call of any clone starts at the new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::{Response, StatusCode, Url, header};
use wayleave_api::{Code, Problem};

use crate::error::{Error, root_cause};

/// What must be encoded in a part of a path.
const IN_A_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// How much of a response that is not a problem is shown.
const TEXT_SHOWN: usize = 200;

/// One address or several of the same service.
#[derive(Debug)]
pub(crate) struct Servers {
    first: Url,
    others: Vec<Url>,
    current: AtomicUsize,
}

impl Servers {
    /// Parses comma-separated addresses.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut parts = text.split(',').map(str::trim);
        let first = address(parts.next().unwrap_or_default())?;
        Ok(Self { first, others: parts.map(address).collect::<Result<_, _>>()?, current: AtomicUsize::new(0) })
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Url> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.others.len() + 1
    }

    fn at(&self, number: usize) -> &Url {
        number.checked_sub(1).and_then(|number| self.others.get(number)).unwrap_or(&self.first)
    }

    /// The current address.
    pub fn current(&self) -> &str {
        bare(self.at(self.current.load(Ordering::Relaxed)))
    }

    /// The URL of a call before its server is chosen; parts are percent-encoded as needed.
    pub fn url(&self, parts: &[&str]) -> Url {
        // `Url` would encode the parts by itself, but it drops tabs and line breaks first: another name would be asked for.
        let encoded: Vec<String> = parts.iter().map(|part| utf8_percent_encode(part, IN_A_PATH).to_string()).collect();
        let mut url = self.first.clone();
        url.set_path(&format!("/v1/{}", encoded.join("/")));
        url
    }
}

fn bare(url: &Url) -> &str {
    url.as_str().trim_end_matches('/')
}

/// Parses an http address; `host:port` is one too.
fn address(text: &str) -> Result<Url, Error> {
    let wrong = |cause: String| Error::BadAddress { address: text.to_owned(), cause };
    let names_port = |text: &str| text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let full = if !text.contains('/') && names_port(text) { format!("http://{text}") } else { text.to_owned() };
    let url = Url::parse(&full).map_err(|error| wrong(error.to_string()))?;
    if url.scheme() != "http" {
        let remedy = "; the server itself has no TLS";
        let remedy = if url.scheme() == "https" { remedy } else { "" };
        return Err(wrong(format!("the scheme is '{}', only http is spoken{remedy}", url.scheme())));
    }
    if url.cannot_be_a_base() || url.host_str().is_none_or(str::is_empty) {
        return Err(wrong("it names no host".to_owned()));
    }
    Ok(url)
}

/// The server of one attempt, from its start to its end, even if other calls fail over meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Here {
    servers: Arc<Servers>,
    number: usize,
}

impl Here {
    /// The current server.
    pub fn now(servers: &Arc<Servers>) -> Self {
        Self { servers: servers.clone(), number: servers.current.load(Ordering::Relaxed) }
    }

    pub fn name(&self) -> String {
        bare(self.servers.at(self.number)).to_owned()
    }

    /// The URL of a call at this server.
    pub fn place(&self, call: &Url) -> Url {
        let mut url = self.servers.at(self.number).clone();
        let path = format!("{}{}", url.path().trim_end_matches('/'), call.path());
        url.set_path(&path);
        url.set_query(call.query());
        url
    }

    /// Records a failed attempt: fails over to the next server if another one may do better.
    pub fn failed(&self, error: Error) -> Error {
        if error.is_of_one_server() {
            let next = (self.number + 1) % (self.servers.others.len() + 1);
            // Compare-and-swap: of many calls that fail together, one fails over and the others find it done.
            let moved = self.servers.current.compare_exchange(self.number, next, Ordering::Relaxed, Ordering::Relaxed);
            if moved.is_ok() && next != self.number {
                tracing::debug!(%error, next = bare(self.servers.at(next)), "failing over to the next server");
            }
        }
        error
    }

    /// The response, if it has a success status; otherwise the problem in it.
    pub async fn accepted(&self, response: Response) -> Result<Response, (Error, Option<Duration>)> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|secs| secs.parse().ok()).map(Duration::from_secs);
        let body = response.bytes().await.map_err(|error| (self.not_answered(&error), None))?;
        let problem = serde_json::from_slice(&body).unwrap_or_else(|_| self.foreign(status, &body));
        Err((Error::Refused(Box::new(problem)), retry_after))
    }

    /// Classifies a missing response: was the request sent or not?
    pub fn not_answered(&self, error: &reqwest::Error) -> Error {
        let (server, cause) = (self.name(), root_cause(error));
        if error.is_connect() { Error::Unreachable { server, cause } } else { Error::Lost { server, cause } }
    }

    /// A server that has begun an answer and does not go on with it.
    pub fn silent(&self, time: Duration) -> Error {
        Error::Lost { server: self.name(), cause: format!("it has sent nothing for {} s", time.as_secs()) }
    }

    pub fn bad_answer(&self, cause: &dyn std::fmt::Display) -> Error {
        Error::BadAnswer { server: self.name(), cause: cause.to_string() }
    }

    /// An error response without a problem: it comes from a proxy, or from another program.
    fn foreign(&self, status: StatusCode, body: &[u8]) -> Problem {
        let text: String = String::from_utf8_lossy(body).chars().take(TEXT_SHOWN).collect();
        let detail = format!("{} answered with status {status} and no problem: {text}", self.name());
        Problem {
            status: status.as_u16(),
            code: format!("http_{}", status.as_u16()),
            ..Problem::new(Code::Internal, detail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(servers: &str, parts: &[&str]) -> Vec<String> {
        let servers = Arc::new(Servers::parse(servers).unwrap());
        let here = |number| Here { servers: servers.clone(), number };
        (0..=servers.others.len()).map(|n| here(n).place(&servers.url(parts)).to_string()).collect()
    }

    #[test]
    fn names_in_paths_are_encoded() {
        let urls = placed("http://127.0.0.1:7071", &["hosts", "a/b c?d%2f"]);
        assert_eq!(urls, ["http://127.0.0.1:7071/v1/hosts/a%2Fb%20c%3Fd%252f"]);
    }

    #[test]
    fn each_address_keeps_its_own_path() {
        let urls = placed("http://example.com/frontier/, b:7071,http://c", &["stats"]);
        assert_eq!(urls, ["http://example.com/frontier/v1/stats", "http://b:7071/v1/stats", "http://c/v1/stats"]);
    }

    #[test]
    fn a_host_with_a_port_is_an_address() {
        for (text, want) in [("localhost:7071", "http://localhost:7071"), ("[::1]:7071", "http://[::1]:7071")] {
            assert_eq!(Servers::parse(text).unwrap().current(), want);
        }
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused_with_the_remedy() {
        for text in ["", "localhost", "https://example.com", "unix:/x", "http://", "http://a,", "a:1,,b:2", "a:1,b:x"] {
            let error = Servers::parse(text).expect_err(text).to_string();
            assert!(error.contains("http://127.0.0.1:7071"), "{error}");
        }
    }

    #[test]
    fn calls_that_fail_together_move_on_once() {
        let servers = Arc::new(Servers::parse("a:1,b:2,c:3").unwrap());
        let lost = || Error::Lost { server: String::new(), cause: String::new() };
        let (one, other) = (Here::now(&servers), Here::now(&servers));
        one.failed(lost());
        other.failed(lost());
        assert_eq!(servers.current(), "http://b:2");
        Here::now(&servers).failed(one.bad_answer(&"nonsense"));
        assert_eq!(servers.current(), "http://b:2", "another server would say the same");
        Here::now(&servers).failed(lost());
        Here::now(&servers).failed(lost());
        assert_eq!(servers.current(), "http://a:1", "after the last comes the first");
    }

    #[test]
    fn a_part_of_a_path_arrives_as_it_is() {
        let servers = Servers::parse("127.0.0.1:7071").unwrap();
        let url = |part: &str| servers.url(&["matches", part]).to_string();
        assert_eq!(url("a\tb\n"), "http://127.0.0.1:7071/v1/matches/a%09b%0A");
        assert_eq!(url("a/b?c#d%2F e"), "http://127.0.0.1:7071/v1/matches/a%2Fb%3Fc%23d%252F%20e");
        assert_eq!(url("h.example:80"), "http://127.0.0.1:7071/v1/matches/h.example:80");
    }
}
