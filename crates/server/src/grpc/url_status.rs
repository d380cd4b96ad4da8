//! GetURLStatus: the state of one URL.

use tonic::Status;
use wayleave_api::urlfrontier::{UrlItem, UrlStatusRequest};
use wayleave_core::crawl_url::{self, BadUrl};
use wayleave_core::redact;
use wayleave_shard::Frontier;

use super::{convert, refused};

/// Answers a GetURLStatus call.
pub async fn get_url_status(frontier: &Frontier, request: UrlStatusRequest) -> Result<UrlItem, Status> {
    let missing = || {
        let (url, crawl) = (redact::in_reason(&request.url), &request.crawl_id);
        Status::not_found(format!("'{url}' is not known in crawl '{crawl}'"))
    };
    let crawl = convert::crawl(&request.crawl_id).ok_or_else(missing)?;
    let host = crawl_url::parse_loosely(&request.url, &request.key).map_err(|cause| match cause {
        BadUrl::NoHost => Status::invalid_argument(format!("cannot derive a queue from this URL: {cause}; send a key")),
        // A URL or a key that cannot be stored.
        _ => missing(),
    })?;
    match frontier.lookup(crawl.clone(), host, &request.url).await {
        Ok(Some(view)) => Ok(convert::stored(view)),
        Ok(None) => Err(missing()),
        Err(refusal) if refused::is_unknown(&refusal) => Err(missing()),
        Err(refusal) => Err(refused::status(&refusal)),
    }
}
