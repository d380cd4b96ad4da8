//! Against a real server on loopback; time is an argument.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A server whose paths are answered by the function, which gets the number of earlier requests.
struct Host {
    url: Url,
    requests: Arc<AtomicUsize>,
}

impl Host {
    async fn start<F>(answer: F) -> Self
    where
        F: Fn(&str, usize) -> Response + Clone + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let router = Router::new().fallback(async move |request: axum::extract::Request| {
            answer(request.uri().path(), count.fetch_add(1, Ordering::SeqCst))
        });
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, requests }
    }

    fn page(&self, path: &str) -> Url {
        self.url.join(path).unwrap()
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn robots() -> Robots {
    Robots::new(Fetcher::new(crate::fetch::Config::default()).unwrap(), Config::default())
}

const ALLOWED: Verdict = Verdict::Allowed { crawl_delay: None };
const DISALLOWED: Verdict = Verdict::Disallowed { crawl_delay: None };

#[tokio::test]
async fn rules_and_crawl_delay_are_those_of_our_group() {
    let host = Host::start(|_, _| {
        "User-agent: *\nDisallow: /\n\nUser-agent: Wayleave\nCrawl-delay: 2.5\nDisallow: /private/\nAllow: /private/open$\n"
            .into_response()
    })
    .await;
    let (robots, now) = (robots(), Instant::now());
    let crawl_delay = Some(Duration::from_millis(2500));
    assert_eq!(robots.judge(&host.page("/a"), Loopback::Open, now).await, Verdict::Allowed { crawl_delay });
    assert_eq!(robots.judge(&host.page("/private/a"), Loopback::Open, now).await, Verdict::Disallowed { crawl_delay });
    assert_eq!(robots.judge(&host.page("/private/open"), Loopback::Open, now).await, Verdict::Allowed { crawl_delay });
    assert_eq!(
        robots.judge(&host.page("/private/open/x"), Loopback::Open, now).await,
        Verdict::Disallowed { crawl_delay }
    );
    assert_eq!(host.requests(), 1);
}

#[tokio::test]
async fn a_crawl_delay_is_bounded_and_nonsense_is_none() {
    for (text, wanted) in [
        ("1e9", Some(crate::limits::CRAWL_DELAY_MAX)),
        ("0.5", Some(Duration::from_millis(500))),
        ("-1", None),
        ("NaN", None),
        ("soon", None),
    ] {
        let host = Host::start(move |_, _| format!("User-agent: *\nCrawl-delay: {text}").into_response()).await;
        let verdict = robots().judge(&host.page("/a"), Loopback::Open, Instant::now()).await;
        assert_eq!(verdict, Verdict::Allowed { crawl_delay: wanted }, "{text}");
    }
}

#[tokio::test]
async fn a_missing_file_allows_everything() {
    for status in [400, 401, 403, 404, 410] {
        let host =
            Host::start(move |_, _| (axum::http::StatusCode::from_u16(status).unwrap(), "Disallow: /").into_response());
        assert_eq!(robots().judge(&host.await.page("/a"), Loopback::Open, Instant::now()).await, ALLOWED, "{status}");
    }
}

#[tokio::test]
async fn a_host_in_trouble_is_closed_for_a_time_and_then_asked_again() {
    let host = Host::start(|_, count| match count {
        0 => (axum::http::StatusCode::SERVICE_UNAVAILABLE, "").into_response(),
        1 => (axum::http::StatusCode::TOO_MANY_REQUESTS, [("retry-after", "3600")], "").into_response(),
        _ => "User-agent: *\nDisallow: /b".into_response(),
    })
    .await;
    let (robots, now) = (robots(), Instant::now());
    let page = host.page("/a");
    assert_eq!(robots.judge(&page, Loopback::Open, now).await, Verdict::Unreachable { retry_after: 5 * MINUTE });
    assert_eq!(
        robots.judge(&page, Loopback::Open, now + 4 * MINUTE).await,
        Verdict::Unreachable { retry_after: MINUTE }
    );
    assert_eq!(host.requests(), 1);
    assert_eq!(
        robots.judge(&page, Loopback::Open, now + 5 * MINUTE).await,
        Verdict::Unreachable { retry_after: 60 * MINUTE }
    );
    assert_eq!(robots.judge(&page, Loopback::Open, now + 65 * MINUTE).await, ALLOWED);
    assert_eq!(robots.judge(&host.page("/b"), Loopback::Open, now + 65 * MINUTE).await, DISALLOWED);
    assert_eq!(host.requests(), 3);
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_is_closed() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{closed}/a").parse().unwrap();
    assert_eq!(
        robots().judge(&url, Loopback::Open, Instant::now()).await,
        Verdict::Unreachable { retry_after: 5 * MINUTE }
    );
}

#[tokio::test]
async fn rules_are_fetched_again_after_a_day() {
    let host = Host::start(|_, count| if count == 0 { "" } else { "User-agent: *\nDisallow: /" }.into_response()).await;
    let (robots, now) = (robots(), Instant::now());
    assert_eq!(robots.judge(&host.page("/a"), Loopback::Open, now).await, ALLOWED);
    assert_eq!(robots.judge(&host.page("/a"), Loopback::Open, now + 24 * 60 * MINUTE - MINUTE).await, ALLOWED);
    assert_eq!(robots.judge(&host.page("/a"), Loopback::Open, now + 24 * 60 * MINUTE).await, DISALLOWED);
}

#[tokio::test]
async fn five_redirects_are_followed_and_the_rules_are_those_of_the_first_host() {
    // /robots.txt → /1 → … → /last, which is the number of redirects.
    for (last, wanted) in [(1, DISALLOWED), (5, DISALLOWED), (6, ALLOWED)] {
        let host = Host::start(move |path, _| {
            let step = if path == "/robots.txt" { 0 } else { path[1..].parse::<usize>().unwrap() };
            if step == last {
                return "User-agent: *\nDisallow: /".into_response();
            }
            (axum::http::StatusCode::FOUND, [("location", format!("/{}", step + 1))], "").into_response()
        })
        .await;
        assert_eq!(robots().judge(&host.page("/a"), Loopback::Open, Instant::now()).await, wanted, "{last}");
        assert_eq!(host.requests(), last.min(5) + 1);
    }
}

#[tokio::test]
async fn tasks_that_ask_at_once_share_one_request() {
    let host = Host::start(|_, _| "User-agent: *\nDisallow: /b".into_response()).await;
    let (robots, now, page) = (robots(), Instant::now(), host.page("/a"));
    let verdicts = futures::future::join_all((0..20).map(|_| robots.judge(&page, Loopback::Open, now))).await;
    assert_eq!(verdicts, [ALLOWED; 20]);
    assert_eq!(host.requests(), 1);
}

#[tokio::test]
async fn a_task_that_gives_up_does_not_close_the_host() {
    let host = Host::start(|_, _| "".into_response()).await;
    let (robots, now, page) = (robots(), Instant::now(), host.page("/a"));
    {
        let mut given_up = std::pin::pin!(robots.judge(&page, Loopback::Open, now));
        assert!(futures::poll!(given_up.as_mut()).is_pending());
    }
    assert_eq!(robots.judge(&page, Loopback::Open, now).await, ALLOWED);
}

#[tokio::test]
async fn a_rule_past_500_kib_does_not_count() {
    let host = Host::start(|_, _| {
        let filler = "# comment\n".repeat(60_000);
        format!("User-agent: *\nDisallow: /a\n{filler}Disallow: /b\n").into_response()
    })
    .await;
    let (robots, now) = (robots(), Instant::now());
    assert_eq!(robots.judge(&host.page("/a"), Loopback::Open, now).await, DISALLOWED);
    assert_eq!(robots.judge(&host.page("/b"), Loopback::Open, now).await, ALLOWED);
}

#[tokio::test]
async fn the_cache_is_bounded_and_drops_the_least_recently_used() {
    let body = || format!("User-agent: *\nDisallow: /x\n{}", "#\n".repeat(50_000)).into_response();
    let (a, b, c) = (
        Host::start(move |_, _| body()).await,
        Host::start(move |_, _| body()).await,
        Host::start(move |_, _| body()).await,
    );
    let config = Config { cache_bytes_max: 250_000, ..Config::default() };
    let robots = Robots::new(Fetcher::new(crate::fetch::Config::default()).unwrap(), config);
    let now = Instant::now();
    robots.judge(&a.page("/"), Loopback::Open, now).await;
    robots.judge(&b.page("/"), Loopback::Open, now + MINUTE).await;
    robots.judge(&a.page("/"), Loopback::Open, now + 2 * MINUTE).await;
    robots.judge(&c.page("/"), Loopback::Open, now + 3 * MINUTE).await;
    assert!(robots.cache.lock().unwrap().bytes <= 250_000);
    robots.judge(&a.page("/"), Loopback::Open, now + 4 * MINUTE).await;
    assert_eq!((a.requests(), b.requests(), c.requests()), (1, 1, 1), "a and c are still there");
    robots.judge(&b.page("/"), Loopback::Open, now + 5 * MINUTE).await;
    assert_eq!(b.requests(), 2, "b was dropped");
}

/// A regression: a robots.txt that redirects led the crawler to services of its own machine.
#[tokio::test]
async fn a_redirect_of_robots_txt_leads_to_no_address_that_is_not_public() {
    let secret = Host::start(|_, _| "".into_response()).await;
    let target = secret.url.to_string().replace("127.0.0.1", "0.0.0.0");
    let host =
        Host::start(move |_, _| (axum::http::StatusCode::FOUND, [("location", target.clone())], "").into_response())
            .await;
    let (robots, now, page) = (robots(), Instant::now(), host.page("/a"));
    assert_eq!(robots.judge(&page, Loopback::Closed, now).await, Verdict::Refused);
    assert_eq!((host.requests(), secret.requests()), (0, 0));
    // The refusal is of this host alone.
    assert_eq!(robots.judge(&page, Loopback::Open, now).await, Verdict::Unreachable { retry_after: 5 * MINUTE });
    assert_eq!((host.requests(), secret.requests()), (1, 0));
}
