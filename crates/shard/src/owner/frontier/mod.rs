//! The frontier of a shard, owner's side: queues, reservations, holds, jobs, limits and moves of hosts. [`Frontier`] has all
//! that it keeps in memory, with its caches and quotas. It must not know chunks, machines or pools.

mod caches;
mod damage;
pub(super) mod decide;
mod dispatch;
mod holds;
pub(crate) mod jobs;
pub(crate) mod ledger_rows;
mod limited_crawls;
mod listing;
mod moving;
mod page_claims;
mod page_grants;
mod passes;
mod purge;
mod put;
pub(crate) mod put_replies;
mod quotas;
mod revoke;
mod service;
mod set_crawl;
mod slice_turn;
mod sweep;

pub(super) use page_claims::Claim as PageClaim;
pub(crate) use service::Frontier;
