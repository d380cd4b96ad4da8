//! Questions to an index server, and its answers.

use serde::{Deserialize, Serialize};

use crate::index;

/// `GET /search`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchQuery {
    /// The words.
    pub q: String,
    /// Only pages of this crawl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl: Option<String>,
    /// At most this many hits; 10 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only these chunks, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<String>,
}

/// The answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchResponse {
    /// The best hits, best first.
    pub hits: Vec<Hit>,
    /// Chunks that were asked for and not searched: they are not here, or are out of order. Ask for them elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// A page that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hit {
    /// Its URL.
    pub url: String,
    /// Its title.
    pub title: String,
    /// The crawl that it belongs to.
    pub crawl: String,
    /// The chunk that it is in.
    pub chunk: String,
    /// How well it fits.
    pub score: f32,
    /// The part of its text that fits best.
    pub snippet: String,
    /// Where in the snippet the words are: starts and ends, in bytes.
    pub words: Vec<(usize, usize)>,
}

impl From<index::Hit> for Hit {
    fn from(hit: index::Hit) -> Self {
        Self {
            url: hit.url,
            title: hit.title,
            crawl: hit.crawl,
            chunk: hit.chunk,
            score: hit.score,
            snippet: hit.snippet.text,
            words: hit.snippet.words.into_iter().map(|range| (range.start, range.end)).collect(),
        }
    }
}
