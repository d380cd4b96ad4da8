//! Dirty tracking of hot rows. Most changes to a known host concern its pace and one queue; then only those are
//! written, because a host may have a queue for every crawl.

use super::row::{AliasRow, HostRef, HotRow};
use super::slab::Ix;
use super::state::{Grouping, State};
use crate::ids::{HostId, QueueId};

/// What changed in a host since changes were last taken. Later variants include earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Touched {
    #[default]
    Nothing,
    Pace,
    /// The pace, and the queue at this index. Reordering queues marks the whole host.
    Queue(u16),
    Whole,
}

/// Hot rows that changed since changes were last taken.
#[derive(Default)]
pub(super) struct Changed {
    pub shard: bool,
    pub hosts: Vec<Ix>,
    pub aliases: Vec<Ix>,
    pub others: Vec<HotRow>,
    pub begun: Vec<(QueueId, u8)>,
}

/// Changed hot rows, to be written to the store.
#[derive(Debug, Default)]
pub struct Changes {
    /// Changed rows other than hosts.
    pub rows: Vec<HotRow>,
    /// Changed hosts.
    hosts: Vec<(Ix, Touched)>,
    /// Lanes that were empty and got their first row.
    pub begun: Vec<(QueueId, u8)>,
}

impl Changes {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.hosts.is_empty()
    }
}

/// A host that changed.
#[derive(Clone, Copy, Debug)]
pub enum ChangedHost<'a> {
    /// The whole row.
    Whole(HostRef<'a>),
    /// Only the pace and these queues changed; other queues are omitted.
    Part(HostRef<'a>),
}

impl ChangedHost<'_> {
    /// The host's id.
    #[must_use]
    pub const fn id(&self) -> HostId {
        match self {
            Self::Whole(row) | Self::Part(row) => row.id,
        }
    }
}

impl State {
    /// Marks the whole host as changed.
    pub(super) fn touch_host(&mut self, host: Ix) {
        self.touch(host, |_| Touched::Whole);
    }

    /// Marks a queue as changed. A new queue changes its host, too.
    pub(super) fn touch_queue(&mut self, host: Ix, at: usize) {
        let place = u16::try_from(at).map_or(Touched::Whole, Touched::Queue);
        self.touch(host, |before| match before {
            Touched::Nothing | Touched::Pace => place,
            same if same == place => same,
            _ => Touched::Whole,
        });
    }

    /// Marks the pace or settings of an alias as changed, or the pace of a host that is a group of its own.
    pub(super) fn touch_group(&mut self, group: Ix) {
        match &mut self.groups[group].grouping {
            Grouping::One(host) => {
                let host = *host;
                self.touch(host, |before| if before == Touched::Nothing { Touched::Pace } else { before });
            }
            Grouping::Many(together) => {
                if !together.dirty {
                    together.dirty = true;
                    self.changed.aliases.push(group);
                }
            }
        }
    }

    fn touch(&mut self, host: Ix, more: impl FnOnce(Touched) -> Touched) {
        let touched = &mut self.hosts[host].touched;
        if *touched == Touched::Nothing {
            self.changed.hosts.push(host);
        }
        *touched = more(*touched);
    }

    /// Takes the changes since the last call.
    pub fn take_changes(&mut self) -> Changes {
        let changed = std::mem::take(&mut self.changed);
        let mut rows = Vec::with_capacity(changed.others.len() + changed.aliases.len() + 1);
        if changed.shard {
            rows.push(HotRow::Shard(self.shard_row));
        }
        rows.extend(changed.others);
        for group in changed.aliases {
            if let Some(row) = self.alias_row(group) {
                rows.push(HotRow::Alias(row));
            }
        }
        let mut hosts = Vec::with_capacity(changed.hosts.len());
        for ix in changed.hosts {
            // The index of a removed host may have been reused; the new host is listed once.
            if self.hosts.find(ix).is_some() {
                let touched = std::mem::take(&mut self.hosts[ix].touched);
                hosts.extend((touched != Touched::Nothing).then_some((ix, touched)));
            }
        }
        Changes { rows, hosts, begun: changed.begun }
    }

    /// The changed hosts. Must be called before anything else changes.
    pub fn changed_hosts(&self, changes: &Changes) -> impl Iterator<Item = ChangedHost<'_>> {
        let here = changes.hosts.iter().filter(|(ix, _)| self.hosts.find(*ix).is_some());
        here.map(|(ix, touched)| {
            let row = self.host_ref(*ix);
            let part = match touched {
                Touched::Nothing | Touched::Whole => None,
                Touched::Pace => Some(&[][..]),
                Touched::Queue(at) => row.queues.get(usize::from(*at)..=usize::from(*at)),
            };
            part.map_or(ChangedHost::Whole(row), |queues| ChangedHost::Part(HostRef { queues, ..row }))
        })
    }

    fn alias_row(&mut self, ix: Ix) -> Option<AliasRow> {
        self.groups.find(ix)?;
        let group = &mut self.groups[ix];
        let Grouping::Many(together) = &mut group.grouping else { return None };
        if !std::mem::take(&mut together.dirty) {
            return None;
        }
        let settings = group.settings.as_deref().copied().unwrap_or_default();
        Some(AliasRow { id: together.id, name: together.alias.clone(), settings, pace: group.pace.clone() })
    }
}
