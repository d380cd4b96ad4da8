//! The pages of a server in a real browser: from `/` to `/docs`, where calls are tried out. The browser's console must
//! have no complaint (it reports policy violations), and the browser must contact no other server.
//!
//! `WAYLEAVE_SCREENSHOTS=folder` keeps screenshots.

mod driver;

use driver::Browser;

use crate::prelude::*;

/// The browser has no complaint, and has contacted no other server.
async fn check_quiet(browser: &Browser, server: &Server) {
    let complaints = browser.log("browser").await;
    assert!(complaints.is_empty(), "{complaints:#?}");
    let requests = browser.requests().await;
    assert!(requests.iter().any(|url| url.starts_with(&server.url)), "{requests:?}");
    // The browser's own first page does not count.
    let own = |url: &str| {
        url.starts_with(&format!("{}/", server.url)) || url.starts_with("data:") || url.starts_with("chrome:")
    };
    assert_eq!(requests.iter().find(|url| !own(url)), None);
}

/// Opens a call, sends its example, and waits for the status of the response.
async fn try_call(browser: &Browser, operation: &str) -> String {
    let call = format!("#operations-{operation}");
    browser.click(&format!("{call} .opblock-summary-control")).await;
    browser.click(&format!("{call} button.execute")).await;
    let status = format!("{call} .live-responses-table .response .response-col_status");
    let status = browser.until(&format!("return document.querySelector({status:?})?.innerText")).await;
    status.as_str().unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_tried_out_in_a_browser_that_asks_nobody_else_and_complains_of_nothing() {
    let (_keep, server) = Server::fresh();
    let browser = Browser::start().await;

    browser.open(&server.url).await;
    let text = browser.script("return document.body.innerText").await;
    let text = text.as_str().unwrap();
    for part in ["Wayleave", env!("CARGO_PKG_VERSION"), "an embedded store", "and is ready", "queued", "reservations"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    browser.picture("home").await;
    check_quiet(&browser, &server).await;

    browser.click("nav a[href='/docs']").await;
    let shown = browser.until("return document.querySelectorAll('.opblock').length || null").await;
    let calls = browser.script("return fetch('/openapi.json').then(r => r.json()).then(d => Object.values(d.paths).flatMap(i => Object.keys(i)).length)").await;
    assert_eq!(shown, calls, "every call is shown");
    browser.picture("docs").await;
    assert_eq!(try_call(&browser, "crawls-put_crawl").await, "200");
    browser.picture("docs-put-crawl").await;
    assert_eq!(try_call(&browser, "urls-add_urls").await, "200");
    assert_eq!(try_call(&browser, "reservations-reserve_groups").await, "200");
    browser.script("document.querySelector('#operations-reservations-reserve_groups').scrollIntoView()").await;
    browser.picture("docs-reserve").await;
    check_quiet(&browser, &server).await;
    // What the page did has taken effect.
    let crawl = server.run(&["crawls", "show", "news", "--json"]).json().remove(0);
    assert_eq!((&crawl["weight"], &crawl["counts"]["reserved"]), (&json!(2), &json!(2)), "{crawl}");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_dark_where_people_want_it_and_problems_lead_to_their_code() {
    let (_keep, server) = Server::fresh();
    let browser = Browser::start().await;
    let dark = json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]});
    browser.devtools("Emulation.setEmulatedMedia", dark).await;
    let background = "return getComputedStyle(document.body).backgroundColor";
    for page in ["/", "/docs", "/docs/reference"] {
        browser.open(&format!("{}{page}", server.url)).await;
        assert_eq!(browser.script(background).await, "rgb(28, 32, 34)", "{page}");
        if page == "/docs" {
            browser.until("return document.querySelector('.opblock') != null").await;
            assert_eq!(browser.script("return document.documentElement.className").await, "dark-mode");
        }
        browser.picture(&format!("dark{}", page.replace('/', "-"))).await;
    }
    // The `type` of a problem is a URL: it leads to the row that explains its code.
    browser.open("about:blank").await;
    browser.open(&format!("{}/docs#not_current", server.url)).await;
    browser.until("return document.querySelector('.opblock') != null").await;
    let top = "const top = document.getElementById('not_current').getBoundingClientRect().top; return top > -2 && top < innerHeight";
    browser.until(top).await;
    check_quiet(&browser, &server).await;
    // Without scripts there is the reference page.
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    browser.open(&format!("{}/docs", server.url)).await;
    browser.click("main a[href='/docs/reference']").await;
    browser.click("a[href='#type-Crawl']").await;
    server.stop();
}
