//! Roles through the real binary: heartbeats of a client, and what operators see and do.

use wayleave_api::roles::{GetRoleQuery, HeartbeatRequest, Released};
use wayleave_client::Error;

use crate::prelude::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn candidate(uuid: &str) -> HeartbeatRequest {
    HeartbeatRequest { address: Some(format!("http://{uuid}:1")), ..HeartbeatRequest::new(uuid) }
}

#[tokio::test]
async fn a_primary_is_elected_shown_asked_to_step_down_and_followed() {
    let (_keep, server) = Server::fresh();
    let client = Client::new(&server.url).unwrap();
    assert_eq!(server.run(&["roles"]).ok().lines().count(), 1, "only the head");
    let shown = server.run(&["roles", "set", "indexer", "--ttl", "1h"]).ok();
    assert!(shown.contains("1 h 0 min") && shown.contains("nobody has held"), "{shown}");

    let told = client.heartbeat("indexer", &candidate("a"), PATIENCE).await.unwrap();
    assert!(told.primary && told.epoch == 1, "{told:?}");
    client.heartbeat("indexer", &HeartbeatRequest { ready: false, ..candidate("b") }, PATIENCE).await.unwrap();
    let copy = client.heartbeat("indexer", &candidate("a"), PATIENCE).await.expect_err("without the token");
    assert_eq!(copy.code().map(|code| code.as_str()), Some("duplicate_identity"));

    let list = server.run(&["roles"]).ok();
    let line: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(line[..4], ["indexer", "a", "1", "http://a:1"], "{list}");
    assert!(list.contains("0 ready, 1 not ready"), "{list}");
    let json = server.run(&["roles", "list", "--json"]).json().remove(0);
    assert_eq!(json["primary"]["uuid"], "a");
    assert!(server.run(&["roles", "step-down", "indexer"]).ok().contains("asked to step down"));
    let again = HeartbeatRequest { token: told.token.clone(), ..candidate("a") };
    assert!(client.heartbeat("indexer", &again, PATIENCE).await.unwrap().step_down);

    let refused = server.run(&["roles", "release", "indexer", "a"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    let released = client.release_role("indexer", "a", told.token.as_deref()).await.unwrap();
    assert_eq!(released.released, Released::Primary);
    assert_eq!(client.heartbeat("indexer", &candidate("c"), PATIENCE).await.unwrap().epoch, 2);
    let role = client.role("indexer", &GetRoleQuery { min_epoch: Some(2), ..GetRoleQuery::default() }).await.unwrap();
    assert_eq!(role.primary.unwrap().uuid, "c");
    let shown = server.run(&["roles", "show", "indexer"]).ok();
    assert!(shown.contains("b: not ready") && shown.contains("http://b:1"), "{shown}");
    assert_eq!(server.run(&["roles", "delete", "indexer"]).code, 4);
    assert_eq!(server.run(&["roles", "delete", "nobody"]).code, 3);
}

#[tokio::test]
async fn a_term_survives_the_death_of_the_server() {
    let (_keep, data) = folder();
    let server = Server::start(&data);
    let client = Client::new(&server.url).unwrap();
    let told = client.heartbeat("indexer", &candidate("a"), PATIENCE).await.unwrap();
    server.kill();
    let away = client.heartbeat("indexer", &candidate("a"), PATIENCE).await.expect_err("nobody is there");
    assert!(matches!(away, Error::Unreachable { .. } | Error::Lost { .. }), "{away}");
    let server = Server::start(&data);
    let client = Client::new(&server.url).unwrap();
    assert!(!client.heartbeat("indexer", &candidate("b"), PATIENCE).await.unwrap().primary);
    let again = HeartbeatRequest { token: told.token, ..candidate("a") };
    let renewed = client.heartbeat("indexer", &again, PATIENCE).await.unwrap();
    assert_eq!((renewed.primary, renewed.epoch), (true, told.epoch));
}

#[tokio::test]
async fn a_wait_in_vain_has_an_exit_code_and_a_long_one_is_allowed() {
    let (_keep, server) = Server::fresh();
    server.run(&["roles", "set", "indexer", "--ttl", "1h"]).ok();
    let show = |more: &[&str]| server.run(&[&["roles", "show", "indexer"], more].concat());
    assert!(show(&[]).ok().contains("nobody has held"));
    let vain = show(&["--wait", "20ms"]);
    assert_eq!((vain.code, vain.err.as_str()), (3, "error: indexer has no primary after 20 ms\n"));
    assert!(vain.out.contains("nobody has held"), "{}", vain.out);
    show(&["--wait", "2m", "--vacancy"]).ok();
    Client::new(&server.url).unwrap().heartbeat("indexer", &candidate("a"), PATIENCE).await.unwrap();
    show(&["--wait", "7d"]).ok();
    assert_eq!(show(&["--wait", "20ms", "--min-epoch", "2"]).code, 3);
    assert_eq!(show(&["--wait", "20ms", "--vacancy"]).code, 3);
    show(&["--min-epoch", "2"]).ok();
}
