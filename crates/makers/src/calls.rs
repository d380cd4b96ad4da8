//! Calls to workers: reserve, check, release.
//!
//! An answer has three values. 200 is a yes, 404 and 409 are a no, and everything else is unknown, with its reason: a
//! timeout, a broken connection, a redirection (which is not followed), an answer that is too long or that names another
//! reservation. A worker that named its address in a report is called only where the report came from, or where the operator
//! allows; a reason has nothing of what was answered but the status. Connections are kept and used again. Nothing of a call is sent after its deadline: when it passes, the
//! call's connection is closed.

use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Error;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::{Instant, timeout_at};
use wayleave_core::matches::{Verdict, WorkerAsk};
use wayleave_outgoing::{HttpClient, Policy, Rule, Target, Unresolved, http_client};

use crate::limits::{ADDRESSES_MAX, ANSWER_BYTES_MAX, IDLE_CONNECTIONS_MAX};
use crate::runtime::bounded;

/// The header with the reservation's token. If a worker repeats it in its answer, an answer to another request cannot be
/// mistaken for this one.
pub const RESERVATION_HEADER: &str = "wayleave-reservation";
/// The header that says how long the worker keeps the reservation from then on, unless it is confirmed.
pub const RESERVATION_MS_HEADER: &str = "wayleave-reservation-ms";

/// Workers close connections that are idle; this is shorter than usual for servers.
const IDLE: Duration = Duration::from_secs(10);
/// A dot is encoded as well: `..` must not be taken for a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// The client of workers. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Calls {
    /// It is given addresses that were checked, never names.
    client: HttpClient,
    policy: Policy,
}

impl Calls {
    /// Calls to the addresses that a policy allows.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { client: http_client(Rule::operator(), IDLE_CONNECTIONS_MAX, IDLE), policy }
    }

    /// Asks a worker to reserve a slot for a client. Repeating it with the same token changes nothing.
    pub async fn reserve(&self, ask: &WorkerAsk, deadline: Instant) -> Verdict {
        self.call(Method::POST, ask, deadline).await
    }

    /// Asks a worker whether it still holds the reservation, which confirms it.
    pub async fn check(&self, ask: &WorkerAsk, deadline: Instant) -> Verdict {
        self.call(Method::GET, ask, deadline).await
    }

    /// Asks a worker to release the reservation.
    pub async fn release(&self, ask: &WorkerAsk, deadline: Instant) -> Verdict {
        self.call(Method::DELETE, ask, deadline).await
    }

    /// Whether something answers HTTP at an address, whatever it says.
    pub(crate) async fn answers(&self, address: &str) -> Result<(), String> {
        let uri = format!("http://{address}/").parse::<Uri>().map_err(|_| unusable(address))?;
        let answer = self.client.get(uri).await;
        answer.map(drop).map_err(|error| in_words(&error))
    }

    async fn call(&self, method: Method, ask: &WorkerAsk, deadline: Instant) -> Verdict {
        let begun = Instant::now();
        if deadline <= begun {
            return Verdict::Unknown("its time was over before it could be asked".into());
        }
        match timeout_at(deadline, self.exchange(&method, ask)).await {
            Ok(verdict) => verdict,
            Err(_) => {
                let within = deadline.duration_since(begun).as_millis();
                Verdict::Unknown(format!("it did not answer {method} within {within} ms").into())
            }
        }
    }

    async fn exchange(&self, method: &Method, ask: &WorkerAsk) -> Verdict {
        let answer = match self.send(method, ask).await {
            Ok(answer) => answer,
            Err(why) => return Verdict::Unknown(bounded(&why).into()),
        };
        let (head, body) = answer.into_parts();
        let named = head.headers.get(RESERVATION_HEADER).map(|token| token.as_bytes().to_vec());
        if let Err(error) = Limited::new(body, ANSWER_BYTES_MAX).collect().await {
            return Verdict::Unknown(bounded(&format!("its answer cannot be read: {error}")).into());
        }
        if named.is_some_and(|named| named != ask.token.to_string().as_bytes()) {
            return Verdict::Unknown("it answered for another reservation".into());
        }
        verdict(head.status)
    }

    /// To one of the worker's addresses after the other, until one takes a connection.
    async fn send(&self, method: &Method, ask: &WorkerAsk) -> Result<Response<Incoming>, String> {
        let rule = ask.reported_from.map_or_else(Rule::operator, |from| self.policy.reporting([from]));
        let target: Target = ask.address.parse().map_err(|_| unusable(&ask.address))?;
        let addresses = target.addresses(&rule).await.map_err(|error| match error {
            Unresolved::Lookup(error) => format!("it cannot be reached: {error}"),
            other => other.to_string(),
        })?;
        let mut unreached = unusable(&ask.address);
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            match self.send_to(address, method, ask).await {
                Err((true, why)) => unreached = why,
                other => return other.map_err(|(_, why)| why),
            }
        }
        Err(unreached)
    }

    /// A kept connection may be closed by the worker in the moment in which it is used again. All three calls may be
    /// repeated, so they are, once, on another connection. The error says whether there was no connection.
    async fn send_to(
        &self,
        to: SocketAddr,
        method: &Method,
        ask: &WorkerAsk,
    ) -> Result<Response<Incoming>, (bool, String)> {
        let request = || request(to, method, ask).map_err(|why| (false, why));
        match self.client.request(request()?).await {
            Err(error) if was_closed(&error) => self.client.request(request()?).await,
            other => other,
        }
        .map_err(|error| (error.is_connect(), in_words(&error)))
    }
}

fn request(to: SocketAddr, method: &Method, ask: &WorkerAsk) -> Result<Request<Empty<Bytes>>, String> {
    let client = utf8_percent_encode(&ask.client, SEGMENT);
    let request = Request::builder()
        .method(method)
        .uri(format!("http://{to}/reservation/{client}"))
        .header(HOST, &*ask.address)
        .header(RESERVATION_HEADER, ask.token.to_string())
        .header(RESERVATION_MS_HEADER, ask.reservation.0);
    request.body(Empty::new()).map_err(|_| unusable(&ask.address))
}

fn verdict(status: StatusCode) -> Verdict {
    match status {
        StatusCode::OK => Verdict::Yes,
        StatusCode::NOT_FOUND | StatusCode::CONFLICT => Verdict::No,
        other => Verdict::Unknown(Arc::from(format!("it answered {other}"))),
    }
}

fn unusable(address: &str) -> String {
    format!("its address '{}' cannot be used", bounded(address))
}

fn was_closed(error: &Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
    cause.is_some_and(hyper::Error::is_incomplete_message)
}

/// Describes an error by its innermost cause, which is the most specific.
fn in_words(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if error.is_connect() { format!("it cannot be reached: {cause}") } else { format!("its connection broke: {cause}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_name_is_one_segment_of_the_path() {
        for (name, want) in [
            ("anna", "anna"),
            ("a/b", "a%2Fb"),
            ("..", "%2E%2E"),
            ("a b?c#d%", "a%20b%3Fc%23d%25"),
            ("søk", "s%C3%B8k"),
        ] {
            assert_eq!(utf8_percent_encode(name, SEGMENT).to_string(), want);
        }
    }

    #[test]
    fn only_200_is_a_yes_and_only_404_and_409_are_a_no() {
        for code in 200..600 {
            let status = StatusCode::from_u16(code).unwrap();
            let got = verdict(status);
            match code {
                200 => assert_eq!(got, Verdict::Yes),
                404 | 409 => assert_eq!(got, Verdict::No),
                _ => assert!(matches!(got, Verdict::Unknown(_)), "{code}: {got:?}"),
            }
        }
    }
}
