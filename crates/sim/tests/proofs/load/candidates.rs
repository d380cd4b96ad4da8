//! Candidates for roles, and what they guard: a register that accepts writes with an epoch and refuses lower ones.
//!
//! A candidate relies on responses, counted from before it asked, and nothing else. When one node does not answer it
//! fails over to another. Standbys long-poll for the vacancy instead of guessing when it comes.

use std::sync::Mutex;

use wayleave_api::roles::{HeartbeatResponse, WaitFor};

use crate::load::clients::pause;
use crate::load::history::{History, count};
use crate::prelude::*;

pub const ROLES: [&str; 2] = ["indexer", "merger"];

/// How candidates behave.
#[derive(Clone, Copy)]
pub struct Manner {
    /// The length of a term.
    pub ttl_ms: u64,
    pub timeout_ms: u64,
    /// Time between two renewals.
    pub pause_ms: u64,
    /// A term is released after this many renewals, or abandoned without notice.
    pub renewals: usize,
}

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
    manner: Manner,
) -> Vec<JoinHandle<()>> {
    let mut candidates = Vec::new();
    for (role, register) in ROLES.into_iter().zip(registers) {
        for home in 0..nodes.len() {
            let (nodes, history, register) = (nodes.to_vec(), history.clone(), register.clone());
            candidates.push(tokio::spawn(Stands { role, home, nodes, history, register, manner }.run()));
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
    manner: Manner,
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
            let timeout = Duration::from_millis(self.manner.timeout_ms);
            let Ok(reply) = self.nodes[self.home].heartbeat(self.role, &request, timeout).await else {
                count(&self.history.counts.calls_failed, 1);
                self.home = (self.home + 1) % self.nodes.len();
                pause(self.history.rest_ms).await;
                continue;
            };
            count(&self.history.counts.heartbeats, 1);
            let until = sent + Duration::from_millis(reply.remaining_ms);
            if reply.primary && Instant::now() < until {
                self.history.primary(self.role, reply.epoch, &uuid, until);
                token = reply.token.clone().or(token);
                self.act(&uuid, &reply);
                renewals += 1;
                if renewals == self.manner.renewals {
                    return self.end(life, &uuid, &reply, token).await;
                }
                pause(self.manner.pause_ms).await;
            } else {
                self.stand_by(&reply).await;
            }
        }
    }

    /// A guarded write now, and one that is in flight for too long.
    fn act(&self, uuid: &str, reply: &HeartbeatResponse) {
        let (register, history, uuid, epoch) =
            (self.register.clone(), self.history.clone(), uuid.to_owned(), reply.epoch);
        let ttl_ms = self.manner.ttl_ms;
        if register.write(epoch, &uuid) {
            count(&history.counts.guarded_writes, 1);
        }
        tokio::spawn(async move {
            pause(ttl_ms + ttl_ms / 2).await;
            let counter = if register.write(epoch, &uuid) {
                &history.counts.guarded_writes
            } else {
                &history.counts.stale_writes_refused
            };
            count(counter, 1);
        });
    }

    async fn end(&self, life: usize, uuid: &str, reply: &HeartbeatResponse, token: Option<String>) {
        if life.is_multiple_of(2) {
            return;
        }
        self.history.lets_go(self.role, reply.epoch, uuid);
        let released = self.nodes[self.home].release_role(self.role, uuid, token.as_deref());
        _ = tokio::time::timeout(Duration::from_secs(1), released).await;
        // The others go first.
        pause(self.manner.ttl_ms).await;
    }

    /// Waits for the end of the current term, or for the time of the next heartbeat.
    async fn stand_by(&self, reply: &HeartbeatResponse) {
        let wait = reply.interval_ms.min(self.manner.ttl_ms / 4);
        let query = GetRoleQuery { wait_ms: Some(wait), wait_for: Some(WaitFor::Vacancy), ..GetRoleQuery::default() };
        let node = &self.nodes[self.home];
        let waited = tokio::time::timeout(Duration::from_millis(2 * wait), node.role(self.role, &query)).await;
        if !waited.is_ok_and(|reply| reply.is_ok()) {
            pause(self.history.rest_ms).await;
        }
    }
}
