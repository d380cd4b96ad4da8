//! States the bounds of fields and parameters in the OpenAPI document, from where the wire types declare them.

use serde_json::{Map, Value};
use wayleave_api::bounds::{self, BODIES};

/// Adds the bounds in force. Dangling pointers are returned, for the test that keeps both in step.
pub fn state(document: &mut Value) -> Vec<String> {
    let mut astray = Vec::new();
    for body in BODIES {
        for (field, bound) in body.bounds {
            let pointer = format!("/components/schemas/{}/properties/{field}", body.schema);
            match document.pointer_mut(&pointer) {
                Some(Value::Object(schema)) => bound.state(schema),
                _ => astray.push(pointer),
            }
        }
    }
    let paths = document.get_mut("paths").and_then(Value::as_object_mut).into_iter().flatten();
    for (path, item) in paths {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten();
            parameters.filter_map(Value::as_object_mut).for_each(|parameter| state_parameter(method, path, parameter));
        }
    }
    astray
}

fn state_parameter(method: &str, path: &str, parameter: &mut Map<String, Value>) {
    let bound = match (parameter.get("name").and_then(Value::as_str).unwrap_or_default(), method) {
        // Only an alias can be created or deleted; a group that is read may also be a host.
        ("group", "put" | "patch" | "delete") => Some(bounds::ALIAS),
        (name, _) => bounds::parameter(path, name),
    };
    if let (Some(bound), Some(schema)) = (bound, parameter.get_mut("schema").and_then(Value::as_object_mut)) {
        bound.state(schema);
    }
}
