//! The OpenAPI document, generated from the handlers and the wire types.

use serde_json::{Value, json};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{Content, OpenApi, Ref, ResponseBuilder};
use utoipa::{OpenApi as _, PartialSchema, ToSchema};
use wayleave_api::{Problem, problem};

use super::{bounds, choices, examples, routes};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Wayleave",
        description = "The control plane of a crawl fleet: which host may be visited now, by whom, and which URLs of it; \
            which chunk of links goes to which crawler, index builder and index server, and which machines are well; which worker serves a client, and whether one must be started; who is the primary of a role, and where. \
            Times are RFC 3339, durations milliseconds. Lists page by `after` and `limit`. \
            Errors are `application/problem+json` with a stable `code`."
    ),
    tags(
        (name = "urls", description = "URLs: add, list, look up, requeue, delete."),
        (name = "reservations", description = "Leases on groups of hosts, each with URLs to fetch."),
        (name = "hosts", description = "Hosts: their state and its reason, and how they are visited."),
        (name = "groups", description = "Groups of hosts that are visited as one."),
        (name = "crawls", description = "Namespaces of URLs with their own weight, limits and pause switch."),
        (name = "jobs", description = "Background jobs over many URLs: requeues and deletions."),
        (name = "chunks", description = "Batches of links on their way from crawl to build: claim, report, complete."),
        (name = "fleet", description = "Machines: crawlers, index builders and index servers, and which of them are well."),
        (name = "placements", description = "Built chunks on index servers, and the map that readers use."),
        (name = "pools", description = "Pools of workers that are started when clients need them."),
        (name = "matches", description = "Clients that ask for a worker of a pool."),
        (name = "roles", description = "Roles: the primary, its address, the standbys."),
        (name = "nodes", description = "Processes that share one store."),
        (name = "store", description = "The store as a whole."),
        (name = "stats", description = "Totals in constant time."),
        (name = "health", description = "Health checks and metrics."),
    )
)]
struct Root;

/// The document without its paths.
pub(super) fn root() -> OpenApi {
    Root::openapi()
}

/// The complete document as served.
#[must_use]
pub fn served_document() -> Value {
    served(routes::documented().into_openapi())
}

/// The document as served: with problems, examples, and every description where readers look for it.
pub(super) fn served(document: OpenApi) -> Value {
    let mut document = serde_json::to_value(with_problems(document)).unwrap_or_default();
    bounds::state(&mut document);
    choices::state(&mut document);
    flatten_problem(&mut document);
    lift_descriptions(&mut document);
    examples::add(&mut document);
    document
}

/// States a problem as one object, which may have further fields. It is derived as a combination of two, of which code
/// generators make types of their own.
fn flatten_problem(document: &mut Value) {
    let Some(problem) = document.pointer_mut("/components/schemas/Problem") else { return };
    let (further, text) = (problem.pointer("/allOf/0/description").cloned(), problem.get("description").cloned());
    let Some(mut whole) = problem.pointer_mut("/allOf/1").map(Value::take) else { return };
    if let Some(whole) = whole.as_object_mut() {
        whole.insert("additionalProperties".to_owned(), json!({"description": further}));
        whole.insert("description".to_owned(), text.into());
    }
    *problem = whole;
}

/// Moves the description of a nullable field from the reference inside it to the field.
fn lift_descriptions(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(lift_descriptions),
        Value::Object(object) => {
            let parts = object.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten();
            let referring = parts.filter_map(Value::as_object_mut).filter(|part| part.contains_key("$ref"));
            let text = referring.filter_map(|part| part.remove("description")).next();
            if let Some(text) = text {
                object.entry("description").or_insert(text);
            }
            object.values_mut().for_each(lift_descriptions);
        }
        _ => {}
    }
}

/// Adds the problem response to every operation.
fn with_problems(mut document: OpenApi) -> OpenApi {
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            let schema = Ref::from_schema_name(Problem::name());
            let content = Content::new(Some(schema));
            let response = ResponseBuilder::new()
                .description("The request was refused or failed; the code says why.")
                .content(problem::CONTENT_TYPE, content)
                .build();
            operation.responses.responses.insert("default".to_owned(), response.into());
        }
    }
    let components = document.components.get_or_insert_default();
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    [get, put, post, delete, patch].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_belongs_to_a_part_of_the_document() {
        let mut document = serde_json::to_value(routes::documented().into_openapi()).unwrap();
        assert_eq!(choices::state(&mut document), Vec::<&str>::new());
    }

    #[test]
    fn every_bound_belongs_to_a_field_of_the_document() {
        let mut document = serde_json::to_value(routes::documented().into_openapi()).unwrap();
        assert_eq!(bounds::state(&mut document), Vec::<String>::new());
    }
}
