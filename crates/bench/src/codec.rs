//! Messages as bytes. The load generator shares its cores with the server it measures, so by default it neither encodes
//! nor decodes them; in ordinary mode it does both, as generated code in every language does.

use std::hint::black_box;
use std::marker::PhantomData;

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::Status;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

/// How much a client does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Sends prepared bytes and reads only the few bytes that it needs of a response.
    Prepared,
    /// Encodes every request and decodes every response.
    Ordinary,
}

/// Sends messages of type `S` and receives those of type `R`, in encoded form.
pub struct Wire<S, R> {
    manner: Manner,
    kinds: PhantomData<fn() -> (S, R)>,
}

impl<S, R> Wire<S, R> {
    /// For clients of this manner.
    pub const fn new(manner: Manner) -> Self {
        Self { manner, kinds: PhantomData }
    }
}

impl<S: Message + Default + 'static, R: Message + Default + 'static> Codec for Wire<S, R> {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self::new(self.manner)
    }

    fn decoder(&mut self) -> Self {
        Self::new(self.manner)
    }
}

fn broken(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

impl<S: Message + Default, R> Encoder for Wire<S, R> {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(item.len());
        match self.manner {
            Manner::Prepared => out.put_slice(&item),
            Manner::Ordinary => S::decode(item).map_err(broken)?.encode(out).map_err(broken)?,
        }
        Ok(())
    }
}

impl<S, R: Message + Default> Decoder for Wire<S, R> {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, input: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let bytes = input.copy_to_bytes(input.remaining());
        if self.manner == Manner::Ordinary {
            black_box(R::decode(bytes.clone()).map_err(broken)?);
        }
        Ok(Some(bytes))
    }
}

/// A client that is ready for the next call.
pub async fn ready(channel: Channel) -> Result<Grpc<Channel>, Status> {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    Ok(grpc)
}

/// The path of a method.
pub const fn path(method: &'static str) -> PathAndQuery {
    PathAndQuery::from_static(method)
}
