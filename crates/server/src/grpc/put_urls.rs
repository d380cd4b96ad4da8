//! PutURLs: single items, new or known, each acknowledged once by its ID.

use std::collections::VecDeque;

use wayleave_api::urlfrontier::{AckMessage, UrlItem, ack_message};
use wayleave_core::frontier::request::{Put, PutKind, PutOutcome};
use wayleave_core::limits;

use super::convert::{self, LastCrawl};
use super::metrics::PutTally;
use super::pump::Acks;
use super::slots::Slots;

/// The items of one stream that wait for their acknowledgement.
#[derive(Default)]
pub struct ItemAcks {
    crawls: LastCrawl,
    waiting: Slots<String>,
    settled: VecDeque<AckMessage>,
}

impl Acks for ItemAcks {
    type In = UrlItem;
    type Out = AckMessage;

    fn has_room(&self) -> bool {
        self.waiting.len() < limits::PUT_IN_FLIGHT_MAX
    }

    fn take(&mut self, item: UrlItem, puts: &mut Vec<(u64, Put)>, tally: &mut PutTally) {
        let (kind, info) = convert::kind(item.item);
        match kind {
            PutKind::Discovered { .. } => tally.discovered += 1,
            PutKind::Known { due } => {
                tally.known += 1;
                tally.completed += u64::from(due.is_none());
            }
            // Clients cannot say this: only a server knows what it did not deliver.
            PutKind::Undelivered { .. } => {}
        }
        let id = if item.id.is_empty() { info.url.clone() } else { item.id };
        match convert::put(kind, info, &mut self.crawls) {
            Some(put) => puts.push((self.waiting.insert(id) as u64, put)),
            None => self.settled.push_back(AckMessage { id, status: ack_message::Status::Skipped.into() }),
        }
    }

    fn settle(&mut self, tag: u64, outcome: &PutOutcome, tally: &mut PutTally) {
        tally.ignored += u64::from(*outcome == PutOutcome::Known);
        let id = usize::try_from(tag).ok().and_then(|no| self.waiting.remove(no));
        if let Some(id) = id {
            self.settled.push_back(AckMessage { id, status: convert::ack(outcome).into() });
        }
    }

    fn next(&mut self) -> Option<AckMessage> {
        self.settled.pop_front()
    }

    fn is_waiting(&self) -> bool {
        self.waiting.len() > 0
    }
}

#[cfg(test)]
#[path = "put_urls_tests.rs"]
mod tests;
