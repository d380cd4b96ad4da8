//! Listens: the doors of a Wayleave node. Each door translates its protocol into the core's words; none decides.

pub mod grpc;
