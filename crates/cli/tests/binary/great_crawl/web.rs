//! The synthetic web: pages and their links, derived from their numbers alone. Every page is reachable from the first:
//! hosts form a tree by their first pages, and so do the pages of each host. Further links lead anywhere, so most pages
//! are found several times, by several workers, before and after they were fetched.

/// So many hosts with so many pages each.
#[derive(Clone, Copy, Debug)]
pub struct Web {
    pub hosts: usize,
    pub pages: usize,
}

/// Links of a page that lead anywhere.
const CROSS_LINKS: u64 = 2;

impl Web {
    /// How many pages there are.
    pub const fn size(self) -> usize {
        self.hosts * self.pages
    }

    /// The URL of a page, by its number.
    pub fn url(self, page: usize) -> String {
        format!("http://h{}.example/p{}", page / self.pages, page % self.pages)
    }

    /// The number of the page at a URL of [`Web::url`].
    pub fn page(self, url: &str) -> usize {
        let (host, page) = url.strip_prefix("http://h").and_then(|rest| rest.split_once(".example/p")).unwrap();
        host.parse::<usize>().unwrap() * self.pages + page.parse::<usize>().unwrap()
    }

    /// The pages that a page links to. One of them is the page itself, which is handed out at that moment.
    pub fn links(self, page: usize) -> Vec<usize> {
        let (host, on_host) = (page / self.pages, page % self.pages);
        let mut links = vec![page];
        links.extend(
            [2 * on_host + 1, 2 * on_host + 2]
                .into_iter()
                .filter(|to| *to < self.pages)
                .map(|to| host * self.pages + to),
        );
        if on_host == 0 {
            links.extend(
                [2 * host + 1, 2 * host + 2].into_iter().filter(|to| *to < self.hosts).map(|to| to * self.pages),
            );
        }
        links.extend((0..CROSS_LINKS).map(|n| (scatter(page as u64, n) % self.size() as u64) as usize));
        links
    }
}

/// A pseudo-random number, determined by its arguments.
pub const fn scatter(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_mul(0xd1b5_4a32_d192_ed03);
    x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 32)
}
