//! What a server reports about its store: its health, and a copy of it.

use std::io::{Error, Write};
use std::sync::{Arc, Mutex};

use crate::support::Door;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use tower::ServiceExt;
use wayleave_api::Problem;
use wayleave_server::http::router;
use wayleave_server::store::WriteSnapshot;
use wayleave_server::{Config, Health, Store};

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
