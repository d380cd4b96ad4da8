//! Candidates for roles. Each counts its term from before it asked; terms are short, so that epochs change all the
//! time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use wayleave_api::Patch;
use wayleave_api::roles::{GetRoleQuery, HeartbeatRequest, HeartbeatResponse, SetRoleRequest, WaitFor};
use wayleave_client::{Client, Retry};

use crate::kill_loop::history::History;

const ROLES: [&str; 2] = ["indexer", "merger"];
/// The shortest time to live that a role may have.
const TTL_MS: u64 = 500;
/// A term is released after this many renewals, or abandoned without notice.
const RENEWALS: usize = 3;

/// Sets the roles up and starts three candidates for each.
pub async fn start(base: &str, history: &Arc<History>) -> Vec<JoinHandle<()>> {
    let client = Client::new(base).unwrap();
    let settings = SetRoleRequest { ttl_ms: Patch::Set(TTL_MS), ..SetRoleRequest::default() };
    let mut candidates = Vec::new();
    for role in ROLES {
        client.put_role(role, &settings).await.unwrap();
        for n in 0..3 {
            let client = client.clone().with_retry(Retry::NEVER);
            candidates.push(tokio::spawn(Candidate { role, n, client, history: history.clone() }.run()));
        }
    }
    candidates
}

struct Candidate {
    role: &'static str,
    n: usize,
    client: Client,
    history: Arc<History>,
}

impl Candidate {
    async fn run(self) {
        for life in 0.. {
            if self.history.is_over() {
                return;
            }
            self.live(life).await;
        }
    }

    /// One process: from the first heartbeat to a clean release or, every third time, to an end without notice.
    async fn live(&self, life: usize) {
        let uuid = format!("{}-{}-{life}", self.role, self.n);
        let (mut token, mut renewals) = (None, 0);
        while !self.history.is_over() {
            let request = HeartbeatRequest { token: token.clone(), ..HeartbeatRequest::new(&uuid) };
            let sent = Instant::now();
            let timeout = Duration::from_millis(TTL_MS / 2);
            let Ok(told) = self.client.heartbeat(self.role, &request, timeout).await else {
                pause(10).await;
                continue;
            };
            let until = sent + Duration::from_millis(told.remaining_ms);
            if !told.primary || Instant::now() >= until {
                self.stand_by(&told).await;
                continue;
            }
            self.history.primary(self.role, told.epoch, &uuid, until);
            token = told.token.clone().or(token);
            renewals += 1;
            if renewals == RENEWALS {
                if !life.is_multiple_of(3) {
                    self.release(&uuid, told.epoch, token.as_deref()).await;
                }
                return;
            }
            pause(TTL_MS / 20).await;
        }
    }

    async fn release(&self, uuid: &str, epoch: u64, token: Option<&str>) {
        // From here on the term may be over, even if the response never arrives.
        self.history.lets_go(self.role, epoch, uuid);
        let released = self.client.release_role(self.role, uuid, token);
        _ = tokio::time::timeout(Duration::from_secs(1), released).await;
    }

    /// Waits for the end of the current term, or for the time of the next heartbeat.
    async fn stand_by(&self, told: &HeartbeatResponse) {
        let wait = told.interval_ms.min(TTL_MS / 4);
        let query = GetRoleQuery { wait_ms: Some(wait), wait_for: Some(WaitFor::Vacancy), ..GetRoleQuery::default() };
        let waited = tokio::time::timeout(Duration::from_millis(2 * wait), self.client.role(self.role, &query)).await;
        if !waited.is_ok_and(|told| told.is_ok()) {
            pause(10).await;
        }
    }
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
