//! The site through real requests.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use super::*;
use crate::fetch::{self, Fetched, Fetcher, Loopback};
use crate::robots::{self, Robots, Verdict};
use crate::{charset, links, text};

fn config() -> Config {
    Config { hosts: 3, pages: 45, slow: Duration::from_millis(5), ..Config::default() }
}

fn fetcher() -> Fetcher {
    Fetcher::new(fetch::Config::default()).unwrap()
}

async fn get(site: &Site, host: usize, path: &str) -> Fetched {
    fetcher().fetch(&site.url(host, path).unwrap(), Loopback::Open).await.unwrap()
}

#[tokio::test]
async fn hosts_are_addresses_on_one_port() {
    let site = Site::start(config()).await.unwrap();
    let seeds: Vec<_> = site.seeds().iter().map(|seed| seed.host_str().unwrap().to_owned()).collect();
    assert_eq!(seeds, ["127.0.0.2", "127.0.0.3", "127.0.0.4"]);
    assert_eq!(site.seeds().iter().map(Url::port).collect::<HashSet<_>>().len(), 1);
    for host in 0..3 {
        assert_eq!(get(&site, host, "/").await.status, 200);
    }
}

#[tokio::test]
async fn the_difficult_paths_answer_as_they_should() {
    let site = Site::start(config()).await.unwrap();
    assert_eq!(get(&site, 0, "/moved").await.redirect, site.url(0, "/page/0"));
    assert_eq!(get(&site, 2, "/moved-away").await.redirect, site.url(0, "/"));
    assert_eq!(get(&site, 0, "/loop").await.redirect, site.url(0, "/loop"));
    for (path, status) in [("/broken", 500), ("/missing", 404), ("/page/45", 404), ("/page/01", 404), ("/slow", 200)] {
        assert_eq!(get(&site, 0, path).await.status, status, "{path}");
    }
    let busy = get(&site, 0, "/busy").await;
    assert_eq!((busy.status.as_u16(), busy.retry_after), (429, Some(Duration::from_secs(1))));
    assert_eq!(get(&site, 0, "/busy").await.status, 200);
    assert_eq!(get(&site, 1, "/busy").await.status, 429, "each host counts on its own");

    let robots = Robots::new(fetcher(), robots::Config::default());
    let now = std::time::Instant::now();
    let crawl_delay = Some(Duration::from_secs(1));
    for (path, verdict) in [
        ("/private/secret", Verdict::Disallowed { crawl_delay }),
        ("/private/open", Verdict::Allowed { crawl_delay }),
        ("/page/1", Verdict::Allowed { crawl_delay }),
    ] {
        assert_eq!(robots.judge(&site.url(0, path).unwrap(), Loopback::Open, now).await, verdict, "{path}");
    }
}

/// Everything that a well-behaved crawler finds from the seeds is what the site says it should, with every word.
#[tokio::test]
async fn a_crawl_from_the_seeds_finds_all_that_is_indexable() {
    let site = Site::start(Config { crawl_delay: None, ..config() }).await.unwrap();
    let (fetcher, robots, now) =
        (fetcher(), Robots::new(fetcher(), robots::Config::default()), std::time::Instant::now());
    let mut queue = VecDeque::from(site.seeds());
    let mut known: HashSet<Url> = queue.iter().cloned().collect();
    let mut index = BTreeMap::new();
    while let Some(url) = queue.pop_front() {
        if !matches!(robots.judge(&url, Loopback::Open, now).await, Verdict::Allowed { .. }) {
            continue;
        }
        let mut fetched = fetcher.fetch(&url, Loopback::Open).await.unwrap();
        if fetched.status == 429 {
            fetched = fetcher.fetch(&url, Loopback::Open).await.unwrap();
        }
        let mut found: Vec<Url> = fetched.redirect.clone().into_iter().collect();
        if fetched.status == 200 {
            let body = fetched.body().unwrap().0;
            let html = charset::decode(&body, fetched.header(hyper::header::CONTENT_TYPE));
            let page = links::find(&url, &html, []);
            if !page.noindex && page.canonical.is_none() {
                index.insert(url, text::extract(&html));
            }
            found.extend(page.links);
        }
        queue.extend(found.into_iter().filter(|link| known.insert(link.clone())));
    }
    let wanted: BTreeSet<Url> = site.indexable().map(|(url, _)| url).collect();
    assert_eq!(index.keys().cloned().collect::<BTreeSet<_>>(), wanted);
    assert_eq!(wanted.len(), 3 * (45 + 7));
    let mut own_words = HashSet::new();
    for (url, page) in site.indexable() {
        let text = &index[&url];
        assert_eq!(text.title, page.title, "{url}");
        for word in &page.words {
            let there = text.body.split([' ', '.']).any(|other| other == word);
            assert!(there, "{word} of {url} is in {}", text.body);
        }
        assert!(!text.body.contains("neverindexed"));
        assert!(own_words.insert(page.own_word().to_owned()), "{url} shares its word");
    }
    let visited: HashSet<_> = site.log().entries().into_iter().map(|access| access.path).collect();
    assert!(!visited.contains("/private/secret") && !visited.contains("/nofollow") && !visited.contains("/unlinked"));
}

#[tokio::test]
async fn the_log_records_what_was_asked_and_when() {
    let site = Site::start(config()).await.unwrap();
    get(&site, 0, "/robots.txt").await;
    get(&site, 0, "/page/1?q=1").await;
    get(&site, 0, "/page/2").await;
    let (slow, other) = tokio::join!(get(&site, 1, "/slow"), get(&site, 1, "/slow"));
    assert_eq!((slow.status.as_u16(), other.status.as_u16()), (200, 200));
    let entries = site.log().entries();
    let shown: Vec<_> = entries.iter().map(|a| (a.host.as_str(), a.path.as_str(), a.status)).collect();
    assert_eq!(
        shown[..3],
        [
            ("127.0.0.2", "/robots.txt", Some(200)),
            ("127.0.0.2", "/page/1?q=1", Some(404)),
            ("127.0.0.2", "/page/2", Some(200)),
        ]
    );
    let hosts = site.log().politeness();
    assert_eq!((hosts["127.0.0.2"].visits, hosts["127.0.0.2"].overlaps), (2, 0));
    assert!(hosts["127.0.0.2"].smallest_gap.is_some());
    assert_eq!(hosts["127.0.0.3"].visits, 2);
    assert_eq!(site.log().lost(), 0);
}

#[tokio::test]
async fn a_client_that_leaves_is_logged_too() {
    let site = Site::start(Config { slow: Duration::from_secs(3600), ..config() }).await.unwrap();
    let impatient = Fetcher::new(fetch::Config { time_max: Duration::from_millis(50), ..Default::default() }).unwrap();
    impatient.fetch(&site.url(0, "/slow").unwrap(), Loopback::Open).await.unwrap_err();
    drop(impatient);
    while site.log().entries().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(site.log().entries()[0].status, None);
}

#[tokio::test]
async fn settings_out_of_bounds_are_refused() {
    for (hosts, pages) in [(0, 1), (HOSTS_MAX + 1, 1), (1, 0), (1, PAGES_MAX + 1)] {
        let error = Site::start(Config { hosts, pages, ..Config::default() }).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
}

#[test]
fn content_is_the_same_on_every_machine() {
    let page = pages::page(&config(), 1, 80, "/page/3").unwrap();
    assert_eq!(page, pages::page(&config(), 1, 80, "/page/3").unwrap());
    assert_eq!((page.own_word(), page.words[1].as_str()), ("qdopotujatojufeju", "thunder"));
}
