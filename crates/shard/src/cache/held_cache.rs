//! Write-through cache of the rows of URLs on hold. Most holds are completed soon after their hand-out, and the
//! completion needs the row. Every write to a URL row passes through [`HeldCache::follow`], so entries always equal the
//! store.

use hashbrown::HashMap;
use wayleave_core::frontier::row::{UrlRow, UrlStatus, Write};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::QueueId;

/// The rows of the URLs handed out most recently.
pub(crate) struct HeldCache {
    rows: HashMap<(QueueId, UrlKey), UrlRow>,
    rows_max: usize,
}

impl HeldCache {
    pub fn new(rows_max: usize) -> Self {
        Self { rows: HashMap::new(), rows_max }
    }

    /// The cached row of a URL.
    pub fn get(&self, queue: QueueId, key: &UrlKey) -> Option<&UrlRow> {
        if self.rows.is_empty() {
            return None;
        }
        self.rows.get(&(queue, key.clone()))
    }

    /// Applies writes to URL rows.
    pub fn follow(&mut self, writes: &[Write]) {
        for write in writes {
            let Write::Url(queue, key, row) = write else { continue };
            match row {
                Some(row) if matches!(row.status, UrlStatus::Held { .. }) => self.keep(*queue, key, row),
                _ if self.rows.is_empty() => {}
                _ => _ = self.rows.remove(&(*queue, key.clone())),
            }
        }
    }

    fn keep(&mut self, queue: QueueId, key: &UrlKey, row: &UrlRow) {
        if self.rows.len() >= self.rows_max {
            // Dropping everything is crude, but rare: clients that never complete their holds must not fill the memory.
            self.rows.clear();
        }
        self.rows.insert((queue, key.clone()), row.clone());
    }
}

#[cfg(test)]
mod tests {
    use wayleave_core::frontier::row::{Details, QueuePosition};
    use wayleave_core::ids::HostId;
    use wayleave_core::time::Time;

    use super::*;

    #[test]
    fn a_row_is_here_while_its_url_is_on_hold() {
        let (queue, key) = (QueueId { host: HostId(1), no: 0 }, UrlKey((*b"k").into()));
        let position = QueuePosition { lane: 4, due: Time(1) };
        let held = UrlStatus::Held { until: Time(9), position, details: Details::default() };
        let row = UrlRow { created: Time(1), whole: None, status: held };
        let mut recent = HeldCache::new(10);
        recent.follow(&[Write::Url(queue, key.clone(), Some(row.clone()))]);
        assert_eq!(recent.get(queue, &key), Some(&row));
        let queued = UrlRow { status: UrlStatus::Queued(position), ..row };
        recent.follow(&[Write::Url(queue, key.clone(), Some(queued))]);
        assert_eq!(recent.get(queue, &key), None);
    }
}
