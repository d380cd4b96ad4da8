//! One call: send, read, and decide whether to retry.

use std::time::{Duration, Instant};

use reqwest::{Method, Url, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wayleave_api::Code;

use crate::client::Client;
use crate::error::{Error, root_cause};
use crate::servers::Here;
use crate::waiting::{SLOW, Waiting};

/// The timeout of a call that is not a long poll.
const TIMEOUT: Duration = Duration::from_secs(60);

/// When a call may be retried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeat {
    /// Also when it may have been applied: it is idempotent, or the caller does not mind.
    #[default]
    Always,
    /// Only when it was certainly not applied.
    IfNotDone,
    /// Never: its content is true only now.
    Never,
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: Method,
    url: Url,
    body: Option<Vec<u8>>,
    repeat: Repeat,
    /// What to do if it may have been applied.
    remedy: Option<&'static str>,
    timeout: Duration,
    /// A long poll.
    patient: bool,
}

impl Call {
    pub fn new(method: Method, url: Url) -> Self {
        Self { method, url, body: None, repeat: Repeat::Always, remedy: None, timeout: TIMEOUT, patient: false }
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

    /// Never makes it twice, because a second time changes more than the first. If it may have been applied, the error says so,
    /// with this remedy.
    pub const fn once(mut self, remedy: &'static str) -> Self {
        (self.repeat, self.remedy) = (Repeat::IfNotDone, Some(remedy));
        self
    }

    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// Sets the timeout of the response.
    pub const fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Extends the timeout of the response.
    pub fn longer(mut self, by: Duration) -> Self {
        self.timeout = self.timeout.saturating_add(by);
        self.patient |= !by.is_zero();
        self
    }
}

fn unsendable(url: &Url, cause: String) -> Error {
    Error::BadAnswer { server: url.to_string(), cause: format!("the request cannot be written: {cause}") }
}

/// The outcome of a call, and whether an earlier attempt may have been applied.
pub(crate) struct Ended<T> {
    pub answer: Result<T, Error>,
    pub earlier_unknown: bool,
}

impl Client {
    /// Makes a call, with retries as far as its kind allows.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        self.call_out(&call).await.answer
    }

    pub(crate) async fn call_out<T: DeserializeOwned>(&self, call: &Call) -> Ended<T> {
        let mut earlier_unknown = false;
        let mut attempt = 1;
        let (begun, attempts) = (Instant::now(), self.retry.attempts);
        loop {
            let (error, retry_after) = match self.attempt_watched(call, begun).await {
                Ok(answer) => {
                    if attempt > 1 {
                        self.observe(&Waiting::Answered { server: self.server(), elapsed: begun.elapsed() });
                    }
                    return Ended { answer: Ok(answer), earlier_unknown };
                }
                Err(failed) => failed,
            };
            let allowed = match call.repeat {
                Repeat::Always => true,
                Repeat::IfNotDone => !error.is_outcome_unknown(),
                Repeat::Never => false,
            };
            // A queue may be full for long: how long to wait for it is the caller's decision.
            let passes = error.is_transient() && error.code() != Some(Code::QueueFull);
            if !(passes && allowed && attempt < attempts) {
                if attempt > 1 {
                    self.observe(&Waiting::GaveUp { elapsed: begun.elapsed(), attempts: attempt });
                }
                let error = match call.remedy.filter(|_| error.is_outcome_unknown()) {
                    Some(remedy) => Error::OutcomeUnknown { cause: Box::new(error), remedy },
                    None => error,
                };
                return Ended { answer: Err(error), earlier_unknown };
            }
            earlier_unknown |= error.is_outcome_unknown();
            if self.has_another(attempt, &error) {
                self.observe(&Waiting::Next { error: &error, server: self.server() });
            } else {
                self.observe(&Waiting::Again { error: &error, elapsed: begun.elapsed(), attempt, attempts });
                let pause = self.retry.pause(attempt, retry_after);
                tracing::debug!(error = %error, attempt, pause.ms = pause.as_millis(), "trying again");
                tokio::time::sleep(pause).await;
            }
            attempt += 1;
        }
    }

    /// Makes one attempt, and reports if its response is slow.
    async fn attempt_watched<T: DeserializeOwned>(
        &self,
        call: &Call,
        begun: Instant,
    ) -> Result<T, (Error, Option<Duration>)> {
        let mut attempt = std::pin::pin!(self.attempt(call));
        if call.patient || self.observer.is_none() {
            return attempt.await;
        }
        match tokio::time::timeout(SLOW, &mut attempt).await {
            Ok(ended) => ended,
            Err(_) => {
                self.observe(&Waiting::Slow { server: self.server(), elapsed: begun.elapsed() });
                attempt.await
            }
        }
    }

    async fn attempt<T: DeserializeOwned>(&self, call: &Call) -> Result<T, (Error, Option<Duration>)> {
        let here = self.here();
        self.attempt_at(&here, call).await.map_err(|(error, retry_after)| (here.failed(error), retry_after))
    }

    async fn attempt_at<T: DeserializeOwned>(&self, here: &Here, call: &Call) -> Result<T, (Error, Option<Duration>)> {
        let mut request = self.http.request(call.method.clone(), here.place(&call.url)).timeout(call.timeout);
        if let Some(body) = &call.body {
            request = request.header(header::CONTENT_TYPE, "application/json").body(body.clone());
        }
        let response = request.send().await.map_err(|error| (here.not_answered(&error), None))?;
        let response = here.accepted(response).await?;
        let body = response.bytes().await.map_err(|error| (here.not_answered(&error), None))?;
        let body: &[u8] = if body.is_empty() { b"null" } else { &body };
        serde_json::from_slice(body).map_err(|error| (here.bad_answer(&error), None))
    }
}
