//! The inter-node protocol: messages, client and server code generated from `proto/node.proto`.

#![allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated code; the .proto explains it")]

tonic::include_proto!("wayleave.node");
