//! Reports of links while a chunk is crawled. A report ends the visit of the link's group, so its delay starts. A link
//! that was fetched stays reserved until the chunk is complete: if the crawler is lost before, so is the content. A link
//! that failed is settled at once, and may be replaced.

use hashbrown::{HashMap, HashSet};

use super::claim::{Writes, new_links, to_fetch};
use super::refusal::ChunkRefusal;
use super::request::{LinkToFetch, LinksReported, ReportLinks};
use super::row::{ChunkRow, LinkState};
use super::state::State;
use crate::frontier::State as Frontier;
use crate::frontier::request::{Outcome, Parent, Reservation, UrlResult, UrlToFetch};
use crate::frontier::row::UrlRow;
use crate::frontier::url_key::UrlKey;
use crate::frontier::visit::{PlannedVisit, ScannedUrl};
use crate::ids::{ChunkId, Token};
use crate::limits;
use crate::names::HostName;
use crate::time::{Millis, Time};

/// A link that failed and may be replaced, by position.
pub type Vacancy = usize;

impl State {
    /// The chunk that a report is for, whose links' URL rows must be read. Fails if the token is not that of its live
    /// lease.
    pub fn reported(&self, id: ChunkId, token: Token, now: Time) -> Result<&ChunkRow, ChunkRefusal> {
        let chunk = self.current(id, token, now, None)?;
        if chunk.state == super::row::ChunkState::Crawling { Ok(chunk) } else { Err(ChunkRefusal::NotCrawling(id)) }
    }

    /// How many URLs at the front of its host's queue may replace links of a chunk of one host: those before the first
    /// that was a link of it. Otherwise a page that is due again at once would replace itself. A repeated report
    /// would then count for the returned link: it would count twice, or end a visit in progress.
    #[must_use]
    pub fn fresh_in(&self, id: ChunkId, found: &[Vec<ScannedUrl>], now: Time) -> usize {
        let Some(chunk) = self.active.get(&id) else { return 0 };
        let own: HashSet<&UrlKey> = chunk.links.iter().map(|link| &link.url.1).collect();
        due(found, now).take_while(|found| !own.contains(&found.key)).count()
    }

    /// Up to `most` of the visits planned to replace links of a chunk: those whose first URL was never a link of it, for
    /// the same reason. The others go back to the schedule.
    pub fn fresh_visits(
        &self,
        id: ChunkId,
        planned: Vec<PlannedVisit>,
        (most, now): (usize, Time),
        frontier: &mut Frontier,
    ) -> Vec<PlannedVisit> {
        let links = self.active.get(&id).map_or(&[][..], |chunk| &chunk.links);
        // By name: a host that left and came back has another queue here.
        let own: HashSet<(&HostName, &UrlKey)> = links.iter().map(|link| (&link.host, &link.url.1)).collect();
        let is_own = |(visit, found): &PlannedVisit| {
            let host = visit.queue.and_then(|queue| frontier.queue_names(queue)).map(|(host, _)| host);
            due(found, now).next().is_some_and(|first| host.is_some_and(|host| own.contains(&(&host, &first.key))))
        };
        let (mut back, mut fresh): (Vec<_>, Vec<_>) = planned.into_iter().partition(is_own);
        back.extend(fresh.split_off(most.min(fresh.len())));
        back.iter().for_each(|(visit, _)| frontier.return_visit(visit, now));
        fresh
    }

    /// The positions of the links whose URL rows must be read: those that a report or a page names, and those of
    /// [`State::unclear`].
    #[must_use]
    pub fn named<'a>(&self, id: ChunkId, urls: impl Iterator<Item = &'a str>, frontier: &Frontier) -> Vec<usize> {
        let Some(chunk) = self.active.get(&id) else { return Vec::new() };
        let link_index = chunk.link_index();
        let mut all: Vec<usize> = urls.flat_map(|url| link_index.find(url)).chain(chunk.unclear(frontier)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What links found on pages of a chunk inherit; `None` for a page that is no longer part of it. Fails if the token
    /// is not that of its live lease, or a page was never a link of the chunk.
    pub fn parents(
        &self,
        (id, token): (ChunkId, Token),
        pages: &[Box<str>],
        rows: &[Option<UrlRow>],
        now: Time,
        frontier: &Frontier,
    ) -> Result<Vec<Option<Parent>>, ChunkRefusal> {
        let chunk = self.reported(id, token, now)?;
        let (link_index, here) = (chunk.link_index(), chunk.present(frontier, rows));
        let parent = |page: &str| {
            let at = chunk.position(page, (&link_index, &here), rows)?;
            let link = at.and_then(|at| chunk.links.get(at).zip(rows.get(at)));
            Ok(link.and_then(|(link, row)| frontier.link_parent(link.lease?, &link.url, row.as_ref()?, now)))
        };
        pages.iter().map(|page| parent(page)).collect()
    }

    /// Takes the results of links. Returns the answer so far and the links that failed, which may be replaced; `rows`
    /// are the rows of all links. Fails if the token is not that of the chunk's live lease, or a result does not fit;
    /// then nothing has changed.
    pub fn report(
        &mut self,
        report: &ReportLinks,
        rows: &[Option<UrlRow>],
        now: Time,
        jitter: u64,
        frontier: &mut Frontier,
        writes: &mut Writes,
    ) -> Result<(LinksReported, Vec<Vacancy>), ChunkRefusal> {
        let before = self.reported(report.chunk, report.token, now)?.clone();
        let (fresh, mut answer) = before.sort_results(report, rows, frontier)?;
        let mut after = before.clone();
        let mut vacancies = Vec::new();
        for (at, result) in fresh {
            let Some(link) = after.links.get_mut(at) else { continue };
            let Some(token) = link.lease else { continue };
            let row = rows.get(at).cloned().flatten();
            if result.outcome == Outcome::Fetched {
                if before.host.is_none() {
                    frontier.end_link_visit(token, &[result], (now, now), jitter, &mut writes.frontier);
                } else {
                    frontier.learn_crawl_delay(token, result);
                }
                link.state = LinkState::Crawled(Box::new(nameless(result)));
                continue;
            }
            if before.host.is_none() {
                frontier.end_link(token, vec![row], &[Some(result)], now, jitter, &mut writes.frontier);
            } else {
                let key = link.url.1.clone();
                frontier.end_link_url(token, &key, row, (result, now), jitter, &mut writes.frontier);
            }
            // In a chunk of one host the reservation continues; its token stays with the links that it still has.
            link.lease = None;
            link.state = LinkState::Error(digest(result));
            vacancies.push(at);
        }
        let room = limits::CHUNK_LINKS_EVER_MAX.saturating_sub(after.links.len());
        vacancies.truncate(if report.replace { room } else { 0 });
        answer.left = after.open_links(rows, frontier);
        self.store(Some(&before), after, &mut writes.pipeline);
        Ok((answer, vacancies))
    }

    /// Puts reservations that were just granted for this chunk in the places of links that failed.
    pub fn replace(
        &mut self,
        id: ChunkId,
        vacancies: &[Vacancy],
        granted: Vec<Reservation>,
        frontier: &mut Frontier,
        writes: &mut Writes,
    ) -> Vec<LinkToFetch> {
        let Some(before) = self.active.get(&id).cloned() else { return Vec::new() };
        let mut after = before.clone();
        let mut fetch = Vec::new();
        for (granted, vacancy) in granted.into_iter().zip(vacancies) {
            if let Some(lease) = &after.lease {
                frontier.set_link_deadline(granted.token, lease.expires_at);
            }
            after.add_links(&[*vacancy], new_links(granted.token, frontier));
            fetch.extend(to_fetch(granted));
        }
        self.store(Some(&before), after, &mut writes.pipeline);
        fetch
    }

    /// Puts other URLs of the same host in the places of links that failed, in a chunk of one host.
    pub fn replace_here(
        &mut self,
        id: ChunkId,
        vacancies: &[Vacancy],
        (token, urls, delay): (Token, Vec<UrlToFetch>, Millis),
        frontier: &Frontier,
        writes: &mut Writes,
    ) -> Vec<LinkToFetch> {
        let Some(before) = self.active.get(&id).cloned() else { return Vec::new() };
        let mut after = before.clone();
        let all = new_links(token, frontier);
        let newest: Vec<_> = all.into_iter().rev().take(urls.len()).rev().collect();
        let host = newest.first().map(|link| link.host.clone()).unwrap_or_default();
        after.add_links(vacancies, newest);
        self.store(Some(&before), after, &mut writes.pipeline);
        urls.into_iter().map(|url| LinkToFetch { host: host.clone(), url, delay }).collect()
    }

    /// How many links of a chunk are not reported yet. `rows` are those of its links, by position, at least
    /// [`State::unclear`].
    #[must_use]
    pub fn links_left(&self, id: ChunkId, rows: &[Option<UrlRow>], frontier: &Frontier) -> u64 {
        self.active.get(&id).map_or(0, |chunk| chunk.open_links(rows, frontier))
    }
}

/// A result without its URL, which its link has.
fn nameless(result: &UrlResult) -> UrlResult {
    UrlResult { url: "".into(), ..result.clone() }
}

/// A digest of a result, by which its repetition is recognised.
fn digest(result: &UrlResult) -> u64 {
    const SEED: u64 = 0x3c6e_f372_fe94_f82b;
    let text = format!("{:?} {:?} {:?}", result.outcome, result.status, result.retry_after);
    crate::frontier::url_key::hash(&text, SEED)
}

/// Where URLs are among the links of a chunk.
struct LinkIndex<'a> {
    by_text: HashMap<Box<str>, Vec<usize>>,
    /// Links with cut keys, whose text their rows have.
    cut: Vec<(usize, &'a super::row::LinkRow)>,
}

impl LinkIndex<'_> {
    /// The links that a URL may be, in order.
    fn find(&self, url: &str) -> Vec<usize> {
        let mut found = self.by_text.get(url).cloned().unwrap_or_default();
        let fits = |link: &super::row::LinkRow| UrlKey::new(&link.host, url) == link.url.1;
        found.extend(self.cut.iter().filter(|(_, link)| fits(link)).map(|(at, _)| *at));
        found
    }
}

/// What is due of the front of a queue, in the order in which it is taken.
fn due(found: &[Vec<ScannedUrl>], now: Time) -> impl Iterator<Item = &ScannedUrl> {
    found.iter().flat_map(move |lane| lane.iter().take_while(move |found| found.position.due <= now))
}

impl ChunkRow {
    /// The number of links that were failed or returned.
    #[must_use]
    pub fn failed_links(&self) -> usize {
        self.links.iter().filter(|link| link.has_left()).count()
    }

    fn link_index(&self) -> LinkIndex<'_> {
        let mut link_index = LinkIndex { by_text: HashMap::new(), cut: Vec::new() };
        for (at, link) in self.links.iter().enumerate() {
            if link.url.1.is_cut() {
                link_index.cut.push((at, link));
            } else {
                link_index.by_text.entry(link.text()).or_default().push(at);
            }
        }
        link_index
    }

    fn open_links(&self, rows: &[Option<UrlRow>], frontier: &Frontier) -> u64 {
        let here = self.present(frontier, rows);
        let open = self.links.iter().zip(here).filter(|(link, here)| *here && link.state == LinkState::Crawling);
        open.count() as u64
    }

    fn add_links(&mut self, vacancies: &[Vacancy], links: Vec<super::row::LinkRow>) {
        for (link, vacancy) in links.into_iter().zip(vacancies) {
            let at = u32::try_from(self.links.len()).ok();
            if let Some(failed) = self.links.get_mut(*vacancy) {
                failed.replaced_by = at;
            }
            self.links.push(link);
        }
    }

    /// The position of a URL among the links; `None` if it was one, but has left the chunk.
    fn position(
        &self,
        url: &str,
        (link_index, here): (&LinkIndex<'_>, &[bool]),
        rows: &[Option<UrlRow>],
    ) -> Result<Option<usize>, ChunkRefusal> {
        // A truncated key may belong to another URL.
        let whole = |at: usize| rows.get(at).and_then(|row| row.as_ref()?.whole.as_deref());
        // The latest one: a link that failed may have come back.
        let known = link_index.find(url).into_iter().rfind(|at| whole(*at).is_none_or(|whole| whole == url));
        let Some((at, link)) = known.and_then(|at| Some((at, self.links.get(at)?))) else {
            return Err(ChunkRefusal::ForeignLink { chunk: self.id, url: crate::redact::url(url) });
        };
        let left = link.is_returned() || (link.lease.is_some() && here.get(at) != Some(&true));
        Ok((!left).then_some(at))
    }

    /// Sorts results into new ones, by position, and the answer to those that are not: repetitions are passed over, and
    /// links that have left the chunk are named.
    #[expect(clippy::type_complexity, reason = "a list and an answer")]
    fn sort_results<'a>(
        &self,
        report: &'a ReportLinks,
        rows: &[Option<UrlRow>],
        frontier: &Frontier,
    ) -> Result<(Vec<(usize, &'a UrlResult)>, LinksReported), ChunkRefusal> {
        let (mut fresh, mut answer): (Vec<(usize, &UrlResult)>, _) = (Vec::new(), LinksReported::default());
        let (link_index, here, mut once) = (self.link_index(), self.present(frontier, rows), HashSet::new());
        for result in &report.results {
            let reported = || ChunkRefusal::Reported { chunk: self.id, url: crate::redact::url(&result.url) };
            let Some(at) = self.position(&result.url, (&link_index, &here), rows)? else {
                answer.ended.push(result.url.clone());
                continue;
            };
            if !once.insert(at) {
                return Err(reported());
            }
            match self.links.get(at).map(|link| &link.state) {
                Some(LinkState::Crawling) => fresh.push((at, result)),
                Some(LinkState::Crawled(before)) if **before == nameless(result) => {}
                Some(LinkState::Error(before)) if *before == digest(result) => {}
                _ => return Err(reported()),
            }
        }
        Ok((fresh, answer))
    }

    /// The replacements that a repeated report is answered with, by position. `rows` are those of its links, at least
    /// [`State::unclear`].
    #[must_use]
    pub fn replacements(&self, report: &ReportLinks, rows: &[Option<UrlRow>], frontier: &Frontier) -> Vec<usize> {
        let (link_index, here) = (self.link_index(), self.present(frontier, rows));
        let failed = report.results.iter().filter(|result| result.outcome != Outcome::Fetched);
        let replaced = |result: &UrlResult| {
            let at = link_index.find(&result.url).into_iter().find_map(|at| self.links.get(at)?.replaced_by)?;
            let open = self.links.get(at as usize).is_some_and(|link| link.state == LinkState::Crawling);
            Some(at as usize).filter(|at| open && here.get(*at) == Some(&true))
        };
        failed.filter_map(replaced).collect()
    }
}
