//! One call: send, read, and decide whether it may be sent again.

use std::time::Duration;

use reqwest::{Method, Response, StatusCode, Url, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wayleave_api::{Code, Problem};

use crate::client::Client;
use crate::error::{Error, root_cause};

/// Time for an answer that does not wait on purpose.
const TIMEOUT: Duration = Duration::from_secs(60);
/// What is shown of an answer that is not a problem.
const TEXT_SHOWN: usize = 200;

/// When a call may be sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeat {
    /// Also when it may have been carried out: twice is the same as once, or the caller does not mind.
    #[default]
    Always,
    /// Only when it was surely not carried out.
    IfNotDone,
    /// Never: what it says is true only now.
    Never,
}

/// A call on its way.
#[derive(Debug)]
pub(crate) struct Call {
    method: Method,
    url: Url,
    body: Option<Vec<u8>>,
    repeat: Repeat,
    timeout: Duration,
}

impl Call {
    pub fn new(method: Method, url: Url) -> Self {
        Self { method, url, body: None, repeat: Repeat::Always, timeout: TIMEOUT }
    }

    pub fn query<T: Serialize>(mut self, http: &reqwest::Client, query: &T) -> Result<Self, Error> {
        let request = http.get(self.url.clone()).query(query).build();
        self.url = request.map_err(|error| unsendable(&self.url, root_cause(&error)))?.url().clone();
        Ok(self)
    }

    pub fn body<T: Serialize>(mut self, body: &T) -> Result<Self, Error> {
        self.body = Some(serde_json::to_vec(body).map_err(|error| unsendable(&self.url, error.to_string()))?);
        Ok(self)
    }

    pub const fn repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = repeat;
        self
    }

    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// Allows the answer to take this long, in all.
    pub const fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Allows the answer to take this much longer.
    pub fn longer(mut self, by: Duration) -> Self {
        self.timeout = self.timeout.saturating_add(by);
        self
    }
}

fn unsendable(url: &Url, cause: String) -> Error {
    Error::BadAnswer { server: url.to_string(), cause: format!("the request cannot be written: {cause}") }
}

/// How a call ended, and whether an attempt before the last one may have been carried out.
pub(crate) struct Ended<T> {
    pub answer: Result<T, Error>,
    pub earlier_unknown: bool,
}

impl Client {
    /// Makes a call, again and again as far as its kind allows.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        self.call_out(&call).await.answer
    }

    pub(crate) async fn call_out<T: DeserializeOwned>(&self, call: &Call) -> Ended<T> {
        let mut earlier_unknown = false;
        let mut attempt = 1;
        loop {
            let (error, retry_after) = match self.attempt(call).await {
                Ok(answer) => return Ended { answer: Ok(answer), earlier_unknown },
                Err(failed) => failed,
            };
            let allowed = match call.repeat {
                Repeat::Always => true,
                Repeat::IfNotDone => !error.is_outcome_unknown(),
                Repeat::Never => false,
            };
            if !(error.is_transient() && allowed && attempt < self.retry.attempts) {
                return Ended { answer: Err(error), earlier_unknown };
            }
            earlier_unknown |= error.is_outcome_unknown();
            let pause = self.retry.pause(attempt, retry_after);
            tracing::debug!(error = %error, attempt, pause.ms = pause.as_millis(), "trying again");
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    async fn attempt<T: DeserializeOwned>(&self, call: &Call) -> Result<T, (Error, Option<Duration>)> {
        let mut request = self.http.request(call.method.clone(), call.url.clone()).timeout(call.timeout);
        if let Some(body) = &call.body {
            request = request.header(header::CONTENT_TYPE, "application/json").body(body.clone());
        }
        let response = request.send().await.map_err(|error| (self.not_answered(&error), None))?;
        let response = self.accepted(response).await?;
        let body = response.bytes().await.map_err(|error| (self.not_answered(&error), None))?;
        let body: &[u8] = if body.is_empty() { b"null" } else { &body };
        serde_json::from_slice(body).map_err(|error| (self.bad_answer(&error), None))
    }

    /// The response, if its status says that the request was carried out; else the problem in it.
    pub(crate) async fn accepted(&self, response: Response) -> Result<Response, (Error, Option<Duration>)> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|secs| secs.parse().ok()).map(Duration::from_secs);
        let body = response.bytes().await.map_err(|error| (self.not_answered(&error), None))?;
        let problem = serde_json::from_slice(&body).unwrap_or_else(|_| foreign(status, &body));
        Err((Error::Refused(Box::new(problem)), retry_after))
    }

    /// No answer: was the request sent or not?
    pub(crate) fn not_answered(&self, error: &reqwest::Error) -> Error {
        let (server, cause) = (self.server().to_owned(), root_cause(error));
        if error.is_connect() { Error::Unreachable { server, cause } } else { Error::Lost { server, cause } }
    }

    pub(crate) fn bad_answer(&self, cause: &dyn std::fmt::Display) -> Error {
        Error::BadAnswer { server: self.server().to_owned(), cause: cause.to_string() }
    }
}

/// A refusal that is no problem of ours: something stands between us and the server, or it is none.
fn foreign(status: StatusCode, body: &[u8]) -> Problem {
    let text: String = String::from_utf8_lossy(body).chars().take(TEXT_SHOWN).collect();
    let detail = format!("the server answered with status {status} and no problem: {text}");
    Problem {
        status: status.as_u16(),
        code: format!("http_{}", status.as_u16()),
        ..Problem::new(Code::Internal, detail)
    }
}
