//! The OpenAPI document has only what code generators read: those of openapi-generator and openapi-python-client fail at
//! some constructs, and leave out calls or make up clashing names for others. `cargo xtask prove generators` runs them.

use crate::openapi::document;
use crate::prelude::*;

/// What generators cannot read in a schema, with the pointer to it. `inner` says whether the schema is the value of a keyword,
/// and not a schema with a name.
fn faults(schema: &Value, at: &str, inner: bool, found: &mut Vec<String>) {
    let Value::Object(fields) = schema else { return };
    let mut fault = |what: &str| found.push(format!("{at}: {what}"));
    let kinds: Vec<&str> = match &fields.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.and_then(|kind| kind.as_str()).into_iter().collect(),
    };
    if kinds == ["null"] {
        fault("a type that is null alone");
    }
    if kinds.contains(&"array") && !fields.contains_key("items") {
        fault("an array without items");
    }
    if inner && fields.contains_key("properties") {
        fault("an object without a name");
    }
    for keyword in ["anyOf", "allOf", "if", "dependentSchemas", "patternProperties"] {
        if fields.contains_key(keyword) {
            fault(keyword);
        }
    }
    let parts = fields.get("oneOf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let (refs, others): (Vec<_>, Vec<_>) = parts.iter().partition(|part| part.get("$ref").is_some());
    // Either may be null, or one of several objects with names, or plain values.
    let is_plain = |part: &&Value| **part == json!({"type": "null"}) || part.get("properties").is_none();
    if !others.iter().all(is_plain) || (refs.len() > 1 && !others.is_empty()) {
        fault("oneOf with an object that has no name");
    }
    for part in others.iter().filter(|part| ***part != json!({"type": "null"})) {
        faults(part, &format!("{at}/oneOf"), true, found);
    }
    for (name, field) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
        faults(field, &format!("{at}/{name}"), true, found);
    }
    for keyword in ["items", "additionalProperties"] {
        faults(fields.get(keyword).unwrap_or(&Value::Null), &format!("{at}/{keyword}"), true, found);
    }
    // What is excluded makes no type, but is read.
    if fields.get("not").is_some_and(|not| not.to_string().contains("\"null\"")) {
        found.push(format!("{at}: null in not"));
    }
}

/// The schemas of parameters, bodies and responses.
fn of_calls(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter().filter(|(name, _)| !matches!(name.as_str(), "example" | "examples")) {
                let at = format!("{at}/{name}");
                if name == "schema" { faults(field, &at, true, found) } else { of_calls(field, &at, found) }
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| of_calls(item, &format!("{at}/{i}"), found))
        }
        _ => {}
    }
}

fn faults_of(document: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        faults(schema, name, false, &mut found);
    }
    of_calls(&document["paths"], "", &mut found);
    found
}

/// A name as it becomes the name of a file.
fn file_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
}

#[tokio::test]
async fn generators_can_read_every_schema() {
    let document = document().await;
    assert_eq!(faults_of(&document), Vec::<String>::new());
    let names = document["components"]["schemas"].as_object().unwrap().keys().map(|name| file_name(name));
    let names: Vec<String> = names.collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "two types would be one file");
    let calls = document["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values());
    let calls: Vec<&str> = calls.map(|call| call["operationId"].as_str().unwrap()).collect();
    assert_eq!(calls.iter().map(|call| file_name(call)).collect::<BTreeSet<_>>().len(), calls.len());
}

/// Each construct that a generator failed at is found.
#[tokio::test]
async fn what_generators_cannot_read_is_found() {
    let faulty = [
        json!({"anyOf": [{"type": "string"}]}),
        json!({"properties": {"state": {"type": "null"}}}),
        json!({"not": {"properties": {"state": {"type": "null"}}}}),
        json!({"properties": {"hosts": {"type": "array"}}}),
        json!({"properties": {"hosts": {"type": ["array", "null"]}}}),
        json!({"properties": {"bounds": {"type": "object", "properties": {"min_ms": {"type": "integer"}}}}}),
        json!({"oneOf": [{"type": "string"}, {"type": "object", "properties": {"fixed_ms": {"type": "integer"}}}]}),
        json!({"type": "array", "items": {"type": "object", "properties": {}}}),
    ];
    for schema in faulty {
        let mut document = document().await;
        document["components"]["schemas"]["Faulty"] = schema.clone();
        assert_eq!(faults_of(&document).len(), 1 + usize::from(schema.get("oneOf").is_some()), "{schema}");
        document["components"]["schemas"]["Faulty"] = Value::Null;
        document["paths"]["/v1/stats"]["get"]["responses"]["200"]["content"]["application/json"]["schema"] =
            schema.clone();
        assert!(!faults_of(&document).is_empty(), "{schema}");
    }
}
