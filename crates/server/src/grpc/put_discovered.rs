//! PutDiscovered: batches of new URLs, each batch acknowledged once with a status per URL.

use std::collections::{HashSet, VecDeque};

use wayleave_api::urlfrontier::ack_message::Status as Ack;
use wayleave_api::urlfrontier::{BatchAck, DiscoveredBatch};
use wayleave_core::frontier::request::{Put, PutOutcome};
use wayleave_core::limits;

use super::convert::{self, DISCOVERED, LastCrawl};
use super::metrics::PutTally;
use super::put_stream::{Acks, cost};
use slab::Slab;
use wayleave_listen::Share;

/// A batch with unsettled URLs.
struct Open {
    ack: BatchAck,
    left: usize,
    /// Its bytes in the budget.
    bytes: usize,
}

/// The unacknowledged batches of one stream.
pub struct BatchAcks {
    crawls: LastCrawl,
    waiting: Slab<Open>,
    settled: VecDeque<BatchAck>,
    share: Share,
    /// Whether an item that was not stored was already logged.
    told: bool,
}

impl BatchAcks {
    /// For a stream with this share of the budget.
    pub fn new(share: Share) -> Self {
        Self { crawls: LastCrawl::default(), waiting: Slab::new(), settled: VecDeque::new(), share, told: false }
    }
}

/// A tag: the batch (upper half) and the URL in it (lower half).
const fn tag(batch: usize, index: usize) -> u64 {
    ((batch as u64) << 32) | index as u64
}

const fn untag(tag: u64) -> (usize, usize) {
    ((tag >> 32) as usize, (tag & 0xffff_ffff) as usize)
}

impl Acks for BatchAcks {
    type In = DiscoveredBatch;
    type Out = BatchAck;

    fn has_room(&self) -> bool {
        self.waiting.len() < limits::PUT_BATCHES_IN_FLIGHT_MAX
    }

    fn take(&mut self, batch: DiscoveredBatch, puts: &mut Vec<(u64, Put)>, tally: &mut PutTally) {
        tally.discovered += batch.items.len() as u64;
        let bytes = cost(&batch, batch.items.len());
        if batch.items.len() > limits::BATCH_URLS_MAX || !self.share.take(bytes) {
            // The stream continues: one oversized batch must not end a stream that multiplexes much other work.
            let statuses = vec![Ack::Fail.into(); batch.items.len()];
            self.settled.push_back(BatchAck { id: batch.id, statuses });
            return;
        }
        // What is not stored stays SKIPPED: it cannot be, or is a duplicate within the batch.
        let statuses: Vec<i32> = vec![Ack::Skipped.into(); batch.items.len()];
        let mut fresh: Vec<(usize, Put)> = Vec::with_capacity(batch.items.len());
        for (index, info) in batch.items.into_iter().enumerate() {
            match convert::put(DISCOVERED, info, &mut self.crawls) {
                Ok(put) => fresh.push((index, put)),
                Err(why) => why.log(&mut self.told),
            }
        }
        drop_copies(&mut fresh);
        let ack = BatchAck { id: batch.id, statuses };
        if fresh.is_empty() {
            self.share.give(bytes);
            self.settled.push_back(ack);
            return;
        }
        let no = self.waiting.insert(Open { ack, left: fresh.len(), bytes });
        puts.extend(fresh.into_iter().map(|(index, put)| (tag(no, index), put)));
    }

    fn settle(&mut self, tag: u64, outcome: &PutOutcome, tally: &mut PutTally) {
        tally.ignored += u64::from(*outcome == PutOutcome::Known);
        let (no, index) = untag(tag);
        let Some(open) = self.waiting.get_mut(no) else { return };
        if let Some(status) = open.ack.statuses.get_mut(index) {
            *status = convert::ack(outcome).into();
        }
        open.left -= 1;
        if open.left == 0
            && let Some(open) = self.waiting.try_remove(no)
        {
            self.share.give(open.bytes);
            self.settled.push_back(open.ack);
        }
    }

    fn next(&mut self) -> Option<BatchAck> {
        self.settled.pop_front()
    }

    fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// Keeps the first of each (crawl, key, URL).
fn drop_copies(puts: &mut Vec<(usize, Put)>) {
    let mut seen = HashSet::with_capacity(puts.len());
    let copies: Vec<usize> = puts
        .iter()
        .filter(|(_, put)| !seen.insert((&*put.url, &*put.host, &*put.crawl)))
        .map(|(index, _)| *index)
        .collect();
    if !copies.is_empty() {
        // Both are in ascending order.
        puts.retain(|(index, _)| copies.binary_search(index).is_err());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wayleave_api::urlfrontier::UrlInfo;

    use super::*;
    use wayleave_listen::Budget;

    fn batch(id: &str, urls: &[(&str, &str, &str)]) -> DiscoveredBatch {
        let info = |(url, key, crawl): &(&str, &str, &str)| UrlInfo {
            url: (*url).into(),
            key: (*key).into(),
            crawl_id: (*crawl).into(),
            ..Default::default()
        };
        DiscoveredBatch { id: id.into(), items: urls.iter().map(info).collect() }
    }

    fn take(acks: &mut BatchAcks, batch: DiscoveredBatch) -> Vec<u64> {
        let mut puts = Vec::new();
        acks.take(batch, &mut puts, &mut PutTally::default());
        puts.into_iter().map(|(tag, _)| tag).collect()
    }

    fn acks(budget: &Arc<Budget>) -> BatchAcks {
        BatchAcks::new(budget.share(1))
    }

    fn roomy() -> Arc<Budget> {
        Arc::new(Budget::new(64 << 20))
    }

    #[test]
    fn too_large_a_batch_fails_as_one_and_the_next_is_taken() {
        let budget = roomy();
        let mut acks = acks(&budget);
        let most = vec![("http://a/", "", ""); limits::BATCH_URLS_MAX];
        assert_eq!(take(&mut acks, batch("most", &most)).len(), 1);
        let over = vec![("http://a/", "", ""); limits::BATCH_URLS_MAX + 1];
        assert!(take(&mut acks, batch("over", &over)).is_empty());
        let ack = acks.next().unwrap();
        assert_eq!((ack.id.as_str(), ack.statuses.len()), ("over", over.len()));
        assert!(ack.statuses.iter().all(|status| *status == i32::from(Ack::Fail)));
        assert_eq!(take(&mut acks, batch("after", &[("http://b/", "", "")])).len(), 1);
    }

    #[test]
    fn without_memory_a_batch_fails_and_settled_ones_give_theirs_back() {
        let budget = Arc::new(Budget::new(1_000));
        let mut acks = acks(&budget);
        let tags = take(&mut acks, batch("first", &[("http://a/", "", ""); 2]));
        assert!(take(&mut acks, batch("second", &[("http://a/", "", ""); 2])).is_empty());
        assert_eq!(acks.next().map(|ack| ack.statuses), Some(vec![i32::from(Ack::Fail); 2]));
        acks.settle(tags[0], &PutOutcome::Added, &mut PutTally::default());
        assert_eq!(budget.held(), 0);
        assert_eq!(take(&mut acks, batch("second", &[("http://a/", "", ""); 2])).len(), 1);
    }

    #[test]
    fn an_empty_batch_is_acknowledged_at_once() {
        let budget = roomy();
        let mut acks = acks(&budget);
        assert!(take(&mut acks, batch("probe", &[])).is_empty());
        assert_eq!(acks.next(), Some(BatchAck { id: "probe".into(), statuses: Vec::new() }));
        assert!(!acks.is_waiting());
    }

    #[test]
    fn statuses_stand_in_the_order_sent_whatever_the_order_of_outcomes() {
        let budget = roomy();
        let mut acks = acks(&budget);
        let urls =
            [("http://a/", "", ""), ("", "", ""), ("http://a/", "k", ""), ("http://a/", "", "DEFAULT"), ("b", "", "")];
        let tags = take(&mut acks, batch("x", &urls));
        assert_eq!(tags.len(), 3, "no key, and a second copy of the same URL");
        let mut tally = PutTally::default();
        acks.settle(
            tags[2],
            &PutOutcome::Failed(Box::new(wayleave_core::frontier::refusal::Refusal::Unavailable("later".to_owned()))),
            &mut tally,
        );
        acks.settle(tags[0], &PutOutcome::Added, &mut tally);
        assert_eq!(acks.next(), None, "one URL is not settled");
        acks.settle(tags[1], &PutOutcome::Known, &mut tally);
        let want = [Ack::Ok, Ack::Skipped, Ack::Skipped, Ack::Skipped, Ack::Fail].map(i32::from);
        assert_eq!(acks.next().map(|ack| ack.statuses), Some(want.to_vec()));
        assert_eq!(tally.ignored, 1);
    }

    #[test]
    fn batches_are_acknowledged_out_of_order_and_their_number_is_bounded() {
        let budget = roomy();
        let mut acks = acks(&budget);
        let mut tags = Vec::new();
        while acks.has_room() {
            let id = tags.len().to_string();
            tags.push(take(&mut acks, batch(&id, &[("http://a/", "", "")]))[0]);
        }
        assert_eq!(tags.len(), limits::PUT_BATCHES_IN_FLIGHT_MAX);
        acks.settle(tags[7], &PutOutcome::Added, &mut PutTally::default());
        assert_eq!(acks.next().map(|ack| ack.id), Some("7".into()));
        assert!(acks.has_room());
    }
}
