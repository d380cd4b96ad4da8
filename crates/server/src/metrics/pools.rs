//! The metrics of pools, labelled by pool: operators name pools, and there are few.

use wayleave_core::matches::PoolSummary;

use super::text::Page;

/// Appends the numbers of every pool.
pub fn render(pools: &[PoolSummary], text: &mut String) {
    let mut out = Page::default();
    let of = |number: fn(&PoolSummary) -> u64| -> Vec<(&str, u64)> {
        pools.iter().map(|pool| (&*pool.name, number(pool))).collect()
    };
    out.gauges("wayleave_pool_workers", "Workers of a pool, in any state.", "pool", &of(|pool| pool.workers as u64));
    out.gauges("wayleave_pool_waiting", "Clients that wait for a worker.", "pool", &of(|pool| pool.waiting as u64));
    out.gauges("wayleave_pool_matched", "Clients that have a worker.", "pool", &of(|pool| pool.matched as u64));
    out.gauges("wayleave_pool_free", "Free slots of a pool's workers.", "pool", &of(|pool| pool.free));
    out.write(text);
}
