//! Hand-out, the paced form: each URL is held for a time; the group's delay starts at once and the group stays free.

use super::request::UrlToFetch;
use super::row::{UrlRow, UrlStatus, Write};
use super::state::State;
use super::visit::{ScannedUrl, Taken, Visit};
use crate::ids::QueueId;
use crate::names::HostName;
use crate::time::{Millis, Time};

impl State {
    /// Serves a planned visit in the paced form. Returns nothing if nothing was due after all.
    pub fn hand_out(
        &mut self,
        visit: &Visit,
        found: Vec<Vec<ScannedUrl>>,
        (most, hold): (usize, Millis),
        now: Time,
        writes: &mut Vec<Write>,
    ) -> Vec<UrlToFetch> {
        let taken = self.take(visit, found, most, now);
        let until = now.after(hold);
        let urls: Vec<UrlToFetch> = taken
            .into_iter()
            .filter_map(|taken| {
                let queue = visit.queue?;
                let url = UrlToFetch { held_until: Some(until), ..self.to_fetch(visit, &taken) };
                self.hold(queue, taken, until, writes);
                Some(url)
            })
            .collect();
        if urls.is_empty() {
            self.reschedule(visit.group, now);
        } else {
            self.end_visit(visit.group, visit.crawl, now, Millis(0));
            self.defer(visit.group, now);
        }
        urls
    }

    fn hold(&mut self, queue: QueueId, taken: Taken, until: Time, writes: &mut Vec<Write>) {
        let Taken { position, key, created, whole, details } = taken;
        writes.push(Write::Due(queue, position, key.clone(), None));
        writes.push(Write::Hold(until, queue, key.clone(), true));
        let status = UrlStatus::Held { until, position, details };
        writes.push(Write::Url(queue, key, Some(UrlRow { created, whole, status })));
        self.holds += 1;
        self.next_hold = self.next_hold.min(until);
    }

    pub(super) fn to_fetch(&self, visit: &Visit, taken: &Taken) -> UrlToFetch {
        let host: HostName = self.hosts[visit.host].name.clone();
        let crawl = self.crawl_of(visit.crawl).map(|c| c.name.clone()).unwrap_or_default();
        UrlToFetch {
            url: taken.key.url(&host, taken.whole.as_deref()),
            host,
            crawl,
            priority: crate::limits::PRIORITY_MAX - taken.position.lane.min(crate::limits::PRIORITY_MAX),
            depth: taken.details.depth,
            attempts: taken.details.attempts,
            metadata: taken.details.metadata.clone(),
            held_until: None,
        }
    }
}
