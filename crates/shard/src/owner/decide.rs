//! Calls that are decided on in-memory state alone; no rows are read.

use wayleave_core::frontier::State;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::row::Write;
use wayleave_core::frontier::view::{GroupView, HostView, Standing, State as Is};
use wayleave_core::names::HostName;
use wayleave_core::time::Time;

use crate::ask::{AdminChange, Response, StateQuery};
use crate::owner::owner_loop::Owner;
use crate::routing::router::CallResult;

impl Owner {
    pub fn answer_query(&self, look: &StateQuery, now: Time) -> CallResult<Response> {
        let state = &self.state;
        Ok(match look {
            StateQuery::Moved => {
                state.moved().map(|(host, alias)| (host.clone(), alias.clone())).collect::<Vec<_>>().into()
            }
            StateQuery::Active => state.shard_row().active.into(),
            StateQuery::Host(name) => {
                let view = state.host_view(name, now).ok_or_else(|| Refusal::UnknownHost(name.to_string()))?;
                HostView { standing: self.with_offered(view.standing, std::slice::from_ref(name), now), ..view }.into()
            }
            StateQuery::Hosts { filter, after, room } => state.list_hosts(filter, *after, *room, now).into(),
            StateQuery::Groups { filter, after, room } => state.list_groups(filter, after.clone(), *room, now).into(),
            StateQuery::Group(name) => {
                let explained = |view: GroupView| GroupView {
                    standing: self.with_offered(view.standing, &view.hosts, now),
                    ..view
                };
                state.group_view(name, now).map(explained).into()
            }
            StateQuery::Reservations { after, room } => state.list_reservations(*after, *room).into(),
            StateQuery::Crawl(crawl) => state.crawl_part(crawl, now).into(),
            StateQuery::ScanCrawl { crawl, after } => state.scan_crawl(crawl, *after, now).into(),
            StateQuery::Crawls { after, most } => state.list_crawls(after.as_ref(), *most).into(),
            StateQuery::Queues { crawl, inactive, after, skip, most } => {
                state.list_queues((crawl, *inactive), *after, (*skip, *most), now).into()
            }
            StateQuery::Stats => (state.stats(), state.crawl_names()).into(),
            StateQuery::QueuesOf { crawl, host } => state.queues_of(crawl, host.as_ref()).into(),
            StateQuery::UnheardRequeues => self.unheard_requeues().into(),
            StateQuery::Jobs => self.bulk_jobs.values().cloned().collect::<Vec<_>>().into(),
        })
    }

    /// Mentions a chunk that reserves URLs of these hosts and waits for a crawler: they are handed out to nobody else.
    fn with_offered(&self, mut standing: Standing, hosts: &[HostName], now: Time) -> Standing {
        let chunks = hosts.iter().flat_map(|host| self.state.idle_chunks(host));
        let mut offered = chunks.filter_map(|id| self.pipeline.active(id)).filter(|chunk| chunk.is_offered());
        let Some(chunk) = offered.next() else { return standing };
        standing.reason.push_str(&format!("; a URL of it is in chunk {}, which waits for a crawler", chunk.id));
        if standing.state == Is::Idle {
            standing.ready_at = chunk.view(&self.state, now).until;
        }
        standing
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
        AdminChange::SetCrawl { crawl, changes, replace, bounded } => {
            if let Some(why) = state.crawls_full(crawl).filter(|_| *bounded) {
                return Err(Refusal::OverLimit(why));
            }
            state.set_crawl(crawl, changes, *replace, now);
            Ok(Response::Done(()))
        }
        AdminChange::DeleteCrawl { crawl, at } => Ok(state.delete_crawl(crawl, *at, now, writes).into()),
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

fn host(state: &State, name: &HostName, now: Time) -> CallResult<Response> {
    state.host_view(name, now).map(Response::from).ok_or_else(|| Refusal::UnknownHost(name.to_string()))
}
