//! The naive model: plain lists and linear scans. It does not predict which group is served; it knows which may be, and
//! follows what was.

use std::collections::BTreeMap;

use wayleave_core::frontier::request::{Outcome, Reservation, UrlToFetch};
use wayleave_core::frontier::view::{Counts, UrlState};
use wayleave_core::ids::Token;

pub const ATTEMPTS_MAX: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    Queued,
    Held(u64),
    Reserved(Token),
    Done(UrlState),
}

#[derive(Clone, Debug)]
pub struct Url {
    pub host: usize,
    pub crawl: usize,
    pub text: String,
    pub lane: u8,
    pub due: u64,
    pub attempts: u32,
    pub at: At,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    pub last_end: u64,
    pub backoff: u64,
    pub not_before: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Host {
    pub known: bool,
    pub alias: bool,
    pub delay: Option<u64>,
    pub paused: bool,
    pub blocked: u64,
    pub pace: Pace,
}

#[derive(Clone, Debug)]
pub struct Lease {
    pub token: Token,
    pub host: usize,
    pub expires: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub now: u64,
    pub urls: Vec<Url>,
    pub hosts: Vec<Host>,
    pub leases: Vec<Lease>,
    pub alias: Pace,
    pub alias_delay: Option<u64>,
    /// A queued URL was removed from the middle: its queue's `head` is only a lower bound since, so its group may be
    /// early.
    pub rough: bool,
}

impl Model {
    pub fn new(now: u64, hosts: usize) -> Self {
        Self { now, hosts: vec![Host::default(); hosts], ..Self::default() }
    }

    pub fn find(&mut self, crawl: usize, text: &str) -> Option<&mut Url> {
        self.urls.iter_mut().find(|url| url.crawl == crawl && url.text == text)
    }

    /// The hosts of a host's group.
    pub fn group(&self, host: usize) -> Vec<usize> {
        let same = |h: &usize| if self.hosts[host].alias { self.hosts[*h].alias } else { *h == host };
        (0..self.hosts.len()).filter(same).collect()
    }

    fn pace(&mut self, host: usize) -> &mut Pace {
        if self.hosts[host].alias { &mut self.alias } else { &mut self.hosts[host].pace }
    }

    pub fn is_busy(&self, host: usize) -> bool {
        let group = self.group(host);
        self.leases.iter().any(|lease| group.contains(&lease.host))
    }

    /// From when on the group of a host may be visited.
    pub fn gate(&self, host: usize) -> u64 {
        let pace = if self.hosts[host].alias { self.alias } else { self.hosts[host].pace };
        self.rested(host).max(pace.backoff)
    }

    fn rested(&self, host: usize) -> u64 {
        let group = self.group(host);
        let own = group.iter().filter_map(|h| self.hosts[*h].delay).max();
        let own = if self.hosts[host].alias { own.max(self.alias_delay) } else { own };
        let pace = if self.hosts[host].alias { self.alias } else { self.hosts[host].pace };
        let rested = if pace.last_end == 0 { 0 } else { pace.last_end + own.unwrap_or(1_000) };
        rested.max(pace.not_before)
    }

    /// When the delay of the alias has passed, for any members.
    fn alias_rested(&self) -> u64 {
        let members = self.hosts.iter().filter(|host| host.alias).filter_map(|host| host.delay);
        let own = members.max().max(self.alias_delay);
        let rested = if self.alias.last_end == 0 { 0 } else { self.alias.last_end + own.unwrap_or(1_000) };
        rested.max(self.alias.not_before)
    }

    /// Since when the group of a host is ready, for one crawl or any.
    pub fn ready_since(&self, host: usize, crawl: Option<usize>) -> Option<u64> {
        if self.is_busy(host) {
            return None;
        }
        let open = |h: &usize| !self.hosts[*h].paused;
        let group: Vec<usize> = self.group(host).into_iter().filter(open).collect();
        let wanted = |url: &&Url| crawl.is_none_or(|crawl| url.crawl == crawl);
        let due = self.urls.iter().filter(|url| url.at == At::Queued && group.contains(&url.host)).filter(wanted);
        let due = due.map(|url| url.due.max(self.hosts[url.host].blocked)).min()?;
        Some(due.max(self.gate(host))).filter(|at| *at <= self.now)
    }

    pub fn counts(&self, host: usize) -> Counts {
        let mut counts = Counts::default();
        for url in self.urls.iter().filter(|url| url.host == host) {
            match &url.at {
                At::Queued => counts.queued += 1,
                At::Held(_) | At::Reserved(_) => counts.reserved += 1,
                At::Done(UrlState::Gone) => counts.gone += 1,
                At::Done(UrlState::Failed) => counts.failed += 1,
                At::Done(_) => counts.fetched += 1,
            }
        }
        counts
    }

    /// Follows a reservation for one crawl or any; checks that it may be granted.
    pub fn granted(
        &mut self,
        granted: &Reservation,
        (host, crawl): (usize, Option<usize>),
        crawl_of: impl Fn(&str) -> usize,
        most: usize,
    ) {
        assert!(self.ready_since(host, crawl).is_some(), "group of host {host} is not ready: {granted:?}");
        // Weights choose the crawl; within the group another crawl may then go first.
        let first_of = |crawl: usize| {
            let first = (0..self.hosts.len()).filter_map(|h| self.ready_since(h, Some(crawl))).min();
            first.is_some() && self.ready_since(host, Some(crawl)) == first
        };
        let first = crawl.map_or_else(|| (0..2).any(first_of), first_of);
        assert!(self.rough || first, "the group that was ready first for a crawl is served first");
        assert!(!self.hosts[host].paused && self.hosts[host].blocked <= self.now, "host {host} is barred");
        self.take(&granted.urls, host, &crawl_of, most, &At::Reserved(granted.token));
        self.leases.push(Lease { token: granted.token, host, expires: granted.expires_at.0 });
    }

    /// Follows a hand-out in the paced form.
    pub fn handed_out(&mut self, urls: &[UrlToFetch], host: usize, crawl_of: impl Fn(&str) -> usize, hold: u64) {
        assert!(self.ready_since(host, None).is_some(), "group of host {host} is not ready");
        self.take(urls, host, &crawl_of, usize::MAX, &At::Held(self.now + hold));
        let now = self.now;
        let pace = self.pace(host);
        pace.last_end = pace.last_end.max(now);
    }

    fn take(&mut self, urls: &[UrlToFetch], host: usize, crawl_of: &impl Fn(&str) -> usize, most: usize, to: &At) {
        let now = self.now;
        let mut lanes: BTreeMap<u8, Vec<String>> = BTreeMap::new();
        let crawl = crawl_of(&urls[0].crawl);
        for url in urls {
            lanes.entry(9 - url.priority).or_default().push(url.url.to_string());
        }
        for (lane, taken) in &lanes {
            let mut queue: Vec<&Url> = self
                .urls
                .iter()
                .filter(|u| (u.host, u.crawl, u.lane) == (host, crawl, *lane) && u.at == At::Queued && u.due <= now)
                .collect();
            queue.sort_by(|a, b| (a.due, &a.text).cmp(&(b.due, &b.text)));
            let front: Vec<String> = queue.iter().take(taken.len()).map(|u| u.text.clone()).collect();
            assert_eq!(taken, &front, "lane {lane} is served from its front");
        }
        let due = |u: &&Url| (u.host, u.crawl) == (host, crawl) && u.at == At::Queued && u.due <= now;
        let waiting = self.urls.iter().filter(due).count();
        assert!((1..=waiting.min(most)).contains(&urls.len()), "something, and no more than is due and asked for");
        for url in urls {
            let place = self.find(crawl, &url.url).expect("a URL that is known");
            assert_eq!(place.attempts, url.attempts);
            place.at = to.clone();
        }
    }

    fn try_again(url: &mut Url) {
        url.attempts += 1;
        url.at = if url.attempts >= ATTEMPTS_MAX { At::Done(UrlState::Failed) } else { At::Queued };
    }

    pub fn released(&mut self, token: Token, results: &[(String, Outcome, Option<u64>)]) {
        let now = self.now;
        let lease = self.leases.iter().position(|lease| lease.token == token).expect("a live lease");
        let lease = self.leases.remove(lease);
        for url in self.urls.iter_mut().filter(|url| url.at == At::Reserved(token)) {
            let result = results.iter().find(|(text, ..)| *text == url.text);
            match result {
                None => url.at = At::Queued,
                Some((_, Outcome::Fetched, _)) => {
                    (url.at, url.attempts) = (At::Done(UrlState::Fetched), 0);
                }
                Some((_, Outcome::Gone, _)) => url.at = At::Done(UrlState::Gone),
                Some((_, Outcome::Failed, _)) => url.at = At::Done(UrlState::Failed),
                Some((_, Outcome::Retry, after)) => {
                    url.due = now + after.unwrap_or(240_000 << url.attempts);
                    Self::try_again(url);
                }
            }
        }
        let backoff = results
            .iter()
            .filter_map(|(.., after)| *after)
            .max()
            .filter(|after| *after > 0)
            .map_or(0, |after| now + after);
        let pace = self.pace(lease.host);
        pace.last_end = pace.last_end.max(now);
        pace.backoff = pace.backoff.max(backoff);
    }

    /// Advances time and returns what has expired.
    pub fn pass(&mut self, span: u64) {
        self.now += span;
        let now = self.now;
        let over: Vec<Lease> = self.leases.iter().filter(|lease| lease.expires <= now).cloned().collect();
        self.leases.retain(|lease| lease.expires > now);
        for lease in over {
            let mine = |url: &&mut Url| url.at == At::Reserved(lease.token);
            self.urls.iter_mut().filter(mine).for_each(Self::try_again);
            let pace = self.pace(lease.host);
            pace.last_end = pace.last_end.max(lease.expires);
        }
        let over = |url: &&mut Url| matches!(url.at, At::Held(until) if until <= now);
        self.urls.iter_mut().filter(over).for_each(|url| url.at = At::Queued);
    }

    pub fn join(&mut self, host: usize) {
        let pace = self.hosts[host].pace;
        let gates = self.rested(host).max(self.alias_rested());
        if self.hosts[host].known {
            self.alias.not_before = if gates > self.now { gates } else { 0 };
        }
        self.alias.last_end = self.alias.last_end.max(pace.last_end);
        self.alias.backoff = self.alias.backoff.max(pace.backoff);
        (self.hosts[host].alias, self.hosts[host].known) = (true, true);
    }

    pub fn leave(&mut self, host: usize) {
        let gate = self.rested(host);
        (self.hosts[host].pace, self.hosts[host].alias) = (self.alias, false);
        self.hosts[host].pace.not_before = if gate > self.now { gate } else { 0 };
    }

    pub fn delete(&mut self, crawl: usize, host: usize) -> u64 {
        let before = self.urls.len();
        self.urls.retain(|url| (url.crawl, url.host) != (crawl, host));
        (before - self.urls.len()) as u64
    }
}
