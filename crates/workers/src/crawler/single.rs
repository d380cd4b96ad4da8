//! One reservation: URLs of one host, one after the other, with the group's delay between them.
//!
//! The lease is kept while it waits, also for a store that takes no new URLs. A page is recorded, if there is a store, before the release that reports it, so
//! that no URL counts as fetched whose page is nowhere.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use wayleave_api::reservations::{Outcome, ReleaseReservationRequest, RenewReservationRequest, Reservation};
use wayleave_client::Error;

use super::patience::is_full;
use super::recorder::Recorder;
use super::visit::{Trouble, Visited};
use super::{Crawler, Ended};
use crate::lease::Lease;
use crate::store::Store;

impl Crawler {
    /// Visits the host of a reservation that was asked for at `asked`.
    pub(super) async fn reservation(
        self: &Arc<Self>,
        held: Reservation,
        asked: Instant,
        store: Option<&Store>,
    ) -> Ended {
        let (client, token) = (self.client.clone(), held.token.clone());
        let request = RenewReservationRequest { lease_ms: self.config.lease_ms };
        let lease = Lease::keep(asked, Duration::from_millis(self.config.lease_ms), move || {
            let (client, token) = (client.clone(), token.clone());
            async move { client.renew(&token, &request).await.map(|_| ()) }
        });
        let recorder = match store {
            None => None,
            Some(store) => {
                let folder = store.folder().map_or_else(std::env::temp_dir, std::path::Path::to_owned);
                match Recorder::begin("visit", &held.token, &self.user_agent, &folder).await {
                    Ok(recorder) => Some(recorder),
                    Err(error) => return self.give_back(&held, error.to_string()).await,
                }
            }
        };
        let mut visited = Vec::new();
        let trouble = tokio::select! {
            why = lease.lost() => return self.lost(&held, &why),
            done = self.visit_all(&held, recorder.as_ref(), &mut visited) => done.err(),
        };
        if let Some(Trouble::Record(error)) = trouble {
            return self.give_back(&held, error.to_string()).await;
        }
        let fetched = visited.iter().any(|visited| visited.result.outcome == Outcome::Fetched);
        let mut published = None;
        if let (Some(store), Some(recorder), true) = (store, recorder, fetched) {
            match recorder.publish(store).await {
                Ok(artifact) => published = Some((store, artifact)),
                Err(error) => return self.give_back(&held, error.to_string()).await,
            }
        }
        let results = visited.iter().map(|visited| visited.result.clone()).collect();
        let request = ReleaseReservationRequest { results, ready_at: None };
        // Only what is certainly not applied is repeated: a release that perhaps was must not look refused afterwards.
        let released = tokio::select! {
            why = lease.lost() => return self.lost(&held, &why),
            released = self.until_taken(is_full, || self.client.release(&held.token, &request)) => released,
        };
        if let Err(error) = released {
            if let (Some((store, artifact)), Error::Refused(_)) = (published, &error)
                && !error.is_outcome_unknown()
            {
                // Refused for certain: another worker fetches these pages again.
                let _ = store.remove(&artifact.location).await;
            }
            return self.lost(&held, &error.to_string());
        }
        for done in &visited {
            self.tally.result(&held.host, done);
        }
        self.tally.done();
        match trouble {
            Some(trouble) => Ended::Fatal(trouble.to_string()),
            None => Ended::Done,
        }
    }

    async fn visit_all(
        &self,
        held: &Reservation,
        recorder: Option<&Recorder>,
        visited: &mut Vec<Visited>,
    ) -> Result<(), Trouble> {
        let mut delay = Duration::from_millis(held.delay_ms);
        for (number, url) in held.urls.iter().enumerate() {
            if number > 0 {
                sleep(delay).await;
            }
            if self.stop.is_cancelled() {
                return Ok(());
            }
            let done = self.visit((&url.url, &url.crawl, url.depth), recorder).await?;
            // What the host has just asked for holds at once.
            delay = delay.max(Duration::from_millis(done.result.crawl_delay_ms.unwrap_or_default()));
            let wait = done.result.retry_after_ms.is_some() || matches!(done.result.status, Some(429 | 503));
            visited.push(done);
            if wait {
                // URLs that the release does not name return to their queue.
                return Ok(());
            }
        }
        Ok(())
    }

    async fn give_back(&self, held: &Reservation, why: String) -> Ended {
        if let Err(error) = self.client.release(&held.token, &ReleaseReservationRequest::default()).await {
            tracing::warn!(host = held.host, error = %error, "a visit cannot be given back; its lease will end");
        }
        self.tally.lost();
        Ended::NotStored(why)
    }

    fn lost(&self, held: &Reservation, why: &str) -> Ended {
        tracing::warn!(host = held.host, reason = why, "a visit is lost, and its URLs return to their queues");
        self.tally.lost();
        Ended::Lost
    }
}
