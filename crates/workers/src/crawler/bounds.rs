//! Which found links a crawler follows.
//!
//! A crawler need not know the seeds of its crawl: others may have added them. A link is in scope if it is as near to
//! the page that it was found on as the reach allows, or to a seed that this crawler was given. So a crawl never leaves
//! the hosts (or domains) of its seeds, however many crawlers there are, with whatever settings.

use url::Url;

use crate::fetch::is_loopback;
use crate::scope::{Reach, Scope};

/// The bounds of a crawl.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    reach: Reach,
    seeds: Scope,
}

impl Bounds {
    pub fn new(reach: Reach, seeds: &[Url]) -> Self {
        Self { reach, seeds: Scope::new(reach, seeds) }
    }

    /// Whether a link of a page may be followed.
    pub fn contain(&self, page: &Url, link: &Url) -> bool {
        // A page of the web must not send a crawler to services of the crawler's own machine.
        if is_loopback(link) && !is_loopback(page) {
            return false;
        }
        self.seeds.contains(link) || Scope::new(self.reach, [page]).contains(link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn a_crawl_stays_with_its_pages_and_the_seeds_that_are_known() {
        let bounds = Bounds::new(Reach::Host, &[url("http://seed.example/")]);
        let page = url("http://a.example/x");
        for (link, wanted) in [
            ("http://a.example/y", true),
            ("https://a.example:8443/y", true),
            ("http://seed.example/z", true),
            ("http://www.a.example/", false),
            ("http://b.example/", false),
        ] {
            assert_eq!(bounds.contain(&page, &url(link)), wanted, "{link}");
        }
        let domain = Bounds::new(Reach::Domain, &[]);
        assert!(domain.contain(&page, &url("http://www.a.example/")));
        assert!(!domain.contain(&page, &url("http://b.example/")));
    }

    #[test]
    fn the_web_does_not_lead_to_this_machine() {
        let any = Bounds::new(Reach::Any, &[]);
        assert!(!any.contain(&url("http://a.example/"), &url("http://127.0.0.1:7071/v1/urls")));
        assert!(any.contain(&url("http://127.0.0.2/"), &url("http://127.0.0.3/")));
        assert!(any.contain(&url("http://a.example/"), &url("http://b.example/")));
    }
}
