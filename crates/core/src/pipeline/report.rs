//! Reports of links while a chunk is crawled. A report ends the visit of the link's group, so its delay starts. A link
//! that was fetched stays reserved until the chunk is complete: if the crawler is lost before, so is the content. A link
//! that failed is settled at once, and may be replaced.

use super::claim::{Writes, new_links};
use super::refusal::ChunkRefusal;
use super::request::{LinkToFetch, LinksReported, ReportLinks};
use super::row::{ChunkRow, LinkState};
use super::state::State;
use crate::frontier::State as Frontier;
use crate::frontier::request::{Outcome, Parent, Reservation, UrlResult, UrlToFetch};
use crate::frontier::row::UrlRow;
use crate::frontier::url_key::UrlKey;
use crate::ids::{ChunkId, Token};
use crate::limits;
use crate::time::{Millis, Time};

/// A link that failed and may be replaced, by position.
pub type Vacancy = usize;

impl State {
    /// The chunk that a report is for, whose links' URL rows must be read.
    ///
    /// # Errors
    /// If the token is not that of its live lease.
    pub fn reported(&self, id: ChunkId, token: Token, now: Time) -> Result<&ChunkRow, ChunkRefusal> {
        let chunk = self.current(id, token, now, None)?;
        if chunk.state == super::row::ChunkState::Crawling { Ok(chunk) } else { Err(self.not_current(id, None)) }
    }

    /// What links found on pages of a chunk inherit; `None` for a page that is no longer part of it.
    ///
    /// # Errors
    /// If the token is not that of its live lease, or a page was never a link of the chunk.
    pub fn parents(
        &self,
        (id, token): (ChunkId, Token),
        pages: &[Box<str>],
        rows: &[Option<UrlRow>],
        now: Time,
        frontier: &Frontier,
    ) -> Result<Vec<Option<Parent>>, ChunkRefusal> {
        let chunk = self.reported(id, token, now)?;
        let parent = |page: &str| {
            let at = chunk.position(page, rows, frontier)?;
            let link = at.and_then(|at| chunk.links.get(at).zip(rows.get(at)));
            Ok(link.and_then(|(link, row)| frontier.link_parent(link.lease?, &link.url, row.as_ref()?, now)))
        };
        pages.iter().map(|page| parent(page)).collect()
    }

    /// Takes the results of links. Returns the answer so far and the links that failed, which may be replaced; `rows`
    /// are the rows of all links.
    ///
    /// # Errors
    /// If the token is not that of the chunk's live lease, or a result does not fit; then nothing has changed.
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
            // In a chunk of one host the reservation goes on; its token stays with the links that it still has.
            link.lease = None;
            link.state = LinkState::Error(digest(result));
            vacancies.push(at);
        }
        if !report.replace || after.links.len() >= limits::CHUNK_LINKS_EVER_MAX {
            vacancies.clear();
        }
        answer.left = after.open_links(frontier);
        self.store(Some(&before), after, &mut writes.pipeline);
        Ok((answer, vacancies))
    }

    /// Puts a reservation that was just granted for this chunk in the place of a link that failed.
    pub fn replace(
        &mut self,
        (id, vacancy): (ChunkId, Vacancy),
        granted: Reservation,
        frontier: &mut Frontier,
        writes: &mut Writes,
    ) -> Vec<LinkToFetch> {
        let Some(before) = self.active.get(&id).cloned() else { return Vec::new() };
        let mut after = before.clone();
        if let Some(lease) = &after.lease {
            frontier.set_link_deadline(granted.token, lease.expires_at);
        }
        after.add_links(vacancy, new_links(granted.token, frontier));
        self.store(Some(&before), after, &mut writes.pipeline);
        granted.urls.into_iter().map(|url| LinkToFetch { url, delay: granted.delay }).collect()
    }

    /// Puts another URL of the same host in the place of a link that failed, in a chunk of one host.
    pub fn replace_here(
        &mut self,
        (id, vacancy): (ChunkId, Vacancy),
        (token, url, delay): (Token, UrlToFetch, Millis),
        frontier: &Frontier,
        writes: &mut Writes,
    ) -> Vec<LinkToFetch> {
        let Some(before) = self.active.get(&id).cloned() else { return Vec::new() };
        let mut after = before.clone();
        let newest = new_links(token, frontier).pop();
        after.add_links(vacancy, newest.into_iter().collect());
        self.store(Some(&before), after, &mut writes.pipeline);
        vec![LinkToFetch { url, delay }]
    }

    /// How many links of a chunk are not reported yet.
    #[must_use]
    pub fn links_left(&self, id: ChunkId, frontier: &Frontier) -> u64 {
        self.active.get(&id).map_or(0, |chunk| chunk.open_links(frontier))
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

impl super::row::LinkRow {
    fn is(&self, url: &str) -> bool {
        UrlKey::new(&self.host, url) == self.url.1
    }
}

impl ChunkRow {
    fn open_links(&self, frontier: &Frontier) -> u64 {
        self.links.iter().filter(|link| link.is_open(frontier)).count() as u64
    }

    fn add_links(&mut self, vacancy: Vacancy, links: Vec<super::row::LinkRow>) {
        let at = u32::try_from(self.links.len()).ok();
        if let Some(link) = self.links.get_mut(vacancy) {
            link.replaced_by = at;
        }
        self.links.extend(links);
    }

    /// The position of a URL among the links; `None` if it was one, but has left the chunk.
    fn position(&self, url: &str, rows: &[Option<UrlRow>], frontier: &Frontier) -> Result<Option<usize>, ChunkRefusal> {
        let fits = |(at, link): &(usize, &super::row::LinkRow)| {
            // A truncated key may belong to another URL.
            let whole = rows.get(*at).and_then(|row| row.as_ref()?.whole.as_deref());
            link.is(url) && whole.is_none_or(|whole| whole == url)
        };
        // The latest one: a link that failed may have come back.
        let Some((at, link)) = self.links.iter().enumerate().rfind(fits) else {
            return Err(ChunkRefusal::ForeignLink { chunk: self.id, url: crate::redact::url(url) });
        };
        Ok((!link.has_left(frontier)).then_some(at))
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
        for result in &report.results {
            let reported = || ChunkRefusal::Reported { chunk: self.id, url: crate::redact::url(&result.url) };
            let Some(at) = self.position(&result.url, rows, frontier)? else {
                answer.ended.push(result.url.clone());
                continue;
            };
            if fresh.iter().any(|(known, _)| *known == at) {
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

    /// The replacement that a repeated report is answered with, by position.
    #[must_use]
    pub fn replacements(&self, report: &ReportLinks, frontier: &Frontier) -> Vec<usize> {
        let failed = report.results.iter().filter(|result| result.outcome != Outcome::Fetched);
        let link =
            |result: &UrlResult| self.links.iter().find(|link| link.is(&result.url) && link.replaced_by.is_some());
        let at = failed.filter_map(link).filter_map(|link| link.replaced_by).map(|at| at as usize);
        at.filter(|at| self.links.get(*at).is_some_and(|link| link.is_open(frontier))).collect()
    }
}
