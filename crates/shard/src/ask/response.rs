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
use wayleave_core::names::{Alias, CrawlName, HostName};
use wayleave_core::time::Time;
use wayleave_engine::Key;

use super::UrlPage;

/// Generates the enum of answers and the conversions between each answer type and the enum.
macro_rules! told {
    ($($name:ident($kind:ty),)+) => {
        /// The answer of a shard owner.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub(crate) enum Response { $($name($kind),)+ }

        $(
            impl From<$kind> for Response {
                fn from(value: $kind) -> Self {
                    Self::$name(value)
                }
            }

            impl TryFrom<Response> for $kind {
                type Error = Refusal;

                fn try_from(told: Response) -> Result<Self, Refusal> {
                    match told {
                        Response::$name(value) => Ok(value),
                        _ => Err(Refusal::Internal("a node's answer does not match the call".to_owned())),
                    }
                }
            }
        )+
    };
}

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

told! {
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
    Stats((Stats, Vec<CrawlName>)),
    QueueIds(Vec<QueueId>),
    HandedOut(Vec<UrlToFetch>),
    Reserved(Vec<Reservation>),
    Parents(Vec<Option<Parent>>),
    Released(Released),
    Url(Option<UrlView>),
    Urls(UrlPage),
    Purged(Purged),
    HoldsEnded((u64, Option<Key>)),
    Jobs(Vec<JobRow>),
    BulkOutcome(BulkOutcome),
    InHand(Vec<UrlView>),
}
