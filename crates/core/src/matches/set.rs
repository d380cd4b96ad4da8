//! An operator's calls: settings, and deletion, which drains first.

use std::collections::BTreeMap;

use super::apply::Reply;
use super::randomness::Randomness;
use super::refusal::Refusal;
use super::row::MatchState;
use super::settings::Settings;
use super::state::State;
use crate::limits::{MATCHES_AT_ONCE_MAX, ORDER_RESENT, OWED_KEPT, SITES_MAX};
use crate::names::{ClientName, SiteName};
use crate::time::Time;

impl State {
    pub(super) fn set(&mut self, settings: Settings, random: &mut Randomness<'_>) -> Reply {
        if self.pool.closing {
            if !self.workers.is_empty() || !self.matches.is_empty() {
                return Reply::Refused(Refusal::Closing(self.pool.name.to_string()));
            }
            self.begin_again(random);
        }
        if settings != self.pool.settings {
            if settings.recipe != self.pool.settings.recipe {
                self.pool.recipe_no += 1;
                self.pool.trouble = None;
                self.pool.site_trouble.clear();
            }
            self.pool.settings = settings;
            self.dirty.pool = true;
        }
        Reply::Pool
    }

    /// Nothing is left of a deleted pool but sites that are away: its name may be used again. Their workers are of another
    /// generation, and are removed as unknown once the sites are back.
    fn begin_again(&mut self, random: &mut Randomness<'_>) {
        let pool = &mut self.pool;
        pool.generation = random.number();
        pool.recipe_no += 1;
        pool.trouble = None;
        pool.site_trouble.clear();
        pool.closing = false;
        pool.created_at = self.now;
        self.dirty.pool = true;
    }

    /// Pauses or resumes; the deletion of a pool, too.
    pub(super) fn pause(&mut self, paused: bool) -> Reply {
        if self.pool.paused != paused {
            self.pool.paused = paused;
            self.dirty.pool = true;
        }
        Reply::Pool
    }

    /// Whether nothing may be ordered, not even for a deletion. The store of a paused pool may be a copy, whose workers belong to the original: they
    /// are neither asked for new clients nor stopped, and what the copy does not know is not removed.
    pub(super) const fn is_held(&self) -> bool {
        self.pool.paused
    }

    /// An ordered deletion continues although the pool was paused before it. One that is paused later waits: that of
    /// a copied store must not end what the original has.
    pub(super) fn delete(&mut self) -> Reply {
        if !self.pool.closing || self.pool.paused {
            (self.pool.closing, self.pool.paused) = (true, false);
            self.dirty.pool = true;
        }
        Reply::Pool
    }

    /// A site may have something left of this pool: a list older than this does not show it.
    pub(super) fn owe(&mut self, site: &SiteName, since: Time) {
        let now = self.now;
        self.pool.owed.retain(|_, since| now < since.after(OWED_KEPT));
        make_place(&mut self.pool.owed, site, |since| *since);
        let owed = self.pool.owed.entry(site.clone()).or_default();
        *owed = since.max(*owed);
        let again = owed.after(ORDER_RESENT);
        if let Some(known) = self.sites.get_mut(site) {
            known.list_at = known.list_at.min(again);
        }
        self.dirty.pool = true;
    }

    /// Removes the rest of a deleted pool once no worker runs and no client is matched, and sites that were away have
    /// listed nothing of it.
    pub(super) fn close_if_empty(&mut self) {
        if !self.pool.closing || self.is_held() || self.gone || !self.workers.is_empty() {
            return;
        }
        let rest = |row: &MatchState| matches!(row, MatchState::Vacant { .. } | MatchState::Failed { .. });
        let rest = self.matches.iter().filter(|(_, known)| rest(&known.row.state));
        let rest: Vec<ClientName> = rest.map(|(client, _)| client.clone()).take(MATCHES_AT_ONCE_MAX).collect();
        self.more |= rest.len() == MATCHES_AT_ONCE_MAX;
        rest.iter().for_each(|client| self.store(client, None));
        let (now, owed) = (self.now, self.pool.owed.len());
        self.pool.owed.retain(|_, since| now < since.after(OWED_KEPT));
        self.dirty.pool |= self.pool.owed.len() < owed;
        if self.matches.is_empty() && self.pool.owed.is_empty() {
            self.gone = true;
            self.dirty.pool = true;
        }
    }
}

/// Makes room for one more site in what a pool's row notes by site: names of replaced machines never return, and the
/// row must stay bounded. The oldest goes first.
pub(super) fn make_place<T>(noted: &mut BTreeMap<SiteName, T>, site: &SiteName, since: impl Fn(&T) -> Time) {
    while noted.len() >= SITES_MAX && !noted.contains_key(site) {
        let oldest = noted.iter().min_by_key(|(_, entry)| since(entry)).map(|(site, _)| site.clone());
        oldest.into_iter().for_each(|oldest| _ = noted.remove(&oldest));
    }
}
