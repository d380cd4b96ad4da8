//! Derives the outcome of a URL from its response or the lack of one: pure functions.

use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use hyper::header::HeaderName;
use url::Url;
use wayleave_api::reservations::{Outcome, UrlResult};
use wayleave_api::urls::UrlToAdd;

use super::bounds::Bounds;
use crate::digest::sha256;
use crate::fetch::Fetched;
use crate::limits::FOUND_BYTES_MAX;
use crate::robots::Verdict;
use crate::{charset, links};

const X_ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");

/// What is reported of a URL, and the links that were left out because they are out of scope.
#[derive(Debug)]
pub(super) struct Judged {
    pub result: UrlResult,
    pub out_of_scope: usize,
}

/// A URL that robots.txt does not let us fetch, now or ever.
pub(super) fn barred(url: &str, verdict: Verdict) -> Option<UrlResult> {
    match verdict {
        Verdict::Allowed { .. } | Verdict::Refused => None,
        Verdict::Disallowed { crawl_delay } => {
            Some(UrlResult { crawl_delay_ms: crawl_delay.map(ms), ..UrlResult::new(url, Outcome::Failed) })
        }
        Verdict::Unreachable { retry_after } => {
            Some(UrlResult { retry_after_ms: Some(ms(retry_after)), ..UrlResult::new(url, Outcome::Retry) })
        }
    }
}

/// A response. `depth` is the URL's own.
pub(super) fn of(url: &str, depth: u32, fetched: &Fetched, crawl_delay: Option<Duration>, bounds: &Bounds) -> Judged {
    let (found, out_of_scope) = found(fetched, depth, bounds);
    let outcome = outcome(fetched.status.as_u16());
    let result = UrlResult {
        status: Some(fetched.status.as_u16()),
        duration_ms: Some(ms(fetched.duration)),
        bytes: Some(fetched.raw.len() as u64),
        crawl_delay_ms: crawl_delay.map(ms),
        retry_after_ms: fetched.retry_after.map(ms),
        digest: (outcome == Outcome::Fetched).then(|| sha256(&fetched.raw)),
        found,
        ..UrlResult::new(url, outcome)
    };
    Judged { result, out_of_scope }
}

fn outcome(status: u16) -> Outcome {
    match status {
        200..=399 => Outcome::Fetched,
        404 | 410 => Outcome::Gone,
        408 | 425 | 429 | 500..=599 => Outcome::Retry,
        _ => Outcome::Failed,
    }
}

/// The links of a page, or the target of a redirect, which is as deep as the URL itself.
fn found(fetched: &Fetched, depth: u32, bounds: &Bounds) -> (Vec<UrlToAdd>, usize) {
    let (targets, depth) = match &fetched.redirect {
        Some(target) => (vec![target.clone()], depth),
        None => (links_of(fetched), depth.saturating_add(1)),
    };
    let all = targets.len();
    let inside: Vec<Url> = targets.into_iter().filter(|link| bounds.contain(&fetched.url, link)).collect();
    let out_of_scope = all - inside.len();
    let mut bytes = 0;
    let fitting = inside.into_iter().take_while(|link| {
        bytes += link.as_str().len();
        bytes <= FOUND_BYTES_MAX
    });
    let add = |link: Url| UrlToAdd { url: link.into(), depth: Some(depth), ..UrlToAdd::default() };
    (fitting.map(add).collect(), out_of_scope)
}

/// The canonical URL comes first: the page itself stays out of the index in its favour.
fn links_of(fetched: &Fetched) -> Vec<Url> {
    if !fetched.status.is_success() || !fetched.is_html() {
        return Vec::new();
    }
    // In a coding that was not asked for there is nothing to read; the WARC file has it anyway.
    let Ok((body, _)) = fetched.body() else { return Vec::new() };
    let html = charset::decode(&body, fetched.header(CONTENT_TYPE));
    let tags = fetched.headers.get_all(X_ROBOTS_TAG).iter().filter_map(|value| value.to_str().ok());
    let found = links::find(&fetched.url, &html, tags);
    let canonical = found.canonical.filter(|_| !found.nofollow);
    let others = found.links.into_iter().filter(|link| Some(link) != canonical.as_ref()).collect::<Vec<_>>();
    canonical.iter().cloned().chain(others).collect()
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderValue, LOCATION};
    use hyper::{HeaderMap, StatusCode, Version};

    use super::*;
    use crate::scope::Reach;

    fn fetched(status: u16, headers: &[(HeaderName, &'static str)], body: &str) -> Fetched {
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        let url: Url = "http://a.example/x".parse().unwrap();
        let redirect = headers.get(LOCATION).and_then(|to| url.join(to.to_str().unwrap()).ok());
        Fetched {
            url,
            started: "2026-01-01T00:00:00Z".parse().unwrap(),
            duration: Duration::from_millis(12),
            version: Version::HTTP_11,
            status: StatusCode::from_u16(status).unwrap(),
            request_headers: HeaderMap::new(),
            headers,
            raw: body.as_bytes().to_vec().into(),
            cut: false,
            redirect,
            retry_after: None,
        }
    }

    fn judged(fetched: &Fetched) -> Judged {
        of("http://a.example/x", 3, fetched, Some(Duration::from_secs(2)), &Bounds::new(Reach::Host, &[]))
    }

    fn urls(result: &UrlResult) -> Vec<(&str, u32)> {
        result.found.iter().map(|found| (found.url.as_str(), found.depth.unwrap())).collect()
    }

    const HTML: (HeaderName, &str) = (CONTENT_TYPE, "text/html");

    #[test]
    fn statuses_have_their_outcomes() {
        for (status, wanted) in [
            (200, Outcome::Fetched),
            (204, Outcome::Fetched),
            (301, Outcome::Fetched),
            (403, Outcome::Failed),
            (404, Outcome::Gone),
            (408, Outcome::Retry),
            (410, Outcome::Gone),
            (429, Outcome::Retry),
            (500, Outcome::Retry),
            (503, Outcome::Retry),
        ] {
            let result = judged(&fetched(status, &[HTML], "<a href=/y>")).result;
            assert_eq!((result.outcome, result.status), (wanted, Some(status)));
            assert_eq!((result.duration_ms, result.bytes, result.crawl_delay_ms), (Some(12), Some(11), Some(2_000)));
            assert_eq!(result.digest.is_some(), wanted == Outcome::Fetched, "{status}");
        }
    }

    #[test]
    fn links_in_scope_are_found_one_level_deeper() {
        let page = "<link rel=canonical href=/y><a href=/z></a><a href=/y></a><a href=/n rel=nofollow></a>\
                    <a href=http://b.example/></a>";
        let judged = judged(&fetched(200, &[HTML], page));
        assert_eq!(urls(&judged.result), [("http://a.example/y", 4), ("http://a.example/z", 4)]);
        assert_eq!(judged.out_of_scope, 1);
    }

    #[test]
    fn a_redirect_is_a_found_link_of_the_same_depth() {
        let moved = judged(&fetched(301, &[(LOCATION, "/y"), HTML], "<a href=/z>here</a>"));
        assert_eq!(urls(&moved.result), [("http://a.example/y", 3)]);
        let away = judged(&fetched(302, &[(LOCATION, "http://b.example/")], ""));
        assert_eq!((urls(&away.result).len(), away.out_of_scope), (0, 1));
    }

    #[test]
    fn what_is_no_page_or_says_nofollow_has_no_links() {
        for other in [
            fetched(200, &[(CONTENT_TYPE, "text/plain")], "<a href=/y>"),
            fetched(404, &[HTML], "<a href=/y>"),
            fetched(200, &[HTML, (X_ROBOTS_TAG, "nofollow")], "<a href=/y>"),
            fetched(200, &[HTML], "<meta name=robots content=nofollow><link rel=canonical href=/y><a href=/y>"),
        ] {
            assert_eq!(urls(&judged(&other).result), [("", 0); 0]);
        }
    }

    #[test]
    fn robots_txt_bars_permanently_or_for_a_time() {
        let delay = Some(Duration::from_secs(1));
        assert_eq!(barred("u", Verdict::Allowed { crawl_delay: delay }), None);
        let never = barred("u", Verdict::Disallowed { crawl_delay: delay }).unwrap();
        assert_eq!((never.outcome, never.crawl_delay_ms), (Outcome::Failed, Some(1_000)));
        let later = barred("u", Verdict::Unreachable { retry_after: Duration::from_secs(9) }).unwrap();
        assert_eq!((later.outcome, later.retry_after_ms), (Outcome::Retry, Some(9_000)));
    }
}
