//! All URLs of a query as one NDJSON stream, with back-pressure.

use futures::{Stream, StreamExt, TryStreamExt};
use reqwest::{Method, header};
use wayleave_api::urls::{ListUrlsQuery, Url};

use crate::call::Call;
use crate::lines::{TooLong, lines};
use crate::{Client, Error};

/// What can go wrong with a response body.
enum Broken {
    Cut(reqwest::Error),
    Line(TooLong),
}

impl From<TooLong> for Broken {
    fn from(too_long: TooLong) -> Self {
        Self::Line(too_long)
    }
}

impl Client {
    /// Streams all URLs of a query in one response. It has no timeout, because matches may be far apart; a server whose machine is
    /// gone is found by probes of the connection. It is not resumed: a truncated response ends with an error, never as if it were
    /// complete.
    pub async fn stream_urls(
        &self,
        query: &ListUrlsQuery,
    ) -> Result<impl Stream<Item = Result<Url, Error>> + use<>, Error> {
        let call = Call::new(Method::GET, self.url(&["urls"])).query(&self.http, query)?;
        let here = self.here();
        let request = self.http.get(here.place(call.url())).header(header::ACCEPT, "application/x-ndjson");
        let response = request.send().await.map_err(|error| here.failed(here.not_answered(&error)))?;
        let response = here.accepted(response).await.map_err(|(error, _)| here.failed(error))?;
        let body = response.bytes_stream().map_err(Broken::Cut).boxed();
        Ok(lines(body).map(move |line| match line {
            Ok(line) => serde_json::from_slice(&line).map_err(|error| here.bad_answer(&error)),
            Err(Broken::Cut(error)) => Err(here.failed(here.not_answered(&error))),
            Err(Broken::Line(error)) => Err(here.bad_answer(&error)),
        }))
    }
}
