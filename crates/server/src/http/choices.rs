//! Constraints across fields in the OpenAPI document: which fields exclude each other, which of several is required,
//! and which names and bodies are optional. The types cannot express this, so it is added to the finished document.

use serde_json::{Map, Value, json};
use wayleave_core::names;

/// What is excluded is said with `not`, and nothing else: code generators pass it over, but make a type of every part of an
/// `anyOf`, and fail at parts that are `null`.
fn never(combinations: Vec<Value>) -> Value {
    json!({"not": {"anyOf": combinations}})
}

/// These fields have values.
fn given(fields: &[(&str, &str)]) -> Value {
    let of_kind = |(name, kind): &(&str, &str)| ((*name).to_owned(), json!({"type": kind}));
    let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    json!({"required": names, "properties": Map::from_iter(fields.iter().map(of_kind))})
}

/// URLs are named, and this field has a value.
fn with_urls(field: &str, kind: &str) -> Value {
    json!({"required": ["urls", field], "properties": {"urls": {"minItems": 1}, field: {"type": kind}}})
}

/// The additions, by JSON pointer.
fn additions() -> Vec<(&'static str, Value)> {
    let no_path_word = || json!({"not": {"enum": names::PATH_WORDS}});
    let urls = || json!({"required": ["urls"], "properties": {"urls": {"minItems": 1}}});
    let of_filter = [
        ("crawl", "string"),
        ("host", "string"),
        ("state", "string"),
        ("contains", "string"),
        ("older_than_ms", "integer"),
    ];
    let some = of_filter.iter().map(|field| given(&[*field])).chain([urls()]).collect();
    let rework = never(vec![
        never(some),
        with_urls("state", "string"),
        with_urls("contains", "string"),
        with_urls("older_than_ms", "integer"),
    ]);
    let [token, holder, host] = ["token", "holder", "host"].map(|name| (name, "string"));
    let revoke = never(vec![
        never([token, holder, host].map(|field| given(&[field])).to_vec()),
        given(&[token, holder]),
        given(&[token, host]),
        given(&[holder, host]),
    ]);
    vec![
        ("/components/schemas/ReworkUrlsRequest", rework),
        ("/components/schemas/ReworkUrlsRequest/properties/state", json!({"not": {"enum": ["reserved"]}})),
        ("/components/schemas/ReworkUrlsRequest/properties/urls/items", json!({"format": "uri"})),
        ("/components/schemas/RevokeRequest", revoke),
        ("/components/schemas/Revisit/oneOf/1", json!({"additionalProperties": false})),
        ("/components/schemas/Revisit/oneOf/2", json!({"additionalProperties": false})),
        ("/components/schemas/Revisit/oneOf/2/properties/adaptive", json!({"additionalProperties": false})),
        ("/components/schemas/HeartbeatRequest/properties/uuid", no_path_word()),
        ("/paths/~1v1~1reservations~1{token}~1renew/post/requestBody", json!({"required": false})),
        ("/paths/~1v1~1reservations~1{token}~1release/post/requestBody", json!({"required": false})),
    ]
}

/// The parts that get names of their own, by JSON pointer: of parts without names generators make up some that clash. Inner
/// ones come first.
const NAMED: [(&str, &str); 4] = [
    ("/components/schemas/Revisit/oneOf/2/properties/adaptive", "RevisitBounds"),
    ("/components/schemas/Revisit/oneOf/2", "RevisitAdaptive"),
    ("/components/schemas/Revisit/oneOf/1", "RevisitFixed"),
    ("/components/schemas/Revisit/oneOf/0", "RevisitNever"),
];

/// Moves a part to a schema with this name; false if it is not there. A field keeps its description.
fn name(document: &mut Value, pointer: &str, name: &str) -> bool {
    let Some(part) = document.pointer_mut(pointer) else { return false };
    let mut reference = json!({"$ref": format!("#/components/schemas/{name}")});
    if let (Some(text), Some(reference)) = (part.get("description"), reference.as_object_mut())
        && pointer.contains("/properties/")
    {
        reference.insert("description".to_owned(), text.clone());
    }
    let part = std::mem::replace(part, reference);
    let schemas = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut);
    schemas.is_some_and(|schemas| schemas.insert(name.to_owned(), part).is_none())
}

/// PUT takes the whole group, PATCH the changes.
fn name_whole_group(document: &mut Value) -> bool {
    const BODY: &str = "/paths/~1v1~1groups~1{group}/put/requestBody/content/application~1json/schema";
    let Some(mut group) = document.pointer("/components/schemas/SetGroupRequest").cloned() else { return false };
    let hosts = group.pointer_mut("/properties/hosts/type").map(|kind| *kind = json!("array"));
    let required = group.as_object_mut().map(|group| group.insert("required".to_owned(), json!(["hosts"])));
    let body = document.pointer_mut(BODY).map(|body| *body = group);
    hosts.is_some() && required.is_some() && body.is_some() && name(document, BODY, "PutGroupRequest")
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
    astray.extend(NAMED.iter().filter(|(pointer, part)| !name(document, pointer, part)).map(|(pointer, _)| *pointer));
    if !name_whole_group(document) {
        astray.push("the body of PUT /v1/groups/{group}");
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
