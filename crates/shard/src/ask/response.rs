//! The answers of a shard owner: one variant per answer type.

use serde::{Deserialize, Serialize};
use wayleave_core::frontier::bulk_job::JobRow;
use wayleave_core::frontier::listing::{GroupCursor, LeaseCursor, QueueNames};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Parent, Released, Reservation, UrlToFetch};
use wayleave_core::frontier::requeue::BulkOutcome;
use wayleave_core::frontier::view::{
    CrawlPart, CrawlScan, CrawlView, GroupView, HostView, ReservationView, Stats, UrlView,
};
use wayleave_core::ids::{HostId, QueueId};
use wayleave_core::names::{Alias, HostName};
use wayleave_core::time::Time;
use wayleave_engine::Key;

use super::{CrawlSet, CrawlSettled, UrlPage};
use crate::routing::service_call::responses;

/// A slice of a listing and the key after which the next slice starts.
pub(crate) type Slice<T, P> = (Vec<T>, Option<P>);

/// A slice with the hosts of which rows are left out.
pub(crate) trait Sliced<T, P> {
    fn parts(self) -> (Vec<T>, Option<P>, Vec<HostName>);
}

impl<T, P> Sliced<T, P> for Slice<T, P> {
    fn parts(self) -> (Vec<T>, Option<P>, Vec<HostName>) {
        (self.0, self.1, Vec::new())
    }
}

impl<T, P> Sliced<T, P> for (Vec<T>, Option<P>, Vec<HostName>) {
    fn parts(self) -> Self {
        self
    }
}

/// The number of URLs that a slice has removed, where the next one starts, and what could not be read.
pub(crate) type Purged = (u64, Option<Key>, Option<Refusal>);

/// What became of the holds of a host in one slice of all holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct HoldsEnded {
    /// How many were revoked.
    pub ended: u64,
    /// Where the next slice starts.
    pub next: Option<Key>,
    /// How many the host still has.
    pub left: u64,
    /// Why some holds of the shard cannot be read, which may be of the host.
    pub cause: Option<String>,
}

responses! {
    /// The answer of a shard owner.
    Response {
        Done(()),
        Flag(bool),
        Count(u64),
        At(Time),
        Moved(Vec<(HostName, Alias)>),
        Host(HostView),
        Hosts(Slice<HostView, HostId>),
        Groups(Slice<GroupView, GroupCursor>),
        Group(Option<GroupView>),
        OneGroup(GroupView),
        Names(Vec<HostName>),
        Reservations(Slice<ReservationView, LeaseCursor>),
        Crawl(Option<CrawlPart>),
        Scanned((CrawlScan, Option<HostId>)),
        Crawls((Vec<CrawlView>, bool)),
        Queues((QueueNames, Option<HostId>)),
        Stats(Stats),
        CrawlSet(CrawlSet),
        QueueIds(Vec<QueueId>),
        HandedOut(Vec<UrlToFetch>),
        Reserved(Vec<Reservation>),
        Parents(Vec<Option<Parent>>),
        Released(Released),
        Url(Option<UrlView>),
        Urls(UrlPage),
        Purged(Purged),
        HoldsEnded(HoldsEnded),
        Jobs(Vec<JobRow>),
        BulkOutcome(BulkOutcome),
        InHand(Vec<UrlView>),
        CrawlDeleted((u64, Time)),
        CrawlSettled(CrawlSettled),
    }
}
