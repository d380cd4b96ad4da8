//! An example request and response for every call, added to the OpenAPI document; `/docs` fills them in.
//!
//! They are in `examples.json` by method and path, recorded from a real server. A test checks them against the wire
//! types: a new call or field fails it until it has an example.

use serde_json::{Map, Value};

/// By `METHOD /path`: `request`, `answer` and, for status 202, `accepted` as JSON; `request_lines` and `answer_lines`
/// as NDJSON. Absent where a call has none.
const EXAMPLES: &str = include_str!("examples.json");

/// Examples of path parameters, and of query parameters without which a call makes no sense.
const PARAMETERS: &[(&str, &str)] = &[
    ("crawl", "news"),
    ("host", "example.org"),
    ("group", "example-sites"),
    ("token", "AA4utexP3RVtyJo6TRewUQ"),
    ("job", "AAE3f0cXr6mTq1dQb8kUvw"),
    ("chunk", "3940649673949185"),
    ("id", "index-1"),
    ("server", "index-1"),
    ("pool", "browsers"),
    ("client", "user-7"),
    ("worker", "browsers-3f9a62d1c07b45e8-1"),
    ("utype", "indexer"),
    ("uuid", "indexer-7f3a"),
    ("url", "https://example.org/today"),
    ("older_than_ms", "86400000"),
];

/// Adds the examples to a document.
pub(super) fn add(document: &mut Value) {
    let examples: Map<String, Value> = serde_json::from_str(EXAMPLES).unwrap_or_default();
    let paths = document.get_mut("paths").and_then(Value::as_object_mut).into_iter().flatten();
    for (path, item) in paths {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            add_parameters(operation);
            if let Some(example) = examples.get(&format!("{} {path}", method.to_uppercase())) {
                add_bodies(operation, example);
            }
        }
    }
}

fn add_parameters(operation: &mut Value) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten();
    for parameter in parameters.filter_map(Value::as_object_mut) {
        let required = parameter.get("required") == Some(&Value::Bool(true));
        let name = parameter.get("name").and_then(Value::as_str).unwrap_or_default();
        let example = PARAMETERS.iter().find(|(known, _)| required && *known == name);
        if let Some((_, example)) = example {
            let number = example.parse::<u64>().ok();
            parameter.insert("example".to_owned(), number.map_or_else(|| (*example).into(), Value::from));
        }
    }
}

fn add_bodies(operation: &mut Value, example: &Value) {
    if let Some(body) = operation.get_mut("requestBody") {
        add_content(body, &example["request"], &example["request_lines"]);
    }
    let responses = operation.get_mut("responses").and_then(Value::as_object_mut).into_iter().flatten();
    for (status, response) in responses.filter(|(status, _)| status.starts_with('2')) {
        let answer = if status == "202" { &example["accepted"] } else { &example["answer"] };
        add_content(response, answer, &example["answer_lines"]);
    }
}

fn add_content(message: &mut Value, whole: &Value, lines: &Value) {
    for (kind, content) in message.get_mut("content").and_then(Value::as_object_mut).into_iter().flatten() {
        let example = if kind == super::accepts::NDJSON { lines } else { whole };
        if let (Some(content), false) = (content.as_object_mut(), example.is_null()) {
            content.insert("example".to_owned(), example.clone());
        }
    }
}
