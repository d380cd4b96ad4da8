//! `why` for pools of workers and their clients.

use wayleave_api::matches::{GetMatchQuery, Match, MatchState};
use wayleave_api::pools::{ListWorkersResponse, Pool, RemovedWorker, Worker};
use wayleave_api::{Timestamp, matches};

use crate::output::{self, counted, relative, span};
use crate::remote::Remote;

/// Workers that are named one by one.
const WORKERS_TOLD: usize = 20;

/// Explains the match of a client.
pub async fn client(remote: &Remote, client: &str, pool: &str) -> anyhow::Result<()> {
    let query = GetMatchQuery { pool: pool.to_owned(), wait_ms: None, confirm: Some(false) };
    let found = remote.client.get_match(client, &query).await?;
    if remote.json {
        return output::json(&found);
    }
    let pool = remote.client.pool(pool).await.ok();
    output::line(explain_match(&found, pool.as_ref(), output::now()))
}

/// Explains a pool.
pub async fn pool(remote: &Remote, pool: &str) -> anyhow::Result<()> {
    let (found, listed) = (remote.client.pool(pool).await?, remote.client.workers(pool).await?);
    if remote.json {
        let ListWorkersResponse { workers, removed } = &listed;
        return output::json(&Explained { pool: &found, worker_list: workers, removed });
    }
    output::line(explain_pool(&found, &listed))
}

/// A pool as JSON: its fields, of which `workers` is a number, and its workers one by one.
#[derive(serde::Serialize)]
struct Explained<'a> {
    #[serde(flatten)]
    pool: &'a Pool,
    worker_list: &'a [Worker],
    removed: &'a [RemovedWorker],
}

fn explain_match(found: &matches::Match, pool: Option<&Pool>, now: Timestamp) -> String {
    let Match { client, pool: name, reason, .. } = found;
    let standing = match found.state {
        MatchState::Queued => "waits",
        MatchState::Making => "is about to get a worker",
        MatchState::Matched => "has a worker",
        MatchState::Vacant => "has lost its worker, and is queued again by its next request",
        MatchState::Failed => "got no worker",
    };
    let mut lines = vec![format!("client {client} of pool {name} {standing}: {reason}.")];
    if let Some(position) = found.position {
        let soon = match found.estimate_ms {
            Some(0) => "; a slot for it is free".to_owned(),
            Some(ms) => format!("; it may have a worker in {}", span(ms)),
            None => "; no slot for it is free or coming".to_owned(),
        };
        lines.push(format!("It is number {position} in the queue{soon}."));
    }
    if let (Some(worker), Some(address), Some(end)) = (&found.worker, &found.address, found.expires_at) {
        let end = relative(end, now);
        lines.push(format!("Worker {worker} at {address} serves it; unless it confirms, that ends {end}."));
        if !found.verified {
            let ask = format!("`wayleave match {client} --pool {name}` asks it");
            lines.push(format!("Whether the worker still holds the reservation was not verified just now; {ask}."));
        }
    }
    if found.state == MatchState::Failed && !pool.is_some_and(|pool| pool.closing) {
        let after = span(found.retry_after_ms.unwrap_or(0));
        lines.push(format!("Its next request queues it again, after {after}."));
    }
    lines.extend(pool.map(|pool| format!("The pool: {}.", pool.reason)));
    lines.join("\n")
}

fn explain_pool(pool: &Pool, listed: &ListWorkersResponse) -> String {
    let Pool { pool: name, reason, .. } = pool;
    let mut lines = vec![format!("pool {name}: {reason}.")];
    let Pool { min, max, slots, buffer, waiting, matched, free, coming, .. } = pool;
    let is = |number: u64| if number == 1 { "is" } else { "are" };
    lines.push(format!(
        "{} {}, {matched} {} matched; {} {} free, {coming} {} being started.",
        counted(*waiting, "client"),
        if *waiting == 1 { "waits" } else { "wait" },
        is(*matched),
        counted(*free, "slot"),
        is(*free),
        is(*coming)
    ));
    let (workers, slots, kept) = (counted(*max, "worker"), counted(*slots, "slot"), counted(*buffer, "slot"));
    lines.push(format!("It may have {min} to {workers} of {slots}, and keeps {kept} free."));
    for worker in listed.workers.iter().take(WORKERS_TOLD) {
        let (state, reason) = (worker.state.name(), &worker.reason);
        let slots = counted(worker.slots, "slot");
        lines.push(format!("  {} {state}, {} of {slots} used: {reason}", worker.worker, worker.used));
    }
    let untold = listed.workers.len().saturating_sub(WORKERS_TOLD);
    if untold > 0 {
        lines.push(format!("  and {untold} more: `wayleave pools workers {name}`"));
    }
    let now = output::now();
    for gone in &listed.removed {
        lines.push(format!("  {} was removed {}: {}", gone.worker, relative(gone.removed_at, now), gone.reason));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use wayleave_core::time::Time;

    fn queued() -> Match {
        Match {
            client: "user-7".into(),
            pool: "browsers".into(),
            state: MatchState::Queued,
            reason: "1 worker is being started (0 clients ahead)".into(),
            position: Some(1),
            estimate_ms: Some(4_000),
            retry_after_ms: Some(4_000),
            address: None,
            worker: None,
            token: None,
            expires_at: None,
            verified: false,
            version: 1,
        }
    }

    #[test]
    fn a_client_is_told_why_it_waits_and_how_long() {
        let now = Timestamp(Time(1_000_000));
        assert_eq!(
            explain_match(&queued(), None, now),
            "client user-7 of pool browsers waits: 1 worker is being started (0 clients ahead).\n\
             It is number 1 in the queue; it may have a worker in 4 s."
        );
        let matched = Match {
            state: MatchState::Matched,
            reason: "worker b-1 has reserved a slot".into(),
            position: None,
            worker: Some("b-1".into()),
            address: Some("127.0.0.1:9".into()),
            expires_at: Some(Timestamp(Time(1_060_000))),
            ..queued()
        };
        let text = explain_match(&matched, None, now);
        let serves = "Worker b-1 at 127.0.0.1:9 serves it; unless it confirms, that ends in 1 min 0 s.";
        let unverified = "Whether the worker still holds the reservation was not verified just now; \
                          `wayleave match user-7 --pool browsers` asks it.";
        assert!(text.ends_with(&format!("{serves}\n{unverified}")), "{text}");
        let text = explain_match(&Match { verified: true, ..matched }, None, now);
        assert!(text.ends_with(serves), "{text}");
        let failed = Match { state: MatchState::Failed, position: None, ..queued() };
        let text = explain_match(&failed, None, now);
        assert!(text.ends_with("Its next request queues it again, after 4 s."), "{text}");
    }
}
