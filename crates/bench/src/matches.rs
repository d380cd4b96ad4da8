//! The load of matches: clients that get a worker of a warm pool and give it back, over HTTP. The pool's workers are
//! processes of this program (`bench --worker`), which only keep reservations.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use crate::native::Native;
use crate::put::Done;

/// Workers of the pool.
const WORKERS: u64 = 100;
/// Clients that each serves at once.
const SLOTS: u64 = 10;
/// How long all workers may take to start.
const WARM_UP: Duration = Duration::from_secs(180);
const POOL: &str = "bench";

#[derive(Deserialize)]
struct Pool {
    free: u64,
    reason: String,
}

#[derive(Deserialize)]
struct Match {
    state: String,
    reason: String,
}

impl Native {
    /// Creates the pool, and waits until all its workers run.
    pub async fn warm_pool(&self) -> Result<()> {
        let program = std::env::current_exe().context("this program does not know its own path")?;
        let pool = json!({
            "command": [program, "bench", "--worker"], "slots": SLOTS, "min": WORKERS, "max": WORKERS,
            "reservation_ms": 600_000,
        });
        let path = format!("pools/{POOL}");
        self.send(Method::PUT, &path, pool.to_string()).await.context("creating the pool")?;
        let begun = Instant::now();
        loop {
            let text = self.send(Method::GET, &path, String::new()).await?;
            let pool: Pool = serde_json::from_slice(&text).context("cannot parse the pool")?;
            if pool.free >= WORKERS * SLOTS {
                return Ok(());
            }
            if begun.elapsed() > WARM_UP {
                bail!("the workers have not started within {WARM_UP:?}: {}", pool.reason);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Gets a worker and gives it back, for a time; counts matches. The latency is that of getting one.
    pub async fn matched(&self, client: &str, time: Duration) -> Result<Done> {
        let mut done = Done::default();
        let started = Instant::now();
        while started.elapsed() < time {
            let path = format!("matches/{client}-{}?pool={POOL}", done.urls);
            let sent = Instant::now();
            let text = self.send(Method::PUT, &format!("{path}&wait_ms=30000"), String::new()).await?;
            done.latency.add(sent.elapsed());
            let found: Match = serde_json::from_slice(&text).context("cannot parse the match")?;
            if found.state != "matched" {
                bail!("a client is {} in a warm pool: {}", found.state, found.reason);
            }
            self.send(Method::DELETE, &path, String::new()).await?;
            done.urls += 1;
        }
        done.took = started.elapsed();
        Ok(done)
    }
}

type Held = Arc<Mutex<HashMap<String, String>>>;

/// Serves the reservation protocol on `HOST` and `PORT` of the environment, until it is ended. Fails if they are
/// missing or the address is taken.
pub async fn serve_worker() -> Result<()> {
    let variable = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set: a pool sets it"));
    let (host, port): (IpAddr, u16) = (variable("HOST")?.parse()?, variable("PORT")?.parse()?);
    let listener = tokio::net::TcpListener::bind((host, port)).await?;
    let routes = post(reserve).get(check).delete(release);
    let app = Router::new().route("/reservation/{client}", routes).with_state(Held::default());
    axum::serve(listener, app).await.context("serving")
}

fn token(headers: &HeaderMap) -> String {
    headers.get("wayleave-reservation").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

async fn reserve(State(held): State<Held>, Path(client): Path<String>, headers: HeaderMap) -> StatusCode {
    let (mut held, token) = (held.lock().unwrap_or_else(PoisonError::into_inner), token(&headers));
    if held.get(&client).is_some_and(|other| *other != token) || held.len() as u64 >= SLOTS {
        return StatusCode::CONFLICT;
    }
    held.insert(client, token);
    StatusCode::OK
}

async fn check(State(held): State<Held>, Path(client): Path<String>, headers: HeaderMap) -> StatusCode {
    let held = held.lock().unwrap_or_else(PoisonError::into_inner);
    if held.get(&client) == Some(&token(&headers)) { StatusCode::OK } else { StatusCode::NOT_FOUND }
}

async fn release(State(held): State<Held>, Path(client): Path<String>, headers: HeaderMap) -> StatusCode {
    let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
    if held.get(&client) != Some(&token(&headers)) {
        return StatusCode::NOT_FOUND;
    }
    held.remove(&client);
    StatusCode::OK
}
