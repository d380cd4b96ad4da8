//! Questions that the shard's memory answers alone: no rows are read.

use wayleave_core::frontier::State;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::row::Write;
use wayleave_core::frontier::view::{GroupView, HostView};
use wayleave_core::time::Time;

use crate::ask::{Ask, Slice, Told};
use crate::router::Answer;

/// Decides; none if the question needs rows.
pub(crate) fn decide(state: &mut State, ask: &Ask, now: Time, writes: &mut Vec<Write>) -> Option<Answer<Told>> {
    look(state, ask, now).map(Ok).or_else(|| change(state, ask, now, writes))
}

fn look(state: &State, ask: &Ask, now: Time) -> Option<Told> {
    Some(match ask {
        Ask::Moved => state.moved().map(|(host, alias)| (host.clone(), alias.clone())).collect::<Vec<_>>().into(),
        Ask::Active => state.shard_row().active.into(),
        Ask::Hosts { filter, start, most } => {
            let fits = |view: &HostView| {
                filter.state.is_none_or(|state| view.standing.state == state)
                    && filter.crawl.as_ref().is_none_or(|crawl| view.queues.iter().any(|q| q.crawl == *crawl))
            };
            take(state.host_views(*start, now), *most, &fits).into()
        }
        Ask::Groups { filter, start, most } => {
            let fits = |view: &GroupView| filter.state.is_none_or(|state| view.standing.state == state);
            take(state.group_views(*start, now), *most, &fits).into()
        }
        Ask::Group(name) => state.group_view(name, now).into(),
        Ask::Reservations { start, most } => {
            let views = state.reservation_views().into_iter().enumerate().skip(*start as usize);
            take(views.map(|(i, view)| (i as u32 + 1, view)), *most, &|_| true).into()
        }
        Ask::Crawl(crawl) => state.crawl_view(crawl).into(),
        Ask::Crawls => state.crawl_views().into(),
        Ask::Queues { crawl, skip, most, inactive } => state.queue_names_of(crawl, *skip, *most, *inactive, now).into(),
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
        Ask::SetCrawl { crawl, changes, replace } => {
            state.set_crawl(crawl, changes, *replace, now);
            Ok(Told::Done(()))
        }
        Ask::DeleteCrawl(crawl) => Ok(state.delete_crawl(crawl, now, writes).into()),
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

fn take<T>(views: impl Iterator<Item = (u32, T)>, most: usize, fits: &impl Fn(&T) -> bool) -> Slice<T> {
    let mut items = Vec::new();
    let mut views = views.peekable();
    while let Some((next, view)) = views.next() {
        if fits(&view) {
            items.push(view);
        }
        if items.len() == most {
            return (items, views.peek().is_some().then_some(next));
        }
    }
    (items, None)
}
