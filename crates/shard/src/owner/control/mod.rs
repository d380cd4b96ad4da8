//! Fleet and placement, owner's side: in the one shard that keeps them. It must not know the frontier, chunks or pools; what
//! pipelines must hear of it is sent by calls.

mod give_back;
mod service;

pub(crate) use service::Control;
