//! The oracle: checks the answers that clients got against the laws. Lost responses are "perhaps": they forbid
//! nothing and promise nothing. "Unavailable" is a promise: what was refused with it never appears.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wayleave_core::frontier::request::{Reservation, UrlToFetch};
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::invariants::{self, Span, Verdict, Visit};
use wayleave_core::time::{Millis, Time};

use crate::chunk_oracle::ChunkOracle;
use crate::copy_oracle::CopyOracle;
use crate::move_oracle::MoveOracle;

/// A URL by crawl and text.
pub type Id = (String, String);

/// A visit that its holder still has, as far as it knows: its indexes in the lists of visits.
struct Open {
    /// The end of the lease, as far as its holder knows.
    until: Time,
    visit: usize,
    of_group: Option<usize>,
}

/// All promises.
#[derive(Default)]
pub struct Oracle {
    /// Acknowledged and not deleted since.
    pub added: BTreeSet<Id>,
    /// Acknowledged as finished, and when: never to be handed out from then on.
    pub finished: BTreeMap<Id, Time>,
    /// A deletion of their crawl was requested: any outcome is valid.
    pub doomed: BTreeSet<Id>,
    /// Every URL that may have been stored: acknowledged, or refused in a way that does not rule it out.
    possible: BTreeSet<Id>,
    /// Holders whose reservations were refused as unavailable.
    refused: BTreeSet<Arc<str>>,
    /// Acknowledged settings: host, delay.
    pub delays: BTreeMap<String, u64>,
    visits: Vec<Visit>,
    open: BTreeMap<Token, Open>,
    /// Hosts whose visits may have been forgotten by a deletion.
    forgotten: BTreeMap<String, Time>,
    /// Visits of aliases, and changes of their members.
    group_visits: Vec<Visit>,
    pub moves: MoveOracle,
    /// Hand-outs of the paced form: the host, when it was requested and when it was answered.
    hand_outs: Vec<(Arc<str>, Span)>,
    /// When deletions were requested and answered.
    pub deletions: Vec<Time>,
    /// From here on a deletion with an unknown outcome may take effect at any time.
    unsure_since: Option<Time>,
    /// The answers about chunks.
    pub chunks: ChunkOracle,
    /// Copies of built chunks, and the map.
    pub copies: CopyOracle,
    pub grants: u64,
    pub handed_out: u64,
    pub releases: u64,
}

impl Oracle {
    /// A put was refused, and the answer does not rule out that it was applied.
    pub fn perhaps_added(&mut self, id: Id) {
        self.possible.insert(id);
    }

    /// A reservation was refused as unavailable: its holder, which has a unique name, has none and never will.
    pub fn refused_holder(&mut self, holder: Arc<str>) {
        self.refused.insert(holder);
    }

    /// Law 12: no caller whose call was answered "unavailable" holds a reservation.
    pub fn judge_holders<'a>(&self, holders: impl IntoIterator<Item = &'a Arc<str>>) -> Verdict {
        match holders.into_iter().find(|holder| self.refused.contains(*holder)) {
            Some(holder) => {
                let what = format!("'{holder}' was refused as unavailable and holds a reservation");
                Err(invariants::Broken { law: 12, name: "answers are true", what })
            }
            None => Ok(()),
        }
    }

    /// Law 12 at the end: what was only ever refused as unavailable does not exist.
    pub fn judge_possible(&self, known: &BTreeSet<Id>) -> Verdict {
        match known.iter().find(|id| !self.possible.contains(*id)) {
            Some(id) => {
                let what = format!("{id:?} is known, and every put of it was refused as unavailable");
                Err(invariants::Broken { law: 12, name: "answers are true", what })
            }
            None => Ok(()),
        }
    }

    /// A put was acknowledged as added or known.
    pub fn added(&mut self, id: Id) {
        self.possible.insert(id.clone());
        let unsure = self.unsure_since.is_some() && id.0 == "doomed";
        if !self.doomed.contains(&id) && !unsure {
            self.added.insert(id);
        }
    }

    /// Reservations were granted.
    pub fn granted(&mut self, granted: &[Reservation], least_delay: impl Fn(&str) -> u64) -> Verdict {
        let since = granted.iter().map(|reservation| reservation.granted_at).min().unwrap_or(Time(0));
        self.granted_since(since, granted, least_delay)
    }

    /// Reservations were granted, decided not before `since`: a client of the paced form whose hold has ended may complete
    /// a URL between the decision and its answer.
    pub fn granted_since(
        &mut self,
        since: Time,
        granted: &[Reservation],
        least_delay: impl Fn(&str) -> u64,
    ) -> Verdict {
        for reservation in granted {
            self.grants += 1;
            self.serve(&reservation.urls, since)?;
            let span = Span { start: reservation.granted_at, end: reservation.expires_at };
            // The delay in the answer was in force at the grant; a forgotten host starts afresh.
            let named = reservation.delay.0.max(least_delay(&reservation.host));
            let visit = self.visit(&reservation.host, span, named, &reservation.urls);
            let of_group = (*reservation.group != *reservation.host).then(|| {
                let (place, delay) = (reservation.group.as_ref().into(), reservation.delay);
                self.group_visits.push(Visit { place, span, parallel: 1, delay, urls: Vec::new() });
                self.group_visits.len() - 1
            });
            self.open.insert(reservation.token, Open { until: span.end, visit, of_group });
        }
        Ok(())
    }

    /// URLs were handed out in the paced form, decided between `asked` and `answered`.
    pub fn handed_out(&mut self, urls: &[UrlToFetch], asked: Time, answered: Time) -> Verdict {
        self.handed_out += urls.len() as u64;
        let hosts: BTreeSet<_> = urls.iter().map(|url| Arc::from(&*url.host)).collect();
        self.hand_outs.extend(hosts.into_iter().map(|host| (host, Span { start: asked, end: answered })));
        self.serve(urls, asked)
    }

    /// A response may arrive long after its decision, which was made not before `since`.
    fn serve(&self, urls: &[UrlToFetch], since: Time) -> Verdict {
        for url in urls {
            let id = (url.crawl.to_string(), url.url.to_string());
            if self.finished.get(&id).is_some_and(|at| *at < since) && !self.doomed.contains(&id) {
                let what = format!("{id:?} was finished and is handed out again");
                return Err(invariants::Broken { law: 4, name: "nothing twice", what });
            }
        }
        Ok(())
    }

    fn visit(&mut self, host: &str, span: Span, delay: u64, urls: &[UrlToFetch]) -> usize {
        let urls = urls.iter().map(|url| (url.crawl.as_ref().into(), url.url.clone())).collect();
        // After a deletion the host's earlier visits no longer count for politeness: it is another place.
        let place: Arc<str> = match self.forgotten.get(host) {
            Some(at) => format!("{host} since {}", at.0).into(),
            None => host.into(),
        };
        self.visits.push(Visit { place, span, parallel: 1, delay: Millis(delay), urls });
        self.visits.len() - 1
    }

    /// A renewal was acknowledged.
    pub fn renewed(&mut self, token: Token, until: Time) {
        self.change_end(token, |end| *end = until);
        if let Some(open) = self.open.get_mut(&token) {
            open.until = until;
        }
    }

    /// A renewal with an unknown outcome may have set an earlier end.
    pub fn perhaps_renewed(&mut self, token: Token, until: Time) {
        if let Some(open) = self.open.get_mut(&token) {
            open.until = open.until.min(until);
        }
    }

    /// A token was refused as not current.
    pub fn refused(&self, token: Token, now: Time) -> Verdict {
        let until = self.open.get(&token).map(|open| open.until);
        // A deleted host loses its reservations.
        if self.deletions.is_empty() && until.is_some_and(|until| now < until) {
            let what = format!("a token that is good until {until:?} was refused at {now:?}");
            return Err(invariants::Broken { law: 4, name: "a current token counts", what });
        }
        Ok(())
    }

    /// A release or a renewal is being sent: whatever the outcome, the visit may be over at `earliest`. To be
    /// recorded at every attempt, and not before a process is there to take it: one that starts again continues the
    /// clock from its last commit, before what was read.
    pub fn ending(&mut self, token: Token, earliest: Time) {
        self.change_end(token, |end| *end = earliest.min(*end));
    }

    fn change_end(&mut self, token: Token, change: impl Fn(&mut Time)) {
        let Some(open) = self.open.get(&token) else { return };
        if let Some(visit) = self.visits.get_mut(open.visit) {
            change(&mut visit.span.end);
        }
        if let Some(visit) = open.of_group.and_then(|at| self.group_visits.get_mut(at)) {
            change(&mut visit.span.end);
        }
    }

    /// A release was acknowledged: these URLs are finished.
    pub fn released(&mut self, finished: impl Iterator<Item = Id>, now: Time) {
        self.releases += 1;
        // A crawl that is occasionally deleted promises nothing: its URLs may have been deleted and found again.
        for id in finished.filter(|id| id.0 != "doomed") {
            self.finished.entry(id).or_insert(now);
        }
    }

    /// The content of a chunk may be lost: its links may be fetched again.
    pub fn content_lost(&mut self, id: ChunkId) {
        for link in self.chunks.lost(id) {
            self.finished.remove(&link);
        }
    }

    /// A deletion is about to be sent: URLs of the crawl may be gone, visits of its hosts forgotten.
    pub fn deleting(&mut self, crawl: &str, now: Time) {
        let doomed: Vec<Id> =
            self.added.iter().chain(self.finished.keys()).filter(|id| id.0 == crawl).cloned().collect();
        let hosts: BTreeSet<String> = self.visits.iter().map(|v| bare(&v.place).to_owned()).collect();
        for id in doomed {
            self.added.remove(&id);
            self.doomed.insert(id);
        }
        self.forgotten.extend(hosts.into_iter().map(|host| (host, now)));
        self.deletions.push(now);
    }

    /// A requested deletion may be applied at any time from now on.
    pub fn unsure(&mut self, now: Time) {
        self.unsure_since = self.unsure_since.or(Some(now));
    }

    /// Judges everything so far.
    pub fn judge(&self) -> Verdict {
        // Hosts have one visitor at a time even after their visits were forgotten, so they count under one name there.
        let by_host = |v: &Visit| Visit { place: bare(&v.place).into(), ..v.clone() };
        let by_host: Vec<Visit> = self.visits.iter().map(by_host).collect();
        invariants::one_visitor(&by_host)?;
        invariants::nothing_twice(&self.visits)?;
        let known = |visit: &&Visit| self.unsure_since.is_none_or(|since| visit.span.start < since);
        let visits: Vec<Visit> = self.visits.iter().filter(known).cloned().collect();
        invariants::politeness(&visits)?;
        let groups = self.group_visits.iter().filter_map(|visit| self.moves.settled(visit));
        let groups: Vec<Visit> = groups.filter(|visit| known(&visit)).collect();
        invariants::one_visitor(&groups)?;
        invariants::politeness(&groups)?;
        self.judge_hand_outs()
    }

    /// Law 2 in the paced form: the delay runs from the hand-out.
    fn judge_hand_outs(&self) -> Verdict {
        for (host, span) in &self.hand_outs {
            let later = |visit: &&Visit| bare(&visit.place) == &**host && visit.span.start >= span.end;
            for visit in self.visits.iter().filter(later) {
                let start = visit.span.start;
                let forgotten = self.deletions.iter().any(|at| span.start <= *at && *at <= start)
                    || self.unsure_since.is_some_and(|since| since <= start);
                if !forgotten && start < span.start.after(visit.delay) {
                    let what = format!("'{host}' was visited at {start:?} with {:?} after {span:?}", visit.delay);
                    return Err(invariants::Broken { law: 2, name: "politeness", what });
                }
            }
        }
        Ok(())
    }

    /// Law 3 at the end: what was acknowledged is known.
    pub fn judge_known(&self, known: &BTreeSet<Id>) -> Verdict {
        invariants::nothing_lost(&self.added, known)
    }
}

fn bare(place: &str) -> &str {
    place.split(' ').next().unwrap_or(place)
}
