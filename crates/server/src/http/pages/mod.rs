//! Pages for people: the server's state at `/`, its API to try out at `/docs`, and to read at `/docs/reference`.
//!
//! Nothing is loaded from elsewhere, which a strict content security policy enforces: no inline scripts or styles, no
//! frames, no foreign requests. Only `/docs` has a script; the same content is at `/docs/reference` without one.

mod assets;
mod docs;
mod home;
mod reference;

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::Value;

use super::app::App;

/// The policy of static pages.
const PLAIN: &str = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                     frame-ancestors 'none'";
/// The policy of the page that calls the server: scripts, styles and requests of its own origin.
const CALLING: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                       base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The routes of the pages and of the document that they are rendered from. They describe the API and are not part of
/// it.
pub(super) fn routes(document: &Value) -> Router<App> {
    let json: Arc<str> = document.to_string().into();
    let reference: Arc<str> = reference::render(document).into();
    let docs: Arc<str> = docs::render(document).into();
    let page = |policy: &'static str, text: Arc<str>| get(move || std::future::ready(html(policy, text.to_string())));
    Router::new()
        .route("/", get(home::home))
        .route("/docs", page(CALLING, docs))
        .route("/docs/reference", page(PLAIN, reference))
        .route("/openapi.json", get(move || std::future::ready(([JSON], json.to_string()))))
        .merge(assets::routes())
}

const JSON: (header::HeaderName, &str) = (header::CONTENT_TYPE, "application/json");

/// A page with its policy.
fn html(policy: &'static str, text: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}

/// The start of every page, up to its first heading.
fn head(title: &str, more: &str) -> String {
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{}</title><link rel=icon href=\"data:,\"><link rel=stylesheet href=/assets/page.css>{more}",
        escape(title)
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_break_out_of_the_page() {
        assert_eq!(escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }
}
