//! Chunks and machines that are carried from one store to another.

use futures::Stream;
use reqwest::Method;
use wayleave_api::carry::{
    ChunkNumbers, ExportChunksQuery, ExportChunksResponse, ExportedChunk, ImportChunksRequest, ImportChunksResponse,
    MapVersion, RaiseChunkNumbersRequest, RaiseMapVersionRequest, RestoreMachineRequest,
};
use wayleave_api::fleet::Machine;

use crate::call::{Call, Repeat};
use crate::pages::pages;
use crate::{Client, Error};

impl Client {
    /// One page of chunks as an export carries them.
    ///
    /// # Errors
    /// If the query is refused or the server cannot answer.
    pub async fn export_chunks(&self, query: &ExportChunksQuery) -> Result<ExportChunksResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["chunks", "export"])).query(&self.http, query)?).await
    }

    /// All chunks, or those of a crawl, as an export carries them, page after page.
    pub fn all_exported_chunks(&self, crawl: Option<String>) -> impl Stream<Item = Result<ExportedChunk, Error>> + '_ {
        pages(move |after| {
            let query = ExportChunksQuery { crawl: crawl.clone(), after };
            async move {
                let page = self.export_chunks(&query).await?;
                Ok((page.chunks, page.next))
            }
        })
    }

    /// Restores exported chunks. Idempotent.
    ///
    /// # Errors
    /// If the request is refused or the server cannot answer.
    pub async fn import_chunks(&self, request: &ImportChunksRequest) -> Result<ImportChunksResponse, Error> {
        let call = Call::new(Method::POST, self.url(&["chunks", "import"])).body(request)?;
        self.call(call.repeat(Repeat::Always)).await
    }

    /// The number of the next chunk.
    ///
    /// # Errors
    /// If the server cannot answer.
    pub async fn next_chunk_number(&self) -> Result<ChunkNumbers, Error> {
        self.call(Call::new(Method::GET, self.url(&["chunks", "next_number"]))).await
    }

    /// Raises the numbers of new chunks. Idempotent.
    ///
    /// # Errors
    /// If the request is refused or the server cannot answer.
    pub async fn raise_chunk_numbers(&self, next: u64) -> Result<ChunkNumbers, Error> {
        let call = Call::new(Method::POST, self.url(&["chunks", "raise_numbers"]));
        self.call(call.body(&RaiseChunkNumbersRequest { next })?.repeat(Repeat::Always)).await
    }

    /// Restores an exported machine. Idempotent.
    ///
    /// # Errors
    /// If the request is refused or the server cannot answer.
    pub async fn restore_machine(&self, id: &str, request: &RestoreMachineRequest) -> Result<Machine, Error> {
        let call = Call::new(Method::POST, self.url(&["fleet", id, "restore"])).body(request)?;
        self.call(call.repeat(Repeat::Always)).await
    }

    /// Raises the version of the map. Idempotent.
    ///
    /// # Errors
    /// If the request is refused or the server cannot answer.
    pub async fn raise_map_version(&self, version: u64) -> Result<MapVersion, Error> {
        let call = Call::new(Method::POST, self.url(&["map", "raise_version"]));
        self.call(call.body(&RaiseMapVersionRequest { version })?.repeat(Repeat::Always)).await
    }
}
