//! Calls that are decided on in-memory state alone; no rows are read.

use wayleave_core::frontier::State;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::row::Write;
use wayleave_core::names::{CrawlName, HostName};
use wayleave_core::time::Time;

use crate::ask::{AdminChange, Response, StateQuery};
use crate::owner::frontier::Frontier;
use crate::owner::port::Port;
use crate::routing::router::CallResult;

impl Frontier {
    pub fn answer_query(&self, look: &StateQuery, now: Time, port: &Port) -> CallResult<Response> {
        let state = &self.state;
        Ok(match look {
            StateQuery::Moved => {
                state.moved().map(|(host, alias)| (host.clone(), alias.clone())).collect::<Vec<_>>().into()
            }
            StateQuery::Active => state.shard_row().active.into(),
            StateQuery::Host(name) => {
                state.host_view(name, now).ok_or_else(|| Refusal::UnknownHost(name.to_string()))?.into()
            }
            StateQuery::Hosts { filter, after, room } => state.list_hosts(filter, *after, *room, now).into(),
            StateQuery::Groups { filter, after, room } => state.list_groups(filter, after.clone(), *room, now).into(),
            StateQuery::Group(name) => state.group_view(name, now).into(),
            StateQuery::Reservations { after, room } => state.list_reservations(*after, *room).into(),
            StateQuery::Crawl(crawl) => state.crawl_part(crawl, now).into(),
            StateQuery::ScanCrawl { crawl, after } => state.scan_crawl(crawl, *after, now).into(),
            StateQuery::Crawls { after, most } => state.list_crawls(after.as_ref(), *most).into(),
            StateQuery::Queues { crawl, inactive, after, skip, most } => {
                state.list_queues((crawl, *inactive), *after, (*skip, *most), now).into()
            }
            StateQuery::Stats => state.stats().into(),
            StateQuery::QueuesOf { crawl, host } => state.queues_of(crawl, host.as_ref()).into(),
            StateQuery::UnheardRequeues => self.jobs.unheard_requeues(port).into(),
            StateQuery::Jobs => self.jobs.all().into(),
        })
    }
}

/// Decides a change and appends its writes to `writes`.
pub(crate) fn change(
    state: &mut State,
    change: &AdminChange,
    now: Time,
    writes: &mut Vec<Write>,
) -> CallResult<Response> {
    match change {
        AdminChange::SetActive(active) => {
            state.set_active(*active);
            Ok(Response::Done(()))
        }
        AdminChange::SetHost { host: name, changes, replace, ready_at } => {
            state.set_host(name, changes, *replace, *ready_at, now).and_then(|()| host(state, name, now))
        }
        AdminChange::SetGroup { alias, changes, replace } => {
            let set = state.set_group(alias, changes, *replace, now);
            set.map(|()| state.group_view(alias, now).map(|view| view.hosts).unwrap_or_default().into())
        }
        AdminChange::DeleteGroup(alias) => state.delete_group(alias).map(Response::from),
        // They wait for the store, or end chunks: see `Frontier::change_crawl` and `Pipeline::delete_crawl`.
        AdminChange::Crawl(_) | AdminChange::DeleteCrawl { .. } => Ok(Response::Done(())),
        AdminChange::DeleteQueue { crawl, host } => Ok(state.delete_queue(host, crawl, now, writes).into()),
        AdminChange::SetQueueLimit { crawl, host, limit } => {
            state.set_queue_limit(host, crawl, *limit, now).map(Response::from)
        }
        AdminChange::SetDefaultDelay(delay) => {
            state.set_default_delay(*delay, now);
            Ok(Response::Done(()))
        }
    }
}

/// Deletes a crawl; returns the number of its URLs, and that of the deletion.
pub(crate) fn delete_crawl(
    state: &mut State,
    crawl: &CrawlName,
    number: Option<Time>,
    now: Time,
    writes: &mut Vec<Write>,
) -> (u64, Time) {
    let number = number.unwrap_or_else(|| Time(state.next_version(crawl, now)));
    (state.delete_crawl(crawl, number, now, writes), number)
}

fn host(state: &State, name: &HostName, now: Time) -> CallResult<Response> {
    state.host_view(name, now).map(Response::from).ok_or_else(|| Refusal::UnknownHost(name.to_string()))
}
