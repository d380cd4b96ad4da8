//! Every word of every page is found in every row, in that page alone.
//!
//! The index servers are asked directly, by the map, as a front end would. A search of a whole row for each of many thousand
//! words would take long, so first every chunk is asked for all its pages, of which each must be in one chunk of the row and
//! no other page in any; then that chunk is asked for the words.

use futures::StreamExt as _;
use wayleave_api::map::MapRow;
use wayleave_outgoing::Policy;
use wayleave_workers::demo_site::pages::Page;
use wayleave_workers::index_server::wire::{Hit, SearchResponse};
use wayleave_workers::search::{self, Search};

use super::stage::{ROWS, Stage};
use crate::prelude::*;

/// Questions that are asked at the same time.
const AT_ONCE: usize = 8;
/// Words of one question, besides the page's own. A question has at most 32.
const WORDS_AT_ONCE: usize = 30;
/// A word in the title of every page.
const EVERYWHERE: &str = "host";

/// A chunk on a server.
type Location = (String, String);

/// Asks for everything. Returns how many words of pages were searched.
pub async fn check(stage: &Stage, map: &Map) -> usize {
    assert_eq!(map.rows.len(), ROWS, "{:?}", map.rows);
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().unwrap();
    let pages: Vec<(String, Page)> = stage.site.indexable().map(|(url, page)| (url.into(), page)).collect();
    let mut searched = 0;
    for (first_row, row) in map.rows.iter().enumerate() {
        let locations = locations(&http, row).await;
        for (url, _) in &pages {
            assert!(locations.contains_key(url), "{url} is in no chunk of row {}", row.row);
        }
        assert_eq!(locations.len(), pages.len(), "row {} has pages that should be in no index", row.row);
        let found = futures::stream::iter(&pages).map(|(url, page)| check_page(&http, &locations[url], url, page));
        searched += found.buffer_unordered(AT_ONCE).fold(0, |sum, words| async move { sum + words }).await;
        // The same by the library that `wayleave search` uses, in all chunks, for one page of each host.
        for (url, page) in pages.iter().step_by(stage.size.pages + 7) {
            let search = Search {
                words: page.own_word().to_owned(),
                crawl: None,
                limit: 10,
                first_row,
                policy: Policy::new(vec!["127.0.0.0/8".parse().unwrap()], true),
            };
            let found = search::run(&stage.client, &search).await.unwrap();
            assert_eq!((found.hits.len(), found.missing, found.away.len()), (1, 0, 0), "{found:?}");
            assert_eq!(found.hits[0].url, *url);
        }
    }
    searched
}

/// Where each page of a row is. None may be in two chunks.
async fn locations(http: &reqwest::Client, row: &MapRow) -> HashMap<String, Location> {
    let chunks = row.servers.iter().flat_map(|server| server.chunks.iter().map(|chunk| (&server.address, chunk)));
    let asked = futures::stream::iter(chunks).map(|(address, chunk)| async move {
        let hits = ask(http, address, EVERYWHERE, chunk).await;
        hits.into_iter().map(|hit| (hit.url, (address.clone(), chunk.clone()))).collect::<Vec<_>>()
    });
    let mut locations = HashMap::new();
    for (url, location) in asked.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.concat() {
        let other = locations.insert(url.clone(), location.clone());
        assert_eq!(other, None, "{url} is also in {location:?}, row {}", row.row);
    }
    locations
}

/// Its chunk has all words of the page, in that page. Returns how many they are.
async fn check_page(http: &reqwest::Client, (address, chunk): &Location, url: &str, page: &Page) -> usize {
    let mut words = page.words.clone();
    words.sort();
    words.dedup();
    for some in words.chunks(WORDS_AT_ONCE) {
        let question = format!("{} {}", page.own_word(), some.join(" "));
        let hits = ask(http, address, &question, chunk).await;
        let found: Vec<_> = hits.iter().map(|hit| (hit.url.as_str(), hit.title.as_str())).collect();
        assert_eq!(found, [(url, page.title.as_str())], "{question} in chunk {chunk} of {address}");
    }
    words.len()
}

async fn ask(http: &reqwest::Client, address: &str, question: &str, chunk: &str) -> Vec<Hit> {
    let query = [("q", question), ("chunks", chunk), ("limit", "100")];
    let answer = http.get(format!("http://{address}/search")).query(&query).send().await.unwrap();
    answer.error_for_status().unwrap().json::<SearchResponse>().await.unwrap().hits
}
