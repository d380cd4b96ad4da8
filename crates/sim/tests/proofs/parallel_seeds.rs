//! Seeds on all cores: each run is a world of its own on one thread, so as many run at once as there are cores.

use std::sync::atomic::AtomicU64;

use crate::prelude::*;

/// Runs every seed and returns what each gave, in the order of the seeds. A seed that panics ends the test.
pub fn run_seeds<T: Send>(seeds: Range<u64>, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mine = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|seed| *seed < seeds.end);
        mine.map(|seed| (seed, run(seed))).collect::<Vec<_>>()
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut given: Vec<(u64, T)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().flat_map(join).collect()
    });
    given.sort_by_key(|(seed, _)| *seed);
    given.into_iter().map(|(_, given)| given).collect()
}

#[test]
fn every_seed_is_run_once_and_in_the_order_of_the_seeds() {
    assert_eq!(run_seeds(3..500, |seed| seed), (3..500).collect::<Vec<_>>());
    let broken = std::panic::catch_unwind(|| run_seeds(0..10, |seed| assert_ne!(seed, 7, "seed 7 breaks")));
    let panic = broken.unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("seed 7 breaks"), "a broken seed is named");
}
