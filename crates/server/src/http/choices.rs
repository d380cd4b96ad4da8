//! Constraints across fields in the OpenAPI document: which fields exclude each other, which of several is required,
//! and which names and bodies are optional. The types cannot express this, so it is added to the finished document.

use serde_json::{Map, Value, json};
use wayleave_core::names;

/// The additions, by JSON pointer.
fn additions() -> Vec<(&'static str, Value)> {
    let absent = || json!({"type": "null"});
    let named = |field: &str, kind: &str| json!({"required": [field], "properties": {field: {"type": kind}}});
    let alone = |field: &str| {
        let kind = |name: &str| if name == field { "string" } else { "null" };
        let fields = ["token", "holder", "host"].map(|name| (name.to_owned(), json!({"type": kind(name)})));
        json!({"required": [field], "properties": Map::from_iter(fields)})
    };
    let no_path_word = || json!({"not": {"enum": names::PATH_WORDS}});
    let rework = json!({"anyOf": [
        {
            "required": ["urls"],
            "properties": {"urls": {"minItems": 1}, "state": absent(), "contains": absent(), "older_than_ms": absent()}
        },
        {
            "properties": {"urls": {"maxItems": 0}},
            "anyOf": [
                named("crawl", "string"), named("host", "string"), named("state", "string"),
                named("contains", "string"), named("older_than_ms", "integer"),
            ]
        },
    ]});
    vec![
        ("/components/schemas/ReworkUrlsRequest", rework),
        ("/components/schemas/ReworkUrlsRequest/properties/state", json!({"not": {"enum": ["reserved"]}})),
        ("/components/schemas/ReworkUrlsRequest/properties/urls/items", json!({"format": "uri"})),
        ("/components/schemas/RevokeRequest", json!({"anyOf": [alone("token"), alone("holder"), alone("host")]})),
        ("/components/schemas/Revisit/oneOf/1", json!({"additionalProperties": false})),
        ("/components/schemas/Revisit/oneOf/2", json!({"additionalProperties": false})),
        ("/components/schemas/Revisit/oneOf/2/properties/adaptive", json!({"additionalProperties": false})),
        ("/components/schemas/HeartbeatRequest/properties/uuid", no_path_word()),
        ("/paths/~1v1~1reservations~1{token}~1renew/post/requestBody", json!({"required": false})),
        ("/paths/~1v1~1reservations~1{token}~1release/post/requestBody", json!({"required": false})),
    ]
}

/// Adds the constraints. Dangling pointers are returned, for the test that keeps both in step.
pub fn state(document: &mut Value) -> Vec<&'static str> {
    let mut astray = Vec::new();
    for (pointer, addition) in additions() {
        match (document.pointer_mut(pointer), addition) {
            (Some(Value::Object(part)), Value::Object(addition)) => part.extend(addition),
            _ => astray.push(pointer),
        }
    }
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    let items = paths.into_iter().flatten().filter_map(|(_, item)| item.as_object_mut());
    for (_, call) in items.flatten().filter(|(_, call)| call.get("parameters").is_some()) {
        // Such a request line is refused before it is routed.
        let too_long = json!({"description": "The path and query are longer than 65,534 bytes. There is no body."});
        call.pointer_mut("/responses").and_then(Value::as_object_mut).map(|all| all.insert("414".to_owned(), too_long));
    }
    astray
}
