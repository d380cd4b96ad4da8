//! Roles over HTTP: elections, names, settings, and every refusal as a problem.

use wayleave_engine::clock::ManualClock;
use wayleave_roles::Roles;

use crate::prelude::*;

struct Nodes {
    engine: Arc<Memory>,
    clock: ManualClock,
    here: Door,
    there: Door,
}

/// Two servers over one store whose clock stands still until it is advanced.
fn nodes() -> Nodes {
    let clock = ManualClock::new(Time(1_750_000_000_000));
    let engine = Arc::new(Memory::new(clock.clone()));
    let door = || Door::over(Config::default(), Roles::new(engine.clone()));
    Nodes { here: door(), there: door(), engine, clock }
}

const BEAT: &str = "/v1/roles/indexer/heartbeat";

#[tokio::test]
async fn a_number_that_cannot_be_taken_is_named_with_its_bounds() {
    let Nodes { here, .. } = nodes();
    for wrong in ["1e21", "-1", "0.5", "9"] {
        let body: Value = serde_json::from_str(&format!(r#"{{"uuid":"a","interval_ms":{wrong}}}"#)).unwrap();
        let refused = here.post(BEAT, body).await;
        assert_eq!(refused.problem().1, "bad_value");
        let problem = refused.json();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("interval_ms") && detail.contains("between 10 and 900000"), "{wrong}: {detail}");
        assert_eq!(problem["field"], "interval_ms", "{wrong}");
    }
    for wrong in ["-1", "1e3", "many", "99999999"] {
        let refused = here.get(&format!("/v1/roles/indexer?wait_ms={wrong}")).await;
        refused.problem();
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("wait_ms") && detail.contains("between 0 and 60000"), "{wrong}: {detail}");
        assert!(refused.status.is_client_error(), "{wrong}: {}", refused.status);
    }
}

#[tokio::test]
async fn an_old_token_is_refused_with_the_term_that_holds_now() {
    let Nodes { here, clock, .. } = nodes();
    let old = here.post(BEAT, json!({"uuid": "a"})).await.ok()["token"].as_str().unwrap().to_owned();
    clock.advance(Millis(15_000));
    here.post(BEAT, json!({"uuid": "b"})).await.ok();
    clock.advance(Millis(1_000));
    let refused = here.delete(&format!("/v1/roles/indexer/a?token={old}")).await;
    assert_eq!(refused.problem(), (409, "not_the_term".to_owned()));
    let problem = refused.json();
    assert_eq!((&problem["epoch"], &problem["holder"]), (&2.into(), &"b".into()));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("epoch 2 is held by 'b', for another 14 s") && detail.contains("without one"), "{detail}");
}

#[tokio::test]
async fn a8_a13_one_heartbeat_elects_and_any_node_resolves_the_name() {
    let Nodes { here, there, .. } = nodes();
    let body = json!({"uuid": "u-1", "address": "10.0.0.5:9000", "metadata": {"protocol": "grpc"}});
    let told = here.post(BEAT, body).await.ok();
    assert_eq!((&told["primary"], &told["holder"], &told["epoch"]), (&true.into(), &"u-1".into(), &1.into()));
    assert_eq!((&told["ttl_ms"], &told["remaining_ms"]), (&15_000.into(), &15_000.into()));
    assert_eq!(
        (&told["interval_ms"], &told["mode"], &told["step_down"]),
        (&3_000.into(), &"strict".into(), &false.into())
    );
    assert!(told["token"].as_str().is_some_and(|token| token.len() == 22), "{told}");

    let answer = there.get("/v1/roles/indexer").await;
    assert_eq!(answer.headers["cache-control"], "no-store");
    let role = answer.ok();
    assert_eq!(role["primary"]["address"], "10.0.0.5:9000");
    assert_eq!(role["primary"]["metadata"], json!({"protocol": "grpc"}));
    assert_eq!((&role["primary"]["epoch"], &role["primary"]["remaining_ms"]), (&1.into(), &15_000.into()));
    assert!(!answer.text.contains(told["token"].as_str().unwrap()), "the token is the primary's alone");

    let standby = there.post(BEAT, json!({"uuid": "u-2", "ready": false})).await.ok();
    assert_eq!((&standby["primary"], &standby["holder"]), (&false.into(), &"u-1".into()));
    assert_eq!((&standby["address"], standby.get("token")), (&"10.0.0.5:9000".into(), None));
    let list = here.get("/v1/roles").await.ok();
    assert_eq!((&list["roles"][0]["role"], &list["roles"][0]["standbys_ready"]), (&"indexer".into(), &0.into()));
    assert_eq!((&list["roles"][0]["standbys"][0]["uuid"], &list["next"]), (&"u-2".into(), &Value::Null));
}

#[tokio::test]
async fn a12_a_copy_of_the_primary_is_refused_and_a_renewal_needs_the_token() {
    let Nodes { here, there, clock, .. } = nodes();
    let told = here.post(BEAT, json!({"uuid": "u"})).await.ok();
    clock.advance(Millis(5_000));
    let copy = there.post(BEAT, json!({"uuid": "u"})).await;
    assert_eq!(copy.problem(), (409, "duplicate_identity".to_owned()));
    assert_eq!((&copy.json()["role"], &copy.json()["remaining_ms"]), (&"indexer".into(), &10_000.into()));
    let renewed = there.post(BEAT, json!({"uuid": "u", "token": told["token"]})).await.ok();
    assert_eq!((&renewed["epoch"], &renewed["remaining_ms"]), (&1.into(), &15_000.into()));
}

#[tokio::test]
async fn a2_a_stale_primary_is_never_told_and_its_successor_has_the_next_epoch() {
    let Nodes { here, there, clock, .. } = nodes();
    let told = here.post(BEAT, json!({"uuid": "a"})).await.ok();
    clock.advance(Millis(14_999));
    assert_eq!(there.get("/v1/roles/indexer").await.ok()["primary"]["uuid"], "a");
    clock.advance(Millis(1));
    let vacant = there.get("/v1/roles/indexer").await.ok();
    assert_eq!(vacant["primary"], Value::Null);
    assert!(vacant["reason"].as_str().unwrap().contains("'a' ran out 0 ms ago"), "{vacant}");
    assert_eq!(there.post(BEAT, json!({"uuid": "b"})).await.ok()["epoch"], 2);
    let old = here.post(BEAT, json!({"uuid": "a", "token": told["token"]})).await.ok();
    assert_eq!((&old["primary"], &old["holder"], &old["epoch"]), (&false.into(), &"b".into(), &2.into()));
    let released = here.delete(&format!("/v1/roles/indexer/a?token={}", told["token"].as_str().unwrap())).await.ok();
    assert_eq!(released["released"], "standby");
}

#[tokio::test]
async fn a9_a_release_frees_the_role_and_wakes_a_long_poll_at_once() {
    let Nodes { here, .. } = nodes();
    let told = here.post(BEAT, json!({"uuid": "a"})).await.ok();
    let token = told["token"].as_str().unwrap();
    let waiting = here.get("/v1/roles/indexer?wait_ms=60000&wait_for=vacancy");
    let releasing = async {
        while here.app.roles.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(here.delete("/v1/roles/indexer/a").await.problem(), (409, "not_the_term".to_owned()));
        here.delete(&format!("/v1/roles/indexer/a?token={token}")).await.ok()
    };
    let (woken, released) = tokio::join!(waiting, releasing);
    assert_eq!((&woken.ok()["primary"], &released["released"]), (&Value::Null, &"primary".into()));
    let again = here.delete(&format!("/v1/roles/indexer/a?token={token}")).await.ok();
    assert_eq!(again["released"], "primary", "a repeated release is the same");
    assert_eq!(here.delete("/v1/roles/indexer/nobody").await.ok()["released"], "nobody");
}

#[tokio::test]
async fn a_long_poll_waits_for_a_primary_and_for_an_epoch() {
    let Nodes { here, there, .. } = nodes();
    let waiting = here.get("/v1/roles/indexer?wait_ms=60000");
    let electing = async {
        while here.app.roles.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        there.post(BEAT, json!({"uuid": "a"})).await.ok()
    };
    let (found, _) = tokio::join!(waiting, electing);
    assert_eq!(found.ok()["primary"]["uuid"], "a");
    let none = here.get("/v1/roles/indexer?min_epoch=2").await.ok();
    assert_eq!((&none["primary"], &none["epoch"]), (&Value::Null, &1.into()));
    assert!(none["reason"].as_str().unwrap().contains("lower than epoch 2"), "{none}");
}

#[tokio::test]
async fn a6_a7_the_server_owns_the_time_to_live_and_explains_the_arithmetic() {
    let Nodes { here, .. } = nodes();
    let set = here.put("/v1/roles/indexer", json!({"ttl_ms": 4_000, "mode": "continue"})).await.ok();
    assert_eq!((&set["ttl_ms"], &set["mode"], &set["primary"]), (&4_000.into(), &"continue".into(), &Value::Null));
    let refused = here.post(BEAT, json!({"uuid": "a", "interval_ms": 1_001})).await;
    assert_eq!(refused.problem(), (422, "interval_too_long".to_owned()));
    assert!(refused.json()["detail"].as_str().unwrap().contains("4 x interval_ms = 4004"), "{}", refused.text);
    let told = here.post(BEAT, json!({"uuid": "a", "interval_ms": 1_000})).await.ok();
    assert_eq!((&told["ttl_ms"], &told["mode"]), (&4_000.into(), &"continue".into()));
    let refused = here.patch("/v1/roles/indexer", json!({"ttl_ms": 3_999})).await;
    assert_eq!(refused.problem(), (422, "ttl_too_short".to_owned()));
    let kept = here.patch("/v1/roles/indexer", json!({"ttl_ms": 5_000})).await.ok();
    assert_eq!((&kept["ttl_ms"], &kept["mode"]), (&5_000.into(), &"continue".into()));
    let whole = here.put("/v1/roles/indexer", json!({})).await.ok();
    assert_eq!((&whole["ttl_ms"], &whole["mode"]), (&15_000.into(), &"strict".into()));
}

#[tokio::test]
async fn a11_the_primary_alone_is_told_by_whose_agreement_it_may_go_on() {
    let Nodes { here, .. } = nodes();
    let set = here.put("/v1/roles/indexer", json!({"mode": "continue", "continue_for_ms": 60_000})).await.ok();
    assert_eq!(set["continue_for_ms"], 60_000);
    let refused = here.put("/v1/roles/indexer", json!({"continue_for_ms": 999})).await;
    assert_eq!(refused.problem(), (400, "bad_value".to_owned()));
    let told = here.post(BEAT, json!({"uuid": "a"})).await.ok();
    assert_eq!(told["going_on"], Value::Null, "not before the first renewal");
    let secret = "A".repeat(22);
    let peer = json!({"address": "h:1", "secret": secret});
    let refused = here.post(BEAT, json!({"uuid": "b", "peer": {"address": "h:1", "secret": "short"}})).await;
    assert_eq!(refused.problem(), (400, "bad_value".to_owned()));
    let standby = here.post(BEAT, json!({"uuid": "b", "peer": peer})).await.ok();
    let renewed = here.post(BEAT, json!({"uuid": "a", "token": told["token"]})).await.ok();
    let going_on = &renewed["going_on"];
    assert_eq!(
        (&going_on["continue_for_ms"], &going_on["members"]),
        (&60_000.into(), &json!([{"uuid": "b", "peer": peer}]))
    );
    let again = here.post(BEAT, json!({"uuid": "b", "peer": peer})).await.ok();
    assert_eq!((&again["last_term"]["epoch"], &again["last_term"]["take_over"]), (&1.into(), &false.into()));
    let bid = json!({"epoch": 1, "expires_at_ms": again["last_term"]["expires_at_ms"]});
    let early = here.post(BEAT, json!({"uuid": "b", "peer": peer, "take_over": bid})).await.ok();
    assert_eq!(early["primary"], false, "the term has not run out");
    for text in [standby, again, early, here.get("/v1/roles").await.ok(), here.get("/v1/roles/indexer").await.ok()] {
        assert!(!text.to_string().contains(&secret), "{text}");
    }
}

#[tokio::test]
async fn the_primary_is_told_where_the_heartbeats_of_a_member_come_from() {
    let Nodes { here, .. } = nodes();
    here.put("/v1/roles/indexer", json!({"mode": "continue"})).await.ok();
    let token = here.post(BEAT, json!({"uuid": "a"})).await.ok()["token"].clone();
    let beat = async |ip: [u8; 4], proxy: &str| {
        // What it says of itself does not matter.
        let body = json!({"uuid": "b", "peer": {"address": "10.0.0.9:1", "secret": "A".repeat(22)}});
        let request = Request::post(BEAT).header("content-type", "application/json");
        let request = if proxy.is_empty() { request } else { request.header(proxy, "10.0.0.9") };
        let request = request.extension(wayleave_listen::ClientAddress(ip.into()));
        here.send(request.body(Body::from(body.to_string())).unwrap()).await.ok();
        let renewed = here.post(BEAT, json!({"uuid": "a", "token": token})).await.ok();
        renewed["going_on"]["members"][0]["from"].clone()
    };
    assert_eq!(beat([10, 0, 0, 7], "").await, "10.0.0.7");
    assert_eq!(beat([10, 0, 0, 8], "").await, "10.0.0.8");
    assert_eq!(beat([10, 0, 0, 1], "x-forwarded-for").await, Value::Null, "that of a proxy says nothing");
}

#[tokio::test]
async fn an_operator_can_ask_the_primary_to_step_down() {
    let Nodes { here, .. } = nodes();
    assert_eq!(here.post("/v1/roles/indexer/step_down", json!({})).await.problem(), (404, "unknown_role".to_owned()));
    let told = here.post(BEAT, json!({"uuid": "a"})).await.ok();
    let role = here.post("/v1/roles/indexer/step_down", json!({})).await.ok();
    assert_eq!((&role["primary"]["uuid"], &role["primary"]["step_down"]), (&"a".into(), &true.into()));
    let renewed = here.post(BEAT, json!({"uuid": "a", "token": told["token"]})).await.ok();
    assert_eq!((&renewed["primary"], &renewed["step_down"]), (&true.into(), &true.into()));
    here.delete(&format!("/v1/roles/indexer/a?token={}", told["token"].as_str().unwrap())).await.ok();
    assert_eq!(here.post("/v1/roles/indexer/step_down", json!({})).await.problem(), (409, "no_primary".to_owned()));
}

#[tokio::test]
async fn a_role_in_use_is_not_deleted_and_a_deleted_one_keeps_its_epochs() {
    let Nodes { here, .. } = nodes();
    let told = here.post(BEAT, json!({"uuid": "a"})).await.ok();
    let refused = here.delete("/v1/roles/indexer").await;
    assert_eq!(refused.problem(), (409, "role_in_use".to_owned()));
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("'a' is its primary for another") && detail.contains("stop its candidates"), "{detail}");
    let refused = here.delete("/v1/roles/indexer/a").await;
    assert_eq!(refused.problem(), (409, "not_the_term".to_owned()));
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("?token= or --token") && detail.contains("step_down"), "{detail}");
    here.delete(&format!("/v1/roles/indexer/a?token={}", told["token"].as_str().unwrap())).await.ok();
    assert_eq!(here.delete("/v1/roles/indexer").await.status, 204);
    assert_eq!(here.delete("/v1/roles/indexer").await.problem(), (404, "unknown_role".to_owned()));
    assert_eq!(here.post(BEAT, json!({"uuid": "a"})).await.ok()["epoch"], 2);
}

#[tokio::test]
async fn a_raised_epoch_leaves_the_living_term_alone_and_is_never_lowered() {
    let Nodes { here, .. } = nodes();
    let raise = |epoch: u64| here.post("/v1/roles/indexer/raise_epoch", json!({ "epoch": epoch }));
    assert_eq!(raise(7).await.ok()["epoch"], 7);
    let told = here.post(BEAT, json!({"uuid": "a"})).await.ok();
    assert_eq!(told["epoch"], 8);
    assert_eq!(raise(40).await.ok()["epoch"], 8, "the living term keeps its own");
    let renewed = here.post(BEAT, json!({"uuid": "a", "token": told["token"]})).await.ok();
    assert_eq!((&renewed["primary"], &renewed["epoch"]), (&json!(true), &json!(8)));
    here.delete(&format!("/v1/roles/indexer/a?token={}", told["token"].as_str().unwrap())).await.ok();
    assert_eq!(raise(3).await.ok()["epoch"], 40);
    assert_eq!(here.post(BEAT, json!({"uuid": "b"})).await.ok()["epoch"], 41);
    assert_eq!(raise(u64::MAX).await.problem(), (400, "bad_value".to_owned()));
}

#[tokio::test]
async fn a16_names_are_checked_at_the_door() {
    let Nodes { here, .. } = nodes();
    let long = "x".repeat(129);
    for path in ["/v1/roles/a%20b", "/v1/roles/a'b", "/v1/roles/%C3%B8", &format!("/v1/roles/{long}")] {
        assert_eq!(here.get(path).await.problem(), (400, "bad_role".to_owned()), "{path}");
    }
    assert_eq!(here.delete("/v1/roles/r/a%20b").await.problem(), (400, "bad_uuid".to_owned()));
    for body in [json!({"uuid": ""}), json!({"uuid": "a", "utype": "x"}), json!({"uuid": "a", "token": "x"}), json!({})]
    {
        assert_eq!(here.post(BEAT, body.clone()).await.problem(), (400, "bad_value".to_owned()), "{body}");
    }
    for query in ["wait_ms=60001", "wait_ms=x", "wait_for=godot", "epoch=1"] {
        let (status, code) = here.get(&format!("/v1/roles/r?{query}")).await.problem();
        assert!(status == 400 && ["bad_query", "bad_value"].contains(&code.as_str()), "{query}: {code}");
    }
    assert_eq!(here.put("/v1/roles/r", json!({"ttl_ms": 499})).await.problem(), (400, "bad_value".to_owned()));
    assert_eq!(here.get("/v1/roles?after=a%20b").await.problem(), (400, "bad_cursor".to_owned()));
}

#[tokio::test]
async fn an_outage_of_the_store_is_a_503_to_be_tried_again() {
    let Nodes { here, engine, .. } = nodes();
    let told = here.post(BEAT, json!({"uuid": "a"})).await.ok();
    engine.begin_outage("the cable is out");
    for answer in
        [here.post(BEAT, json!({"uuid": "a", "token": told["token"]})).await, here.get("/v1/roles/indexer").await]
    {
        assert_eq!(answer.problem(), (503, "unavailable".to_owned()));
        assert_eq!(answer.headers["retry-after"], "1");
    }
    assert!(here.get("/metrics").await.text.contains("wayleave_roles_heartbeats_total{outcome=\"failed\"} 1\n"));
    engine.end_outage();
    here.post(BEAT, json!({"uuid": "a", "token": told["token"]})).await.ok();
    let page = here.get("/metrics").await.text;
    for line in [
        "wayleave_roles 1\n",
        "wayleave_roles_primaries 1\n",
        "wayleave_roles_unguarded 1\n",
        "wayleave_roles_unlawful_total 0\n",
        "wayleave_roles_heartbeats_total{outcome=\"acquired\"} 1\n",
        "wayleave_roles_heartbeats_total{outcome=\"renewed\"} 1\n",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
}
