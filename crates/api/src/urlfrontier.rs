//! The URLFrontier protocol: messages, client and server code generated from `proto/urlfrontier.proto`.
//!
//! Nothing here decides or converts; the server's `grpc` module interprets the messages.

#![allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated code; the .proto explains it")]

tonic::include_proto!("urlfrontier");

/// A header of PutURLs, of any value: items are stored where their URLs are unknown, and skipped where they are known.
pub const KEEP_KNOWN: &str = "wayleave-keep-known";

/// The compiled schema, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/urlfrontier.bin"));
