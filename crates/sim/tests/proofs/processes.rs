//! The tasks of a simulated process, which the simulator pauses and kills.

use std::time::Duration;

use futures::FutureExt;
use tokio::sync::watch;
use wayleave_shard::Spawn as _;
use wayleave_sim::Process;

/// A task that counts milliseconds, and how far it is.
fn counting(process: &Process) -> watch::Receiver<u64> {
    let (count, counted) = watch::channel(0);
    process.spawn(
        async move {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                count.send_modify(|count| *count += 1);
            }
        }
        .boxed(),
    );
    counted
}

async fn pass() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[tokio::test(start_paused = true)]
async fn tasks_stand_still_go_on_and_end_with_their_process() {
    let (process, other) = (Process::default(), Process::default());
    let (mut one, two) = (counting(&process), counting(&other));
    pass().await;
    assert!(*one.borrow() > 90, "it runs");
    process.stand_still(true);
    pass().await;
    let still = *one.borrow_and_update();
    pass().await;
    assert_eq!(*one.borrow(), still, "it is paused");
    process.stand_still(false);
    pass().await;
    assert!(*one.borrow() > still + 90, "it goes on from there");
    process.kill();
    one.mark_unchanged();
    while one.changed().await.is_ok() {}
    let before = *two.borrow();
    pass().await;
    assert!(*two.borrow() > before + 90, "the other process lives");
}
