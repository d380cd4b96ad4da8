//! Questions that the shard's memory answers alone: no rows are read.

use wayleave_core::frontier::State;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::row::Write;
use wayleave_core::time::Time;

use crate::ask::{Ask, Told};
use crate::routing::router::Answer;

/// Decides; none if the question needs rows.
pub(crate) fn decide(state: &mut State, ask: &Ask, now: Time, writes: &mut Vec<Write>) -> Option<Answer<Told>> {
    look(state, ask, now).map(Ok).or_else(|| change(state, ask, now, writes))
}

fn look(state: &State, ask: &Ask, now: Time) -> Option<Told> {
    Some(match ask {
        Ask::Moved => state.moved().map(|(host, alias)| (host.clone(), alias.clone())).collect::<Vec<_>>().into(),
        Ask::Active => state.shard_row().active.into(),
        Ask::Hosts { filter, after, room } => state.list_hosts(filter, *after, *room, now).into(),
        Ask::Groups { filter, after, room } => state.list_groups(filter, after.clone(), *room, now).into(),
        Ask::Group(name) => state.group_view(name, now).into(),
        Ask::Reservations { after, room } => state.list_reservations(*after, *room).into(),
        Ask::Crawl(crawl) => state.crawl_part(crawl).into(),
        Ask::ScanCrawl { crawl, after } => state.scan_crawl(crawl, *after).into(),
        Ask::Crawls { after, most } => state.list_crawls(after.as_ref(), *most).into(),
        Ask::Queues { crawl, inactive, after, skip, most } => {
            state.list_queues((crawl, *inactive), *after, (*skip, *most), now).into()
        }
        Ask::Stats => (state.stats(), state.crawl_names()).into(),
        Ask::QueuesOf { crawl, host } => state.queues_of(crawl, host.as_ref()).into(),
        _ => return None,
    })
}

fn change(state: &mut State, ask: &Ask, now: Time, writes: &mut Vec<Write>) -> Option<Answer<Told>> {
    Some(match ask {
        Ask::SetActive(active) => {
            state.set_active(*active);
            Ok(Told::Done(()))
        }
        Ask::Renew { token, lease } => state.renew(*token, *lease, now, writes).map(Told::from),
        Ask::Host(name) => host(state, name, now),
        Ask::SetHost { host: name, changes, replace, ready_at } => {
            state.set_host(name, changes, *replace, *ready_at, now).and_then(|()| host(state, name, now))
        }
        Ask::SetGroup { alias, changes, replace } => {
            let set = state.set_group(alias, changes, *replace, now);
            set.map(|()| state.group_view(alias, now).map(|view| view.hosts).unwrap_or_default().into())
        }
        Ask::DeleteGroup(alias) => state.delete_group(alias).map(Told::from),
        Ask::SetCrawl { crawl, changes, replace } => state.set_crawl(crawl, changes, *replace, now).map(Told::from),
        Ask::DeleteCrawl { crawl, at } => Ok(state.delete_crawl(crawl, *at, now, writes).into()),
        Ask::DeleteQueue { crawl, host } => Ok(state.delete_queue(host, crawl, now, writes).into()),
        Ask::SetQueueLimit { crawl, host, limit } => state.set_queue_limit(host, crawl, *limit, now).map(Told::from),
        Ask::SetDefaultDelay(delay) => {
            state.set_default_delay(*delay, now);
            Ok(Told::Done(()))
        }
        _ => return None,
    })
}

fn host(state: &State, name: &std::sync::Arc<str>, now: Time) -> Answer<Told> {
    state.host_view(name, now).map(Told::from).ok_or_else(|| Refusal::UnknownHost(name.to_string()))
}
