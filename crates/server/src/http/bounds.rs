//! The bounds stated in the OpenAPI document. They are taken from `limits` instead of being repeated at each field, so
//! the document always states the limits in force.
//!
//! What no schema can express is in the descriptions: lengths in bytes, fields that exclude each other, and the bounds
//! of a single URL in a batch, which is rejected individually while the others are accepted.

use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;
use wayleave_core::limits;

/// Text without control characters.
const PRINTABLE: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";
/// The same with at least one visible character.
const VISIBLE: &str = r"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$";
/// 128 bits in 22 characters; the last character carries two of them.
const TOKEN: &str = "^[A-Za-z0-9_-]{21}[AQgw]$";
const CHUNK: &str = "^(0|[1-9][0-9]*)$";
const SHA256: &str = "^sha256:[0-9A-Fa-f]{64}$";
const ALIAS: &str = "^[A-Za-z0-9_-]+$";
const ROLE: &str = "^[A-Za-z0-9._-]+$";
const POOL: &str = "^[A-Za-z0-9][A-Za-z0-9._-]*$";
const GRAPHIC: &str = "^[!-~]+$";
const PEER: &str = r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$";

fn number(least: u64, most: u64) -> Value {
    json!({"minimum": least, "maximum": most})
}

fn text(least: usize, most: usize, pattern: &str) -> Value {
    json!({"minLength": least, "maxLength": most, "pattern": pattern})
}

fn exact() -> Value {
    number(0, limits::NUMBER_MAX)
}

fn key() -> Value {
    text(1, limits::KEY_UNITS_MAX, PRINTABLE)
}

fn machine() -> Value {
    text(1, limits::MACHINE_BYTES_MAX, PRINTABLE)
}

fn crawl() -> Value {
    text(0, limits::CRAWL_BYTES_MAX, PRINTABLE)
}

/// The bounds of a query or path parameter.
fn parameter(path: &str, name: &str) -> Option<Value> {
    Some(match (name, path) {
        ("host" | "key", _) => key(),
        ("group", "/v1/groups/{group}") => key(),
        ("crawl", _) => crawl(),
        ("chunk", _) => text(1, 20, CHUNK),
        ("after", "/v1/chunks") => text(1, 20, CHUNK),
        ("token" | "job", _) => text(22, 22, TOKEN),
        ("utype", _) => text(1, limits::ROLE_BYTES_MAX, ROLE),
        ("id" | "server", _) => machine(),
        ("after", "/v1/fleet") => machine(),
        ("client", _) => text(1, limits::CLIENT_BYTES_MAX, PRINTABLE),
        ("pool", _) => text(1, limits::POOL_BYTES_MAX, POOL),
        ("worker", _) => text(1, limits::WORKER_BYTES_MAX, PRINTABLE),
        ("after", "/v1/pools") => text(1, limits::POOL_BYTES_MAX, POOL),
        ("bytes", _) => number(1, limits::WORKER_LOG_BYTES_MAX),
        ("row", _) => number(0, limits::ROW_MAX),
        ("uuid", _) => text(1, limits::UUID_BYTES_MAX, GRAPHIC),
        ("slot", _) => text(1, limits::SLOT_BYTES_MAX, GRAPHIC),
        ("url", _) => text(1, limits::URL_BYTES_MAX, VISIBLE),
        ("limit", _) => number(1, limits::PAGE_MAX as u64),
        // A cursor is opaque, but never empty.
        ("after", "/v1/hosts" | "/v1/groups" | "/v1/urls" | "/v1/reservations" | "/v1/placements" | "/v1/matches") => {
            json!({"minLength": 1})
        }
        ("after", "/v1/roles") => text(1, limits::ROLE_BYTES_MAX, ROLE),
        ("wait_ms", _) => number(0, limits::WAIT_MS_MAX),
        ("min_epoch" | "older_than_ms" | "since", _) => exact(),
        _ => return None,
    })
}

/// The same for pools and their workers.
fn fields_of_pools() -> Vec<(&'static str, Value)> {
    vec![
        ("SetPoolRequest/properties/command", json!({"maxItems": limits::COMMAND_ARGS_MAX})),
        ("SetPoolRequest/properties/image", json!({"minLength": 1})),
        ("SetPoolRequest/properties/advertise", json!({"minLength": 1, "maxLength": limits::ADDRESS_BYTES_MAX})),
        ("SetPoolRequest/properties/memory_bytes", number(limits::WORKER_MEMORY_MIN, limits::NUMBER_MAX)),
        ("SetPoolRequest/properties/uses_max", number(1, limits::NUMBER_MAX)),
        ("ReportWorkerRequest/properties/secret", text(22, 22, TOKEN)),
        ("ReportWorkerRequest/properties/address", text(1, limits::ADDRESS_BYTES_MAX, PEER)),
    ]
}

/// The bounds of the fields of bodies, by JSON pointer into the schemas.
fn fields() -> Vec<(&'static str, Value)> {
    let delay = || number(0, limits::DELAY_MAX.0);
    let span = || number(1, limits::DELAY_MAX.0);
    let wait = || number(1, limits::RETRY_AFTER_MAX.0);
    let whole = || number(0, u64::from(u32::MAX));
    let factor = || json!({"minimum": 0, "maximum": f64::from(u32::MAX) / 1_000.0});
    let mut all = vec![
        ("AddUrlsRequest/properties/crawl", crawl()),
        ("ReworkUrlsRequest/properties/crawl", crawl()),
        ("ReworkUrlsRequest/properties/host", key()),
        ("ReworkUrlsRequest/properties/contains", json!({"minLength": 1})),
        ("ReworkUrlsRequest/properties/urls", json!({"maxItems": limits::BATCH_URLS_MAX})),
        ("ReworkUrlsRequest/properties/older_than_ms", number(0, limits::JOB_AGE_MS_MAX)),
        ("RevokeRequest/properties/token", text(22, 22, TOKEN)),
        ("RevokeRequest/properties/host", key()),
        ("AddUrlsRequest/properties/urls", json!({"maxItems": limits::BATCH_URLS_MAX})),
        ("UrlToAdd/properties/priority", number(0, 9)),
        ("UrlToAdd/properties/depth", whole()),
        ("ReserveGroupsRequest/properties/holder", text(1, limits::HOLDER_BYTES_MAX, VISIBLE)),
        ("ReserveGroupsRequest/properties/crawl", crawl()),
        ("ReserveGroupsRequest/properties/groups", number(1, limits::RESERVE_GROUPS_MAX as u64)),
        ("ReserveGroupsRequest/properties/urls", number(0, limits::RESERVE_URLS_MAX as u64)),
        ("ReserveGroupsRequest/properties/wait_ms", number(0, limits::WAIT_MS_MAX)),
        ("ReserveGroupsRequest/properties/request_id", text(1, limits::REQUEST_ID_BYTES_MAX, VISIBLE)),
        ("ReleaseReservationRequest/properties/results", json!({"maxItems": limits::RESULTS_MAX})),
        ("UrlResult/properties/status", number(100, 999)),
        ("UrlResult/properties/duration_ms", exact()),
        ("UrlResult/properties/bytes", exact()),
        ("UrlResult/properties/crawl_delay_ms", exact()),
        ("UrlResult/properties/retry_after_ms", exact()),
        ("UrlResult/properties/digest", json!({"minLength": 1, "maxLength": limits::DIGEST_BYTES_MAX})),
        ("UrlResult/properties/found", json!({"maxItems": limits::FOUND_MAX})),
        ("SetGroupRequest/properties/hosts", json!({"maxItems": limits::GROUP_HOSTS_MAX})),
        ("SetGroupRequest/properties/hosts/items", key()),
        ("SetGroupRequest/properties/parallel", number(1, u64::from(limits::PARALLEL_MAX))),
        ("SetHostRequest/properties/crawl_delay_ms", number(0, limits::CRAWL_DELAY_MAX.0)),
        ("SetCrawlRequest/properties/weight", number(1, u64::from(limits::WEIGHT_MAX))),
        ("SetCrawlRequest/properties/delay_ms", delay()),
        ("CrawlLimitsPatch/properties/depth", whole()),
        ("CrawlLimitsPatch/properties/attempts", number(1, u64::from(u32::MAX))),
        ("RetryPatch/properties/attempts", number(1, u64::from(u32::MAX))),
        ("RetryPatch/properties/first_ms", wait()),
        ("RetryPatch/properties/max_ms", wait()),
        ("Revisit/oneOf/1/properties/fixed_ms", span()),
        ("Revisit/oneOf/2/properties/adaptive/properties/min_ms", span()),
        ("Revisit/oneOf/2/properties/adaptive/properties/max_ms", span()),
    ];
    all.extend(fields_of_roles());
    all.extend(fields_of_chunks());
    all.extend(fields_of_machines());
    all.extend(fields_of_pools());
    for schema in ["ReserveGroupsRequest", "RenewReservationRequest"] {
        let lease = number(limits::LEASE_MS_MIN, limits::LEASE_MS_MAX);
        all.push((if schema.starts_with("Res") { LEASE } else { RENEWED_LEASE }, lease));
    }
    for name in CRAWL_LIMITS {
        all.push((name, exact()));
    }
    for name in PACE {
        let bounds = match name.rsplit('/').next() {
            Some("delay_factor") => factor(),
            Some("limit") => exact(),
            _ => delay(),
        };
        all.push((name, bounds));
    }
    all
}

/// The same for the role calls.
fn fields_of_roles() -> Vec<(&'static str, Value)> {
    vec![
        ("SetRoleRequest/properties/ttl_ms", number(limits::ROLE_TTL_MS_MIN, limits::ROLE_TTL_MS_MAX)),
        (
            "SetRoleRequest/properties/continue_for_ms",
            number(limits::ROLE_CONTINUE_MS_MIN, limits::ROLE_CONTINUE_MS_MAX),
        ),
        ("RaiseEpochRequest/properties/epoch", number(0, limits::ROLE_EPOCH_RAISED_MAX)),
        ("HeartbeatRequest/properties/uuid", text(1, limits::UUID_BYTES_MAX, GRAPHIC)),
        ("HeartbeatRequest/properties/token", text(22, 22, TOKEN)),
        ("HeartbeatRequest/properties/address", text(1, limits::ADDRESS_BYTES_MAX, PRINTABLE)),
        ("HeartbeatRequest/properties/priority", number(0, 9)),
        (
            "HeartbeatRequest/properties/interval_ms",
            number(limits::ROLE_INTERVAL_MS_MIN, limits::ROLE_TTL_MS_MAX / limits::ROLE_INTERVALS_MIN),
        ),
        ("HeartbeatRequest/properties/heard", exact()),
        ("HeartbeatRequest/properties/slot", text(1, limits::SLOT_BYTES_MAX, GRAPHIC)),
        ("Peer/properties/address", text(1, limits::ADDRESS_BYTES_MAX, PEER)),
        ("Peer/properties/secret", text(22, 22, TOKEN)),
        ("TakeOver/properties/epoch", exact()),
        ("TakeOver/properties/expires_at_ms", exact()),
    ]
}

/// The same for the chunk calls.
fn fields_of_chunks() -> Vec<(&'static str, Value)> {
    let lease = || number(limits::LEASE_MS_MIN, limits::LEASE_MS_MAX);
    let token = || text(22, 22, TOKEN);
    vec![
        ("ClaimChunksRequest/properties/worker", text(1, limits::HOLDER_BYTES_MAX, VISIBLE)),
        ("ClaimChunksRequest/properties/crawl", crawl()),
        ("ClaimChunksRequest/properties/max", number(1, limits::CLAIM_CHUNKS_MAX as u64)),
        ("ClaimChunksRequest/properties/links", number(1, limits::CHUNK_LINKS_MAX as u64)),
        ("ClaimChunksRequest/properties/host", key()),
        ("ClaimChunksRequest/properties/lease_ms", lease()),
        ("ClaimChunksRequest/properties/linger_ms", number(0, limits::WAIT_MS_MAX)),
        ("ClaimChunksRequest/properties/wait_ms", number(0, limits::WAIT_MS_MAX)),
        ("ClaimChunksRequest/properties/request_id", text(1, limits::REQUEST_ID_BYTES_MAX, VISIBLE)),
        ("ReportLinksRequest/properties/token", token()),
        ("ReportLinksRequest/properties/results", json!({"maxItems": limits::RESULTS_MAX})),
        ("RenewChunkRequest/properties/token", token()),
        ("RenewChunkRequest/properties/lease_ms", lease()),
        ("CompleteChunkRequest/properties/token", token()),
        ("FailChunkRequest/properties/token", token()),
        (
            "FailChunkRequest/properties/reason",
            json!({"minLength": 1, "maxLength": limits::REASON_BYTES_MAX, "pattern": r"\S"}),
        ),
        ("Artifact/properties/location", json!({"maxLength": limits::LOCATION_BYTES_MAX, "format": "uri"})),
        ("Artifact/properties/bytes", exact()),
        ("Artifact/properties/checksum", text(71, 71, SHA256)),
        ("ReportPlacementRequest/properties/checksum", text(71, 71, SHA256)),
    ]
}

/// The same for the fleet calls.
fn fields_of_machines() -> Vec<(&'static str, Value)> {
    vec![
        ("ReportMachineRequest/properties/address", text(1, limits::ADDRESS_BYTES_MAX, PEER)),
        ("ReportMachineRequest/properties/capacity", number(1, limits::CAPACITY_MAX)),
        ("ReportMachineRequest/properties/row", number(0, limits::ROW_MAX)),
        ("ReportMachineRequest/properties/token", text(22, 22, TOKEN)),
        ("ReportMachineRequest/properties/version", text(0, limits::MACHINE_VERSION_BYTES_MAX, PRINTABLE)),
    ]
}

const LEASE: &str = "ReserveGroupsRequest/properties/lease_ms";
const RENEWED_LEASE: &str = "RenewReservationRequest/properties/lease_ms";
const CRAWL_LIMITS: [&str; 5] = [
    "CrawlLimitsPatch/properties/urls",
    "CrawlLimitsPatch/properties/pages",
    "CrawlLimitsPatch/properties/urls_per_host",
    "CrawlLimitsPatch/properties/pages_per_host",
    "CrawlLimitsPatch/properties/hosts",
];
const PACE: [&str; 10] = [
    "SetHostRequest/properties/delay_ms",
    "SetHostRequest/properties/delay_factor",
    "SetHostRequest/properties/delay_ms_min",
    "SetHostRequest/properties/delay_ms_max",
    "SetHostRequest/properties/limit",
    "SetGroupRequest/properties/delay_ms",
    "SetGroupRequest/properties/delay_factor",
    "SetGroupRequest/properties/delay_ms_min",
    "SetGroupRequest/properties/delay_ms_max",
    "SetGroupRequest/properties/limit",
];

fn state(schema: &mut Map<String, Value>, bounds: Value) {
    let Value::Object(bounds) = bounds else { return };
    // The bounds replace the integer format, which says less and is wrong for unsigned 32-bit integers.
    if bounds.contains_key("maximum") {
        schema.remove("format");
    }
    schema.extend(bounds);
}

/// The document with the bounds in force. Dangling pointers are returned, for the test that keeps both in step.
pub fn stated(document: OpenApi) -> (OpenApi, Vec<&'static str>) {
    let Ok(mut value) = serde_json::to_value(&document) else { return (document, vec!["the document"]) };
    let mut astray = Vec::new();
    for (name, bounds) in fields() {
        match value.pointer_mut(&format!("/components/schemas/{name}")) {
            Some(Value::Object(schema)) => state(schema, bounds),
            _ => astray.push(name),
        }
    }
    let paths = value.get_mut("paths").and_then(Value::as_object_mut).into_iter().flatten();
    for (path, item) in paths {
        let operations = item.as_object_mut().into_iter().flat_map(|item| item.iter_mut());
        for (method, operation) in operations {
            let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten();
            for of_call in parameters {
                let name = of_call.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                let bounds = match (name.as_str(), method.as_str()) {
                    // Only an alias can be created or deleted; a group that is read may also be a host.
                    ("group", "put" | "patch" | "delete") => Some(text(1, limits::ALIAS_BYTES_MAX, ALIAS)),
                    (name, _) => parameter(path, name),
                };
                let schema = of_call.get_mut("schema").and_then(Value::as_object_mut);
                if let (Some(schema), Some(bounds)) = (schema, bounds) {
                    state(schema, bounds);
                }
            }
        }
    }
    match serde_json::from_value(value) {
        Ok(bounded) => (bounded, astray),
        Err(_) => (document, vec!["the document cannot be read back"]),
    }
}
