//! Searches many chunks as one index.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tantivy::collector::TopDocs;
use tantivy::query::{
    Bm25StatisticsProvider, BooleanQuery, BoostQuery, ConstScoreQuery, DisjunctionMaxQuery, Occur, Query as _,
    TermQuery,
};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::snippet::SnippetGenerator;
use tantivy::store::StoreReader;
use tantivy::tokenizer::TextAnalyzer;
use tantivy::{DocAddress, Index, ReloadPolicy, Searcher, Term};

use super::{Error, Fault, Fields, contained, schema, stored};
use crate::limits::{HITS_MAX, QUERY_BYTES_MAX, QUERY_WORDS_MAX, SNIPPET_CHARS_MAX};

/// How much more a word in a title counts.
const TITLE_BOOST: f32 = 2.0;

/// What a chunk without text is tried with.
const TRIAL_WORD: &str = "wayleave";

/// Decompressed blocks of pages that an open chunk keeps, as many as Tantivy does.
const BLOCKS_CACHED: usize = 100;

/// What to look for: words, which a page must all have in its title or text.
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

/// What a search led to.
#[derive(Debug, Default)]
pub struct Found {
    /// The best hits, best first.
    pub hits: Vec<Hit>,
    /// Chunks that could not be searched.
    pub failed: Vec<Failed>,
}

/// A chunk that could not be searched.
#[derive(Debug)]
pub struct Failed {
    /// The name that it was opened under.
    pub chunk: String,
    /// The folder that it was opened in.
    pub folder: PathBuf,
    /// Why.
    pub fault: Fault,
}

/// The chunks that a server holds.
#[derive(Default)]
pub struct OpenIndexes {
    chunks: Vec<OpenIndex>,
}

/// A chunk that was searched once, to try it.
pub struct OpenIndex {
    name: String,
    folder: PathBuf,
    searcher: Searcher,
    /// The stored pages, by segment.
    stores: Vec<StoreReader>,
}

impl std::fmt::Debug for OpenIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl std::fmt::Debug for OpenIndexes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.chunks).finish()
    }
}

impl OpenIndex {
    /// Opens the index in a folder, and tries it: all pages are read, and a word of the first is looked for. Fails if
    /// it is no index of a chunk, or cannot be searched.
    pub fn open(name: &str, folder: &Path) -> Result<Self, Fault> {
        contained(|| {
            let index = Index::open_in_dir(folder)?;
            if index.schema() != schema().0 {
                return Err(Fault::of_chunk(format!("{} is no index of a chunk", folder.display())));
            }
            // A chunk never changes.
            let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
            let searcher = reader.searcher();
            let stores = stores(&searcher, BLOCKS_CACHED)?;
            let opened = Self { name: name.to_owned(), folder: folder.to_owned(), searcher, stores };
            opened.try_out()?;
            Ok(opened)
        })
    }

    fn try_out(&self) -> Result<(), Fault> {
        let mut word = None;
        // Caches of their own: what is read here is not read again soon.
        for (store, segment) in stores(&self.searcher, 1)?.iter().zip(self.searcher.segment_readers()) {
            for page in 0..segment.max_doc() {
                let page = store.get_document_bytes(page)?;
                let text = text_of(&page, schema().1.body)?;
                word = word.or_else(|| {
                    let mut analyzer = analyzer();
                    let mut stream = analyzer.token_stream(text);
                    stream.next().map(|token| token.text.clone())
                });
            }
        }
        let word = word.unwrap_or_else(|| TRIAL_WORD.to_owned());
        let compiled = Query { words: vec![word], crawl: None }.compile(schema().1);
        let mut statistics = Statistics::default();
        statistics.add(&Statistics::of(&self.searcher, &compiled)?);
        for (score, at) in self.best(&compiled, &statistics, 1)? {
            self.hit(score, at, &compiled)?;
        }
        Ok(())
    }

    fn best(&self, query: &BooleanQuery, all: &Statistics, limit: usize) -> Result<Vec<(f32, DocAddress)>, Fault> {
        let top = TopDocs::with_limit(limit).order_by_score();
        Ok(self.searcher.search_with_statistics_provider(query, &top, all)?)
    }

    fn hit(&self, score: f32, at: DocAddress, query: &BooleanQuery) -> Result<Hit, Fault> {
        let fields = schema().1;
        let store = self.stores.get(at.segment_ord as usize).ok_or_else(|| Fault::of_chunk("a segment is missing"))?;
        let page = store.get_document_bytes(at.doc_id)?;
        let text = |field| text_of(&page, field);
        Ok(Hit {
            chunk: self.name.clone(),
            url: text(fields.url)?.to_owned(),
            title: text(fields.title)?.to_owned(),
            crawl: text(fields.crawl)?.to_owned(),
            score,
            snippet: self.snippet(query, fields.body, text(fields.body)?)?,
        })
    }

    fn snippet(&self, query: &BooleanQuery, field: Field, body: &str) -> Result<Snippet, Fault> {
        let mut generator = SnippetGenerator::create(&self.searcher, query, field)?;
        generator.set_max_num_chars(SNIPPET_CHARS_MAX);
        let best = generator.snippet(body);
        if best.is_empty() {
            // The words are in the title only.
            return Ok(Snippet { text: body.chars().take(SNIPPET_CHARS_MAX).collect(), words: Vec::new() });
        }
        Ok(Snippet { text: best.fragment().to_owned(), words: best.highlighted().to_vec() })
    }
}

/// Readers of the pages of all segments, which cache this many blocks each.
fn stores(searcher: &Searcher, blocks: usize) -> Result<Vec<StoreReader>, Fault> {
    Ok(searcher.segment_readers().iter().map(|segment| segment.get_store_reader(blocks)).collect::<Result<_, _>>()?)
}

fn text_of(page: &[u8], field: Field) -> Result<&str, Fault> {
    stored::text(page, field).ok_or_else(|| Fault::of_chunk("the index is malformed: a stored page cannot be read"))
}

impl OpenIndexes {
    /// Adds a chunk; one of the same name is replaced.
    pub fn add(&mut self, chunk: OpenIndex) {
        self.close(&chunk.name);
        self.chunks.push(chunk);
    }

    /// Forgets a chunk. Its files may be removed.
    pub fn close(&mut self, name: &str) {
        self.chunks.retain(|chunk| chunk.name != name);
    }

    /// The number of chunks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The number of pages in all chunks.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.searcher.num_docs()).sum()
    }

    /// The best pages of all chunks, or of those that are named, best first; at most [`HITS_MAX`]. A URL that is in
    /// several chunks comes once. A chunk that fails is left out from then on, and named.
    #[must_use]
    pub fn search(&self, query: &Query, only: Option<&HashSet<String>>, limit: usize) -> Found {
        let limit = limit.min(HITS_MAX);
        let mut found = Found::default();
        if limit == 0 {
            return found;
        }
        let compiled = query.compile(schema().1);
        let mut statistics = Statistics::default();
        let wanted = self.chunks.iter().filter(|chunk| only.is_none_or(|only| only.contains(&chunk.name)));
        let chunks = wanted.filter(|chunk| {
            let own = contained(|| Statistics::of(&chunk.searcher, &compiled));
            found.take(chunk, own).is_some_and(|own| {
                statistics.add(&own);
                true
            })
        });
        let chunks: Vec<&OpenIndex> = chunks.collect();
        let mut best: Vec<(f32, &OpenIndex, DocAddress)> = Vec::new();
        for chunk in chunks {
            let own = contained(|| chunk.best(&compiled, &statistics, limit));
            best.extend(found.take(chunk, own).into_iter().flatten().map(|(score, at)| (score, chunk, at)));
        }
        // A stable order, also among pages that fit equally well.
        best.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)).then(a.2.cmp(&b.2)));
        let mut seen = HashSet::new();
        for (score, chunk, at) in best {
            if found.hits.len() == limit {
                break;
            }
            if found.failed.iter().any(|failed| failed.chunk == chunk.name) {
                continue;
            }
            let hit = found.take(chunk, contained(|| chunk.hit(score, at, &compiled)));
            found.hits.extend(hit.filter(|hit| seen.insert(hit.url.clone())));
        }
        // A chunk that failed at its second page has none of its pages in the answer: it is searched elsewhere.
        let Found { hits, failed } = &mut found;
        hits.retain(|hit| !failed.iter().any(|failed| failed.chunk == hit.chunk));
        found
    }
}

impl Found {
    /// What came of a step on one chunk; a fault is noted.
    fn take<T>(&mut self, chunk: &OpenIndex, step: Result<T, Fault>) -> Option<T> {
        let OpenIndex { name, folder, .. } = chunk;
        let failed = |fault| Failed { chunk: name.clone(), folder: folder.clone(), fault };
        step.map_err(|fault| self.failed.push(failed(fault))).ok()
    }
}

/// The statistics of all chunks together, so that a word is as rare in one chunk as in any other. They are summed once per query:
/// otherwise its cost would grow with the square of the chunks.
#[derive(Debug, Default, PartialEq, Eq)]
struct Statistics {
    tokens: HashMap<Field, u64>,
    pages: u64,
    pages_with: HashMap<Term, u64>,
}

impl Statistics {
    /// Those of one chunk, as far as a query needs them.
    fn of(searcher: &Searcher, query: &BooleanQuery) -> Result<Self, Fault> {
        let mut terms = Vec::new();
        query.query_terms(&mut |term, _| terms.push(term.clone()));
        let mut own = Self { pages: searcher.num_docs(), ..Self::default() };
        for term in terms {
            let field = term.field();
            own.tokens.insert(field, searcher.total_num_tokens(field)?);
            own.pages_with.insert(term.clone(), searcher.doc_freq(&term)?);
        }
        Ok(own)
    }

    fn add(&mut self, other: &Self) {
        self.pages = self.pages.saturating_add(other.pages);
        for (field, tokens) in &other.tokens {
            let sum = self.tokens.entry(*field).or_default();
            *sum = sum.saturating_add(*tokens);
        }
        for (term, pages) in &other.pages_with {
            let sum = self.pages_with.entry(term.clone()).or_default();
            *sum = sum.saturating_add(*pages);
        }
    }
}

impl Bm25StatisticsProvider for Statistics {
    fn total_num_tokens(&self, field: Field) -> Result<u64, Error> {
        Ok(self.tokens.get(&field).copied().unwrap_or_default())
    }

    fn total_num_docs(&self) -> Result<u64, Error> {
        Ok(self.pages)
    }

    fn doc_freq(&self, term: &Term) -> Result<u64, Error> {
        Ok(self.pages_with.get(term).copied().unwrap_or_default())
    }
}
