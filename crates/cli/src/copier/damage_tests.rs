use std::collections::BTreeMap;

use super::*;
use crate::copier::blocks::Blocks;

fn key(n: u32) -> Key {
    // Like URL rows: shard, kind, host, queue, and a text of some length.
    let (shard, host) = (n / 300, n / 10);
    let text = format!("/{}{:03}", "p".repeat((n % 7) as usize * 9), n % 10);
    [&[0, shard as u8, 6][..], &u64::from(host).to_be_bytes()[2..], &[0, 0, 0], text.as_bytes()].concat()
}

fn salvage(bad: &[(usize, usize)]) -> (Vec<Key>, Vec<(Key, Key)>, usize) {
    let rows: BTreeMap<Key, Vec<u8>> = (0..1_000).map(|n| (key(n), vec![1])).collect();
    let keys: Vec<Key> = rows.keys().cloned().collect();
    let bad = bad.iter().map(|(first, last)| (keys[*first].clone(), keys[*last].clone())).collect();
    let mut source = Blocks::new(rows, bad);
    let (mut from, mut found, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let step = read(&mut source, &from, 64).unwrap();
        found.extend(step.rows.into_iter().map(|row| row.key));
        if step.damage.is_some() {
            gaps.push((from, step.next.clone().unwrap()));
        }
        let Some(next) = step.next else { return (found, gaps, source.reads) };
        from = next;
    }
}

#[test]
fn everything_but_the_damage_is_read_wherever_it_is() {
    let all = salvage(&[]).0;
    assert_eq!(all.len(), 1_000);
    for bad in [
        &[(0, 0)][..],
        &[(999, 999)],
        &[(0, 999)],
        &[(17, 17)],
        &[(298, 305)],
        &[(5, 640)],
        &[(3, 8), (40, 41), (900, 999)],
    ] {
        let (found, gaps, reads) = salvage(bad);
        let damaged = |n: &usize| bad.iter().any(|(first, last)| (first..=last).contains(&n));
        let expected: Vec<Key> = (0..1_000).filter(|n| !damaged(n)).map(|n| all[n].clone()).collect();
        assert_eq!(found, expected, "{bad:?}");
        assert_eq!(gaps.len(), bad.len());
        for ((first, last), (from, to)) in bad.iter().zip(&gaps) {
            assert!(*from <= all[*first] && all[*last] < *to, "{bad:?}");
        }
        assert!(reads < 2_000, "{bad:?}: {reads} reads");
    }
}
