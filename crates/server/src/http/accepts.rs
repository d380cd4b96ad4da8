//! Content negotiation: the type of a request body, and the accepted types of a response.

use axum::http::{HeaderMap, header};
use wayleave_api::{Code, Problem};

use super::refused::Refused;

/// The content type of JSON lines.
pub const NDJSON: &str = "application/x-ndjson";

/// The type of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// One JSON value.
    Json,
    /// NDJSON: one JSON value per line.
    Lines,
}

/// The type of a request body, by its content type. Fails if it is neither JSON nor NDJSON.
pub fn body_kind(headers: &HeaderMap) -> Result<BodyKind, Refused> {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" => Ok(BodyKind::Json),
        NDJSON | "application/ndjson" | "application/jsonl" => Ok(BodyKind::Lines),
        json if json.starts_with("application/") && json.ends_with("+json") => Ok(BodyKind::Json),
        other => Err(unsupported(other)),
    }
}

/// The refusal of any other content type.
pub fn unsupported(found: &str) -> Refused {
    let found = if found.is_empty() { "absent" } else { found };
    let detail = format!("the content type is {found}; send 'Content-Type: application/json'");
    Problem::new(Code::UnsupportedContentType, detail).into()
}

/// Whether the client accepts NDJSON.
pub fn wants_lines(headers: &HeaderMap) -> bool {
    let asks = |part: &str| part.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(NDJSON));
    headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).any(|list| list.split(',').any(asks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, header::HeaderValue::from_static(value))])
    }

    #[test]
    fn parameters_and_case_of_a_content_type_do_not_matter() {
        for (text, want) in [
            ("application/json", BodyKind::Json),
            ("Application/JSON; charset=utf-8", BodyKind::Json),
            ("application/vnd.x+json", BodyKind::Json),
            ("application/x-ndjson;charset=utf-8", BodyKind::Lines),
        ] {
            assert_eq!(body_kind(&headers(header::CONTENT_TYPE, text)).unwrap(), want, "{text}");
        }
        for text in ["text/plain", "application/x-www-form-urlencoded", ""] {
            assert!(body_kind(&headers(header::CONTENT_TYPE, text)).is_err(), "{text}");
        }
    }

    #[test]
    fn lines_are_given_only_to_those_who_ask() {
        assert!(wants_lines(&headers(header::ACCEPT, "text/html, application/x-ndjson;q=0.9")));
        assert!(!wants_lines(&headers(header::ACCEPT, "*/*")));
        assert!(!wants_lines(&HeaderMap::new()));
    }
}
