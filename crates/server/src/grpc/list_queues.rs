//! ListQueues, ListCrawls and ListNodes.

use tonic::Status;
use wayleave_api::nodes::{Node, NodeState};
use wayleave_api::urlfrontier::{Pagination, QueueList, StringList};
use wayleave_core::limits;
use wayleave_core::limits::LIST_QUEUES_MAX;
use wayleave_core::names::HostName;
use wayleave_shard::Frontier;

use super::service::Nodes;
use super::{convert, refused};
use crate::Peers;

/// Bytes of a message reserved for everything but queue keys.
const MARGIN_BYTES: usize = 1_024;
/// The encoding overhead of a key in a message.
const KEY_EXTRA_BYTES: usize = 4;

/// Answers a ListQueues call.
pub async fn list_queues(frontier: &Frontier, params: Pagination) -> Result<QueueList, Status> {
    let start = usize::try_from(params.start).unwrap_or(usize::MAX);
    let crawl = convert::crawl(&params.crawl_id);
    let queues = match crawl.clone() {
        Some(crawl) => frontier.queues(crawl, start, size(params.size), params.include_inactive).await,
        None => Ok(Vec::new()),
    };
    let queues = match queues {
        Ok(queues) => fitting(queues),
        Err(refusal) if refused::is_unknown(&refusal) => Vec::new(),
        Err(refusal) => return Err(refused::status(&refusal)),
    };
    Ok(QueueList {
        size: u32::try_from(queues.len()).unwrap_or(u32::MAX),
        values: queues,
        total: 0,
        start: params.start,
        crawl_id: crawl.map_or(params.crawl_id, |crawl| crawl.as_ref().to_owned()),
    })
}

/// Answers a ListCrawls call: crawls that have a queue.
pub async fn list_crawls(frontier: &Frontier) -> Result<StringList, Status> {
    let crawls = frontier.crawls().await.map_err(|refusal| refused::status(&refusal))?;
    let with_queues = crawls.into_iter().filter(|view| view.queues > 0);
    Ok(StringList { values: with_queues.map(|view| view.crawl.as_ref().to_owned()).collect() })
}

/// Answers a ListNodes call: `host:port` of every live node, sorted. Each of them answers for all.
pub fn list_nodes(nodes: &Nodes) -> StringList {
    let others = nodes.peers.as_ref().and_then(Peers::nodes).unwrap_or_default();
    let living = others.into_iter().filter(|node| node.state != NodeState::Lost);
    let address = |node: Node| node.address.trim_start_matches("http://").to_owned();
    let mut values: Vec<String> = living.map(address).collect();
    if values.is_empty() {
        values.push(nodes.advertised.clone());
    }
    values.sort_unstable();
    StringList { values }
}

fn size(asked: u32) -> usize {
    match usize::try_from(asked) {
        Ok(0) => limits::PAGE_DEFAULT,
        asked => asked.unwrap_or(LIST_QUEUES_MAX).min(LIST_QUEUES_MAX),
    }
}

/// As many keys as fit into one message of the size that stock clients accept.
fn fitting(queues: Vec<HostName>) -> Vec<String> {
    let mut left = limits::MESSAGE_BYTES_MAX - MARGIN_BYTES;
    let fits = |queue: &HostName| match left.checked_sub(queue.len() + KEY_EXTRA_BYTES) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    queues.into_iter().take_while(fits).map(|queue| queue.as_ref().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_zero_is_a_hundred() {
        assert_eq!((size(0), size(10_000), size(u32::MAX)), (100, 10_000, LIST_QUEUES_MAX));
    }

    #[test]
    fn an_answer_fits_one_message() {
        use prost::Message;
        let queues = vec![HostName::from("k".repeat(255)); 30_000];
        let list = QueueList { values: fitting(queues), crawl_id: "c".repeat(255), ..Default::default() };
        assert!(list.encoded_len() <= limits::MESSAGE_BYTES_MAX);
        assert!(list.values.len() > 16_000);
    }
}
