//! The parts of the workers in a row, without a server: the demonstration site is crawled into WARC files, these are
//! published, fetched, indexed, published again, fetched and searched.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::{Duration, Instant};

use axum::http::header::CONTENT_TYPE;
use tempfile::TempDir;
use tokio::net::TcpListener;
use url::Url;
use wayleave_outgoing::Rule;
use wayleave_workers::demo_site::{self, Site};
use wayleave_workers::fetch::{self, Fetched, Fetcher, Loopback};
use wayleave_workers::index::{self, Builder, OpenIndex, OpenIndexes, Page};
use wayleave_workers::robots::{self, Robots, Verdict};
use wayleave_workers::scope::{Reach, Scope};
use wayleave_workers::store::{self, Artifact, Store};
use wayleave_workers::warc::{Info, Reader, Writer};
use wayleave_workers::{charset, links, text};

/// Fetches everything in scope, one URL after the other. The pace is a server's to keep, and there is none here.
async fn crawl(site: &Site) -> Vec<Fetched> {
    let fetcher = Fetcher::new(fetch::Config::default()).unwrap();
    let robots = Robots::new(fetcher.clone(), robots::Config::default());
    let scope = Scope::new(Reach::Host, &site.seeds());
    let mut queue = VecDeque::from(site.seeds());
    let mut known: HashSet<Url> = queue.iter().cloned().collect();
    let mut pages = Vec::new();
    while let Some(url) = queue.pop_front() {
        let Verdict::Allowed { .. } = robots.judge(&url, Loopback::Open, Instant::now()).await else { continue };
        let fetched = fetcher.fetch(&url, Loopback::Open).await.unwrap();
        if fetched.status == 429 {
            assert!(fetched.retry_after.is_some());
            queue.push_back(url);
            continue;
        }
        let mut found: Vec<Url> = fetched.redirect.clone().into_iter().collect();
        if fetched.status == 200 && fetched.is_html() {
            let body = fetched.body().unwrap().0;
            let html = charset::decode(&body, fetched.header(CONTENT_TYPE));
            found.extend(links::find(&url, &html, []).links);
        }
        queue.extend(found.into_iter().filter(|link| scope.contains(link) && known.insert(link.clone())));
        pages.push(fetched);
    }
    pages
}

/// A WARC file of some pages, published.
async fn archive(store: &Store, folder: &Path, number: usize, pages: &[Fetched]) -> Artifact {
    let filename = format!("chunk-{number}.warc.gz");
    let path = folder.join(&filename);
    let info = Info {
        filename: filename.clone(),
        chunk: number.to_string(),
        user_agent: "wayleave".to_owned(),
        date: "2026-01-01T00:00:00Z".parse().unwrap(),
    };
    let mut writer = Writer::new(File::create_new(&path).unwrap(), info).unwrap();
    for page in pages {
        writer.exchange(page).unwrap();
    }
    let (_, written) = writer.finish().unwrap();
    let artifact = store.put(&filename.parse().unwrap(), &path).await.unwrap();
    assert_eq!((artifact.bytes, &artifact.checksum), (written.bytes, &written.checksum));
    artifact
}

/// The index of a WARC file, published.
async fn build(store: &Store, folder: &Path, number: usize, content: &Artifact) -> Artifact {
    let path = folder.join(format!("fetched-{number}.warc.gz"));
    store.get(content, &Rule::operator(), &path).await.unwrap();
    let index = folder.join(format!("index-{number}"));
    std::fs::create_dir(&index).unwrap();
    let mut builder = Builder::create(&index).unwrap();
    for record in Reader::new(BufReader::new(File::open(&path).unwrap())) {
        let Some(response) = record.unwrap().response() else { continue };
        let content_type = response.header(CONTENT_TYPE);
        if response.status != 200 || !fetch::is_html(content_type) {
            continue;
        }
        let body = response.body().unwrap().0;
        let html = charset::decode(&body, content_type);
        let found = links::find(&response.url, &html, []);
        if found.noindex || found.canonical.is_some() {
            continue;
        }
        let text = text::extract(&html);
        builder.add(&Page { url: response.url.as_str(), title: &text.title, body: &text.body, crawl: "demo" }).unwrap();
    }
    builder.finish().unwrap();
    let packed = folder.join(format!("index-{number}.tar"));
    index::pack(&index, File::create_new(&packed).unwrap()).unwrap();
    store.put(&format!("chunk-{number}.index.tar").parse().unwrap(), &packed).await.unwrap()
}

/// A store that serves its folder, as a worker does.
async fn served(folder: &Path) -> Store {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let store = Store::open(folder.to_str().unwrap(), Some(&url)).unwrap();
    let router = store::serve::router(folder);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    store
}

#[tokio::test]
async fn every_word_of_every_page_is_found() {
    let config =
        demo_site::Config { hosts: 3, pages: 30, slow: Duration::from_millis(1), ..demo_site::Config::default() };
    let site = Site::start(config).await.unwrap();
    let folder = TempDir::new().unwrap();
    let crawler = served(&folder.path().join("crawler")).await;
    let builder = served(&folder.path().join("builder")).await;
    let server = served(&folder.path().join("server")).await;

    let mut indexes = OpenIndexes::default();
    for (number, pages) in crawl(&site).await.chunks(20).enumerate() {
        let content = archive(&crawler, folder.path(), number, pages).await;
        let index = build(&builder, folder.path(), number, &content).await;
        let packed = folder.path().join(format!("served-{number}.tar"));
        server.get(&index, &Rule::operator(), &packed).await.unwrap();
        let unpacked = folder.path().join(format!("served-{number}"));
        index::unpack(File::open(&packed).unwrap(), &unpacked).unwrap();
        indexes.add(OpenIndex::open(&number.to_string(), &unpacked).unwrap());
    }

    assert_eq!(indexes.pages(), site.indexable().count() as u64);
    for (url, page) in site.indexable() {
        for word in &page.words {
            // Words of the list are on most pages; with the page's own word only one page can be meant.
            let query = format!("{word} {}", page.own_word()).parse().unwrap();
            let hits = indexes.search(&query, None, 10).hits;
            assert_eq!(hits.len(), 1, "{word} of {url}");
            assert_eq!((hits[0].url.as_str(), hits[0].title.as_str()), (url.as_str(), page.title.as_str()));
            assert!(!hits[0].snippet.words.is_empty());
        }
    }
    for (host, politeness) in site.log().politeness() {
        assert_eq!(politeness.overlaps, 0, "{host}");
    }
}
