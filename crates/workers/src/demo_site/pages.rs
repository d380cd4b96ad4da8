//! What the site consists of: pure functions of host, path and settings.
//!
//! Every page has words from a small list and one word of its own, so that a search for that word must find exactly it.

use std::fmt::Write as _;

use url::Url;

use super::{Config, address};

/// The words of all pages.
pub const WORDS: &[&str] = &[
    "acorn", "anchor", "autumn", "barley", "beacon", "birch", "bramble", "bridge", "brook", "candle", "canyon",
    "cedar", "cliff", "clover", "cobalt", "comet", "copper", "coral", "cotton", "cove", "crystal", "dawn", "delta",
    "dune", "ember", "falcon", "fern", "field", "flint", "forest", "fox", "garnet", "glacier", "granite", "harbour",
    "hazel", "heath", "heron", "hollow", "island", "ivory", "jasper", "juniper", "lagoon", "lantern", "lark", "laurel",
    "ledge", "linen", "maple", "marble", "marsh", "meadow", "mill", "mist", "moor", "moss", "nectar", "oak", "opal",
    "orchard", "otter", "pebble", "pine", "prairie", "quartz", "raven", "reed", "ridge", "river", "saffron", "sage",
    "sand", "shore", "silver", "slate", "sparrow", "spruce", "stone", "thistle", "thunder", "tide", "timber", "valley",
    "velvet", "violet", "walnut", "willow", "winter", "wren",
];

/// How many words of the list a page has.
const WORDS_A_PAGE: usize = 40;
/// How many pages a list of links shows.
const LINKS_A_LIST: usize = 20;

/// An HTML page of the site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The path on its host.
    pub path: String,
    /// The title.
    pub title: String,
    /// The words of its text, its own one first.
    pub words: Vec<String>,
    /// The content of its head besides the title.
    head: String,
    /// The targets of its links and the `rel` of each.
    links: Vec<(String, &'static str)>,
}

impl Page {
    /// The page's own word: no other page has it.
    #[must_use]
    pub fn own_word(&self) -> &str {
        self.words.first().map(String::as_str).unwrap_or_default()
    }

    /// The page as HTML.
    #[must_use]
    pub fn html(&self) -> String {
        let mut html = format!(
            "<!doctype html>\n<html><head><title>{}</title>{}\n<style>p {{ margin: 1em }}</style>\n\
             <script>var hidden = \"neverindexed\";</script></head>\n<body><h1>{}</h1>\n<p>",
            self.title, self.head, self.title
        );
        for words in self.words.chunks(10) {
            let _ = write!(html, "{}.</p>\n<p>", words.join(" "));
        }
        html.push_str("</p>\n<ul>\n");
        for (target, rel) in &self.links {
            let rel = if rel.is_empty() { String::new() } else { format!(" rel=\"{rel}\"") };
            let _ = writeln!(html, "<li><a href=\"{target}\"{rel}>{target}</a></li>");
        }
        html.push_str("</ul></body></html>\n");
        html
    }
}

/// The root of a host.
#[must_use]
pub fn base(host: usize, port: u16) -> Option<Url> {
    Url::parse(&format!("http://{}:{port}/", address(host))).ok()
}

/// The robots.txt of every host.
#[must_use]
pub fn robots_txt(config: &Config) -> String {
    let mut text = String::from("User-agent: *\nDisallow: /private/\nAllow: /private/open\n");
    if let Some(delay) = config.crawl_delay {
        let _ = writeln!(text, "Crawl-delay: {}", delay.as_secs_f64());
    }
    text
}

/// The page at a path, or none. Redirects and refusals are no pages.
#[must_use]
pub fn page(config: &Config, host: usize, port: u16, path: &str) -> Option<Page> {
    let number = path.strip_prefix("/page/");
    if let Some(number) = number {
        let number: usize = number.parse().ok().filter(|number| *number < config.pages)?;
        // Only one spelling: `/page/007` is missing.
        return (path == page_path(number)).then(|| numbered(config, host, port, number));
    }
    match path {
        "/" => Some(front(config, host, port)),
        "/private/open" | "/private/secret" | "/busy" | "/slow" | "/nofollow" | "/latin" | "/compressed" => {
            Some(plain(host, path, "", Vec::new()))
        }
        "/noindex" => Some(plain(host, path, "<meta name=\"robots\" content=\"noindex\">", links(&["/page/0"]))),
        "/dead-end" => Some(plain(host, path, "<meta name=\"robots\" content=\"nofollow\">", links(&["/unlinked"]))),
        "/unlinked" => Some(plain(host, path, "", Vec::new())),
        "/twin" => Some(plain(host, path, "<link rel=\"canonical\" href=\"/page/0\">", links(&["/page/0"]))),
        _ => None,
    }
}

/// The pages of a host that a crawl from its front page should bring into an index: those that are linked, allowed by
/// robots.txt, and neither `noindex` nor the copy of another page.
#[must_use]
pub fn indexable(config: &Config, host: usize, port: u16) -> Vec<Page> {
    let special = ["/", "/private/open", "/busy", "/slow", "/latin", "/compressed", "/dead-end"];
    let numbered = (0..config.pages).map(page_path);
    special.into_iter().map(str::to_owned).chain(numbered).filter_map(|path| page(config, host, port, &path)).collect()
}

fn page_path(number: usize) -> String {
    format!("/page/{number}")
}

fn front(config: &Config, host: usize, port: u16) -> Page {
    let mut targets = links(&[
        "/page/0",
        "/private/open",
        "/private/secret",
        "/moved",
        "/moved-away",
        "/loop",
        "/busy",
        "/slow",
        "/broken",
        "/missing",
        "/latin",
        "/compressed",
        "/noindex",
        "/dead-end",
        "/twin",
        "mailto:owner@example.org",
    ]);
    targets.push(("/nofollow".to_owned(), "nofollow"));
    targets.extend(neighbour(config, host, port).map(|url| (url.into(), "")));
    plain(host, "/", "", targets)
}

/// Page n links to the pages 20n + 1 to 20n + 20, so that all are found from the first one in few steps, and to the
/// same page of the next host.
fn numbered(config: &Config, host: usize, port: u16, number: usize) -> Page {
    let first = number * LINKS_A_LIST + 1;
    let children = (first..first + LINKS_A_LIST).filter(|child| *child < config.pages);
    let mut targets: Vec<_> = children.map(|child| (child.to_string(), "")).collect();
    let path = page_path(number);
    let beside = neighbour(config, host, port).and_then(|url| url.join(&path).ok());
    targets.extend(beside.map(|url| (url.into(), "")));
    plain(host, &path, "", targets)
}

fn neighbour(config: &Config, host: usize, port: u16) -> Option<Url> {
    base((host + 1) % config.hosts, port)
}

fn links(targets: &[&str]) -> Vec<(String, &'static str)> {
    targets.iter().map(|target| ((*target).to_owned(), "")).collect()
}

fn plain(host: usize, path: &str, head: &str, links: Vec<(String, &'static str)>) -> Page {
    let mut words = vec![own_word(host, path)];
    let mut state = hash(host, path);
    for _ in 0..WORDS_A_PAGE {
        state = step(state);
        let at = usize::try_from(state >> 33).unwrap_or_default() % WORDS.len();
        words.extend(WORDS.get(at).map(|word| (*word).to_owned()));
    }
    if path == "/latin" {
        words.push("café".to_owned());
    }
    let title = format!("{} of host {host}", words.get(1).map(String::as_str).unwrap_or_default());
    Page { path: path.to_owned(), title, words, head: head.to_owned(), links }
}

/// A word that can be pronounced and that no other page has: the hash of host and path in syllables.
fn own_word(host: usize, path: &str) -> String {
    let mut word = String::from("q");
    let mut rest = hash(host, path);
    for _ in 0..8 {
        for letters in ["bcdfghjklmnprstv", "aeiou"] {
            let at = usize::try_from(rest % letters.len() as u64).unwrap_or_default();
            word.extend(letters.chars().nth(at));
            rest /= letters.len() as u64;
        }
    }
    word
}

/// FNV-1a with a final mix: the same on every machine and in every version.
fn hash(host: usize, path: &str) -> u64 {
    let bytes = (host as u64).to_le_bytes().into_iter().chain(path.bytes());
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    step(hash ^ (hash >> 32))
}

fn step(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}
