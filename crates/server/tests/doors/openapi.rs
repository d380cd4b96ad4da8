//! The document and the routes have the same calls, and they are those of the contract.

use wayleave_core::limits::PRIORITY_MAX;

use crate::prelude::*;

/// Every call of the contract, listed by hand.
const CALLS: [&str; 73] = [
    "DELETE /v1/crawls/{crawl}",
    "DELETE /v1/fleet/{id}",
    "DELETE /v1/groups/{group}",
    "DELETE /v1/hosts/{host}/queues/{crawl}",
    "DELETE /v1/jobs/{job}",
    "DELETE /v1/matches/{client}",
    "DELETE /v1/pools/{pool}",
    "DELETE /v1/roles/{utype}",
    "DELETE /v1/roles/{utype}/{uuid}",
    "GET /healthz",
    "GET /metrics",
    "GET /readyz",
    "GET /v1/chunks",
    "GET /v1/chunks/{chunk}",
    "GET /v1/crawls",
    "GET /v1/crawls/{crawl}",
    "GET /v1/fleet",
    "GET /v1/fleet/{id}",
    "GET /v1/groups",
    "GET /v1/groups/{group}",
    "GET /v1/hosts",
    "GET /v1/hosts/{host}",
    "GET /v1/jobs",
    "GET /v1/jobs/{job}",
    "GET /v1/map",
    "GET /v1/placements",
    "GET /v1/reservations",
    "GET /v1/roles",
    "GET /v1/roles/{utype}",
    "GET /v1/matches",
    "GET /v1/matches/{client}",
    "GET /v1/nodes",
    "GET /v1/pools",
    "GET /v1/pools/{pool}",
    "GET /v1/pools/{pool}/workers",
    "GET /v1/pools/{pool}/workers/{worker}/log",
    "GET /v1/snapshot",
    "GET /v1/stats",
    "GET /v1/urls",
    "GET /v1/urls/lookup",
    "PATCH /v1/crawls/{crawl}",
    "PATCH /v1/fleet/{id}",
    "PATCH /v1/groups/{group}",
    "PATCH /v1/hosts/{host}",
    "PATCH /v1/roles/{utype}",
    "POST /v1/chunks/claim",
    "POST /v1/chunks/{chunk}/complete",
    "POST /v1/chunks/{chunk}/fail",
    "POST /v1/chunks/{chunk}/links",
    "POST /v1/chunks/{chunk}/renew",
    "POST /v1/chunks/{chunk}/retry",
    "POST /v1/chunks/{chunk}/skip",
    "POST /v1/crawls/{crawl}/purge",
    "POST /v1/placements/{chunk}/{server}",
    "POST /v1/reservations",
    "POST /v1/reservations/revoke",
    "POST /v1/reservations/{token}/release",
    "POST /v1/reservations/{token}/renew",
    "POST /v1/roles/{utype}/heartbeat",
    "POST /v1/roles/{utype}/raise_epoch",
    "POST /v1/roles/{utype}/step_down",
    "POST /v1/urls",
    "POST /v1/urls/delete",
    "POST /v1/urls/requeue",
    "PUT /v1/crawls/{crawl}",
    "PUT /v1/fleet/{id}",
    "PUT /v1/groups/{group}",
    "PUT /v1/hosts/{host}",
    "PUT /v1/matches/{client}",
    "PUT /v1/pools/{pool}",
    "PUT /v1/pools/{pool}/paused",
    "PUT /v1/pools/{pool}/workers/{worker}",
    "PUT /v1/roles/{utype}",
];

pub async fn document() -> Value {
    Door::new().get("/openapi.json").await.ok()
}

fn documented(document: &Value) -> BTreeSet<String> {
    let paths = document["paths"].as_object().unwrap().iter();
    let calls = paths.flat_map(|(path, item)| {
        item.as_object().unwrap().keys().map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    calls.collect()
}

#[tokio::test]
async fn the_document_lists_every_call_of_the_contract_and_no_other() {
    let document = document().await;
    assert_eq!(document["openapi"], "3.1.0");
    let want: BTreeSet<String> = CALLS.iter().map(ToString::to_string).collect();
    assert_eq!(documented(&document), want);
}

#[tokio::test]
async fn every_documented_call_is_served() {
    let door = Door::new();
    for call in documented(&document().await) {
        let (method, path) = call.split_once(' ').unwrap();
        let path = path.replace("{token}", "x").replace("{chunk}", "1").replace(['{', '}'], "");
        let method: Method = method.parse().unwrap();
        let answer = door.send_as(method, &path, "application/json", Body::empty()).await;
        assert!(
            !["no_such_path", "method_not_allowed"].iter().any(|code| answer.text.contains(code)),
            "{call}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn a_path_takes_no_method_that_is_not_documented() {
    let door = Door::new();
    let document = document().await;
    let calls = documented(&document);
    for path in document["paths"].as_object().unwrap().keys() {
        for method in [Method::GET, Method::PUT, Method::POST, Method::PATCH, Method::DELETE] {
            if calls.contains(&format!("{method} {path}")) {
                continue;
            }
            let answer = door.send_as(method.clone(), &path.replace(['{', '}'], ""), "", Body::empty()).await;
            assert_eq!(answer.problem(), (405, "method_not_allowed".to_owned()), "{method} {path}");
            assert!(answer.headers.contains_key("allow"), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn every_reference_in_the_document_leads_somewhere() {
    let document = document().await;
    let text = document.to_string();
    let mut references = 0;
    for part in text.split("\"$ref\":\"#").skip(1) {
        let pointer = part.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
        references += 1;
    }
    assert!(references > 50, "{references}");
}

#[tokio::test]
async fn every_call_says_that_it_may_answer_with_a_problem() {
    let document = document().await;
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            let content = &operation["responses"]["default"]["content"]["application/problem+json"];
            assert_eq!(content["schema"]["$ref"], "#/components/schemas/Problem");
        }
    }
}

/// The document's numbers are written by hand beside the fields; here they are checked against the real ones.
#[tokio::test]
async fn the_document_tells_the_limits_that_are_in_force() {
    let document = document().await;
    let field = |name: &str| &document["components"]["schemas"]["ReserveGroupsRequest"]["properties"][name];
    assert_eq!(field("groups")["maximum"], limits::RESERVE_GROUPS_MAX);
    assert_eq!(field("urls")["maximum"], limits::RESERVE_URLS_MAX);
    assert_eq!(field("wait_ms")["maximum"], limits::WAIT_MS_MAX);
    for schema in ["ReserveGroupsRequest", "RenewReservationRequest"] {
        let lease = &document["components"]["schemas"][schema]["properties"]["lease_ms"];
        assert_eq!(lease["minimum"], limits::LEASE_MS_MIN);
        assert_eq!(lease["maximum"], limits::LEASE_MS_MAX);
        assert_eq!(lease["default"], limits::LEASE_MS_DEFAULT);
    }
    let schemas = &document["components"]["schemas"];
    let ttl = &schemas["SetRoleRequest"]["properties"]["ttl_ms"];
    assert_eq!((&ttl["minimum"], &ttl["maximum"]), (&limits::ROLE_TTL_MS_MIN.into(), &limits::ROLE_TTL_MS_MAX.into()));
    let interval = &schemas["HeartbeatRequest"]["properties"]["interval_ms"];
    assert_eq!(interval["minimum"], limits::ROLE_INTERVAL_MS_MIN);
    assert_eq!(interval["maximum"], limits::ROLE_TTL_MS_MAX / limits::ROLE_INTERVALS_MIN);
    let priority = &document["components"]["schemas"]["UrlToAdd"]["properties"]["priority"];
    assert_eq!(priority["maximum"], PRIORITY_MAX);
}

#[tokio::test]
async fn pages_for_people_are_html_that_loads_nothing_from_elsewhere() {
    let door = Door::new();
    for (page, part) in [("/docs", "id=calls"), ("/docs/reference", "/v1/reservations/{token}/release")] {
        let answer = door.get(page).await;
        assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8", "{page}");
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{page}: {policy}");
        assert!(answer.text.contains(part), "{page}");
        for file in answer.text.split(" href=/assets/").skip(1).chain(answer.text.split(" src=/assets/").skip(1)) {
            let file = file.split('>').next().unwrap();
            let request = axum::http::Request::get(format!("/assets/{file}")).body(Body::empty()).unwrap();
            assert_eq!(door.status(request).await, 200, "{page}: {file}");
        }
    }
    // A client that does not accept HTML at `/` is told where to go next.
    for path in door.get("/").await.json()["paths"].as_object().unwrap().values() {
        let request = axum::http::Request::get(path.as_str().unwrap()).body(Body::empty()).unwrap();
        assert_eq!(door.status(request).await, 200, "{path}");
    }
}
