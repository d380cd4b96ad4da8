//! Candidates for roles, and what they guard: a register that accepts writes with an epoch and refuses lower ones.
//!
//! A candidate relies on responses, counted from before it asked, and nothing else. When one node does not answer it
//! fails over to another. Standbys long-poll for the vacancy instead of guessing when it comes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use wayleave_api::roles::{GetRoleQuery, HeartbeatRequest, HeartbeatResponse, WaitFor};
use wayleave_client::Client;

use crate::three_nodes::clients::pause;
use crate::three_nodes::history::{History, count};

/// The roles, and the length of their terms.
pub const ROLES: [&str; 2] = ["indexer", "merger"];
pub const TTL_MS: u64 = 2_000;

/// A store that is guarded by epochs, as users of roles build it.
#[derive(Default)]
pub struct Register(Mutex<Vec<(u64, String)>>);

impl Register {
    /// Accepts a write unless a higher epoch has written.
    fn write(&self, epoch: u64, who: &str) -> bool {
        let mut log = self.0.lock().unwrap();
        let fresh = log.last().is_none_or(|(last, _)| *last <= epoch);
        if fresh {
            log.push((epoch, who.to_owned()));
        }
        fresh
    }

    /// Every epoch wrote under one name, and none after a higher one. Returns how many epochs wrote.
    pub fn judge(&self) -> usize {
        let log = self.0.lock().unwrap();
        for pair in log.windows(2) {
            let [(before, one), (after, other)] = pair else { unreachable!() };
            assert!(before <= after, "a stale write was accepted: {pair:?}");
            assert!(before != after || one == other, "epoch {before} has two writers: {one} and {other}");
        }
        let mut epochs: Vec<u64> = log.iter().map(|(epoch, _)| *epoch).collect();
        epochs.dedup();
        epochs.len()
    }
}

/// Starts three candidates for each role, each with another home node.
pub fn start(
    nodes: &[Client],
    history: &Arc<History>,
    registers: &[Arc<Register>; ROLES.len()],
) -> Vec<JoinHandle<()>> {
    let mut candidates = Vec::new();
    for (role, register) in ROLES.into_iter().zip(registers) {
        for home in 0..nodes.len() {
            let (nodes, history, register) = (nodes.to_vec(), history.clone(), register.clone());
            candidates.push(tokio::spawn(Stands { role, home, nodes, history, register }.run()));
        }
    }
    candidates
}

struct Stands {
    role: &'static str,
    home: usize,
    nodes: Vec<Client>,
    history: Arc<History>,
    register: Arc<Register>,
}

impl Stands {
    /// One life after the other; each ends by a clean release or, every second time, without notice.
    async fn run(mut self) {
        for life in 0.. {
            if self.history.is_over() {
                return;
            }
            self.live(life).await;
        }
    }

    async fn live(&mut self, life: usize) {
        let uuid = format!("{}-{}-{life}", self.role, self.home);
        let mut token = None;
        let mut renewals = 0;
        while !self.history.is_over() {
            let request = HeartbeatRequest { token: token.clone(), ..HeartbeatRequest::new(&uuid) };
            let sent = Instant::now();
            let timeout = Duration::from_millis(TTL_MS / 4);
            let Ok(told) = self.nodes[self.home].heartbeat(self.role, &request, timeout).await else {
                count(&self.history.counts.calls_failed, 1);
                self.home = (self.home + 1) % self.nodes.len();
                pause(50).await;
                continue;
            };
            count(&self.history.counts.heartbeats, 1);
            let until = sent + Duration::from_millis(told.remaining_ms);
            if told.primary && Instant::now() < until {
                self.history.primary(self.role, told.epoch, &uuid, until);
                token = told.token.clone().or(token);
                self.act(&uuid, &told);
                renewals += 1;
                if renewals == 12 {
                    return self.end(life, &uuid, &told, token).await;
                }
                pause(TTL_MS / 5).await;
            } else {
                self.stand_by(&told).await;
            }
        }
    }

    /// A guarded write now, and one that is in flight for too long.
    fn act(&self, uuid: &str, told: &HeartbeatResponse) {
        let (register, history, uuid, epoch) =
            (self.register.clone(), self.history.clone(), uuid.to_owned(), told.epoch);
        if register.write(epoch, &uuid) {
            count(&history.counts.guarded_writes, 1);
        }
        tokio::spawn(async move {
            pause(TTL_MS + TTL_MS / 2).await;
            let counter = if register.write(epoch, &uuid) {
                &history.counts.guarded_writes
            } else {
                &history.counts.stale_writes_refused
            };
            count(counter, 1);
        });
    }

    async fn end(&self, life: usize, uuid: &str, told: &HeartbeatResponse, token: Option<String>) {
        if life.is_multiple_of(2) {
            return;
        }
        self.history.lets_go(self.role, told.epoch, uuid);
        let released = self.nodes[self.home].release_role(self.role, uuid, token.as_deref());
        _ = tokio::time::timeout(Duration::from_secs(1), released).await;
        // The others go first.
        pause(TTL_MS).await;
    }

    /// Waits for the end of the current term, or for the time of the next heartbeat.
    async fn stand_by(&self, told: &HeartbeatResponse) {
        let wait = told.interval_ms.min(TTL_MS / 4);
        let query = GetRoleQuery { wait_ms: Some(wait), wait_for: Some(WaitFor::Vacancy), ..GetRoleQuery::default() };
        let node = &self.nodes[self.home];
        let waited = tokio::time::timeout(Duration::from_millis(2 * wait), node.role(self.role, &query)).await;
        if !waited.is_ok_and(|told| told.is_ok()) {
            pause(50).await;
        }
    }
}
