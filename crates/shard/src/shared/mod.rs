//! What the owners of one process share: readiness of their shards and who waits for it, budgets and quotas that hold for the
//! process, and the epochs under which the shards are held.

pub(crate) mod broadcast;
pub(crate) mod crawl_passes;
pub(crate) mod crawl_readiness;
pub(crate) mod crawl_totals;
pub(crate) mod deadline;
pub(crate) mod held_epochs;
pub(crate) mod host_quota;
pub(crate) mod page_budget;
pub(crate) mod readiness;
pub(crate) mod waiters;
