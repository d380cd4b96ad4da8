//! An operator's calls: settings, and deletion, which drains first.

use super::apply::Reply;
use super::refusal::Refusal;
use super::row::MatchState;
use super::settings::Settings;
use super::state::State;
use crate::limits::MATCHES_AT_ONCE_MAX;
use crate::names::ClientName;

impl State {
    pub(super) fn set(&mut self, settings: Settings) -> Reply {
        if self.pool.closing {
            return Reply::Refused(Refusal::Closing(self.pool.name.to_string()));
        }
        if settings != self.pool.settings {
            if settings.recipe != self.pool.settings.recipe {
                self.pool.recipe_no += 1;
                self.pool.trouble = None;
            }
            self.pool.settings = settings;
            self.dirty.pool = true;
        }
        Reply::Pool
    }

    pub(super) fn delete(&mut self) -> Reply {
        if !self.pool.closing {
            self.pool.closing = true;
            self.dirty.pool = true;
        }
        Reply::Pool
    }

    /// Once nothing runs and nobody is matched, the rest of a deleted pool goes.
    pub(super) fn close_if_empty(&mut self) {
        if !self.pool.closing || self.gone || !self.workers.is_empty() {
            return;
        }
        let rest = |row: &MatchState| matches!(row, MatchState::Vacant { .. } | MatchState::Failed { .. });
        let rest = self.matches.iter().filter(|(_, known)| rest(&known.row.state));
        let rest: Vec<ClientName> = rest.map(|(client, _)| client.clone()).take(MATCHES_AT_ONCE_MAX).collect();
        self.more |= rest.len() == MATCHES_AT_ONCE_MAX;
        rest.iter().for_each(|client| self.store(client, None));
        if self.matches.is_empty() {
            self.gone = true;
            self.dirty.pool = true;
        }
    }
}
