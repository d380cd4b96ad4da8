//! `/docs/reference`: every call, type and error code on one page, rendered from the document once at startup.

use std::fmt::Write;

use serde_json::Value;
use wayleave_api::Code;

use super::{escape, head};

/// Renders the page.
pub(super) fn render(document: &Value) -> String {
    let text = |pointer: &str| escape(document.pointer(pointer).and_then(Value::as_str).unwrap_or_default());
    let mut out = head(&format!("{} API", text("/info/title")), "");
    // Writing into a String cannot fail.
    let _ = write!(
        out,
        "<nav><a href=/>server state</a><a href=/docs>try the API</a><a href=#types>types</a><a href=#errors>errors</a>\
         <a href=/openapi.json>openapi.json</a></nav><h1>{title} API <small>{version}</small></h1><p>{about}",
        title = text("/info/title"),
        version = text("/info/version"),
        about = prose(document.pointer("/info/description").and_then(Value::as_str).unwrap_or_default()),
    );
    for tag in document["tags"].as_array().into_iter().flatten() {
        render_tag(&mut out, document, tag);
    }
    render_types(&mut out, document);
    render_errors(&mut out);
    out
}

fn render_tag(out: &mut String, document: &Value, tag: &Value) {
    let name = tag["name"].as_str().unwrap_or_default();
    let about = prose(tag["description"].as_str().unwrap_or_default());
    let _ = write!(out, "<h2 id=\"{0}\">{0}</h2><p>{about}", escape(name));
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let tagged = operation["tags"].as_array().is_some_and(|tags| tags.iter().any(|tag| tag == name));
            if tagged {
                render_operation(out, method, path, operation);
            }
        }
    }
}

fn render_operation(out: &mut String, method: &str, path: &str, operation: &Value) {
    let about = ["summary", "description"].map(|field| operation[field].as_str().unwrap_or_default());
    let _ = write!(
        out,
        "<h3><b class=m>{}</b>{}</h3><p>{}",
        method.to_uppercase(),
        escape(path),
        prose(about.join(" ").trim())
    );
    let parameters = operation["parameters"].as_array();
    if let Some(parameters) = parameters.filter(|list| !list.is_empty()) {
        out.push_str("<table>");
        for parameter in parameters {
            let _ = write!(
                out,
                "<tr><td><code>{}</code><td>{} {}<td>{}<td>{}",
                escape(parameter["name"].as_str().unwrap_or_default()),
                escape(parameter["in"].as_str().unwrap_or_default()),
                if parameter["required"] == true { "(required)" } else { "" },
                kind(&parameter["schema"]),
                prose(parameter["description"].as_str().unwrap_or_default()),
            );
        }
        out.push_str("</table>");
    }
    render_content(out, "body", &operation["requestBody"]);
    for (status, response) in operation["responses"].as_object().into_iter().flatten().filter(|(s, _)| *s != "default")
    {
        render_content(out, status, response);
    }
}

fn render_content(out: &mut String, label: &str, message: &Value) {
    if message.is_null() {
        return;
    }
    let kinds = message["content"].as_object().into_iter().flatten();
    let kinds: Vec<String> =
        kinds.map(|(name, content)| format!("{} as {}", kind(&content["schema"]), escape(name))).collect();
    let about = prose(message["description"].as_str().unwrap_or_default());
    let _ = write!(out, "<p><b>{}</b>: {} <small>{about}</small>", escape(label), kinds.join(" or "));
}

fn render_types(out: &mut String, document: &Value) {
    out.push_str("<h2 id=types>types</h2>");
    for (name, schema) in document.pointer("/components/schemas").and_then(Value::as_object).into_iter().flatten() {
        let about = prose(schema["description"].as_str().unwrap_or_default());
        let _ = write!(out, "<h3 id=\"type-{0}\">{0}</h3><p>{about} {1}<table>", escape(name), words(schema));
        let required = schema["required"].as_array();
        for (field, part) in schema["properties"].as_object().into_iter().flatten() {
            let must = required.is_some_and(|list| list.iter().any(|name| name == field));
            let about = prose(part["description"].as_str().unwrap_or_default());
            let mark = if must { "" } else { "?" };
            let _ = write!(out, "<tr><td><code>{}{mark}</code><td>{}<td>{about}", escape(field), kind(part));
        }
        out.push_str("</table>");
    }
}

/// The table of error codes, to which problems link.
pub(super) fn render_errors(out: &mut String) {
    out.push_str("<h2 id=errors>errors</h2><table>");
    for code in Code::ALL {
        let (word, status, title) = (code.as_str(), code.status(), code.title());
        let _ = write!(out, "<tr id=\"{word}\"><td><code>{word}</code><td>{status}<td>{title}");
    }
    out.push_str("</table>");
}

/// The values of an enumeration.
fn words(schema: &Value) -> String {
    let list = schema["enum"].as_array().into_iter().flatten();
    let own = list.filter_map(Value::as_str).map(|word| format!("<code>{}</code>", escape(word)));
    let nested = schema["oneOf"].as_array().into_iter().flatten().map(|part| match part["properties"].as_object() {
        Some(fields) => {
            fields.iter().map(|(name, part)| format!("<code>{{\"{}\": {}}}</code>", escape(name), kind(part))).collect()
        }
        None => words(part),
    });
    own.chain(nested).collect::<Vec<String>>().join(" ")
}

/// A short description of a schema, with a link if it has a name.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("<a href=\"#type-{0}\">{0}</a>", escape(name));
    }
    let parts = ["oneOf", "anyOf", "allOf"].iter().find_map(|field| schema[*field].as_array());
    if let Some(parts) = parts {
        return parts.iter().map(kind).collect::<Vec<String>>().join(" or ");
    }
    let plain = match &schema["type"] {
        Value::String(word) => escape(word),
        Value::Array(list) => list.iter().filter_map(Value::as_str).map(escape).collect::<Vec<String>>().join(" or "),
        _ => words(schema),
    };
    match &schema["items"] {
        Value::Null => plain,
        items => format!("{plain} of {}", kind(items)),
    }
}

/// Text in which backticks mark code.
fn prose(text: &str) -> String {
    let parts = escape(text);
    let parts = parts.split('`').enumerate();
    parts.map(|(n, part)| if n % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_every_call_type_and_code_and_fetches_nothing() {
        let document = crate::http::served_document();
        let page = render(&document);
        for path in document["paths"].as_object().unwrap().keys() {
            assert!(page.contains(&format!("</b>{path}</h3>")), "{path}");
        }
        for name in document.pointer("/components/schemas").and_then(Value::as_object).unwrap().keys() {
            assert!(page.contains(&format!("id=\"type-{name}\"")), "{name}");
        }
        for code in Code::ALL {
            assert!(page.contains(&format!("<tr id=\"{}\">", code.as_str())));
        }
        for foreign in ["<script", "<style", "src=", " href=\"http", " href=http"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn every_link_to_a_type_has_its_target() {
        let page = render(&crate::http::served_document());
        for link in page.split("href=\"#").skip(1) {
            let target = link.split('"').next().unwrap();
            assert!(page.contains(&format!("id=\"{target}\"")), "{target}");
        }
    }

    #[test]
    fn code_in_texts_is_shown_as_code() {
        assert_eq!(prose("`null` clears <it>"), "<code>null</code> clears &lt;it&gt;");
    }
}
