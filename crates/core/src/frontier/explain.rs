//! Explanations: for any host or group its state, the reason, and when that will change.

use super::row::{LeaseRow, QueueRow};
use super::slab::Ix;
use super::state::{Host, State};
use super::view::State as Is;
use super::view::{Counts, GroupView, HostView, LiveVisit, QueueView, Standing, Stats};
use crate::counted::counted;
use crate::ids::{CrawlNo, Token};
use crate::time::Time;

/// Maximum number of reasons given for a group whose crawls and hosts are held back for different reasons.
const REASONS_MAX: usize = 3;

impl State {
    /// The standing of a group, seen from one of its hosts or as a whole.
    fn standing(&self, group: Ix, host: Option<&Host>, now: Time) -> Standing {
        self.paused(group, host)
            .or_else(|| self.blocked(group, host, now))
            .map(|standing| self.with_visit(group, standing))
            .or_else(|| self.busy(group))
            .or_else(|| self.blocked_by_damage(group, host, now))
            .unwrap_or_else(|| self.with_gap(group, host, self.with_switch(self.waiting(group, host, now))))
    }

    /// Mentions queued URLs that cannot be read, where others can.
    fn with_gap(&self, group: Ix, host: Option<&Host>, mut standing: Standing) -> Standing {
        if let Some(gap) = host.or_else(|| self.only_host(group)).and_then(|host| self.explain_gap(host.id)) {
            standing.reason = format!("{}; {gap}", standing.reason);
        }
        standing
    }

    /// The standing of a host whose due URLs are all unreadable.
    fn blocked_by_damage(&self, group: Ix, host: Option<&Host>, now: Time) -> Option<Standing> {
        let host = host.or_else(|| self.only_host(group))?;
        let (cause, until) = self.damage_of(&host.name).filter(|(_, until)| *until > now)?;
        let reason = format!(
            "what is due of host '{}' cannot be read, the store is damaged there: {cause}; it is tried again then",
            host.name
        );
        Some(Standing { state: Is::Blocked, reason, ready_at: Some(until) })
    }

    /// Mentions that the paced form is switched off, which may be why a host gets no visits.
    fn with_switch(&self, mut standing: Standing) -> Standing {
        if !self.shard_row.active && matches!(standing.state, Is::Ready | Is::Waiting) {
            standing.reason.push_str("; GetURLs hands out nothing, because SetActive has switched it off");
        }
        standing
    }

    /// Reports a visit in progress even if the group is paused or blocked: an operator who stopped visits wants to
    /// know.
    fn with_visit(&self, group: Ix, mut standing: Standing) -> Standing {
        if let Some(visit) = self.visits(group).first() {
            let LiveVisit { host, holder, .. } = visit;
            standing.reason = format!("{}; meanwhile '{holder}' is still visiting host '{host}'", standing.reason);
        }
        standing
    }

    /// The visits to a group in progress, earliest deadline first.
    fn visits(&self, group: Ix) -> Vec<LiveVisit> {
        let leases = self.groups[group].leases.iter().filter_map(|token| self.leases.get(token));
        let mut leases: Vec<&LeaseRow> = leases.collect();
        leases.sort_unstable_by_key(|lease| (lease.expires_at, lease.token));
        let name = |lease: &LeaseRow| self.hosts.by_id(lease.host).map(|ix| self.hosts[ix].name.clone());
        let visit = |lease: &LeaseRow| {
            let (host, holder) = (name(lease).unwrap_or_default(), lease.holder.clone());
            LiveVisit { host, holder, expires_at: lease.expires_at, ended_chunk: lease.ended_chunk }
        };
        leases.into_iter().map(visit).collect()
    }

    /// Why the visit of an idle link cannot begin, whatever the time, and until when at the latest if that is known: what
    /// [`State::link_ready_at`] asks. Other crawls at the host do not matter.
    #[must_use]
    pub fn link_hindrance(&self, token: Token) -> Option<(String, Option<Time>)> {
        let lease = self.leases.get(&token)?;
        lease.urls.iter().find(|(queue, _)| self.find_queue(*queue).is_some())?;
        let host = &self.hosts[self.hosts.by_id(lease.host)?];
        let crawl = self.crawl_of(lease.crawl).filter(|crawl| crawl.settings.paused);
        let by_crawl = || crawl.map(|crawl| format!("an operator has paused crawl '{}'", crawl.name));
        let paused = self.site_paused(host.group, Some(host)).or_else(by_crawl).map(|reason| (reason, None));
        paused.or_else(|| self.busy(host.group).map(|standing| (standing.reason, standing.ready_at)))
    }

    /// The pause of a group, or of the host from which it is seen.
    fn site_paused(&self, ix: Ix, host: Option<&Host>) -> Option<String> {
        if self.groups[ix].is_paused() {
            return Some(format!("an operator has paused group '{}'", self.group_name(ix)));
        }
        let host = host.or_else(|| self.only_host(ix)).filter(|host| host.is_paused())?;
        Some(format!("an operator has paused host '{}'", host.name))
    }

    fn paused(&self, ix: Ix, host: Option<&Host>) -> Option<Standing> {
        let group = &self.groups[ix];
        let paused = |reason: String| Some(Standing { state: Is::Paused, reason, ready_at: None });
        if let Some(reason) = self.site_paused(ix, host) {
            return paused(reason);
        }
        let hosts: Vec<&Host> =
            host.map_or_else(|| group.hosts().iter().map(|h| &self.hosts[*h]).collect(), |h| vec![h]);
        let queues = hosts.iter().flat_map(|h| &h.queues).filter(|q| q.head() != Time::NEVER);
        let mut names: Vec<&str> = Vec::new();
        for queue in queues {
            let crawl = self.crawl_of(queue.crawl)?;
            if !crawl.settings.paused {
                return None;
            }
            names.push(&crawl.name);
        }
        names.sort_unstable();
        names.dedup();
        if names.is_empty() || hosts.iter().any(|h| h.queued_at != Time::NEVER) {
            return None;
        }
        paused(format!("an operator has paused crawl '{}'", names.join("', '")))
    }

    fn blocked(&self, ix: Ix, host: Option<&Host>, now: Time) -> Option<Standing> {
        let group = &self.groups[ix];
        let blocked = |until: Time, reason: String| {
            (until > now).then_some(Standing { state: Is::Blocked, reason, ready_at: Some(until) })
        };
        let by_group = group.settings.as_ref().and_then(|s| s.blocked_until).unwrap_or_default();
        let by_host = host.or_else(|| self.only_host(ix)).map(Host::blocked_until).unwrap_or_default();
        let by_site = group.pace.backoff_until;
        let latest = by_group.max(by_host).max(by_site);
        if by_site == latest {
            return blocked(latest, site_asked(group));
        }
        blocked(latest, "an operator or a crawler has blocked it until then".to_owned())
    }

    fn busy(&self, ix: Ix) -> Option<Standing> {
        if !self.is_busy(ix) {
            return None;
        }
        let LiveVisit { host, holder, expires_at, ended_chunk } = self.visits(ix).into_iter().next()?;
        let reason = match ended_chunk {
            Some(chunk) => format!(
                "'{holder}' may still be visiting host '{host}' for chunk {chunk}, whose lease was ended by an operator or a \
                 deletion; the lease that it knows ends then"
            ),
            None => format!("'{holder}' is visiting host '{host}'; the lease ends at the latest then"),
        };
        Some(Standing { state: Is::Busy, reason, ready_at: Some(expires_at) })
    }

    fn waiting(&self, ix: Ix, host: Option<&Host>, now: Time) -> Standing {
        let hosts: Vec<&Host> =
            host.map_or_else(|| self.groups[ix].hosts().iter().map(|h| &self.hosts[*h]).collect(), |h| vec![h]);
        let open = hosts.iter().filter(|h| !h.is_paused());
        let mut full: Vec<CrawlNo> = Vec::new();
        if self.groups[ix].settings.as_ref().is_some_and(|settings| settings.limit.is_some()) {
            full = hosts.iter().flat_map(|h| &h.queues).map(|q| q.crawl).collect();
            full.sort_unstable();
            full.dedup();
            full.retain(|no| self.group_room(ix, *no) == Some(0));
        }
        let due = open
            .flat_map(|h| {
                let crawls = h.queues.iter().map(|q| q.crawl).chain([CrawlNo::NONE]);
                let running = crawls.filter(|no| {
                    let paused = self.crawl_of(*no).is_some_and(|c| c.settings.paused);
                    !paused && !self.is_spent(*no) && !full.contains(no)
                });
                let opportunity = move |no| {
                    let (due, _) = self.host_opportunity(h, no)?;
                    let blocked = Some(h).filter(|host| host.blocked_until() > due.max(now));
                    Some((due.max(h.blocked_until()), no == CrawlNo::NONE, blocked))
                };
                running.filter_map(opportunity)
            })
            .min_by_key(|(due, bare, blocked)| (*due, *bare, blocked.is_some()));
        let Some((due, bare, blocked)) = due else { return self.idle(&hosts) };
        let gate = self.gate(ix);
        let at = gate.max(due);
        if let Some(host) = blocked.filter(|_| due >= gate) {
            let reason = format!("host '{}', where its next URL is, is blocked until then", host.name);
            return Standing { state: Is::Blocked, reason, ready_at: Some(at) };
        }
        if at <= now {
            let what = if bare { "the host itself is queued" } else { "a URL is due" };
            let reason = format!("{what} and the delay since the last visit has passed");
            return Standing { state: Is::Ready, reason, ready_at: Some(at) };
        }
        let reason = if gate >= due {
            self.explain_delay(ix)
        } else {
            if bare { "the host itself is queued for then" } else { "its next URL is due then" }.to_owned()
        };
        Standing { state: Is::Waiting, reason, ready_at: Some(at) }
    }

    /// Which delay has not passed yet, and which setting or site asked for it.
    fn explain_delay(&self, ix: Ix) -> String {
        let (delay, group) = (self.delay(ix), &self.groups[ix]);
        if group.pace.not_before == self.rested(ix) && group.pace.not_before > Time::ZERO {
            return "hosts were moved between groups, and the delay since a visit before that has not passed"
                .to_owned();
        }
        let robots = group.hosts().iter().map(|host| &self.hosts[*host]).max_by_key(|host| host.robots_delay);
        match robots.filter(|host| host.robots_delay == delay && delay.0 > 0) {
            Some(host) => {
                format!("the Crawl-delay of {} ms in robots.txt of host '{}' has not passed", delay.0, host.name)
            }
            None => format!("the delay of {} ms since the last visit has not passed", delay.0),
        }
    }

    fn idle(&self, hosts: &[&Host]) -> Standing {
        let queues = || hosts.iter().flat_map(|host| host.queues.iter().map(move |queue| (*host, queue)));
        let full = queues().filter(|(_, queue)| queue.head() != Time::NEVER);
        let mut held_back: Vec<String> = Vec::new();
        for reason in full.filter_map(|(host, queue)| self.held_back(host, queue)) {
            if held_back.len() == REASONS_MAX {
                break;
            }
            if !held_back.contains(&reason) {
                held_back.push(reason);
            }
        }
        let out: u64 = queues().map(|(_, queue)| u64::from(queue.reserved)).sum();
        let stranded: Vec<String> =
            hosts.iter().filter_map(|host| self.explain_stranded(host.id)).take(REASONS_MAX).collect();
        let reason = if !held_back.is_empty() {
            held_back.join("; ")
        } else if !stranded.is_empty() {
            stranded.join("; ")
        } else if out > 0 {
            format!("all its remaining URLs ({out}) are handed out")
        } else if queues().next().is_none() {
            "it has no URLs".to_owned()
        } else {
            "all its URLs are finished".to_owned()
        };
        Standing { state: Is::Idle, reason, ready_at: None }
    }

    /// Why queued URLs will not be handed out, regardless of time.
    pub(super) fn held_back(&self, host: &Host, queue: &QueueRow) -> Option<String> {
        let crawl = self.crawl_of(queue.crawl)?;
        let (name, limits) = (&crawl.name, &crawl.settings.limits);
        if host.is_paused() {
            return Some(format!("an operator has paused host '{}'", host.name));
        }
        if crawl.settings.paused {
            return Some(format!("an operator has paused crawl '{name}'"));
        }
        if self.is_spent(queue.crawl) {
            return crawl.limit_reached();
        }
        if self.room(host, queue) != Some(0) {
            return None;
        }
        if queue.reserved > 0 {
            return Some(format!(
                "the pages that limits leave to crawl '{name}' at host '{}' are handed out",
                host.name
            ));
        }
        let own = self.page_limit(host, queue).filter(|limit| queue.used() >= *limit);
        let Some(limit) = own else {
            let limit = self.groups[host.group].settings.as_ref().and_then(|s| s.limit)?;
            let (group, limit) = (self.group_name(host.group), counted(limit, "page"));
            return Some(format!("group '{group}' has reached its limit of {limit} of crawl '{name}'"));
        };
        let pages = counted(limit, "page");
        Some(if host.settings.as_ref().and_then(|s| s.limit) == Some(limit) {
            format!("host '{}' has reached its limit of {pages}", host.name)
        } else if limits.pages_per_host == Some(limit) {
            format!("crawl '{name}' has reached its limit of {pages} at host '{}'", host.name)
        } else {
            format!("the queue of crawl '{name}' at host '{}' has reached its limit of {pages}", host.name)
        })
    }

    fn only_host(&self, group: Ix) -> Option<&Host> {
        let group = &self.groups[group];
        if group.alias().is_some() {
            return None;
        }
        group.hosts().first().map(|host| &self.hosts[*host])
    }

    pub(super) fn last_visit(&self, group: Ix) -> Option<Time> {
        Some(self.groups[group].pace.last_end).filter(|end| *end != Time::ZERO)
    }

    /// One host.
    #[must_use]
    pub fn host_view(&self, name: &str, now: Time) -> Option<HostView> {
        let ix = self.host_ix(name)?;
        Some(self.view_host(ix, now))
    }

    pub(super) fn view_host(&self, ix: Ix, now: Time) -> HostView {
        let host = &self.hosts[ix];
        let mut counts = Counts::default();
        let queue = |q: &super::row::QueueRow| QueueView {
            crawl: self.crawl_of(q.crawl).map(|c| c.name.clone()).unwrap_or_default(),
            counts: q.counts(),
            next_due: Some(q.head()).filter(|head| *head != Time::NEVER),
            limit: q.limit,
        };
        let queues: Vec<QueueView> = host.queues.iter().map(queue).collect();
        queues.iter().for_each(|q| counts.add(&q.counts));
        HostView {
            host: host.name.clone(),
            group: self.group_name(host.group),
            aliased: self.groups[host.group].alias().is_some(),
            standing: self.standing(host.group, Some(host), now),
            visits: self.visits(host.group),
            counts,
            queues,
            settings: host.settings.as_deref().copied().unwrap_or_default(),
            crawl_delay: Some(host.robots_delay).filter(|delay| delay.0 > 0),
            delay: self.delay(host.group),
            last_visit_at: self.last_visit(host.group),
            queued_at: Some(host.queued_at).filter(|at| *at != Time::NEVER),
        }
    }

    /// All hosts, for the invariant checks.
    pub(super) fn host_views(&self, now: Time) -> impl Iterator<Item = HostView> {
        self.hosts.iter().map(move |(ix, _)| self.view_host(ix, now))
    }

    /// A group, by alias or by the name of its only host.
    #[must_use]
    pub fn group_view(&self, name: &str, now: Time) -> Option<GroupView> {
        let by_host = || self.host_ix(name).map(|host| self.hosts[host].group);
        let ix = self.group_by_alias.get(name).copied().or_else(by_host)?;
        Some(self.view_group(ix, now))
    }

    pub(super) fn view_group(&self, ix: Ix, now: Time) -> GroupView {
        let group = &self.groups[ix];
        let mut counts = Counts::default();
        group.hosts().iter().flat_map(|h| &self.hosts[*h].queues).for_each(|q| counts.add(&q.counts()));
        let own = self.only_host(ix).and_then(|h| h.settings.as_deref().copied());
        let mut hosts: Vec<_> = group.hosts().iter().map(|h| self.hosts[*h].name.clone()).collect();
        hosts.sort_unstable();
        GroupView {
            group: self.group_name(ix),
            aliased: group.alias().is_some(),
            hosts,
            standing: self.standing(ix, None, now),
            visits: self.visits(ix),
            counts,
            settings: group.settings.as_deref().copied().or(own).unwrap_or_default(),
            delay: self.delay(ix),
            last_visit_at: self.last_visit(ix),
        }
    }

    /// The names of all crawls.
    pub fn crawl_names(&self) -> impl Iterator<Item = &crate::names::CrawlName> {
        self.crawls.values().map(|crawl| &crawl.name)
    }

    /// How many hosts there are.
    #[must_use]
    pub fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// Totals.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            hosts: self.hosts.len() as u64,
            aliases: self.group_by_alias.len() as u64,
            crawls: self.crawls.len() as u64,
            queues: self.queues,
            reservations: self.leases.len() as u64,
            holds: self.holds,
            ready: self.schedule.ready_len() as u64,
            waiting: self.schedule.waiting_len() as u64,
            urls: self.totals,
        }
    }
}

/// Describes the site's request to back off: status, page and repetitions.
fn site_asked(group: &super::state::Group) -> String {
    let pace = &group.pace;
    let status = match pace.backoff_status {
        0 => "Retry-After".to_owned(),
        status => format!("status {status}"),
    };
    let url = pace.asked_by.as_deref().map(|url| format!(" at {}", crate::redact::url(url))).unwrap_or_default();
    let times = match pace.backoff_count {
        0 | 1 => String::new(),
        n => format!(", {n} times lately"),
    };
    format!("the site asked to be left alone ({status}{url}{times})")
}
