//! Machines over HTTP: they register, report and are judged; what is refused, and what no other machine can do.

use crate::prelude::*;
use crate::support::{net, over};

pub fn server(n: u8) -> Value {
    json!({"type": "server", "address": format!("10.0.0.{n}:9000"), "state": "online"})
}

#[track_caller]
fn with(mut body: Value, field: &str, value: Value) -> Value {
    body.as_object_mut().unwrap().insert(field.to_owned(), value);
    body
}

async fn fleet(door: &Door, query: &str) -> Vec<Value> {
    door.get(&format!("/v1/fleet{query}")).await.ok()["machines"].as_array().unwrap().clone()
}

fn names(machines: &[Value]) -> Vec<&str> {
    machines.iter().map(|machine| machine["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_machine_registers_reports_obeys_and_is_listed_without_its_token() {
    let door = Door::new();
    let first = door.put("/v1/fleet/i1", with(server(1), "version", json!("1.4.2"))).await.ok();
    let token = first["token"].as_str().unwrap().to_owned();
    assert_eq!((&first["desired"], &first["judged"]), (&json!("online"), &json!("healthy")));
    assert_eq!(first["interval_ms"], 5_000);
    assert!(first["reason"].as_str().unwrap().contains("suspect if silent"), "{first}");
    let crawler = json!({"type": "crawler", "address": "c1.example:1", "state": "waiting", "capacity": 7});
    door.put("/v1/fleet/c1", crawler).await.ok();

    let view = door.get("/v1/fleet/i1").await;
    assert!(!view.text.contains(&token), "the machine tells its secret: {}", view.text);
    let view = view.ok();
    for (field, want) in [
        ("type", json!("server")),
        ("address", json!("10.0.0.1:9000")),
        ("capacity", json!(1)),
        ("row", json!(0)),
        ("version", json!("1.4.2")),
        ("desired", json!("online")),
        ("state", json!("online")),
        ("judged", json!("healthy")),
        ("failures", json!(0)),
        ("frozen", json!(null)),
    ] {
        assert_eq!(view[field], want, "{field}");
    }
    assert_eq!(door.get("/v1/fleet/c1").await.ok()["row"], json!(null));

    let drained = door.patch("/v1/fleet/i1", json!({"desired": "drain"})).await;
    assert!(!drained.text.contains(&token));
    assert_eq!(drained.ok()["desired"], "drain");
    let told = door.put("/v1/fleet/i1", with(server(1), "token", json!(token))).await.ok();
    assert_eq!((&told["desired"], &told["token"]), (&json!("drain"), &json!(token)), "a report keeps the wish");
    let error = with(with(server(1), "token", json!(token)), "state", json!("error"));
    let told = door.put("/v1/fleet/i1", error).await.ok();
    assert_eq!(told["judged"], "failed");
    assert!(told["reason"].as_str().unwrap().contains("reported an error"), "{told}");

    let listed = door.get("/v1/fleet").await;
    assert!(!listed.text.contains(&token), "the listing tells a secret: {}", listed.text);
    assert_eq!(names(&fleet(&door, "").await), ["c1", "i1"]);
    assert_eq!(names(&fleet(&door, "?type=server").await), ["i1"]);
    assert_eq!(names(&fleet(&door, "?judged=healthy").await), ["c1"]);
    assert_eq!(names(&fleet(&door, "?judged=failed&type=crawler").await), [""; 0]);

    assert_eq!(door.delete("/v1/fleet/i1").await.status, 204);
    assert_eq!(door.get("/v1/fleet/i1").await.problem(), (404, "unknown_machine".to_owned()));
    let late = door.put("/v1/fleet/i1", with(server(1), "token", json!(token))).await;
    assert_eq!(late.problem(), (409, "not_current".to_owned()));
    assert!(late.text.contains("report without a token to register again"), "{}", late.text);
    assert_ne!(door.put("/v1/fleet/i1", server(1)).await.ok()["token"], json!(token));
}

#[tokio::test]
async fn no_other_process_takes_a_name_however_many_try_at_once() {
    let door = Door::new();
    let tries = (1..=24).map(|n| {
        let door = door.clone();
        async move { (n, door.put("/v1/fleet/one", server(n)).await) }
    });
    let mut winners = Vec::new();
    for (n, answer) in futures::future::join_all(tries).await {
        match answer.status.as_u16() {
            200 => winners.push((n, answer.json()["token"].clone())),
            _ => {
                assert_eq!(answer.problem(), (409, "machine_taken".to_owned()));
                assert_eq!(answer.json()["machine"], "one");
                assert!(answer.text.contains("take another id"), "{}", answer.text);
            }
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    let (n, token) = &winners[0];
    assert_eq!(door.put("/v1/fleet/one", server(*n)).await.ok()["token"], *token, "its answer may have been lost");
    door.put("/v1/fleet/one", with(server(*n), "token", token.clone())).await.ok();
    let copy = door.put("/v1/fleet/one", server(*n)).await;
    assert_eq!(copy.problem(), (409, "machine_taken".to_owned()), "from now on only with the token");
    let foreign = door.put("/v1/fleet/two", server(99)).await.ok()["token"].clone();
    let copy = door.put("/v1/fleet/one", with(server(*n), "token", foreign)).await;
    assert_eq!(copy.problem(), (409, "machine_taken".to_owned()));
    assert_eq!(door.get("/v1/fleet/one").await.ok()["address"], format!("10.0.0.{n}:9000"));
}

#[tokio::test]
async fn machines_that_register_at_once_are_all_listed_page_by_page() {
    let door = Door::new();
    let tries = (0..200).map(|n| {
        let door = door.clone();
        async move {
            let path = format!("/v1/fleet/m%20{n:03}%2F@");
            door.put(&path, json!({"type": "builder", "address": "b:1", "state": "online"})).await.ok()
        }
    });
    let tokens = futures::future::join_all(tries).await;
    let tokens: BTreeSet<&str> = tokens.iter().map(|told| told["token"].as_str().unwrap()).collect();
    assert_eq!(tokens.len(), 200, "each has its own token");
    let (mut found, mut query) = (Vec::new(), "?limit=7".to_owned());
    loop {
        let page = door.get(&format!("/v1/fleet{query}")).await.ok();
        let machines = page["machines"].as_array().unwrap();
        assert!(machines.len() <= 7);
        found.extend(machines.iter().map(|machine| machine["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        query = format!("?limit=7&after={}", next.replace(' ', "%20").replace('/', "%2F"));
    }
    assert_eq!(found, (0..200).map(|n| format!("m {n:03}/@")).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_a_machine_may_not_say_is_named_with_the_remedy_and_changes_nothing() {
    let door = Door::new();
    let crawler = json!({"type": "crawler", "address": "c:1", "state": "online"});
    for (body, status, code, field, hint) in [
        (with(server(1), "capacity", json!(0)), 400, "bad_value", "capacity", "between 1 and 1000000"),
        (with(server(1), "capacity", json!(-4)), 400, "bad_value", "capacity", "between 1 and 1000000"),
        (with(server(1), "capacity", json!(1_000_001)), 400, "bad_value", "capacity", "between 1 and 1000000"),
        (with(server(1), "row", json!(64)), 400, "bad_value", "row", "between 0 and 63"),
        (with(server(1), "row", json!(-1)), 400, "bad_value", "row", "between 0 and 63"),
        (with(crawler, "row", json!(0)), 422, "contradiction", "row", "leave it out"),
        (with(server(1), "address", json!("10.0.0.7")), 400, "bad_value", "address", "a host and a port"),
        (with(server(1), "address", json!("http://a:1/")), 400, "bad_value", "address", "without a scheme"),
        (with(server(1), "address", json!("a:1/../b")), 400, "bad_value", "address", "a host and a port"),
        (with(server(1), "state", json!("onlin")), 400, "bad_value", "state", "did you mean 'online'?"),
        (with(server(1), "type", json!("indexer")), 400, "bad_value", "type", "none of crawler, builder, server"),
        (with(server(1), "token", json!("short")), 400, "bad_value", "token", "token: "),
        (with(server(1), "version", json!("v".repeat(129))), 400, "bad_value", "version", "the limit is 128"),
        (with(server(1), "desired", json!("drain")), 400, "bad_value", "desired", "there is no such field"),
        (json!({"type": "server", "state": "online"}), 400, "bad_value", "address", "is missing"),
    ] {
        let answer = door.put("/v1/fleet/i1", body).await;
        assert_eq!(answer.problem(), (status, code.to_owned()), "{}", answer.text);
        assert_eq!(answer.json()["field"], field, "{}", answer.text);
        assert!(answer.text.contains(hint), "{hint}: {}", answer.text);
    }
    assert_eq!(fleet(&door, "").await, [json!(null); 0], "a refusal changes nothing");

    let token = door.put("/v1/fleet/i1", with(server(1), "row", json!(3))).await.ok()["token"].clone();
    let known = with(server(1), "token", token);
    let moved = door.put("/v1/fleet/i1", with(known.clone(), "row", json!(4))).await;
    assert_eq!(moved.problem(), (422, "contradiction".to_owned()));
    assert!(moved.text.contains("belongs to row 3") && moved.text.contains("drain and delete it"), "{}", moved.text);
    let other = json!({"type": "builder", "address": "10.0.0.1:9000", "state": "online", "token": known["token"]});
    assert_eq!(door.put("/v1/fleet/i1", other).await.problem(), (422, "contradiction".to_owned()));
    let unknown = door.patch("/v1/fleet/i9", json!({"desired": "drain"})).await;
    assert_eq!(unknown.problem(), (404, "unknown_machine".to_owned()));
    assert!(unknown.text.contains("'i9'") && unknown.text.contains("registers itself"), "{}", unknown.text);
    assert_eq!(door.delete("/v1/fleet/i9").await.problem(), (404, "unknown_machine".to_owned()));
    let word = door.patch("/v1/fleet/i1", json!({"desired": "drained"})).await;
    assert_eq!(word.problem(), (400, "bad_value".to_owned()));
    assert!(word.text.contains("none of online, paused, drain"), "{}", word.text);
    assert_eq!(door.patch("/v1/fleet/i1", json!({})).await.json()["field"], "desired");
    for (path, code, hint) in [
        ("/v1/fleet/a%07b", "bad_machine", "control"),
        ("/v1/fleet?type=indexer", "bad_query", "none of crawler, builder, server"),
        ("/v1/fleet?judged=dead", "bad_query", "none of healthy, suspect, failed, probation"),
        ("/v1/fleet?limit=0", "bad_value", "between 1 and 1000"),
        ("/v1/fleet?after=", "bad_cursor", ""),
    ] {
        let answer = door.get(path).await;
        assert_eq!(answer.problem(), (400, code.to_owned()), "{path}");
        assert!(answer.text.contains(hint), "{}", answer.text);
    }
    let still = door.get("/v1/fleet/i1").await.ok();
    assert_eq!((&still["row"], &still["desired"], &still["type"]), (&json!(3), &json!("online"), &json!("server")));
}

#[tokio::test]
async fn the_address_that_a_report_comes_from_is_noted_whatever_the_machine_says() {
    let services = over(crate::support::frontier());
    let fleet = services.fleet.clone();
    let running = net::serve(Config::default(), services).await;
    let body = r#"{"type":"server","address":"169.254.169.254:80","state":"online"}"#;
    let report = async |machine: &str, header: &str| {
        let request = format!(
            "PUT /v1/fleet/{machine} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{header}\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = running.exchange(&request).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    };
    report("i1", "").await;
    // That of a proxy says nothing about the machine behind it, nor does what the machine says of itself.
    report("i2", "x-forwarded-for: 169.254.169.254\r\n").await;
    let mut probes = fleet.probes_due().await.unwrap();
    probes.sort_by(|a, b| a.id.cmp(&b.id));
    let from: Vec<_> = probes.iter().map(|probe| probe.from).collect();
    assert_eq!(from, ["127.0.0.1".parse().ok(), None], "{probes:?}");
}
