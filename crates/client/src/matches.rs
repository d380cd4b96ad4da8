//! Matches: a client asks for a worker of a pool.

use std::time::Duration;

use futures::Stream;
use reqwest::Method;
use wayleave_api::Code;
use wayleave_api::matches::{
    DeleteMatchQuery, GetMatchQuery, ListMatchesQuery, ListMatchesResponse, Match, PutMatchQuery,
};

use crate::call::{Call, Ended, Repeat};
use crate::pages::pages;
use crate::{Client, Error};

impl Client {
    /// Asks for a worker; with `wait_ms` in the query, waits for it. Idempotent per client and pool: asked again, it is the
    /// same request, and a match that exists is confirmed. A match that failed is not asked for again here, because the
    /// next call would queue it anew: that is the caller's decision. So is how long to wait for a place in a full queue.
    /// Fails if the pool is not known or its queue is full, the match failed ([`Code::MatchFailed`]), or the server
    /// cannot answer.
    pub async fn put_match(&self, client: &str, query: &PutMatchQuery) -> Result<Match, Error> {
        let wait = Duration::from_millis(query.wait_ms.unwrap_or(0));
        let put = Call::new(Method::PUT, self.url(&["matches", client])).query(&self.http, query)?.longer(wait);
        let put = put.repeat(Repeat::IfNotDone);
        let mut looks = 0;
        loop {
            let lost = match self.call(put.clone()).await {
                Err(error) if error.is_outcome_unknown() && looks < self.attempts() => error,
                answer => return answer,
            };
            looks += 1;
            tracing::debug!(error = %lost, "looking what became of a request for a worker");
            self.check_match(client, &query.pool).await?;
        }
    }

    /// Before a request whose answer was lost is repeated: that may have been that the match failed, and would not be told again.
    pub async fn check_match(&self, client: &str, pool: &str) -> Result<(), Error> {
        let look = GetMatchQuery { pool: pool.to_owned(), ..GetMatchQuery::default() };
        let found = self.get_match(client, &look).await.map(drop);
        found.or_else(|error| if error.code() == Some(Code::MatchFailed) { Err(error) } else { Ok(()) })
    }

    /// The same, asked once: the answer must come within this time after the end of the wait. For callers that ask again by
    /// themselves; the next call goes to the next server, if this one did not answer. Fails as [`Self::put_match`], and
    /// if no answer came in time.
    pub async fn put_match_once(&self, client: &str, query: &PutMatchQuery, answer: Duration) -> Result<Match, Error> {
        let call = Call::new(Method::PUT, self.url(&["matches", client])).query(&self.http, query)?;
        let wait = Duration::from_millis(query.wait_ms.unwrap_or(0));
        self.call(call.repeat(Repeat::Never).within(answer).longer(wait)).await
    }

    /// A client's match. Confirms it, unless the query says otherwise. Fails if the client has none, it failed
    /// ([`Code::MatchFailed`]), or the server cannot answer.
    pub async fn get_match(&self, client: &str, query: &GetMatchQuery) -> Result<Match, Error> {
        let call = Call::new(Method::GET, self.url(&["matches", client])).query(&self.http, query)?;
        self.call(call.longer(Duration::from_millis(query.wait_ms.unwrap_or(0)))).await
    }

    /// Cancels a client's request, or gives its slot back. One that is not known after a lost answer was ended by that
    /// attempt. Fails if the client has none, the token is not its own, or the server cannot answer.
    pub async fn delete_match(&self, client: &str, query: &DeleteMatchQuery) -> Result<(), Error> {
        let call = Call::new(Method::DELETE, self.url(&["matches", client])).query(&self.http, query)?;
        let Ended { answer, earlier_unknown } = self.call_out(&call).await;
        match answer {
            Err(error) if earlier_unknown && error.code() == Some(Code::UnknownMatch) => Ok(()),
            answer => answer,
        }
    }

    /// One page of matches.
    pub async fn list_matches(&self, query: &ListMatchesQuery) -> Result<ListMatchesResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["matches"])).query(&self.http, query)?).await
    }

    /// All matches of a query, page after page.
    pub fn all_matches(&self, query: ListMatchesQuery) -> impl Stream<Item = Result<Match, Error>> + '_ {
        pages(move |after| {
            let query = ListMatchesQuery { after, ..query.clone() };
            async move {
                let page = self.list_matches(&query).await?;
                Ok((page.matches, page.next))
            }
        })
    }
}
