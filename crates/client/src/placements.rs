//! Built chunks on index servers, and the map that readers use.

use std::time::Duration;

use futures::Stream;
use reqwest::Method;
use wayleave_api::map::{GetMapQuery, Map};
use wayleave_api::placements::{
    ListPlacementsQuery, ListPlacementsResponse, Placement, ReportPlacementRequest, ReportPlacementResponse, SaidOfCopy,
};

use crate::call::Call;
use crate::pages::pages;
use crate::{Client, Error};

impl Client {
    /// One page of copies of chunks. An index server that fetches them asks with `credentials`: otherwise user names and
    /// passwords in locations are hidden. Fails if the query is refused, the server is not known, or no answer comes.
    pub async fn list_placements(&self, query: &ListPlacementsQuery) -> Result<ListPlacementsResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["placements"])).query(&self.http, query)?).await
    }

    /// All copies of chunks that match, page after page.
    pub fn all_placements(&self, query: ListPlacementsQuery) -> impl Stream<Item = Result<Placement, Error>> + '_ {
        pages(move |after| {
            let query = ListPlacementsQuery { after, ..query.clone() };
            async move {
                let page = self.list_placements(&query).await?;
                Ok((page.placements, page.next))
            }
        })
    }

    /// Says what an index server does with its copy of a chunk, and with which index. The server's token is required once it has presented it.
    /// Idempotent, but for a copy that is gone: that is never said twice. Fails if chunk or server are not known, the
    /// chunk is not placed there, the state does not follow, or no answer comes.
    pub async fn report_placement(
        &self,
        chunk: &str,
        server: &str,
        (state, checksum): (SaidOfCopy, Option<&str>),
        token: Option<&str>,
    ) -> Result<ReportPlacementResponse, Error> {
        let call = Call::new(Method::POST, self.url(&["placements", chunk, server]));
        let call = match state {
            SaidOfCopy::Fetching | SaidOfCopy::Ready => call,
            // The chunk may be placed here again meanwhile: a second report would count as another failed attempt at it.
            SaidOfCopy::Gone | SaidOfCopy::Unable => call.once("read the placements, which show whether it was"),
        };
        let (checksum, token) = (checksum.map(str::to_owned), token.map(str::to_owned));
        self.call(call.body(&ReportPlacementRequest { state, checksum, token })?).await
    }

    /// The map; long-polls as the query says. `None` if it still has the version `since`. Fails if the query is
    /// refused, too many readers wait, or the server cannot answer.
    pub async fn map(&self, query: &GetMapQuery) -> Result<Option<Map>, Error> {
        let call = Call::new(Method::GET, self.url(&["map"])).query(&self.http, query)?;
        self.call(call.longer(Duration::from_millis(query.wait_ms.unwrap_or(0)))).await
    }
}
