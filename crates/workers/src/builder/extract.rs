//! From a WARC file to a packed index: blocking work.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;

use axum::http::header::CONTENT_TYPE;
use hyper::header::HeaderName;

use crate::index::{self, Builder, Page};
use crate::warc::{self, Reader, Response};
use crate::{charset, fetch, links, text};

const X_ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");

/// Why no index could be built.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0}")]
    Warc(#[from] warc::Error),
    #[error("cannot build the index: {0}")]
    Index(#[from] index::Error),
    #[error("cannot write the index: {0}")]
    File(#[from] io::Error),
}

/// Builds the index of a WARC file and packs it. Returns the number of its pages.
pub(super) fn index(warc: &Path, crawl: &str, scratch: &Path, packed: &Path) -> Result<u64, Error> {
    let folder = scratch.join("index");
    fs::create_dir(&folder)?;
    let mut builder = Builder::create(&folder)?;
    for record in Reader::new(BufReader::new(File::open(warc)?)) {
        let Some(response) = record?.response() else { continue };
        add(&mut builder, &response, crawl)?;
    }
    let pages = builder.finish()?;
    index::pack(&folder, io::BufWriter::new(File::create_new(packed)?))?;
    fs::remove_dir_all(&folder)?;
    Ok(pages)
}

/// Adds a page, unless it is none, does not want to be indexed, or is the copy of another one.
fn add(builder: &mut Builder, response: &Response, crawl: &str) -> Result<(), Error> {
    let content_type = response.header(CONTENT_TYPE);
    if !response.status.is_success() || !fetch::is_html(content_type) {
        return Ok(());
    }
    let Ok((body, _)) = response.body() else { return Ok(()) };
    let html = charset::decode(&body, content_type);
    let tags = response.headers.get_all(X_ROBOTS_TAG).iter().filter_map(|value| value.to_str().ok());
    let found = links::find(&response.url, &html, tags);
    if found.noindex || found.canonical.is_some() {
        return Ok(());
    }
    let text = text::extract(&html);
    builder.add(&Page { url: response.url.as_str(), title: &text.title, body: &text.body, crawl })?;
    Ok(())
}
