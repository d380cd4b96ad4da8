//! Finds the links of an HTML page, and what the page asks of crawlers.
//!
//! Links are the targets of `a` and `area` without `rel=nofollow`, resolved against the first `base`: http(s) URLs
//! without fragment and login, each once, in the order of the page. The canonical URL is separate, since a crawler
//! leaves the page out of the index in its favour. This module does not know the crawl's scope (see
//! [`crate::scope`]).

use std::collections::HashSet;

use url::Url;

use crate::fetch::PRODUCT;
use crate::html::{self, Piece, Tag};
use crate::limits::{LINKS_MAX, URL_BYTES_MAX};

/// What a page says about itself and others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageLinks {
    /// The links that may be followed; none if the page says nofollow.
    pub links: Vec<Url>,
    /// The page's preferred URL, if it names another one than its own.
    pub canonical: Option<Url>,
    /// The page must not be indexed.
    pub noindex: bool,
    /// No link of the page may be followed.
    pub nofollow: bool,
    /// The page has more links than are taken.
    pub cut: bool,
}

/// Reads a page. `url` is where it was fetched from, `x_robots_tag` the values of that header.
#[must_use]
pub fn find<'a>(url: &Url, html: &str, x_robots_tag: impl IntoIterator<Item = &'a str>) -> PageLinks {
    let mut raw = Raw::read(html);
    for value in x_robots_tag {
        raw.wishes.header(value);
    }
    // A base is resolved against the page's own URL, and only the first one counts.
    let base = raw.base.as_deref().and_then(|base| url.join(base.trim()).ok()).unwrap_or_else(|| url.clone());
    let canonical = raw.canonical.as_deref().and_then(|href| resolve(&base, href));
    let mut seen = HashSet::new();
    let mut links = Vec::new();
    if !raw.wishes.nofollow {
        let targets = raw.hrefs.iter().filter_map(|href| resolve(&base, href));
        links.extend(targets.filter(|target| seen.insert(target.clone())));
    }
    let own = resolve(url, "");
    PageLinks {
        links,
        canonical: canonical.filter(|canonical| Some(canonical) != own.as_ref()),
        noindex: raw.wishes.noindex,
        nofollow: raw.wishes.nofollow,
        cut: raw.cut,
    }
}

/// A usable target, or none.
fn resolve(base: &Url, href: &str) -> Option<Url> {
    let mut target = base.join(href.trim()).ok()?;
    if !matches!(target.scheme(), "http" | "https") || !target.username().is_empty() || target.password().is_some() {
        return None;
    }
    target.set_fragment(None);
    (target.as_str().len() <= URL_BYTES_MAX).then_some(target)
}

/// What the tags say, unresolved.
#[derive(Debug, Default)]
struct Raw {
    base: Option<String>,
    canonical: Option<String>,
    hrefs: Vec<String>,
    wishes: Wishes,
    cut: bool,
}

impl Raw {
    fn read(html: &str) -> Self {
        let mut raw = Self::default();
        for piece in html::pieces(html) {
            if let Piece::Start(tag) = piece {
                raw.tag(tag);
            }
        }
        raw
    }

    fn tag(&mut self, tag: Tag) {
        let rel = tag.rel.unwrap_or_default();
        match tag.element.as_str() {
            "a" | "area" if !has_token(&rel, "nofollow") => self.href(tag.href),
            "base" if self.base.is_none() => self.base = tag.href,
            "link" if self.canonical.is_none() && has_token(&rel, "canonical") => self.canonical = tag.href,
            "meta" => {
                let name = tag.name.unwrap_or_default().trim().to_ascii_lowercase();
                if name == "robots" || name == PRODUCT {
                    self.wishes.meta(&tag.content.unwrap_or_default());
                }
            }
            _ => {}
        }
    }

    fn href(&mut self, href: Option<String>) {
        let Some(href) = href.filter(|href| href.len() <= URL_BYTES_MAX) else { return };
        if self.hrefs.len() < LINKS_MAX { self.hrefs.push(href) } else { self.cut = true }
    }
}

fn has_token(list: &str, token: &str) -> bool {
    list.split_ascii_whitespace().any(|item| item.eq_ignore_ascii_case(token))
}

/// What a page asks of crawlers. Wishes to all and to us add up, as for other crawlers: the strictest holds.
#[derive(Debug, Default)]
struct Wishes {
    noindex: bool,
    nofollow: bool,
}

impl Wishes {
    fn meta(&mut self, content: &str) {
        for wish in content.split([',', ' ', '\t', '\n']) {
            self.take(wish.trim());
        }
    }

    /// `noindex, nofollow`, or with the name of a crawler in front: `otherbot: noindex, nofollow`.
    fn header(&mut self, value: &str) {
        let mut ours = true;
        for part in value.split(',') {
            let wish = match part.split_once(':') {
                // `unavailable_after: DATE` and `max-snippet: 5` are wishes with a value, not names.
                Some((name, _)) if is_valued_wish(name.trim()) => continue,
                Some((name, wish)) => {
                    ours = name.trim().eq_ignore_ascii_case(PRODUCT);
                    wish
                }
                None => part,
            };
            if ours {
                self.take(wish.trim());
            }
        }
    }

    fn take(&mut self, wish: &str) {
        let none = wish.eq_ignore_ascii_case("none");
        self.noindex |= none || wish.eq_ignore_ascii_case("noindex");
        self.nofollow |= none || wish.eq_ignore_ascii_case("nofollow");
    }
}

fn is_valued_wish(name: &str) -> bool {
    ["unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"]
        .iter()
        .any(|wish| name.eq_ignore_ascii_case(wish))
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
