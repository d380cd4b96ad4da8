//! What a server reports about its store: its health, and a copy of it.

use std::io::{Error, Write};
use std::sync::Mutex;

use axum::http::StatusCode;
use tower::ServiceExt;
use wayleave_api::Problem;
use wayleave_engine::rows::Kind;
use wayleave_server::http::router;
use wayleave_server::store::WriteSnapshot;
use wayleave_server::{Health, Store};

use crate::prelude::*;
use crate::support::frontier_over;

/// A store with a configurable state.
struct Stage {
    health: Mutex<Health>,
    /// Whether its snapshots fail half-way.
    breaks: bool,
}

impl Store for Stage {
    fn kind(&self) -> &'static str {
        "a store of this test"
    }

    fn health(&self) -> Health {
        self.health.lock().unwrap().clone()
    }

    fn snapshot(&self, _partial: bool) -> BoxFuture<'static, Result<WriteSnapshot, Problem>> {
        let breaks = self.breaks;
        let write: WriteSnapshot = Box::new(move |out: &mut dyn Write| {
            for n in 0..50_000_u32 {
                out.write_all(&n.to_be_bytes())?;
            }
            if breaks { Err(Error::other("the disk is on fire")) } else { Ok(()) }
        });
        std::future::ready(Ok(write)).boxed()
    }
}

fn door(breaks: bool) -> (Door, Arc<Stage>) {
    let stage = Arc::new(Stage { health: Mutex::new(Health::Ok), breaks });
    (Door::with_store(Config::default(), stage.clone()), stage)
}

#[tokio::test]
async fn health_and_readiness_go_by_what_the_store_says_of_itself() {
    let (door, stage) = door(false);
    let ask = async |path: &str| {
        let answer = door.get(path).await;
        (answer.status.as_u16(), answer.text)
    };
    assert_eq!((ask("/readyz").await.0, ask("/healthz").await.0), (200, 200));
    let full = "no space left: free some space";
    *stage.health.lock().unwrap() = Health::Degraded(full.to_owned());
    let (status, text) = ask("/readyz").await;
    assert!(status == 503 && text.contains(full), "{text}");
    assert_eq!(ask("/healthz").await.0, 200, "it will go on by itself: it must not be killed");
    assert!(ask("/metrics").await.1.contains("wayleave_ready 0"));
    *stage.health.lock().unwrap() = Health::Failed("the journal failed".to_owned());
    for path in ["/readyz", "/healthz"] {
        let answer = door.get(path).await;
        assert_eq!(answer.problem(), (503, "not_ready".to_owned()));
        assert!(answer.text.contains("the journal failed"), "{}", answer.text);
    }
    *stage.health.lock().unwrap() = Health::Ok;
    assert_eq!((ask("/readyz").await.0, ask("/healthz").await.0), (200, 200));
}

#[tokio::test]
async fn a_snapshot_is_streamed_whole_and_one_that_breaks_off_does_not_look_whole() {
    for breaks in [false, true] {
        let (door, _) = door(breaks);
        let request = Request::get("/v1/snapshot").body(Body::empty()).unwrap();
        let response = router(&door.app).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        match response.into_body().collect().await {
            Ok(body) => assert!(!breaks && body.to_bytes().len() == 200_000),
            Err(error) => assert!(breaks && format!("{error:?}").contains("on fire"), "{error:?}"),
        }
    }
}

/// The second is requested while the body of the first is not fully read: it waits for the reader, as it must.
#[tokio::test]
async fn one_snapshot_at_a_time() {
    let ask = || Request::get("/v1/snapshot").body(Body::empty()).unwrap();
    let door = Door::with_store(Config::default(), Arc::new(Endless));
    let first = router(&door.app).oneshot(ask()).await.unwrap();
    let second = door.get("/v1/snapshot").await;
    assert_eq!(second.problem(), (429, "overloaded".to_owned()));
    drop(first);
    // The first notices that its reader is gone, and frees the slot.
    while router(&door.app).oneshot(ask()).await.unwrap().status() != StatusCode::OK {
        tokio::task::yield_now().await;
    }
}

/// An endless store.
struct Endless;

impl Store for Endless {
    fn kind(&self) -> &'static str {
        "a store of this test"
    }

    fn health(&self) -> Health {
        Health::Ok
    }

    fn snapshot(&self, _partial: bool) -> BoxFuture<'static, Result<WriteSnapshot, Problem>> {
        let write: WriteSnapshot = Box::new(|out: &mut dyn Write| {
            loop {
                out.write_all(&[0; 4_096])?;
            }
        });
        std::future::ready(Ok(write)).boxed()
    }
}

#[tokio::test]
async fn a_server_that_was_told_of_no_store_has_no_snapshots() {
    assert_eq!(Door::new().get("/v1/snapshot").await.problem(), (501, "not_supported".to_owned()));
}

/// A server whose store can be damaged and filled.
fn door_over() -> (Door, Arc<Memory>) {
    let engine = Arc::new(Memory::new(SystemClock::default()));
    (Door::to(frontier_over(engine.clone())), engine)
}

#[tokio::test]
async fn a_put_that_the_store_refuses_is_refused_in_its_status() {
    let (door, engine) = door_over();
    door.seed("DEFAULT", &["http://a.example/1"]).await;
    engine.refuse_growth(Some("100 MiB are left on the disk"));
    let new = json!({"urls": [{"url": "http://a.example/2"}, {"url": "http://b.example/1"}]});
    let refused = door.post("/v1/urls", new.clone()).await;
    assert_eq!(refused.problem(), (507, "store_full".to_owned()));
    assert!(refused.text.contains("100 MiB are left"), "{}", refused.text);
    let counted = door.send_as(
        axum::http::Method::POST,
        "/v1/urls?results=false",
        "application/x-ndjson",
        "{\"url\":\"http://c.example/\"}\n",
    );
    assert_eq!(counted.await.problem(), (507, "store_full".to_owned()));
    let partly = json!({"urls": [{"url": "http://a.example/1"}, {"url": "http://a.example/2"}]});
    let answer = door.post("/v1/urls", partly).await;
    assert_eq!(
        (answer.status, answer.json()["counts"]["known"].as_u64(), answer.json()["counts"]["failed"].as_u64()),
        (StatusCode::OK, Some(1), Some(1))
    );
    engine.refuse_growth(None);
    assert_eq!(door.post("/v1/urls", new).await.json()["counts"]["added"], 2);
}

#[tokio::test]
async fn damage_is_named_where_it_is_met_and_the_server_stays_ready() {
    let (door, engine) = door_over();
    door.seed("DEFAULT", &["http://a.example/1", "http://b.example/1"]).await;
    assert_eq!(engine.damage(|key| key.get(2) == Some(&(Kind::Url as u8))), 2);
    let answer = door.get("/v1/urls?host=a.example").await.ok();
    assert_eq!(
        (&answer["urls"], &answer["damaged"]),
        (&json!([]), &json!(["a.example"])),
        "what can be read, and what cannot"
    );
    let taken = door.post("/v1/reservations", json!({"holder": "w", "groups": 2, "lease_ms": 1000})).await;
    let taken = taken.json();
    assert_eq!(taken["reservations"].as_array().unwrap().len(), 2, "the queues can be read: {taken}");
    let token = taken["reservations"][0]["token"].as_str().unwrap().to_owned();
    engine.damage(|key| key.get(2) == Some(&(Kind::Url as u8)));
    let refused = door.post(&format!("/v1/reservations/{token}/release"), json!({})).await;
    assert_eq!(refused.problem(), (500, "damaged".to_owned()), "{}", refused.text);
    let ready = door.get("/readyz").await;
    assert_eq!(ready.status, StatusCode::OK, "{}", ready.text);
}
