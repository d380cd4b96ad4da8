//! PutURLs: single items, new or known, each acknowledged once by its ID.

use std::collections::VecDeque;

use wayleave_api::urlfrontier::{AckMessage, UrlItem, ack_message};
use wayleave_core::frontier::request::{Put, PutKind, PutOutcome};
use wayleave_core::limits;

use super::convert::{self, LastCrawl};
use super::metrics::PutTally;
use super::put_stream::{Acks, cost};
use slab::Slab;
use wayleave_listen::Share;

/// The unacknowledged items of one stream.
pub struct ItemAcks {
    crawls: LastCrawl,
    /// The ID of each, and its bytes in the budget.
    waiting: Slab<(String, usize)>,
    settled: VecDeque<AckMessage>,
    share: Share,
    /// Whether an item that was not stored was already logged.
    told: bool,
    /// Whether URLs that are known stay as they are.
    keeps_known: bool,
}

impl ItemAcks {
    /// For a stream with this share of the budget. `keeps_known`: its items are those of an import, and change no URL that
    /// is known.
    pub fn new(share: Share, keeps_known: bool) -> Self {
        let (waiting, settled) = (Slab::new(), VecDeque::new());
        Self { crawls: LastCrawl::default(), waiting, settled, share, told: false, keeps_known }
    }
}

impl Acks for ItemAcks {
    type In = UrlItem;
    type Out = AckMessage;

    fn has_room(&self) -> bool {
        self.waiting.len() < limits::PUT_IN_FLIGHT_MAX
    }

    fn take(&mut self, item: UrlItem, puts: &mut Vec<(u64, Put)>, tally: &mut PutTally) {
        let bytes = cost(&item, 1);
        let (kind, info) = convert::kind(item.item);
        let kind = if self.keeps_known { convert::restored(kind, item.creation_date) } else { kind };
        match kind {
            PutKind::Discovered { .. } | PutKind::Wanted { .. } | PutKind::Found { .. } => tally.discovered += 1,
            PutKind::Known { due } | PutKind::Restored { due, .. } => {
                tally.known += 1;
                tally.completed += u64::from(due.is_none());
            }
            // Clients cannot send this: only a server knows what it did not deliver.
            PutKind::Undelivered { .. } => {}
        }
        let id = if item.id.is_empty() { info.url.clone() } else { item.id };
        match convert::put(kind, info, &mut self.crawls) {
            Ok(put) if self.share.take(bytes) => puts.push((self.waiting.insert((id, bytes)) as u64, put)),
            Ok(_) => self.settled.push_back(AckMessage { id, status: ack_message::Status::Fail.into() }),
            Err(why) => {
                why.log(&mut self.told);
                self.settled.push_back(AckMessage { id, status: ack_message::Status::Skipped.into() });
            }
        }
    }

    fn settle(&mut self, tag: u64, outcome: &PutOutcome, tally: &mut PutTally) {
        tally.ignored += u64::from(*outcome == PutOutcome::Known);
        let id = usize::try_from(tag).ok().and_then(|no| self.waiting.try_remove(no));
        if let Some((id, bytes)) = id {
            self.share.give(bytes);
            self.settled.push_back(AckMessage { id, status: convert::ack(outcome).into() });
        }
    }

    fn next(&mut self) -> Option<AckMessage> {
        self.settled.pop_front()
    }

    fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
#[path = "put_urls_tests.rs"]
mod tests;
