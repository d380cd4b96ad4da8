//! What the document offers beyond the calls themselves: for every call an example that matches the call's types and
//! that a server accepts, a description for every field, and the defaults in force.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Map;
use wayleave_api::{
    chunks, crawls, fleet, groups, hosts, jobs, map, matches, nodes, placements, pools, reservations, roles, stats,
    urls,
};

use crate::prelude::*;
use crate::support::site::Logs;

const REMEDY: &str = "; examples lie in src/http/examples.json";

async fn document() -> Value {
    Door::new().get("/openapi.json").await.ok()
}

/// Every operation of a document, by `METHOD /path`.
fn operations(document: &Value) -> Vec<(String, Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    let operations = paths.flat_map(|(path, item)| {
        let calls = item.as_object().unwrap().iter();
        calls.map(move |(method, call)| (format!("{} {path}", method.to_uppercase()), call.clone()))
    });
    operations.collect()
}

/// Parses a value as a wire type and serialises it again.
type Read = fn(Value) -> serde_json::Result<Value>;

fn read<T: DeserializeOwned + Serialize>(value: Value) -> serde_json::Result<Value> {
    serde_json::to_value(serde_json::from_value::<T>(value)?)
}

macro_rules! named {
    ($($module:ident::$name:ident),* $(,)?) => {
        BTreeMap::from([$((stringify!($name), read::<$module::$name> as Read)),*])
    };
}

/// The wire types of exports and imports, by their names in the document.
fn types_of_imports() -> BTreeMap<&'static str, Read> {
    named![]
}

/// The wire types of pools and matches.
fn types_of_pools() -> BTreeMap<&'static str, Read> {
    named![
        matches::ListMatchesResponse,
        matches::Match,
        pools::GetWorkerLogResponse,
        pools::ListPoolsResponse,
        pools::ListWorkersResponse,
        pools::PausePoolRequest,
        pools::Pool,
        pools::ReportWorkerRequest,
        pools::SetPoolRequest,
    ]
}

/// The wire types of bodies, by their names in the document.
fn types() -> BTreeMap<&'static str, Read> {
    let mut types = named![
        chunks::Chunk,
        chunks::ChunkMoved,
        chunks::ClaimChunksRequest,
        chunks::ClaimChunksResponse,
        chunks::CompleteChunkRequest,
        chunks::FailChunkRequest,
        chunks::ListChunksResponse,
        chunks::RenewChunkRequest,
        chunks::RenewChunkResponse,
        chunks::ReportLinksRequest,
        chunks::ReportLinksResponse,
        crawls::Crawl,
        crawls::ListCrawlsResponse,
        crawls::SetCrawlRequest,
        fleet::ListMachinesResponse,
        fleet::Machine,
        fleet::ReportMachineRequest,
        fleet::ReportMachineResponse,
        fleet::SetMachineRequest,
        groups::Group,
        groups::ListGroupsResponse,
        groups::SetGroupRequest,
        hosts::DeleteUrlsResponse,
        hosts::Host,
        hosts::ListHostsResponse,
        hosts::SetHostRequest,
        jobs::Job,
        jobs::ListJobsResponse,
        jobs::RevokeRequest,
        jobs::RevokeResponse,
        jobs::ReworkUrlsRequest,
        jobs::ReworkUrlsResponse,
        jobs::StartedJob,
        map::Map,
        nodes::Nodes,
        placements::ListPlacementsResponse,
        placements::ReportPlacementRequest,
        placements::ReportPlacementResponse,
        reservations::ListReservationsResponse,
        reservations::ReleaseReservationRequest,
        reservations::ReleaseReservationResponse,
        reservations::RenewReservationRequest,
        reservations::RenewReservationResponse,
        reservations::ReserveGroupsRequest,
        reservations::ReserveGroupsResponse,
        roles::HeartbeatRequest,
        roles::HeartbeatResponse,
        roles::ListRolesResponse,
        roles::RaiseEpochRequest,
        roles::ReleaseRoleResponse,
        roles::Role,
        roles::SetRoleRequest,
        stats::Stats,
        urls::AddUrlsRequest,
        urls::AddUrlsResponse,
        urls::AddResult,
        urls::ListUrlsResponse,
        urls::Url,
        urls::UrlToAdd,
    ];
    types.extend(types_of_imports());
    types.extend(types_of_pools());
    // The same, with hosts.
    types.insert("PutGroupRequest", read::<groups::SetGroupRequest>);
    // The server's own type: it has only one field.
    types.insert("Health", read::<BTreeMap<String, String>>);
    types
}

/// The name of a schema.
fn named(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.rsplit('/').next()
}

/// Checks the examples of a body against its types.
fn check_content(call: &str, message: &Value, whole: bool) {
    for (kind, content) in message["content"].as_object().into_iter().flatten() {
        let example = &content["example"];
        if kind == "application/octet-stream" {
            continue;
        }
        assert!(!example.is_null(), "{call} has no example of {kind}{REMEDY}");
        let Some(name) = named(&content["schema"]) else {
            assert!(example.is_string() && content["schema"]["type"] == "string", "{call}: {content}");
            continue;
        };
        let types = types();
        let read = types.get(name).unwrap_or_else(|| panic!("{call}: this test does not know {name}"));
        let values = match kind.as_str() {
            "application/x-ndjson" => {
                let lines = example.as_str().unwrap().lines().map(|line| serde_json::from_str(line).unwrap());
                // The last line of an answer may be a summary.
                lines.filter(|line: &Value| line.get("counts").is_none()).collect()
            }
            _ => vec![example.clone()],
        };
        for value in values {
            let is = read(value.clone()).unwrap_or_else(|e| panic!("{call}: {e}: {value}"));
            // A response is complete; a request may omit fields.
            assert!(!whole || is == value, "{call}: the answer is not whole{REMEDY}\n{value}\n{is}");
        }
    }
}

#[tokio::test]
async fn every_call_has_examples_of_its_own_types() {
    for (call, operation) in operations(&document().await) {
        check_content(&call, &operation["requestBody"], false);
        for (_, response) in operation["responses"].as_object().unwrap().iter().filter(|(s, _)| s.starts_with('2')) {
            check_content(&call, response, true);
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert!(parameter["required"] != true || !parameter["example"].is_null(), "{call}: {parameter}");
        }
    }
}

#[tokio::test]
async fn every_call_type_field_and_parameter_has_a_text() {
    let document = document().await;
    let told = |value: &Value| value["description"].as_str().is_some_and(|text| !text.trim().is_empty());
    for (call, operation) in operations(&document) {
        assert!(told(&operation) || operation["summary"].is_string(), "{call}");
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert!(told(parameter), "{call}: {parameter}");
        }
    }
    let mut fields = 0;
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert!(told(schema), "{name}");
        let parts = schema["oneOf"].as_array().into_iter().flatten().chain([schema]);
        for (field, part) in parts.filter_map(|part| part["properties"].as_object()).flatten() {
            let nested = part["properties"].as_object().into_iter().flatten();
            for (field, part) in nested.chain([(field, part)]) {
                assert!(told(part), "{name}.{field}: {part}");
                fields += 1;
            }
        }
    }
    assert!(fields > 150, "{fields}");
}

#[tokio::test]
async fn the_defaults_of_the_document_are_those_in_force() {
    let document = document().await;
    let field =
        |schema: &str, name: &str| document["components"]["schemas"][schema]["properties"][name]["default"].clone();
    for (schema, name, want) in [
        ("SetCrawlRequest", "delay_ms", limits::DELAY_DEFAULT.0),
        ("RetryPatch", "attempts", limits::ATTEMPTS_MAX_DEFAULT.into()),
        ("RetryPatch", "first_ms", limits::RETRY_BASE.0),
        ("RetryPatch", "max_ms", limits::RETRY_MAX.0),
        ("SetPoolRequest", "idle_ms", limits::IDLE_DEFAULT.0),
        ("SetPoolRequest", "start_ms_max", limits::START_DEFAULT.0),
        ("SetPoolRequest", "queue_max", limits::MATCH_QUEUE_DEFAULT),
        ("SetPoolRequest", "match_ms_max", limits::MATCH_DEFAULT.0),
        ("SetPoolRequest", "reservation_ms", limits::RESERVATION_DEFAULT.0),
        ("SetPoolRequest", "makers_max", limits::MAKERS_DEFAULT),
        ("SetRoleRequest", "ttl_ms", limits::ROLE_TTL_DEFAULT.0),
        ("SetRoleRequest", "continue_for_ms", limits::ROLE_CONTINUE_DEFAULT.0),
        ("UrlToAdd", "priority", wayleave_core::limits::PRIORITY_DEFAULT.into()),
        ("ClaimChunksRequest", "links", limits::CHUNK_LINKS_DEFAULT as u64),
        ("ClaimChunksRequest", "lease_ms", limits::LEASE_MS_DEFAULT),
        ("RenewChunkRequest", "lease_ms", limits::LEASE_MS_DEFAULT),
        ("UrlToAdd", "depth", 0),
        ("SetGroupRequest", "parallel", 1),
        ("SetCrawlRequest", "weight", 1),
    ] {
        assert_eq!(field(schema, name), want, "{schema}.{name}");
    }
    assert_eq!(field("AddUrlsRequest", "crawl"), "DEFAULT");
    for (call, operation) in operations(&document) {
        for parameter in operation["parameters"].as_array().into_iter().flatten().filter(|p| p["name"] == "limit") {
            assert_eq!(parameter["schema"]["default"], limits::PAGE_DEFAULT, "{call}: {parameter}");
        }
    }
}

/// The calls in an order in which each finds what it refers to. Snapshots need a store with files.
const STORY: &[&str] = &[
    "GET /healthz",
    "GET /readyz",
    "PUT /v1/crawls/{crawl}",
    "PATCH /v1/crawls/{crawl}",
    "PUT /v1/groups/{group}",
    "PATCH /v1/groups/{group}",
    "PUT /v1/hosts/{host}",
    "PATCH /v1/hosts/{host}",
    "POST /v1/urls",
    "POST /v1/reservations",
    "GET /v1/reservations",
    "POST /v1/reservations/{token}/renew",
    "GET /v1/urls",
    "GET /v1/urls/lookup",
    "POST /v1/reservations/{token}/release",
    "POST /v1/chunks/claim",
    "GET /v1/chunks",
    "GET /v1/chunks/{chunk}",
    "POST /v1/chunks/{chunk}/renew",
    "POST /v1/chunks/{chunk}/fail",
    "POST /v1/chunks/claim",
    "POST /v1/chunks/{chunk}/links",
    "POST /v1/chunks/{chunk}/complete",
    "POST /v1/chunks/{chunk}/skip",
    "POST /v1/chunks/{chunk}/retry",
    "PUT /v1/fleet/{id}",
    "GET /v1/fleet/{id}",
    "GET /v1/fleet",
    "POST /v1/placements/{chunk}/{server}",
    "GET /v1/placements",
    "GET /v1/map",
    "PATCH /v1/fleet/{id}",
    "DELETE /v1/fleet/{id}",
    "POST /v1/urls/requeue",
    "GET /v1/jobs",
    "GET /v1/jobs/{job}",
    "DELETE /v1/jobs/{job}",
    "POST /v1/urls/delete",
    "POST /v1/reservations/revoke",
    "GET /v1/hosts/{host}",
    "GET /v1/hosts",
    "GET /v1/groups/{group}",
    "GET /v1/groups",
    "GET /v1/crawls/{crawl}",
    "GET /v1/crawls",
    "GET /v1/stats",
    "GET /v1/nodes",
    "GET /metrics",
    "PUT /v1/pools/{pool}",
    "PUT /v1/matches/{client}",
    "GET /v1/pools/{pool}/workers",
    "GET /v1/pools/{pool}/workers/{worker}/log",
    "GET /v1/pools/{pool}",
    "GET /v1/pools",
    "GET /v1/matches/{client}",
    "GET /v1/matches",
    "DELETE /v1/matches/{client}",
    "PUT /v1/pools/{pool}/paused",
    "DELETE /v1/pools/{pool}",
    "PUT /v1/roles/{utype}",
    "PATCH /v1/roles/{utype}",
    "POST /v1/roles/{utype}/heartbeat",
    "GET /v1/roles/{utype}",
    "GET /v1/roles",
    "POST /v1/roles/{utype}/step_down",
    "DELETE /v1/roles/{utype}/{uuid}",
    "POST /v1/roles/{utype}/raise_epoch",
    "DELETE /v1/roles/{utype}",
    "POST /v1/crawls/{crawl}/purge",
    "DELETE /v1/hosts/{host}/queues/{crawl}",
    "DELETE /v1/groups/{group}",
    "DELETE /v1/crawls/{crawl}",
];

/// Calls that need what only a store with files or the environment of a worker has.
const UNTOLD: [&str; 2] = ["GET /v1/snapshot", "PUT /v1/pools/{pool}/workers/{worker}"];

#[tokio::test]
async fn a_server_takes_every_example_and_answers_with_the_same_fields() {
    let services = services();
    let _site = Site::of(&services.matches);
    let door = Door::serving(Config::default(), Services { logs: Some(Arc::new(Logs)), ..services });
    let operations = BTreeMap::from_iter(operations(&document().await));
    let left_out: BTreeSet<&str> = operations.keys().map(String::as_str).filter(|call| !STORY.contains(call)).collect();
    assert_eq!(left_out, BTreeSet::from(UNTOLD), "a call has no place in the story of this test");
    // Tokens and jobs are new every time, whatever the examples say.
    let mut own: BTreeMap<&str, Value> = BTreeMap::new();
    for call in STORY {
        if *call == "POST /v1/placements/{chunk}/{server}" {
            crate::placement_stories::build(&door).await;
        }
        if *call == "GET /v1/pools/{pool}/workers" {
            let worker = crate::pool_stories::first_worker(&door, "browsers").await;
            own.insert("worker", worker.into());
        }
        let operation = &operations[*call];
        let (method, template) = call.split_once(' ').unwrap();
        let (mut path, mut query) = (template.to_owned(), Vec::new());
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap();
            let known = match name {
                "token" if template.contains("/roles/") => "role token",
                "token" if template.contains("/matches/") => "match token",
                name => name,
            };
            let example = own.get(known).or_else(|| parameter.get("example"));
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let Some(example) = example.map(text) else { continue };
            match parameter["in"].as_str() {
                Some("path") => path = path.replace(&format!("{{{name}}}"), &example),
                _ => query.push(format!("{name}={example}")),
            }
        }
        if call.ends_with("/lookup") {
            query.push("crawl=news".to_owned());
        }
        let mut body = operation["requestBody"]["content"]["application/json"]["example"].clone();
        if let (Some(token), true) = (own.get("chunk token"), template.starts_with("/v1/chunks/{chunk}")) {
            body.as_object_mut().map(|body| body.insert("token".to_owned(), token.clone()));
        }
        let (kind, text) = if body.is_null() { ("", String::new()) } else { ("application/json", body.to_string()) };
        let path = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
        let method: Method = method.parse().unwrap();
        let answer = door.send_as(method, &path, kind, Body::from(text)).await;
        assert!(answer.status.is_success(), "{call}: {answer:?}");
        let told = operation["responses"].get(answer.status.as_str());
        let told = told.unwrap_or_else(|| panic!("{call}: a status that is not documented: {answer:?}"));
        let Some(example) = told["content"]["application/json"]["example"].as_object() else { continue };
        let answer = answer.json();
        let fields = |object: &Map<String, Value>| object.keys().cloned().collect::<BTreeSet<String>>();
        assert_eq!(fields(answer.as_object().unwrap()), fields(example), "{call}");
        match *call {
            "POST /v1/reservations" => drop(own.insert("token", answer["reservations"][0]["token"].clone())),
            "POST /v1/chunks/claim" => {
                own.insert("chunk", answer["chunks"][0]["id"].clone());
                own.insert("chunk token", answer["chunks"][0]["token"].clone());
            }
            "POST /v1/urls/requeue" => drop(own.insert("job", answer["job"].clone())),
            "POST /v1/roles/{utype}/heartbeat" => drop(own.insert("role token", answer["token"].clone())),
            _ => {}
        }
    }
}
