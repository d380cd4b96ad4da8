//! What the owner does about rows that cannot be read: the call that needs one is refused with the name of its host, or
//! goes on without it; the shard goes on in either case.
//!
//! This holds for rows that are read when a call needs them: URLs, queues, holds, chunks at rest. What is read when a
//! shard is opened closes the shard if it cannot be read, see `run.rs`.

use std::sync::atomic::Ordering;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::row::UrlRow;
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::visit::{PlannedVisit, Visit};
use wayleave_core::ids::QueueId;
use wayleave_core::time::Time;
use wayleave_engine::Error;

use crate::owner::frontier::Frontier;
use crate::owner::port::{Decided, Port};
use crate::owner::read_facts::{self, Fact};

/// Hosts that are named in health reports.
const NAMED_HOSTS: usize = 3;

impl Frontier {
    /// The rows of some URLs, for a call that needs all of them.
    pub async fn url_rows(&mut self, urls: &[(QueueId, UrlKey)], port: &mut Port) -> Decided<Vec<Option<UrlRow>>> {
        let facts = read_facts::url_rows(&*port.engine, urls).await?;
        self.state.set_unreadable([]);
        Ok(self.all_read(facts, |at| urls.get(at).map(|(queue, _)| *queue), port))
    }

    /// All rows, or the refusal that names the host of the first that cannot be read.
    pub fn all_read<T>(
        &self,
        facts: Vec<Fact<T>>,
        queue: impl Fn(usize) -> Option<QueueId>,
        port: &Port,
    ) -> Result<Vec<Option<T>>, Refusal> {
        let read = |(at, fact): (usize, Fact<T>)| fact.map_err(|cause| self.damaged(queue(at), &cause, port));
        facts.into_iter().enumerate().map(read).collect()
    }

    /// The rows of some URLs, for a decision that can go without: one that cannot be read appears as missing, and the core is
    /// told about it, so that what depends on it is kept.
    pub async fn readable_rows(
        &mut self,
        urls: &[(QueueId, UrlKey)],
        port: &mut Port,
    ) -> Result<Vec<Option<UrlRow>>, Error> {
        let facts = read_facts::url_rows(&*port.engine, urls).await?;
        let mut unreadable = Vec::new();
        let mut rows = Vec::with_capacity(facts.len());
        for ((queue, key), fact) in urls.iter().zip(facts) {
            rows.push(fact.unwrap_or_else(|cause| {
                self.damaged(Some(*queue), &cause, port);
                unreadable.push((*queue, key.clone()));
                None
            }));
        }
        self.state.set_unreadable(unreadable);
        Ok(rows)
    }

    /// The refusal of a call that needs rows of a queue which cannot be read. It is logged, too.
    pub fn damaged(&self, queue: Option<QueueId>, cause: &str, port: &Port) -> Refusal {
        let host = queue.and_then(|queue| self.state.queue_names(queue)).map(|(host, _)| host.to_string());
        let host = host.unwrap_or_else(|| "(deleted or moved)".to_owned());
        port.log_damage(cause, &format!("rows of host '{host}' cannot be read"));
        Refusal::Damaged { host, cause: cause.to_owned() }
    }

    /// Reads the queues of planned visits. What cannot be read of them is passed over, and looked for again later.
    pub async fn read_fronts(
        &mut self,
        mut visits: Vec<Visit>,
        most: usize,
        now: Time,
        port: &mut Port,
    ) -> Result<Vec<PlannedVisit>, Error> {
        let fronts = read_facts::fronts(&*port.engine, &mut self.caches.lanes, &mut visits, (most, now)).await?;
        for visit in &visits {
            if let Some(gap) = visit.scans.iter().find_map(|scan| scan.gap.as_ref()) {
                self.damaged(visit.queue, &gap.cause, port);
            }
        }
        Ok(visits.into_iter().zip(fronts).collect())
    }

    /// The refusal of a call for one host of which nothing due can be read.
    pub fn refuse_damaged(&self, host: Option<&str>, port: &Port) -> Option<Refusal> {
        let (cause, until) = self.state.damage_of(host?)?;
        let cause = cause.to_owned();
        (until > port.engine.now()).then(|| Refusal::Damaged { host: host.unwrap_or_default().to_owned(), cause })
    }

    /// Publishes what is known to be damaged.
    pub fn publish_damage(&mut self, port: &Port) {
        if let Some(published) = port.readiness.shards.get(usize::from(port.shard.0)) {
            published.unfiltered.store(self.caches.filter.is_given_up(), Ordering::Relaxed);
        }
        let damaged = self.state.is_damaged();
        if !damaged && !self.damage_published {
            return;
        }
        self.damage_published = damaged;
        if !damaged {
            port.readiness.damage.set(port.shard, None);
            return;
        }
        let (mut hosts, stranded) = self.state.damaged_hosts();
        let count = hosts.len() as u64;
        hosts.truncate(NAMED_HOSTS);
        port.readiness.damage.set(port.shard, Some((count, stranded, hosts)));
    }
}
