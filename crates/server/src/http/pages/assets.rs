//! Static files of the pages: our style and script, and Swagger UI as vendored in `assets/swagger-ui`, compressed.
//! Every browser accepts gzip, so it is always sent that way.

use axum::Router;
use axum::http::{HeaderName, header};
use axum::routing::get;

use crate::http::app::App;

/// The version of Swagger UI. It is part of the paths, so that browsers may cache the files forever.
macro_rules! vendored {
    ($file:literal) => {
        concat!("/assets/swagger-ui-5.34.1/", $file)
    };
}

pub(super) const SWAGGER_STYLE: &str = vendored!("swagger-ui.css");
pub(super) const SWAGGER_SCRIPT: &str = vendored!("swagger-ui-bundle.js");

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

pub(super) fn routes() -> Router<App> {
    let own = |kind: &'static str, text: &'static str| {
        let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache"), NO_SNIFFING];
        get(move || std::future::ready((headers, text)))
    };
    let vendored = |kind: &'static str, bytes: &'static [u8]| {
        let headers = [
            (header::CONTENT_TYPE, kind),
            (header::CONTENT_ENCODING, "gzip"),
            (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
            NO_SNIFFING,
        ];
        get(move || std::future::ready((headers, bytes)))
    };
    Router::new()
        .route("/assets/page.css", own(STYLE, include_str!("page.css")))
        .route("/assets/docs.js", own(SCRIPT, include_str!("docs.js")))
        .route(SWAGGER_STYLE, vendored(STYLE, include_bytes!("../../../assets/swagger-ui/swagger-ui.css.gz")))
        .route(SWAGGER_SCRIPT, vendored(SCRIPT, include_bytes!("../../../assets/swagger-ui/swagger-ui-bundle.js.gz")))
}

const NO_SNIFFING: (HeaderName, &str) = (header::X_CONTENT_TYPE_OPTIONS, "nosniff");
