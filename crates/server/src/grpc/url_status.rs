//! GetURLStatus: the state of one URL.

use tonic::Status;
use wayleave_api::urlfrontier::{UrlItem, UrlStatusRequest};
use wayleave_core::{crawl_url, names, redact};
use wayleave_shard::Frontier;

use super::{convert, refused};

/// ResponsesInFlight a GetURLStatus call.
pub async fn get_url_status(frontier: &Frontier, request: UrlStatusRequest) -> Result<UrlItem, Status> {
    let crawl = names::crawl(&request.crawl_id).map_err(|name| refused::bad_name(&name))?;
    let host = crawl_url::parse_loosely(&request.url, &request.key).map_err(|cause| {
        Status::invalid_argument(format!("cannot derive a queue from this URL: {cause}; send a key"))
    })?;
    let missing = || Status::not_found(format!("'{}' is not known in crawl '{crawl}'", redact::url(&request.url)));
    match frontier.lookup(crawl.clone(), host, &request.url).await {
        Ok(Some(view)) => Ok(convert::stored(view)),
        Ok(None) => Err(missing()),
        Err(refusal) if refused::is_unknown(&refusal) => Err(missing()),
        Err(refusal) => Err(refused::status(&refusal)),
    }
}
