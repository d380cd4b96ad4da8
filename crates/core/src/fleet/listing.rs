//! Listing of machines by name, a slice at a time.

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::row::{Judged, Kind};
use super::state::State;
use super::view::MachineView;
use crate::limits::LISTING_LOOKS;
use crate::names::MachineId;
use crate::time::Time;

/// Which machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Of this type.
    pub kind: Option<Kind>,
    /// Judged so.
    pub judged: Option<Judged>,
}

/// A slice of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The machines that match.
    pub machines: Vec<MachineView>,
    /// The last machine examined, to continue after; none at the end.
    pub next: Option<MachineId>,
}

impl State {
    /// The machines after `after` that match, at most `limit`; examines a bounded number.
    #[must_use]
    pub fn list(&self, filter: Filter, after: Option<&MachineId>, limit: usize, now: Time) -> Page {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut page = Page::default();
        let mut rest = self.machines.range::<MachineId, _>((from, Bound::Unbounded)).peekable();
        for _ in 0..LISTING_LOOKS {
            let Some((id, machine)) = rest.next() else { return page };
            let fits = filter.kind.is_none_or(|kind| kind == machine.row.kind)
                && filter.judged.is_none_or(|judged| judged == machine.row.judged);
            if fits {
                page.machines.push(self.view_of(id, machine, now));
            }
            page.next = rest.peek().map(|_| id.clone());
            if page.machines.len() >= limit.max(1) {
                break;
            }
        }
        page
    }
}
