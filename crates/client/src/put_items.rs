//! URLFrontier's PutURLs: the only call that stores a URL as completed, and the way to import dumps of other frontiers.

use std::time::Duration;

use futures::{Stream, StreamExt};
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use wayleave_api::urlfrontier::ack_message::Status as Ack;
use wayleave_api::urlfrontier::url_frontier_client::UrlFrontierClient;
use wayleave_api::urlfrontier::{KEEP_KNOWN, UrlItem};

use crate::client::KEEP_ALIVE;
use crate::error::root_cause;
use crate::servers::Here;
use crate::window::{Payload, Window, drive};
use crate::{Client, Error};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemStatus {
    /// Stored.
    Stored,
    /// Already known, or not acceptable.
    Skipped,
    /// Not stored after several attempts.
    Failed,
}

/// The results of all items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutItems {
    /// Stored.
    pub stored: u64,
    /// Already known, or not acceptable.
    pub skipped: u64,
    /// Not stored after several attempts.
    pub failed: u64,
}

impl Payload for UrlItem {
    fn size(&self) -> usize {
        bytes_of(self)
    }
}

/// The approximate size of an item: only metadata can be large.
fn bytes_of(item: &UrlItem) -> usize {
    use wayleave_api::urlfrontier::url_item::Item;
    let info = match &item.item {
        Some(Item::Discovered(discovered)) => discovered.info.as_ref(),
        Some(Item::Known(known)) => known.info.as_ref(),
        None => None,
    };
    info.map_or(0, |info| {
        let values =
            info.metadata.iter().map(|(name, list)| name.len() + list.values.iter().map(String::len).sum::<usize>());
        info.url.len() + info.key.len() + values.sum::<usize>()
    })
}

impl Client {
    /// A client of the server's URLFrontier API.
    pub async fn urlfrontier(&self) -> Result<UrlFrontierClient<Channel>, Error> {
        let here = self.here();
        door(&here).await.map_err(|error| here.failed(error))
    }

    /// Restores any number of items: those that are unknown are stored, and no known one is changed. Each comes with a tag, which is returned with its status; the item's own ID is not
    /// kept. Broken connections are resumed: puts are idempotent. Fails if the server does not serve URLFrontier, or
    /// cannot be reached within the retry policy.
    pub async fn restore_items<T>(
        &self,
        items: impl Stream<Item = (T, UrlItem)> + Unpin,
        mut on_item: impl FnMut(T, ItemStatus),
    ) -> Result<PutItems, Error> {
        let window = Window::new();
        let mut counts = PutItems::default();
        let sent = drive(&window, self.retry, items, async |receiver| {
            let on_ack = |number, ack| {
                let (count, status) = match ack {
                    Ack::Ok => (&mut counts.stored, ItemStatus::Stored),
                    Ack::Skipped => (&mut counts.skipped, ItemStatus::Skipped),
                    Ack::Fail => (&mut counts.failed, ItemStatus::Failed),
                };
                if let Some(tag) = if ack == Ack::Fail { window.fail(number) } else { window.settle(number) } {
                    *count += 1;
                    on_item(tag, status);
                }
            };
            let send = async |here: &Here| send_items_to(here, receiver, on_ack).await.map_err(|error| (error, None));
            window.over(self, send).await
        });
        sent.await?;
        Ok(counts)
    }

    /// The error for a gRPC status.
    #[must_use]
    pub fn refused_call(&self, status: &tonic::Status) -> Error {
        refused(&self.here(), status)
    }
}

/// How long a server may take to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(45);

async fn door(here: &Here) -> Result<UrlFrontierClient<Channel>, Error> {
    let server = here.name();
    let endpoint = Endpoint::from_shared(server.clone())
        .map_err(|error| Error::BadAddress { address: server.clone(), cause: error.to_string() })?;
    let endpoint = endpoint.http2_keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(PING_TIMEOUT);
    let channel = endpoint.connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true).connect().await;
    let channel = channel.map_err(|error| Error::Unreachable { server, cause: root_cause(&error) })?;
    Ok(UrlFrontierClient::new(channel))
}

async fn send_items_to(
    here: &Here,
    receiver: mpsc::Receiver<(u64, UrlItem)>,
    mut on_ack: impl FnMut(u64, Ack),
) -> Result<(), Error> {
    let items = futures::stream::unfold(receiver, |mut receiver| async {
        let (number, mut item) = receiver.recv().await?;
        item.id = number.to_string();
        Some((item, receiver))
    });
    let mut door = door(here).await?;
    let mut request = tonic::Request::new(items.boxed());
    request.metadata_mut().insert(KEEP_KNOWN, tonic::metadata::MetadataValue::from_static("true"));
    let answer = door.put_urls(request).await.map_err(|status| refused(here, &status))?;
    let mut acks = answer.into_inner();
    while let Some(ack) = acks.message().await.map_err(|status| refused(here, &status))? {
        let number = ack.id.parse().map_err(|_| here.bad_answer(&"an acknowledgement has a foreign ID"))?;
        on_ack(number, ack.status());
    }
    Ok(())
}

fn refused(here: &Here, status: &tonic::Status) -> Error {
    let server = here.name();
    match status.code() {
        // The deadline is the server's: this client may have been suspended in the middle of a message.
        tonic::Code::Unavailable
        | tonic::Code::Unknown
        | tonic::Code::Cancelled
        | tonic::Code::ResourceExhausted
        | tonic::Code::DeadlineExceeded => Error::Lost { server, cause: status.message().to_owned() },
        tonic::Code::Unimplemented => Error::BadAnswer { server, cause: "it does not serve URLFrontier".to_owned() },
        code => Error::BadAnswer { server, cause: format!("{code:?}: {}", status.message()) },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::servers::Servers;

    /// A regression: an import that was suspended for longer than a message may take ended when it went on.
    #[test]
    fn a_stream_that_the_server_ends_because_nothing_came_is_resumed() {
        let here = Here::now(&Arc::new(Servers::parse("a:1").unwrap()));
        let is_resumed = |status| refused(&here, &status).is_transient();
        assert!(is_resumed(tonic::Status::deadline_exceeded("the message stopped arriving; send it again")));
        assert!(!is_resumed(tonic::Status::unimplemented("")));
    }
}
