//! Searches many chunks as one index.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use tantivy::collector::TopDocs;
use tantivy::query::{
    Bm25StatisticsProvider, BooleanQuery, BoostQuery, ConstScoreQuery, DisjunctionMaxQuery, Occur, TermQuery,
};
use tantivy::schema::{Field, IndexRecordOption, Value as _};
use tantivy::snippet::SnippetGenerator;
use tantivy::tokenizer::TextAnalyzer;
use tantivy::{DocAddress, Index, ReloadPolicy, Searcher, TantivyDocument, Term};

use super::{Error, Fields, schema};
use crate::limits::{HITS_MAX, QUERY_BYTES_MAX, QUERY_WORDS_MAX, SNIPPET_CHARS_MAX};

/// How much more a word in a title counts.
const TITLE_BOOST: f32 = 2.0;

/// What to look for: words, all of which a page must have in its title or text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    words: Vec<String>,
    crawl: Option<String>,
}

/// A query that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nothing to look for.
    #[error("the query has no words")]
    Empty,
    /// Too long.
    #[error("the query has more than {QUERY_BYTES_MAX} bytes or {QUERY_WORDS_MAX} words")]
    TooLong,
}

impl FromStr for Query {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        if text.len() > QUERY_BYTES_MAX {
            return Err(Refused::TooLong);
        }
        let mut words: Vec<String> = Vec::new();
        // The tokenizer of the fields, so that a query finds what the index has.
        let mut analyzer = analyzer();
        let mut stream = analyzer.token_stream(text);
        while let Some(token) = stream.next() {
            if !words.contains(&token.text) {
                words.push(token.text.clone());
            }
        }
        match words.len() {
            0 => Err(Refused::Empty),
            1..=QUERY_WORDS_MAX => Ok(Self { words, crawl: None }),
            _ => Err(Refused::TooLong),
        }
    }
}

/// What Tantivy calls `default`: words of letters and digits, in lower case, at most 40 bytes long.
fn analyzer() -> TextAnalyzer {
    tantivy::tokenizer::TokenizerManager::default().get("default").unwrap_or_default()
}

impl Query {
    /// Looks only at the pages of a crawl.
    #[must_use]
    pub fn in_crawl(mut self, crawl: &str) -> Self {
        self.crawl = Some(crawl.to_owned());
        self
    }

    /// A word counts where it counts most: in the title or in the text.
    fn compile(&self, fields: Fields) -> BooleanQuery {
        let term = |field: Field, word: &str| {
            Box::new(TermQuery::new(Term::from_field_text(field, word), IndexRecordOption::WithFreqs))
        };
        let mut clauses: Vec<(Occur, Box<dyn tantivy::query::Query>)> = Vec::new();
        for word in &self.words {
            let title = Box::new(BoostQuery::new(term(fields.title, word), TITLE_BOOST));
            let either = DisjunctionMaxQuery::new(vec![title, term(fields.body, word)]);
            clauses.push((Occur::Must, Box::new(either)));
        }
        if let Some(crawl) = &self.crawl {
            let only = ConstScoreQuery::new(term(fields.crawl, crawl), 0.0);
            clauses.push((Occur::Must, Box::new(only)));
        }
        BooleanQuery::new(clauses)
    }
}

/// A page that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The chunk that it is in, by the name that it was opened under.
    pub chunk: String,
    /// Its URL.
    pub url: String,
    /// Its title.
    pub title: String,
    /// The crawl that it belongs to.
    pub crawl: String,
    /// How well it fits; comparable within one search.
    pub score: f32,
    /// The part of its text that fits best.
    pub snippet: Snippet,
}

/// A part of a text, with the words that were looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snippet {
    /// The text.
    pub text: String,
    /// Where in the text the words are, in bytes.
    pub words: Vec<Range<usize>>,
}

/// The chunks that a server holds.
#[derive(Default)]
pub struct OpenIndexes {
    chunks: Vec<Chunk>,
}

struct Chunk {
    name: String,
    searcher: Searcher,
}

impl std::fmt::Debug for OpenIndexes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.chunks.iter().map(|chunk| &chunk.name)).finish()
    }
}

impl OpenIndexes {
    /// Adds the index in a folder; one of the same name is replaced.
    ///
    /// # Errors
    /// If it is no index of a chunk.
    pub fn open(&mut self, name: &str, folder: &Path) -> Result<(), Error> {
        let index = Index::open_in_dir(folder)?;
        if index.schema() != schema().0 {
            return Err(Error::SchemaError(format!("{} is no index of a chunk", folder.display())));
        }
        // A chunk never changes.
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
        self.close(name);
        self.chunks.push(Chunk { name: name.to_owned(), searcher: reader.searcher() });
        Ok(())
    }

    /// Forgets a chunk. Its files may be removed.
    pub fn close(&mut self, name: &str) {
        self.chunks.retain(|chunk| chunk.name != name);
    }

    /// The number of pages in all chunks.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.searcher.num_docs()).sum()
    }

    /// The best pages of all chunks, or of those that are named, best first; at most [`HITS_MAX`]. A URL that is in
    /// several chunks comes once.
    ///
    /// # Errors
    /// If an index cannot be read.
    pub fn search(&self, query: &Query, only: Option<&HashSet<String>>, limit: usize) -> Result<Vec<Hit>, Error> {
        let limit = limit.min(HITS_MAX);
        let chunks: Vec<&Chunk> =
            self.chunks.iter().filter(|chunk| only.is_none_or(|only| only.contains(&chunk.name))).collect();
        if limit == 0 {
            return Ok(Vec::new());
        }
        let fields = schema().1;
        let compiled = query.compile(fields);
        let everything = Everything::of(&chunks);
        let mut found: Vec<(f32, &Chunk, DocAddress)> = Vec::new();
        for chunk in &chunks {
            let top = TopDocs::with_limit(limit).order_by_score();
            let best = chunk.searcher.search_with_statistics_provider(&compiled, &top, &everything)?;
            found.extend(best.into_iter().map(|(score, at)| (score, *chunk, at)));
        }
        // A stable order, also among pages that fit equally well.
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)).then(a.2.cmp(&b.2)));
        let mut seen = HashSet::new();
        let mut hits = Vec::new();
        for (score, chunk, at) in found {
            if hits.len() == limit {
                break;
            }
            let page: TantivyDocument = chunk.searcher.doc(at)?;
            let text = |field| page.get_first(field).and_then(|value| value.as_str()).unwrap_or_default();
            if !seen.insert(text(fields.url).to_owned()) {
                continue;
            }
            hits.push(Hit {
                chunk: chunk.name.clone(),
                url: text(fields.url).to_owned(),
                title: text(fields.title).to_owned(),
                crawl: text(fields.crawl).to_owned(),
                score,
                snippet: snippet(chunk, &compiled, fields.body, text(fields.body))?,
            });
        }
        Ok(hits)
    }
}

fn snippet(chunk: &Chunk, query: &BooleanQuery, field: Field, body: &str) -> Result<Snippet, Error> {
    let mut generator = SnippetGenerator::create(&chunk.searcher, query, field)?;
    generator.set_max_num_chars(SNIPPET_CHARS_MAX);
    let best = generator.snippet(body);
    if best.is_empty() {
        // The words are in the title only.
        return Ok(Snippet { text: body.chars().take(SNIPPET_CHARS_MAX).collect(), words: Vec::new() });
    }
    Ok(Snippet { text: best.fragment().to_owned(), words: best.highlighted().to_vec() })
}

/// The statistics of all chunks together, so that a word is as rare in one chunk as in any other. The search of every chunk
/// asks for them, so they are summed once per query: otherwise its cost would grow with the square of the chunks.
struct Everything<'a> {
    chunks: &'a [&'a Chunk],
    sums: Mutex<HashMap<Statistic, u64>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Statistic {
    Tokens(Field),
    Pages,
    PagesWith(Term),
}

impl<'a> Everything<'a> {
    fn of(chunks: &'a [&'a Chunk]) -> Self {
        Self { chunks, sums: Mutex::default() }
    }

    fn sum(&self, what: Statistic, of: impl Fn(&Searcher) -> Result<u64, Error>) -> Result<u64, Error> {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = sums.get(&what) {
            return Ok(*known);
        }
        let sum = self.chunks.iter().map(|chunk| of(&chunk.searcher)).sum::<Result<u64, Error>>()?;
        sums.insert(what, sum);
        Ok(sum)
    }
}

impl Bm25StatisticsProvider for Everything<'_> {
    fn total_num_tokens(&self, field: Field) -> Result<u64, Error> {
        self.sum(Statistic::Tokens(field), |searcher| searcher.total_num_tokens(field))
    }

    fn total_num_docs(&self) -> Result<u64, Error> {
        self.sum(Statistic::Pages, |searcher| Ok(searcher.num_docs()))
    }

    fn doc_freq(&self, term: &Term) -> Result<u64, Error> {
        self.sum(Statistic::PagesWith(term.clone()), |searcher| searcher.doc_freq(term))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn statistics_are_summed_once_however_many_chunks_ask_for_them() {
        let folder = tempfile::tempdir().unwrap();
        let index = Index::create_in_dir(folder.path(), schema().0).unwrap();
        let searcher = index.reader().unwrap().searcher();
        let chunks: Vec<Chunk> =
            ["a", "b", "c"].map(|name| Chunk { name: name.into(), searcher: searcher.clone() }).into();
        let chunks: Vec<&Chunk> = chunks.iter().collect();
        let (everything, read) = (Everything::of(&chunks), Cell::new(0));
        let one = |_: &Searcher| {
            read.set(read.get() + 1);
            Ok(5)
        };
        for _ in &chunks {
            assert_eq!(everything.sum(Statistic::Pages, one).unwrap(), 15);
        }
        assert_eq!(read.get(), 3);
        assert_eq!(everything.sum(Statistic::Tokens(schema().1.body), one).unwrap(), 15);
        assert_eq!(read.get(), 6, "another statistic is another sum");
    }
}
