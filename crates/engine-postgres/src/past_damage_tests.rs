//! The search over modelled tables with unreadable rows and index pages.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

struct Model {
    /// Whether each row can be read: not at all, its key only, or whole.
    rows: BTreeMap<Key, Row>,
    /// Key ranges of damaged index pages.
    pages: Vec<Range<Key>>,
    reads: AtomicUsize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    Lost,
    KeyOnly,
    Whole,
}

impl Model {
    fn first(&self, from: &[u8], to: &[u8]) -> Result<Option<(Key, Row)>, Error> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let bad = || Err(Error::Corrupt("a page".into()));
        let first = self.rows.range(from.to_vec()..).next().filter(|(key, _)| key.as_slice() < to);
        // The scan reads the page where the range begins, and those up to the first row.
        let end = first.map_or_else(|| from.to_vec(), |(key, _)| key.clone());
        if from < to && self.pages.iter().any(|page| page.start <= end && from < page.end.as_slice()) {
            return bad();
        }
        match first {
            Some((_, Row::Lost)) => bad(),
            first => Ok(first.map(|(key, row)| (key.clone(), *row))),
        }
    }
}

impl Readable for Model {
    async fn first_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Key>, Error> {
        self.first(from, to).map(|first| first.map(|(key, _)| key))
    }

    async fn first_row(&self, from: &[u8], to: &[u8]) -> Result<Option<Key>, Error> {
        match self.first(from, to)? {
            Some((_, Row::KeyOnly)) => Err(Error::Corrupt("a value".into())),
            first => Ok(first.map(|(key, _)| key)),
        }
    }
}

fn key(n: u32) -> Key {
    [&[0, 1, 7][..], format!("host/{n}").as_bytes()].concat()
}

/// All keys that a reader gets which passes over damage; and the reads that this took.
async fn walk(table: &Model) -> (Vec<Key>, usize) {
    let (mut from, to, mut found) = (vec![0, 1], vec![0, 2], Vec::new());
    while from < to {
        from = match table.first_row(&from, &to).await {
            Ok(None) => break,
            Ok(Some(key)) => {
                let next = next_to(&key);
                found.push(key);
                next
            }
            Err(_) => {
                let end = past_damage(table, (&from, &to)).await.unwrap();
                assert!(from < end && end <= to);
                end
            }
        };
    }
    (found, table.reads.load(Ordering::Relaxed))
}

#[tokio::test]
async fn no_readable_row_is_skipped_and_a_damaged_one_takes_some_dozen_reads() {
    let mut state = 5_u64;
    let mut below = move |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for bad_of_ten in 1..=10 {
        let row = |lot: u64| match lot {
            lot if lot >= bad_of_ten => Row::Whole,
            lot if lot % 2 == 0 => Row::Lost,
            _ => Row::KeyOnly,
        };
        let rows: BTreeMap<Key, Row> = (0..200).map(|_| (key(below(100_000) as u32), row(below(10)))).collect();
        // Prefixes of each other, and the first and last bytes.
        let odd = [&[0, 1][..], &[0, 1, 0], &[0, 1, 0, 0], &[0, 1, 255], &[0, 1, 255, 255], &[0, 1, 255, 255, 0]];
        let rows = rows.into_iter().chain(odd.map(|key| (key.to_vec(), row(below(10))))).collect();
        let table = Model { rows, pages: Vec::new(), reads: AtomicUsize::new(0) };
        let (found, reads) = walk(&table).await;
        let whole: Vec<Key> =
            table.rows.iter().filter(|(_, row)| **row == Row::Whole).map(|(key, _)| key.clone()).collect();
        assert!(found == whole, "{} of {}", found.len(), whole.len());
        assert!(reads < 250 + (table.rows.len() - whole.len()) * 70, "{reads} reads");
    }
}

#[tokio::test]
async fn a_damaged_page_of_the_index_costs_the_rows_that_only_it_leads_to() {
    let rows: BTreeMap<Key, Row> = (1_000..2_000).map(|n| (key(n), Row::Whole)).collect();
    for (pages, lost) in [
        (vec![key(1_300)..key(1_350)], 1_300..1_350),
        (vec![vec![0, 0]..key(1_100)], 1_000..1_100),
        (vec![key(1_900)..vec![9]], 1_900..2_000),
        (vec![vec![0]..vec![9]], 1_000..2_000),
    ] {
        let table = Model { rows: rows.clone(), pages, reads: AtomicUsize::new(0) };
        let (found, _) = walk(&table).await;
        let whole: Vec<Key> = (1_000..2_000).filter(|n| !lost.contains(n)).map(key).collect();
        assert!(found == whole, "{lost:?}: {}", found.len());
    }
}
