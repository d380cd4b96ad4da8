//! Machines, placements and the map: what is sent, what is sent again, and what is made of the answers.

use std::time::Duration;

use futures::TryStreamExt;
use wayleave_api::Code;
use wayleave_api::fleet::{Desired, Judged, ListMachinesQuery, MachineType, ReportMachineRequest, SetMachineRequest};
use wayleave_api::map::GetMapQuery;
use wayleave_api::placements::{ListPlacementsQuery, PlacementState, SaidOfCopy};
use wayleave_client::Error;

use crate::calls::{Act, recorded, refusal};

const ANSWER: &str = r#"{"desired":"drain","judged":"healthy","interval_ms":5000,"reason":"r","token":"t"}"#;

fn machine(id: &str) -> String {
    format!(
        r#"{{"id":"{id}","type":"server","address":"a:1","capacity":1,"row":0,"version":null,"desired":"online",
        "state":"online","judged":"healthy","reason":"r","changes_at":null,"since":"2026-11-17T04:30:00Z",
        "seen_at":"2026-11-17T04:30:00Z","registered_at":"2026-11-17T04:30:00Z","failures":0,"frozen":null}}"#
    )
}

fn say(text: impl Into<String>) -> Act {
    Act::Say(200, text.into())
}

#[tokio::test]
async fn a_report_is_sent_once_because_the_next_one_supersedes_it() {
    let request = ReportMachineRequest::new(MachineType::Server, "a:1");
    let (client, seen) = recorded(vec![say(ANSWER)]).await;
    let told = client.report_machine("i 1/x", &request, Duration::from_secs(2)).await.unwrap();
    assert_eq!((told.desired, told.judged, told.token.as_str()), (Desired::Drain, Judged::Healthy, "t"));
    let sent = seen.await.unwrap().remove(0);
    assert!(sent.starts_with("PUT /v1/fleet/i%201%2Fx HTTP"), "{sent}");
    assert!(sent.ends_with(r#"{"type":"server","address":"a:1","capacity":1,"state":"online"}"#), "{sent}");
    for act in [Act::Hang, refusal(Code::Unavailable)] {
        let (client, seen) = recorded(vec![act, say(ANSWER)]).await;
        client.report_machine("i1", &request, Duration::from_secs(2)).await.expect_err("not answered");
        drop(client);
        assert_eq!(seen.await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_wish_is_sent_again_and_a_deletion_whose_answer_was_lost_counts_as_done() {
    let (client, seen) = recorded(vec![Act::Hang, say(machine("i1"))]).await;
    client.set_machine("i1", &SetMachineRequest { desired: Desired::Drain }).await.unwrap();
    let sent = seen.await.unwrap();
    assert!(sent[1].starts_with("PATCH /v1/fleet/i1 ") && sent[1].ends_with(r#"{"desired":"drain"}"#), "{sent:?}");
    let (client, seen) = recorded(vec![Act::Hang, refusal(Code::UnknownMachine)]).await;
    client.delete_machine("i1").await.unwrap();
    assert!(seen.await.unwrap()[1].starts_with("DELETE /v1/fleet/i1 "));
    let (client, _) = recorded(vec![refusal(Code::UnknownMachine)]).await;
    let error = client.delete_machine("i1").await.expect_err("never known");
    assert!(matches!(error, Error::Refused(_)), "{error}");
    let (client, _) = recorded(vec![Act::Hang, refusal(Code::HasPlacements)]).await;
    assert_eq!(client.delete_machine("i1").await.expect_err("needed").code(), Some(Code::HasPlacements));
}

#[tokio::test]
async fn listings_go_on_page_by_page_with_their_filters() {
    let page = |id: &str, next: &str| say(format!(r#"{{"machines":[{}],"next":{next}}}"#, machine(id)));
    let (client, seen) = recorded(vec![page("a b", r#""a b""#), page("c", "null")]).await;
    let query = ListMachinesQuery {
        kind: Some(MachineType::Server),
        judged: Some(Judged::Failed),
        ..ListMachinesQuery::default()
    };
    let all: Vec<_> = client.all_machines(query).try_collect().await.unwrap();
    assert_eq!(all.iter().map(|machine| machine.id.as_str()).collect::<Vec<_>>(), ["a b", "c"]);
    let sent = seen.await.unwrap();
    assert!(sent[0].starts_with("GET /v1/fleet?type=server&judged=failed HTTP"), "{sent:?}");
    assert!(sent[1].starts_with("GET /v1/fleet?type=server&judged=failed&after=a+b HTTP"), "{sent:?}");

    let copy = r#"{"chunk":"7","server":"i","row":1,"state":"ready","artifact":null,"sources":[],"reason":"r","changes_at":null}"#;
    let page = |next: &str| say(format!(r#"{{"placements":[{copy}],"next":{next}}}"#));
    let (client, seen) = recorded(vec![page(r#""7@i""#), page("null")]).await;
    let query = ListPlacementsQuery { server: Some("i".into()), row: Some(1), ..ListPlacementsQuery::default() };
    let all: Vec<_> = client.all_placements(query).try_collect().await.unwrap();
    assert_eq!(all.len(), 2);
    assert!(seen.await.unwrap()[1].starts_with("GET /v1/placements?server=i&row=1&after=7%40i HTTP"));
}

#[tokio::test]
async fn a_copy_is_reported_and_the_map_is_none_while_it_is_unchanged() {
    let (client, seen) = recorded(vec![
        Act::Hang,
        say(r#"{"chunk":"7","server":"i1","state":"ready","reason":"r"}"#),
        Act::Say(204, String::new()),
        say(r#"{"version":9,"rows":[],"missing":[],"missing_count":0}"#),
    ])
    .await;
    let told = client.report_placement("7", "i1", (SaidOfCopy::Ready, Some("sha256:00")), Some("T")).await.unwrap();
    assert_eq!(told.state, PlacementState::Ready);
    let query = GetMapQuery { since: Some(8), wait_ms: Some(100) };
    assert_eq!(client.map(&query).await.unwrap(), None);
    assert_eq!(client.map(&GetMapQuery::default()).await.unwrap().unwrap().version, 9);
    let sent = seen.await.unwrap();
    assert!(
        sent[1].starts_with("POST /v1/placements/7/i1 ")
            && sent[1].ends_with(r#"{"state":"ready","checksum":"sha256:00","token":"T"}"#),
        "{sent:?}"
    );
    assert!(sent[2].starts_with("GET /v1/map?since=8&wait_ms=100 HTTP"), "{sent:?}");
    assert!(sent[3].starts_with("GET /v1/map HTTP"), "{sent:?}");
}
