//! The frontier: which host may be visited now, by whom, and which URLs of it.
//!
//! This room decides. It must not know what time it is, where rows are kept, who asked, or how an answer is sent.
//! In: a request, the facts it needs and *now*. Out: writes for the engine and a reply, both plain values.

pub mod refusal;
pub mod request;
pub mod view;
