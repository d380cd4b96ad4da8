//! The pipeline: chunks of links on their way from crawl to build.
//!
//! A chunk is a batch of links that one crawler fetches and one index builder turns into an index. Every stage is claimed
//! in the same way: a lease with a token and a deadline. Completing it with the current token moves the chunk on,
//! exactly once. A chunk whose lease ends is offered again, and set aside after too many attempts. docs/states.md draws
//! the states; for users: docs/pipeline.md.
//!
//! A chunk whose index is built is announced to placement, see [`crate::placement`], and then comes to rest. If its index
//! is given up there, it goes back to the index builders.
//!
//! The links of a chunk in its crawl stage are reservations of the frontier ([`crate::frontier::link`]), so politeness,
//! limits and priorities are the frontier's alone. The decisions here change both states; what they write is committed
//! together.
//!
//! As in the frontier, [`State`] is changed in place, a refusal comes before the first change, and a state whose commit
//! failed must be dropped and loaded again.

pub mod claim;
pub mod departed;
pub mod end;
mod index_lost;
pub mod link_view;
mod offers;
mod place;
pub mod refusal;
pub mod report;
pub mod request;
pub mod row;
pub mod state;
pub mod view;

pub use state::State;
