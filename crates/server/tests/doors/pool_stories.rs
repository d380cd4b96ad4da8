//! Pools at the door: settings, what may not be set, by whom, and what is never shown.

use crate::prelude::*;
use crate::support::site::Logs;

/// A door over these services.
fn door(services: Services) -> Door {
    Door::serving(Config::default(), services)
}

#[tokio::test]
async fn a_pool_is_set_shown_listed_and_deleted_and_values_of_its_environment_stay_secret() {
    let door = Door::new();
    let body = json!({"command": ["./w"], "env": {"KEY": "hunter2"}, "slots": 5, "max": 4, "idle_ms": 1000});
    let set = door.put("/v1/pools/p", body.clone()).await;
    let pool = set.ok();
    assert_eq!((&pool["pool"], &pool["runtime"], &pool["slots"]), (&json!("p"), &json!("process"), &json!(5)));
    assert_eq!((&pool["env"], &pool["idle_ms"], &pool["max"]), (&json!(["KEY"]), &json!(1000), &json!(4)));
    assert!(pool["reason"].as_str().is_some_and(|reason| !reason.is_empty()));
    let again = door.put("/v1/pools/p", body).await.ok();
    assert_eq!(again["created_at"], pool["created_at"], "it is the same pool");
    let shown = [set, door.get("/v1/pools/p").await, door.get("/v1/pools").await];
    assert!(shown.iter().all(|answer| !answer.text.contains("hunter2")));
    assert_eq!(shown[2].ok()["pools"][0]["pool"], "p");
    let less = door.put("/v1/pools/p", json!({"command": ["./w"]})).await.ok();
    assert_eq!((&less["slots"], &less["env"]), (&json!(1), &json!([])), "what is not given gets its default");
    let page = door.get("/metrics").await.text;
    assert!(page.contains("wayleave_pool_waiting{pool=\"p\"} 0\n"), "{page}");
    assert_eq!(door.delete("/v1/pools/p").await.status, 202);
}

#[tokio::test]
async fn pools_are_listed_page_by_page() {
    let door = Door::new();
    for name in ["a", "b", "c"] {
        door.put(&format!("/v1/pools/{name}"), json!({"command": ["./w"]})).await.ok();
    }
    let first = door.get("/v1/pools?limit=2").await.ok();
    let names = |page: &serde_json::Value| -> Vec<String> {
        page["pools"].as_array().unwrap().iter().map(|pool| pool["pool"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((names(&first), &first["next"]), (vec!["a".to_owned(), "b".to_owned()], &json!("b")));
    let second = door.get("/v1/pools?limit=2&after=b").await.ok();
    assert_eq!((names(&second), &second["next"]), (vec!["c".to_owned()], &json!(null)));
    assert_eq!(door.get("/v1/pools?after=%2F").await.problem(), (400, "bad_cursor".to_owned()));
}

#[tokio::test]
async fn what_a_pool_may_not_be_set_to_names_the_field() {
    let door = Door::new();
    for (body, field) in [
        (json!({}), "runtime"),
        (json!({"runtime": "process"}), "command"),
        (json!({"runtime": "docker", "port": 1}), "image"),
        (json!({"command": ["x"], "min": 3, "max": 2}), "max"),
        (json!({"command": ["x"], "buffer": 2}), "buffer"),
        (json!({"command": ["x"], "port": 80, "max": 2}), "port"),
        (json!({"command": ["x"], "memory_bytes": 9_000_000}), "memory_bytes"),
        (json!({"image": "x"}), "port"),
    ] {
        let answer = door.put("/v1/pools/p", body.clone()).await;
        assert_eq!(answer.problem(), (422, "contradiction".to_owned()), "{body}: {}", answer.text);
        assert_eq!(answer.json()["field"], field, "{body}: {}", answer.text);
    }
    for (body, field) in [
        (json!({"runtime": "vm"}), "runtime"),
        (json!({"command": ["x"], "slots": 0}), "slots"),
        (json!({"command": ["x"], "slots": 1001}), "slots"),
        (json!({"command": ["x"], "idle_ms": -1}), "idle_ms"),
        (json!({"command": ["x"], "env": {"A=B": "c"}}), "env"),
        (json!({"command": ["x"], "env": {"WAYLEAVE_SECRET": "c"}}), "env"),
        (json!({"command": ["x"], "port": 65536}), "port"),
        (json!({"command": ["x\u{0}"]}), "command"),
        (json!({"image": "x", "port": 1, "memory_bytes": 1}), "memory_bytes"),
        (json!({"command": ["x"], "reservation_ms": 99}), "reservation_ms"),
    ] {
        let answer = door.put("/v1/pools/p", body.clone()).await;
        assert_eq!(answer.problem(), (400, "bad_value".to_owned()), "{body}: {}", answer.text);
        assert_eq!(answer.json()["field"], field, "{body}: {}", answer.text);
    }
    for name in ["a%20b", "-a", "a%2Fb", "%C3%A4", &"a".repeat(64)] {
        let answer = door.put(&format!("/v1/pools/{name}"), json!({"command": ["x"]})).await;
        assert_eq!(answer.problem(), (400, "bad_pool".to_owned()), "{name}");
    }
    assert_eq!(door.get("/v1/pools/p").await.problem(), (404, "unknown_pool".to_owned()), "nothing was created");
    assert_eq!(door.get("/v1/pools/p/workers").await.problem(), (404, "unknown_pool".to_owned()));
    assert_eq!(door.delete("/v1/pools/p").await.problem(), (404, "unknown_pool".to_owned()));
}

#[tokio::test]
async fn a_server_that_others_can_reach_takes_commands_only_if_it_was_allowed() {
    let open = Config { listen: "0.0.0.0:7071".parse().unwrap(), insecure: true, ..Config::default() };
    let body = || json!({"command": ["x"]});
    let refused = Door::with(open.clone()).put("/v1/pools/p", body()).await;
    assert_eq!(refused.problem(), (403, "commands_not_allowed".to_owned()));
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("--allow-pool-commands") && detail.contains("[pools.p]"), "{detail}");
    let door = Door::with(Config { allow_pool_commands: Some(true), ..open });
    assert_eq!(door.put("/v1/pools/p", body()).await.ok()["pool"], "p");
    assert_eq!(Door::new().put("/v1/pools/p", body()).await.ok()["pool"], "p", "loopback");
    let door = Door::with(Config { allow_pool_commands: Some(false), ..Config::default() });
    assert_eq!(
        door.put("/v1/pools/p", body()).await.problem(),
        (403, "commands_not_allowed".to_owned()),
        "on loopback too"
    );
}

#[tokio::test]
async fn a_call_that_a_proxy_passed_on_sets_no_command_even_where_commands_are_allowed() {
    let door = Door::with(Config { allow_pool_commands: Some(true), ..Config::default() });
    let headers = ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];
    for header in headers {
        let request = Request::put("/v1/pools/p").header("content-type", "application/json").header(header, "x");
        let answer = door.send(request.body(Body::from(r#"{"command":["x"]}"#)).unwrap()).await;
        assert_eq!(answer.problem(), (403, "commands_not_allowed".to_owned()), "{header}: {}", answer.text);
        assert!(answer.text.contains(&format!("header '{header}'")), "{}", answer.text);
    }
    assert_eq!(door.get("/v1/pools/p").await.problem(), (404, "unknown_pool".to_owned()));
    println!("seen: calls with {} headers of proxies: 0 commands set", headers.len());
    assert_eq!(door.put("/v1/pools/p", json!({"command": ["x"]})).await.ok()["pool"], "p");
}

#[tokio::test]
async fn a_call_that_a_proxy_passed_on_pauses_a_pool_and_resumes_none() {
    let door = Door::new();
    door.put("/v1/pools/p", json!({"command": ["x"], "paused": true})).await.ok();
    let pause = async |header: &str, paused: bool| {
        let request = Request::put("/v1/pools/p/paused").header("content-type", "application/json").header(header, "x");
        door.send(request.body(Body::from(json!({"paused": paused}).to_string())).unwrap()).await
    };
    for header in ["forwarded", "via", "x-forwarded-for"] {
        let answer = pause(header, false).await;
        assert_eq!(answer.problem(), (403, "commands_not_allowed".to_owned()), "{header}: {}", answer.text);
        assert!(answer.text.contains("'p' is not resumed") && answer.text.contains(header), "{}", answer.text);
        assert_eq!(door.get("/v1/pools/p").await.ok()["paused"], true);
    }
    assert_eq!(door.put("/v1/pools/p/paused", json!({"paused": false})).await.ok()["paused"], false);
    assert_eq!(pause("via", true).await.ok()["paused"], true, "it starts nothing");
}

#[tokio::test]
async fn a_server_that_takes_no_commands_by_the_api_is_not_told_to_resume_a_pool_either() {
    for (allow, status) in [(None, 404), (Some(true), 404), (Some(false), 403)] {
        let door = Door::with(Config { allow_pool_commands: allow, ..Config::default() });
        let resumed = door.put("/v1/pools/p/paused", json!({"paused": false})).await;
        assert_eq!(resumed.problem().0, status, "{}", resumed.text);
        assert_eq!(door.put("/v1/pools/p/paused", json!({"paused": true})).await.problem().0, 404);
    }
}

#[tokio::test]
async fn removed_workers_that_the_owner_has_forgotten_are_listed_by_what_is_kept_of_their_output() {
    let door = door(Services { logs: Some(Arc::new(Logs)), ..services() });
    let gone = door.get("/v1/pools/kept/workers").await;
    assert_eq!(gone.problem(), (404, "unknown_pool".to_owned()));
    let (detail, logs) = (gone.json()["detail"].clone(), gone.json()["logs"].clone());
    let says = "this node keeps the output of its last workers in /kept/kept";
    assert!(detail.as_str().is_some_and(|detail| detail.ends_with(says)) && logs == "/kept/kept", "{}", gone.text);
    door.put("/v1/pools/kept", json!({"command": ["./w"]})).await.ok();
    let listed = door.get("/v1/pools/kept/workers").await.ok();
    let want = json!([{
        "worker": "kept-7-9", "site": "here", "reason": "it exited with code 3", "removed_at": "1970-01-01T00:00:05.000Z",
    }]);
    assert_eq!((&listed["workers"], &listed["removed"]), (&json!([]), &want));
    let log = door.get("/v1/pools/kept/workers/kept-7-9/log?bytes=7").await.ok();
    assert_eq!(log["log"], "9: 7");
}

/// The first worker of a pool, once it has one.
pub async fn first_worker(door: &Door, pool: &str) -> String {
    loop {
        let workers = door.get(&format!("/v1/pools/{pool}/workers")).await.ok();
        if let Some(worker) = workers["workers"][0]["worker"].as_str() {
            return worker.to_owned();
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn workers_are_listed_report_with_their_secret_and_show_their_output() {
    let services = services();
    let matches = services.matches.clone();
    let _site = Site::of(&matches);
    let door = door(Services { logs: Some(Arc::new(Logs)), ..services.clone() });
    door.put("/v1/pools/p", json!({"command": ["./w"], "min": 1})).await.ok();
    door.put("/v1/matches/c?pool=p&wait_ms=10000", json!({})).await.ok();
    let workers = door.get("/v1/pools/p/workers").await.ok();
    let worker = &workers["workers"][0];
    assert_eq!((&worker["state"], &worker["used"], &worker["site"]), (&json!("running"), &json!(1), &json!("here")));
    assert!(worker["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{worker}");
    let path = format!("/v1/pools/p/workers/{}", worker["worker"].as_str().unwrap());
    let log = door.get(&format!("{path}/log?bytes=7")).await.ok();
    assert!(log["log"].as_str().unwrap().ends_with(": 7"), "{log}");
    assert_eq!(door.get(&format!("{path}/log?bytes=0")).await.problem().0, 400);
    assert_eq!(door.get("/v1/pools/p/workers/nobody/log").await.problem(), (404, "unknown_worker".to_owned()));
    let elsewhere = self::door(services).get(&format!("{path}/log")).await;
    assert_eq!(elsewhere.problem(), (421, "worker_elsewhere".to_owned()));
    let report = |secret: &str| json!({"address": "127.0.0.1:9", "free": 1, "run": 1, "secret": secret});
    let wrong = door.put(&path, report("AA4utexP3RVtyJo6TRewUQ")).await;
    assert_eq!(wrong.problem(), (409, "not_current".to_owned()), "{}", wrong.text);
    let bad = door.put(&path, report("x")).await;
    assert_eq!((bad.problem().0, &bad.json()["field"]), (400, &json!("secret")));
    let unknown = door.put("/v1/pools/p/workers/nobody", report("AA4utexP3RVtyJo6TRewUQ")).await;
    assert_eq!(unknown.problem(), (409, "not_current".to_owned()), "who has no secret learns no names");
}
