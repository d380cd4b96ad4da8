//! Pools, owner's side. The owner of a shard is the single writer of the pools whose names hash to it: it decides each
//! input on its memory, commits what a turn has decided as one batch, and lets answers, effects and news out once that
//! batch is durable. It must not know how a runtime starts workers or how a worker is called.
//!
//! Nothing here waits: a call of this process that waits for news of its client, or any that waits for a worker to confirm a
//! reservation, is *parked* ([`parked`]); for calls that wait on other nodes news are published
//! ([`news`](crate::matches::news)). Effects wait per site ([`orders`]) until the Maker of that site asks for them, which
//! it does once that they wait is published ([`readiness`](crate::matches::readiness)).
//!
//! Interleavings that could go wrong:
//!
//! 1. An effect leaves before its write is durable, and the owner dies: a worker is asked for a slot, or started, of which
//!    no row knows. Effects leave as the answer of a Maker's call, and that answer waits for the commits of its own turn
//!    and of all turns before, as every answer does. What is published before only says "ask".
//! 2. A commit fails after effects were queued for a site: they follow from rows that do not exist. The queues are part of
//!    the state that is dropped and loaded again; the first tick after the load orders what the rows say.
//! 3. The answer with orders is lost, or its Maker dies with it: the core orders again after a while. A repeated order that still
//!    waits replaces its earlier copy, so a site that is away does not fill its queue with repetitions.
//! 4. Two owners hand out orders: the older one's commits are fenced, and once its node is unsure, answers without a commit
//!    of their own wait for a fenced one. The next owner's list of the site finds what an order of the older one has made.
//! 5. News of a client comes before the call that waits for it is parked: both are decided by the owner, one after the
//!    other. A call that is parked has seen the state after all news before.
//! 6. News wakes a call, whose answer leaves before the change is durable: the answer is part of the turn that decided the
//!    change, and waits for its commit.
//! 7. The shard moves while calls are parked: they are told so when the owner ends, however it ends, and ask the next
//!    owner. A put is queued again only if the store may not have had it: (a put is parked, and durable) (the owner ends) (a
//!    DELETE comes to the next one) (the put asks again): it is told that it was cancelled.
//! 8. A DELETE ends the request of a client while a PUT waits for it, or for the word of its worker: the PUT is told, and
//!    does not queue the client again. Nor does a PUT whose caller has left.
//! 9. A worker's answer to a check comes after the call that asked has been answered as unknown: it concerns nobody, and
//!    changes nothing.
//! 10. A site is there before a pool exists, and is silent to it: the pools of a shard look every two seconds which sites are
//!     alive, and at once when one is set up or loaded. A look costs no decision: a pool only notes when the site was heard,
//!     unless the site is new to it, has changed, was silent or is due to be listed. (site noted)(tick that was due by the
//!     older time): the tick comes early, finds the site alive and asks for a later one. (site falls silent)(look): the
//!     pool decides, and orders again what was lost. A Maker that begins asks each shard once, before any look.
//! 11. The pool is deleted while calls are parked: they are answered when its last row goes.
//! 12. A commit fails while calls of that turn wait: each is refused with the outcome of that commit, and the calls that
//!     are parked ask again.
//! 13. A match fails while several PUTs of its client wait, here or on other nodes, or its answer is lost with a call that had to end
//!     early: each PUT that waited is told the failure, and none queues the client again. The next new one does.

mod client_calls;
mod decide;
mod orders;
mod parked;
mod pool_calls;
#[cfg(test)]
mod pools_tests;
mod turn;

pub(crate) use decide::Pools;
