//! Holds revoked slice by slice while their host moves to another shard.

use std::sync::Arc;

use wayleave_core::frontier::move_host::Way;
use wayleave_core::frontier::request::{HandOut, Put, PutKind};
use wayleave_core::ids::ShardId;
use wayleave_core::metadata::Metadata;
use wayleave_core::time::Millis;
use wayleave_engine::Memory;
use wayleave_engine::clock::ManualClock;

use super::*;
use crate::ask::{HostMove, UrlChange};
use crate::routing::router::home;
use crate::{Config, Frontier};

const HOSTS: usize = 101;
const URLS: usize = 11;

fn names(pattern: &'static str, shard: ShardId) -> impl Iterator<Item = String> {
    (0..).map(move |i| pattern.replace('?', &i.to_string())).filter(move |name| home(name, 2) == shard)
}

/// Enough holds that those of the last host are in the second slice.
async fn with_holds(shard: ShardId) -> (Frontier, HostName) {
    let engine = Arc::new(Memory::new(ManualClock::new(Time(1_000_000))));
    let frontier = Frontier::open(engine, Config::new(2), &tokio::runtime::Handle::current()).await.unwrap();
    let hosts: Vec<HostName> = names("h?.example", shard).take(HOSTS).map(|name| name.as_str().into()).collect();
    for host in &hosts {
        let put = |n| Put {
            url: format!("http://{host}/{n}").into(),
            host: host.clone(),
            crawl: "DEFAULT".into(),
            kind: PutKind::Discovered { at: None, priority: 5, depth: 0 },
            metadata: Metadata::default(),
        };
        frontier.put((0..URLS).map(put).collect()).await;
    }
    let hold = Millis(30_000);
    let request = HandOut { host: None, crawl: None, queues: HOSTS, urls: URLS, held_below: Some(URLS as u32), hold };
    assert_eq!(frontier.hand_out(request).await.unwrap().len(), HOSTS * URLS);
    (frontier, hosts.last().unwrap().clone())
}

#[tokio::test]
async fn a_revocation_goes_on_where_its_host_has_moved_to() {
    for (from, to) in [(ShardId(0), ShardId(1)), (ShardId(1), ShardId(0))] {
        let (frontier, host) = with_holds(from).await;
        let revoke = |shard: ShardId, after: Option<Key>| {
            let ask = UrlChange::RevokeHolds { host: host.clone(), after };
            frontier.router.ask::<(u64, Option<Key>)>(shard, ask)
        };
        let (first, mut after) = revoke(from, None).await.unwrap();
        assert!((first as usize) < URLS && after.is_some(), "there is a second slice");
        let way = Way::Into(names("alias?", to).next().unwrap().as_str().into());
        let give = HostMove::Give { hosts: vec![host.clone()], way, to };
        frontier.router.ask::<()>(from, give).await.unwrap();
        let mut revoked = first;
        loop {
            let (more, next) = revoke(to, after).await.unwrap();
            revoked += more;
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(revoked as usize, URLS, "from {from:?} to {to:?}");
        let holds = frontier.stats().await.unwrap().holds;
        assert_eq!(holds as usize, (HOSTS - 1) * URLS, "those of the other hosts stay");
    }
}
