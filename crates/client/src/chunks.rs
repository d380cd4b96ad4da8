//! Chunks: claim, report links, renew, complete, fail; list, retry, skip.

use std::time::Duration;

use futures::Stream;
use reqwest::Method;
use serde::Serialize;
use wayleave_api::chunks::{
    Chunk, ChunkMoved, ClaimChunksRequest, ClaimChunksResponse, CompleteChunkRequest, FailChunkRequest,
    ListChunksQuery, ListChunksResponse, RenewChunkRequest, RenewChunkResponse, ReportLinksRequest,
    ReportLinksResponse,
};
use wayleave_api::{Code, Problem};

use crate::call::{Call, Repeat};
use crate::pages::damaged_pages;
use crate::reservations::fresh_id;
use crate::{Client, Error};

impl Client {
    /// Claims chunks. A request without an id gets one, so it can be retried after a lost response: the same chunks are
    /// returned again, and none is left alone until its lease ends.
    pub async fn claim_chunks(&self, request: &ClaimChunksRequest) -> Result<ClaimChunksResponse, Error> {
        let request_id = request.request_id.clone().or_else(|| Some(fresh_id()));
        let named = ClaimChunksRequest { request_id, ..request.clone() };
        let call = Call::new(Method::POST, self.url(&["chunks", "claim"])).body(&named)?.repeat(Repeat::Always);
        self.call(call.longer(Duration::from_millis(request.wait_ms))).await
    }

    /// Reports links of a chunk. Idempotent. Fails if the token is not current, a result is refused, or the server
    /// cannot answer.
    pub async fn report_links(&self, chunk: &str, request: &ReportLinksRequest) -> Result<ReportLinksResponse, Error> {
        self.of_chunk(chunk, "links", request).await
    }

    /// Extends the lease of a chunk.
    pub async fn renew_chunk(&self, chunk: &str, request: &RenewChunkRequest) -> Result<RenewChunkResponse, Error> {
        self.of_chunk(chunk, "renew", request).await
    }

    /// Completes the stage of a chunk. Idempotent. Fails if the token is not current, the artifact is refused, or the
    /// server cannot answer.
    pub async fn complete_chunk(&self, chunk: &str, request: &CompleteChunkRequest) -> Result<ChunkMoved, Error> {
        self.of_chunk(chunk, "complete", request).await
    }

    /// Fails the attempt at a stage of a chunk. Idempotent.
    pub async fn fail_chunk(&self, chunk: &str, request: &FailChunkRequest) -> Result<ChunkMoved, Error> {
        self.of_chunk(chunk, "fail", request).await
    }

    async fn of_chunk<B, T>(&self, chunk: &str, call: &str, request: &B) -> Result<T, Error>
    where
        B: Serialize,
        T: serde::de::DeserializeOwned,
    {
        self.call(Call::new(Method::POST, self.url(&["chunks", chunk, call])).body(request)?).await
    }

    /// Offers a chunk again that was set aside or skipped. Fails if its state does not allow it or the server cannot
    /// answer.
    pub async fn retry_chunk(&self, chunk: &str) -> Result<ChunkMoved, Error> {
        // A chunk that was retried is in progress, and cannot be retried.
        let call = Call::new(Method::POST, self.url(&["chunks", chunk, "retry"]));
        self.call(call.once("look at the chunk before you retry it again")).await
    }

    /// Gives a chunk up. Idempotent. Fails if its state does not allow it or the server cannot answer.
    pub async fn skip_chunk(&self, chunk: &str) -> Result<ChunkMoved, Error> {
        self.call(Call::new(Method::POST, self.url(&["chunks", chunk, "skip"]))).await
    }

    /// A chunk.
    pub async fn chunk(&self, chunk: &str) -> Result<Chunk, Error> {
        self.call(Call::new(Method::GET, self.url(&["chunks", chunk]))).await
    }

    /// One page of chunks.
    pub async fn list_chunks(&self, query: &ListChunksQuery) -> Result<ListChunksResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["chunks"])).query(&self.http, query)?).await
    }

    /// All chunks that match, page after page. It ends with an error if chunks are missing, because the store is damaged.
    pub fn all_chunks(&self, query: ListChunksQuery) -> impl Stream<Item = Result<Chunk, Error>> + '_ {
        let page = move |after| {
            let query = ListChunksQuery { after, ..query.clone() };
            async move {
                let page = self.list_chunks(&query).await?;
                Ok((page.chunks, page.next, page.damaged))
            }
        };
        damaged_pages(page, |chunk| {
            let cause = format!("chunk '{chunk}' cannot be read: all others were listed");
            Problem::new(Code::Damaged, cause).with("chunk", chunk)
        })
    }
}
