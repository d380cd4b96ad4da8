//! One question to one index server, bounded in time and size.

use std::collections::HashMap;
use std::net::IpAddr;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use tokio::time::timeout;
use url::Url;
use wayleave_outgoing::{HttpClient, Policy, http_client, refused};

use crate::fetch::client::causes;
use crate::index_server::wire::SearchResponse;
use crate::limits::{ANSWER_BYTES_MAX, ANSWER_TIME_MAX, SEARCH_CHUNKS_MAX};

/// A client of index servers, which calls each one where it reports from.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    policy: Policy,
    servers: HashMap<String, Vec<IpAddr>>,
}

/// What to ask.
#[derive(Debug, Clone)]
pub(super) struct Question<'a> {
    pub words: &'a str,
    pub crawl: Option<&'a str>,
    pub limit: usize,
}

impl Asker {
    pub fn new(policy: Policy, servers: HashMap<String, Vec<IpAddr>>) -> Self {
        Self { policy, servers }
    }

    /// Asks for some chunks of a server, in several calls if there are very many.
    pub async fn ask(
        &self,
        address: &str,
        question: &Question<'_>,
        chunks: &[String],
    ) -> Result<SearchResponse, String> {
        let from = self.servers.get(address).into_iter().flatten().copied();
        let client = http_client(self.policy.named(from), 1, ANSWER_TIME_MAX);
        let mut all = SearchResponse::default();
        // Short enough for a line of a request.
        for part in chunks.chunks(SEARCH_CHUNKS_MAX.min(500)) {
            let SearchResponse { hits, missing } = self.part(&client, address, question, part).await?;
            all.hits.extend(hits);
            all.missing.extend(missing.into_iter().filter(|chunk| part.contains(chunk)));
        }
        Ok(all)
    }

    async fn part(
        &self,
        client: &HttpClient,
        address: &str,
        question: &Question<'_>,
        chunks: &[String],
    ) -> Result<SearchResponse, String> {
        let mut url: Url =
            format!("http://{address}/search").parse().map_err(|_| format!("{address} is no address"))?;
        url.query_pairs_mut()
            .append_pair("q", question.words)
            .append_pair("limit", &question.limit.to_string())
            .append_pair("chunks", &chunks.join(","));
        if let Some(crawl) = question.crawl {
            url.query_pairs_mut().append_pair("crawl", crawl);
        }
        let answer = timeout(ANSWER_TIME_MAX, get(client, &url)).await;
        let bytes = answer.map_err(|_| format!("{address} took longer than {ANSWER_TIME_MAX:?}"))??;
        // The parser's error would repeat a part of the answer.
        serde_json::from_slice(&bytes).map_err(|_| format!("{address} answered, but not as an index server"))
    }
}

async fn get(client: &HttpClient, url: &Url) -> Result<Bytes, String> {
    let request = Request::get(url.as_str()).body(Empty::new()).map_err(|error| error.to_string())?;
    let response = client.request(request).await;
    let response = response.map_err(|error| refused(&error).map_or_else(|| causes(&error), ToString::to_string))?;
    if !response.status().is_success() {
        return Err(format!("status {}", response.status()));
    }
    let mut body = response.into_body();
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| causes(&error))?.into_data() else { continue };
        bytes.extend_from_slice(&data);
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err("the answer is too long".to_owned());
        }
    }
    Ok(bytes.freeze())
}
