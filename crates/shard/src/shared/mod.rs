//! State shared by the owners of one process: the readiness of their shards and the callers that wait for it,
//! process-wide budgets and quotas, and the epochs under which the shards are held.

pub(crate) mod broadcast;
pub(crate) mod changes;
pub(crate) mod crawl_count;
pub(crate) mod crawl_passes;
pub(crate) mod crawl_readiness;
pub(crate) mod crawl_totals;
pub(crate) mod damage_report;
pub(crate) mod deadline;
pub(crate) mod host_quota;
pub(crate) mod node_readiness;
pub(crate) mod owned_epochs;
pub(crate) mod page_budget;
pub(crate) mod readiness;
pub(crate) mod troubles;
pub(crate) mod waiters;
