//! Ownership and fencing: a paused or superseded owner's commits must never apply.

use wayleave_core::ids::{Epoch, ShardId};

use super::harness::{Harness, check, commit, fenced, key, own, put};
use crate::{Batch, Engine, Error};

async fn check_fenced<H: Harness>(store: &H, batch: Batch, shard: u16, epoch: Epoch, seq: u64) {
    let answer = commit(store, batch.clone()).await;
    assert_eq!(answer, Err(Error::Fenced { shard, epoch: epoch.0, seq }), "{:?}", batch.fences);
}

/// Each shard independently.
pub async fn owning_raises_the_epoch_by_one<H: Harness>() {
    let store = H::create().await;
    assert_eq!(own(&store, 1).await, Ok((Epoch(1), 0)));
    assert_eq!(own(&store, 1).await, Ok((Epoch(2), 0)));
    assert_eq!(own(&store, 2).await, Ok((Epoch(1), 0)));
    assert_eq!(own(&store, u16::MAX).await, Ok((Epoch(1), 0)));
}

/// Without waiting in between.
pub async fn commits_in_turn_pass<H: Harness>() {
    let store = H::create().await;
    let (epoch, seq) = own(&store, 1).await.unwrap();
    let answers: Vec<_> =
        (1..=5).map(|i| store.engine().commit(fenced([(1, epoch, seq + i)], [put(1, "a", &i.to_string())]))).collect();
    store.settle().await;
    for answer in answers {
        assert_eq!(answer.await, Ok(()));
    }
    check(store.engine(), 1, [("a", Some("5"))]).await;
    assert_eq!(own(&store, 1).await, Ok((Epoch(epoch.0 + 1), seq + 5)));
}

/// Older and newer alike.
pub async fn a_wrong_epoch_is_fenced_and_leaves_nothing<H: Harness>() {
    let store = H::create().await;
    own(&store, 1).await.unwrap();
    let (epoch, seq) = own(&store, 1).await.unwrap();
    for wrong in [Epoch(epoch.0 - 1), Epoch(epoch.0 + 1), Epoch(0)] {
        check_fenced(&store, fenced([(1, wrong, seq + 1)], [put(1, "a", "1")]), 1, epoch, seq).await;
        check(store.engine(), 1, [("a", None)]).await;
    }
}

/// A repeated commit, a gap, and the extremes.
pub async fn a_wrong_number_is_fenced_and_leaves_nothing<H: Harness>() {
    let store = H::create().await;
    let (epoch, _) = own(&store, 1).await.unwrap();
    commit(&store, fenced([(1, epoch, 1)], [put(1, "a", "1")])).await.unwrap();
    for wrong in [1, 3, 0, u64::MAX] {
        check_fenced(&store, fenced([(1, epoch, wrong)], [put(1, "a", "2"), put(1, "b", "2")]), 1, epoch, 1).await;
        check(store.engine(), 1, [("a", Some("1")), ("b", None)]).await;
    }
}

/// Epoch 0 has no owner.
pub async fn an_unowned_shard_is_fenced<H: Harness>() {
    let store = H::create().await;
    check_fenced(&store, fenced([(1, Epoch(0), 1)], [put(1, "a", "1")]), 1, Epoch(0), 0).await;
    check(store.engine(), 1, [("a", None)]).await;
}

/// From the moment that the new owner has its epoch.
pub async fn a_new_owner_fences_the_old_one<H: Harness>() {
    let store = H::create().await;
    let (old, seq) = own(&store, 1).await.unwrap();
    commit(&store, fenced([(1, old, seq + 1)], [put(1, "a", "old")])).await.unwrap();
    let (new, seq) = own(&store, 1).await.unwrap();
    check_fenced(&store, fenced([(1, old, seq + 1)], [put(1, "a", "late")]), 1, new, seq).await;
    commit(&store, fenced([(1, new, seq + 1)], [put(1, "b", "new")])).await.unwrap();
    check_fenced(&store, fenced([(1, old, seq + 2)], [put(1, "a", "late")]), 1, new, seq + 1).await;
    check(store.engine(), 1, [("a", Some("old")), ("b", Some("new"))]).await;
}

/// A conflict is decided again under the same sequence number.
pub async fn a_refused_batch_uses_up_no_number<H: Harness>() {
    let store = H::create().await;
    let (epoch, _) = own(&store, 1).await.unwrap();
    let mut batch = fenced([(1, epoch, 1)], [put(1, "a", "1")]);
    batch.expects = vec![(key(1, "b"), Some(b"1".to_vec()))];
    assert_eq!(commit(&store, batch).await, Err(Error::Conflict));
    commit(&store, fenced([(1, epoch, 1)], [put(1, "a", "2")])).await.unwrap();
    check(store.engine(), 1, [("a", Some("2"))]).await;
}

/// Wherever in the list the failing fence is.
pub async fn several_fences_hold_all_or_none<H: Harness>() {
    let store = H::create().await;
    let (one, _) = own(&store, 1).await.unwrap();
    let (two, _) = own(&store, 2).await.unwrap();
    let writes = || [put(1, "a", "1"), put(2, "a", "1")];
    check_fenced(&store, fenced([(1, one, 1), (2, two, 2)], writes()), 2, two, 0).await;
    check_fenced(&store, fenced([(1, one, 7), (2, two, 1)], writes()), 1, one, 0).await;
    for shard in [1, 2] {
        check(store.engine(), shard, [("a", None)]).await;
    }
    commit(&store, fenced([(1, one, 1), (2, two, 1)], writes())).await.unwrap();
    for shard in [1, 2] {
        check(store.engine(), shard, [("a", Some("1"))]).await;
    }
    assert_eq!(own(&store, 1).await.unwrap().1, 1);
    assert_eq!(own(&store, 2).await.unwrap().1, 1);
}

/// So that a node can merge the pending batches of one shard; a repeated number is still out of sequence.
pub async fn fences_of_one_shard_count_one_after_the_other<H: Harness>() {
    let store = H::create().await;
    let (epoch, _) = own(&store, 1).await.unwrap();
    check_fenced(&store, fenced([(1, epoch, 1), (1, epoch, 1)], [put(1, "a", "1")]), 1, epoch, 1).await;
    check(store.engine(), 1, [("a", None)]).await;
    commit(&store, fenced([(1, epoch, 1), (1, epoch, 2)], [put(1, "a", "1")])).await.unwrap();
    assert_eq!(own(&store, 1).await.unwrap().1, 2);
}

/// A node that lost its right to a shard while it was suspended must not fence out the new owner.
pub async fn owning_with_an_expectation_that_does_not_hold_changes_nothing<H: Harness>() {
    let store = H::create().await;
    let (epoch, seq) = own(&store, 1).await.unwrap();
    commit(&store, fenced([(1, epoch, seq + 1)], [put(9, "seat", "b")])).await.unwrap();
    let seat = |value: &str| [(key(9, "seat"), Some(value.as_bytes().to_vec()))];
    let late = seat("a");
    let answer = store.engine().own(ShardId(1), &late);
    store.settle().await;
    assert_eq!(answer.await, Err(Error::Conflict));
    commit(&store, fenced([(1, epoch, seq + 2)], [put(1, "a", "1")])).await.unwrap();
    let rightful = seat("b");
    let answer = store.engine().own(ShardId(1), &rightful);
    store.settle().await;
    assert_eq!(answer.await, Ok((Epoch(epoch.0 + 1), seq + 2)));
}
