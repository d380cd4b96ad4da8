//! The owner of a shard: receives calls, reads the facts they need, lets the core decide, commits, and answers once the
//! commit is durable.

pub(crate) mod announce;
mod chunk_claims;
mod chunk_rows;
pub(crate) mod chunk_slices;
mod chunk_view;
pub(crate) mod chunks;
pub(crate) mod control;
pub(crate) mod cycle;
pub(crate) mod damage;
pub(crate) mod decide;
pub(crate) mod dispatch;
pub(crate) mod give_back;
pub(crate) mod hot_log;
pub(crate) mod inbox;
pub(crate) mod jobs;
pub(crate) mod limited_log;
pub(crate) mod listing;
pub(crate) mod moving;
pub(crate) mod open;
pub(crate) mod owner_loop;
pub(crate) mod owner_threads;
pub(crate) mod page_grants;
pub(crate) mod pools;
pub(crate) mod purge;
pub(crate) mod put;
pub(crate) mod put_replies;
pub(crate) mod read_facts;
pub(crate) mod read_only;
pub(crate) mod retention;
pub(crate) mod revoke;
pub(crate) mod run;
pub(crate) mod slice_turn;
pub(crate) mod sweep;
pub(crate) mod term;
