//! Calls that are decided on in-memory state alone; no rows are read.

use wayleave_core::frontier::State;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::row::Write;
use wayleave_core::names::HostName;
use wayleave_core::time::Time;

use crate::ask::{AdminChange, Look, Told};
use crate::owner::owner_loop::Owner;
use crate::routing::router::Answer;

impl Owner {
    pub fn look(&self, look: &Look, now: Time) -> Answer<Told> {
        let state = &self.state;
        Ok(match look {
            Look::Moved => state.moved().map(|(host, alias)| (host.clone(), alias.clone())).collect::<Vec<_>>().into(),
            Look::Active => state.shard_row().active.into(),
            Look::Host(name) => return host(state, name, now),
            Look::Hosts { filter, after, room } => state.list_hosts(filter, *after, *room, now).into(),
            Look::Groups { filter, after, room } => state.list_groups(filter, after.clone(), *room, now).into(),
            Look::Group(name) => state.group_view(name, now).into(),
            Look::Reservations { after, room } => state.list_reservations(*after, *room).into(),
            Look::Crawl(crawl) => state.crawl_part(crawl).into(),
            Look::ScanCrawl { crawl, after } => state.scan_crawl(crawl, *after).into(),
            Look::Crawls { after, most } => state.list_crawls(after.as_ref(), *most).into(),
            Look::Queues { crawl, inactive, after, skip, most } => {
                state.list_queues((crawl, *inactive), *after, (*skip, *most), now).into()
            }
            Look::Stats => (state.stats(), state.crawl_names()).into(),
            Look::QueuesOf { crawl, host } => state.queues_of(crawl, host.as_ref()).into(),
            Look::UnheardRequeues => self.unheard_requeues().into(),
            Look::Jobs => self.bulk_jobs.values().cloned().collect::<Vec<_>>().into(),
        })
    }
}

/// Decides a change and appends its writes to `writes`.
pub(crate) fn change(state: &mut State, change: &AdminChange, now: Time, writes: &mut Vec<Write>) -> Answer<Told> {
    match change {
        AdminChange::SetActive(active) => {
            state.set_active(*active);
            Ok(Told::Done(()))
        }
        AdminChange::SetHost { host: name, changes, replace, ready_at } => {
            state.set_host(name, changes, *replace, *ready_at, now).and_then(|()| host(state, name, now))
        }
        AdminChange::SetGroup { alias, changes, replace } => {
            let set = state.set_group(alias, changes, *replace, now);
            set.map(|()| state.group_view(alias, now).map(|view| view.hosts).unwrap_or_default().into())
        }
        AdminChange::DeleteGroup(alias) => state.delete_group(alias).map(Told::from),
        AdminChange::SetCrawl { crawl, changes, replace, bounded } => {
            if let Some(why) = state.crawls_full(crawl).filter(|_| *bounded) {
                return Err(Refusal::OverLimit(why));
            }
            state.set_crawl(crawl, changes, *replace, now);
            Ok(Told::Done(()))
        }
        AdminChange::DeleteCrawl { crawl, at } => Ok(state.delete_crawl(crawl, *at, now, writes).into()),
        AdminChange::DeleteQueue { crawl, host } => Ok(state.delete_queue(host, crawl, now, writes).into()),
        AdminChange::SetQueueLimit { crawl, host, limit } => {
            state.set_queue_limit(host, crawl, *limit, now).map(Told::from)
        }
        AdminChange::SetDefaultDelay(delay) => {
            state.set_default_delay(*delay, now);
            Ok(Told::Done(()))
        }
    }
}

fn host(state: &State, name: &HostName, now: Time) -> Answer<Told> {
    state.host_view(name, now).map(Told::from).ok_or_else(|| Refusal::UnknownHost(name.to_string()))
}
