//! `/docs`: every call with its fields, defaults and an example to try in the browser. Swagger UI renders this server's
//! document; below it are the error codes, to which problems link by their `type`.

use serde_json::Value;

use super::assets::{SWAGGER_SCRIPT, SWAGGER_STYLE};
use super::{head, reference};

/// Renders the page, which is static.
pub(super) fn render(document: &Value) -> String {
    let title = document.pointer("/info/title").and_then(Value::as_str).unwrap_or_default();
    let title = format!("{title} API");
    let more = format!(
        "<link rel=stylesheet href={SWAGGER_STYLE}><script defer src={SWAGGER_SCRIPT}></script>\
         <script defer src=/assets/docs.js></script>"
    );
    let mut out = head(&title, &more);
    out.push_str(
        "<body class=wide><nav><a href=/>server state</a><a href=/docs/reference>reference</a><a href=#errors>errors</a>\
         <a href=/openapi.json>openapi.json</a></nav><main id=calls><p>The calls are shown by a script. Without one they are \
         in the <a href=/docs/reference>reference</a>.</main><section>",
    );
    reference::render_errors(&mut out);
    out.push_str("</section>");
    out
}
