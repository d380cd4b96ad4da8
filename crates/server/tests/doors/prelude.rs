//! What most tests of this binary name.

pub use std::collections::BTreeSet;
pub use std::sync::Arc;
pub use std::time::Duration;

pub use axum::body::Body;
pub use axum::http::{Method, Request, header};
pub use futures::future::BoxFuture;
pub use futures::{FutureExt, StreamExt, stream};
pub use http_body_util::BodyExt;
pub use hyper_util::rt::{TokioExecutor, TokioIo};
pub use serde_json::{Value, json};
pub use tokio::io::{AsyncReadExt, AsyncWriteExt};
pub use tokio::net::TcpStream;
pub use tonic::transport::Channel;
pub use wayleave_api::urlfrontier::ack_message::Status as Ack;
pub use wayleave_api::urlfrontier::url_frontier_client::UrlFrontierClient;
pub use wayleave_api::urlfrontier::{
    BlockQueueParams, DiscoveredBatch, GetParams, Local, QueueDelayParams, StringList, UrlInfo, UrlItem,
    UrlStatusRequest, get_params,
};
pub use wayleave_core::limits;
pub use wayleave_core::time::{Millis, Time};
pub use wayleave_engine::clock::SystemClock;
pub use wayleave_engine::memory::Memory;
pub use wayleave_listen::Bounds;
pub use wayleave_listen::waits::WAIT_BYTES;
pub use wayleave_server::{Config, Services};

pub use crate::support::net::{Running, start};
pub use crate::support::site::Site;
pub use crate::support::{Door, Response, services};
