//! Holds revoked slice by slice while their host moves to another shard.

use std::sync::Arc;

use wayleave_core::frontier::move_host::Way;
use wayleave_core::frontier::request::{HandOut, Put, PutKind};
use wayleave_core::ids::ShardId;
use wayleave_core::metadata::Metadata;
use wayleave_core::settings::{Change, PaceChanges};
use wayleave_core::time::{Millis, Time};
use wayleave_engine::clock::ManualClock;
use wayleave_engine::rows::{Kind, hold};
use wayleave_engine::{Engine, Memory, Scan};

use super::*;
use crate::ask::{HostMove, UrlChange};
use crate::routing::router::home;
use crate::{Config, Frontier};

/// With [`URLS`] holds each, a slice and a part of another one.
const HOSTS: usize = 101;
const URLS: usize = 11;

fn names(pattern: &'static str, shard: ShardId) -> impl Iterator<Item = String> {
    (0..).map(move |i| pattern.replace('?', &i.to_string())).filter(move |name| home(name, 2) == shard)
}

/// Enough holds that those of the last host are in the second slice.
async fn with_holds(shard: ShardId, count: usize) -> (Arc<Memory>, Frontier, Vec<HostName>) {
    let engine = Arc::new(Memory::new(ManualClock::new(Time(1_000_000))));
    let frontier = Frontier::open(engine.clone(), Config::new(2), &tokio::runtime::Handle::current()).await.unwrap();
    let hosts: Vec<HostName> = names("h?.example", shard).take(count).map(|name| name.as_str().into()).collect();
    for host in &hosts {
        frontier.put((0..URLS).map(|n| put(host, n)).collect()).await;
    }
    let hold = Millis(30_000);
    let request = HandOut { host: None, crawl: None, queues: count, urls: URLS, held_below: Some(URLS as u32), hold };
    assert_eq!(frontier.hand_out(request).await.unwrap().len(), count * URLS);
    (engine, frontier, hosts)
}

fn put(host: &HostName, n: usize) -> Put {
    Put {
        url: format!("http://{host}/{n}").into(),
        host: host.clone(),
        crawl: "DEFAULT".into(),
        kind: PutKind::Discovered { at: None, priority: 5, depth: 0 },
        metadata: Metadata::default(),
    }
}

/// One hold of a host cannot be read. While the others are revoked another URL of the host is handed out, whose hold a later
/// slice ends.
#[tokio::test]
async fn what_is_handed_out_meanwhile_does_not_make_up_for_a_hold_that_cannot_be_read() {
    let (engine, frontier, hosts) = with_holds(ShardId(0), 3 * HOSTS).await;
    let host = hosts.first().unwrap();
    let of_host =
        |key: &Key| key.get(2) == Some(&(Kind::Hold as u8)) && hold::parse_key(key).unwrap().1.host.counter() == 1;
    let rows = engine.scan_many(&[Scan { from: Vec::new(), to: vec![0xff; 9], limit: usize::MAX }]).await.unwrap();
    let bad = rows.into_iter().flatten().map(|row| row.key).find(of_host).unwrap();
    frontier.put(vec![put(host, URLS)]).await;
    let at_once = PaceChanges { delay: Change::Set(Millis(0)), ..PaceChanges::default() };
    frontier.set_host(host.clone(), at_once, false, None).await.unwrap();
    assert_eq!(engine.damage(|key| *key == bad), 1);
    let (crawl, hold) = (None, Millis(60_000));
    let more = HandOut { host: Some(host.clone()), crawl, queues: 1, urls: 1, held_below: Some(100), hold };
    let more = async {
        while frontier.stats().await.unwrap().holds as usize == 3 * HOSTS * URLS {}
        frontier.hand_out(more).await
    };
    let (revoked, given) = tokio::join!(frontier.revoke(Revoke::Host(host.clone())), more);
    assert_eq!(given.unwrap().len(), 1);
    let refused = revoked.unwrap_err();
    assert!(matches!(&refused, Refusal::Damaged { host: named, .. } if **named == **host), "{refused}");
    assert!(refused.to_string().contains("11 holds, were revoked"), "all others: {refused}");
    engine.repair();
    assert_eq!(frontier.revoke(Revoke::Host(host.clone())).await, Ok((0, 1)));
}

#[tokio::test]
async fn a_revocation_goes_on_where_its_host_has_moved_to() {
    for (from, to) in [(ShardId(0), ShardId(1)), (ShardId(1), ShardId(0))] {
        let (_, frontier, mut hosts) = with_holds(from, HOSTS).await;
        let host = hosts.pop().unwrap();
        let revoke = |shard: ShardId, after: Option<Key>| {
            let ask = UrlChange::RevokeHolds { host: host.clone(), after };
            frontier.router.ask::<HoldsEnded>(shard, ask)
        };
        let HoldsEnded { ended: first, next: mut after, .. } = revoke(from, None).await.unwrap();
        assert!((first as usize) < URLS && after.is_some(), "there is a second slice");
        let way = Way::Into(names("alias?", to).next().unwrap().as_str().into());
        let give = HostMove::Give { hosts: vec![host.clone()], way, to };
        frontier.router.ask::<()>(from, give).await.unwrap();
        let mut revoked = first;
        loop {
            let part = revoke(to, after).await.unwrap();
            revoked += part.ended;
            after = part.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(revoked as usize, URLS, "from {from:?} to {to:?}");
        let holds = frontier.stats().await.unwrap().holds;
        assert_eq!(holds as usize, (HOSTS - 1) * URLS, "those of the other hosts stay");
    }
}
