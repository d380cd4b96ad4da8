//! What the nodes of one store say to each other: messages, client and server code made from `proto/node.proto`.

#![allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated code; the .proto explains it")]

tonic::include_proto!("wayleave.node");
