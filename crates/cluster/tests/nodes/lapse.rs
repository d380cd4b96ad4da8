//! A lease that lapses while the task that closes shards is delayed, and is renewed before that task continues.

use wayleave_core::frontier::refusal::Refusal;

use crate::prelude::*;

/// A node's own connection to the store: its renewals may be delayed, and so may its looks at seats.
struct Gates {
    store: Arc<Memory>,
    me: NodeId,
    renewals: watch::Sender<bool>,
    looks: watch::Sender<bool>,
}

impl Gates {
    /// A node with such a connection, whose gates are open.
    async fn start(world: &World) -> (Arc<Self>, Node) {
        let (store, me) = (world.engine.clone(), NodeId(50));
        let gates = Self { store, me, renewals: watch::Sender::new(true), looks: watch::Sender::new(true) };
        let gates = Arc::new(gates);
        let node = world.start_on(gates.clone(), me, "http://node-50").await;
        (gates, node)
    }
}

impl Engine for Gates {
    wayleave_engine::pass_on! { store: now own get_many scan_many }

    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look> {
        // A renewal reads one row, or all nodes and one; the seats task all nodes, all seats and the format.
        let (seats, mut open) = (scans.len() == 3, self.looks.subscribe());
        async move {
            if seats {
                _ = open.wait_for(|open| *open).await;
            }
            self.store.look(scans).await
        }
        .boxed()
    }

    fn commit(&self, batch: Batch) -> Commit {
        if !batch.writes.iter().any(|write| write.key == node::key(self.me)) {
            return self.store.commit(batch);
        }
        let (store, mut open) = (self.store.clone(), self.renewals.subscribe());
        async move {
            _ = open.wait_for(|open| *open).await;
            store.commit(batch).await
        }
        .boxed()
    }
}

/// (the seats task of b is delayed in a look) (the lease of b lapses) (a takes all shards and changes one) (b renews
/// its lease) (b is asked about that shard, which still has an owner there) (the seats task of b continues).
#[tokio::test(start_paused = true)]
async fn a_node_whose_lease_lapsed_does_not_vouch_for_its_old_owners() {
    let world = World::new();
    let a = world.start().await;
    let (gates, b) = Gates::start(&world).await;
    world.settle(&[&a, &b]).await;
    let host = (0..).map(|n| format!("h{n}.example")).find(|host| b.frontier.owns(home(host, SHARDS))).unwrap();
    let url = format!("http://{host}/");
    gates.looks.send_replace(false);
    pass(Duration::from_millis(TTL.0 / 2)).await;
    gates.renewals.send_replace(false);
    pass(Duration::from_millis(2 * TTL.0)).await;
    assert!(!b.member.as_ref().unwrap().is_alive());
    world.settle_one(&a).await;
    assert_eq!(a.put(&[&url]).await, [PutOutcome::Added]);
    gates.renewals.send_replace(true);
    while !b.member.as_ref().unwrap().is_alive() {
        pass(Duration::from_millis(1)).await;
    }
    assert!(b.frontier.owns(home(&host, SHARDS)), "its old owner is still there");
    let answer = b.frontier.host(host.as_str().into()).await;
    assert!(
        !matches!(answer, Err(Refusal::UnknownHost(_))),
        "an owner that was fenced out answers from its old memory"
    );
    gates.looks.send_replace(true);
    world.settle(&[&a, &b]).await;
    assert_eq!(&*b.frontier.host(host.as_str().into()).await.unwrap().host, host.as_str());
    assert_eq!(b.put(&[&url]).await, [PutOutcome::Known]);
}

/// (the seats task of b is delayed in a look) (another process takes the address of b, whose row is removed before its
/// lease has expired) (that process owns the shards of b and changes one) (b finds its row gone, and is asked about
/// that shard).
#[tokio::test(start_paused = true)]
async fn a_node_whose_address_is_taken_stops_vouching_for_its_owners() {
    let world = World::new();
    let (gates, b) = Gates::start(&world).await;
    world.settle(&[&b]).await;
    gates.looks.send_replace(false);
    world.board.cut(NodeId(77), b.id, true);
    assert!(!b.frontier.is_unsure());
    let c = world.start_at(NodeId(77), "http://node-50").await;
    while b.member.as_ref().unwrap().is_alive() {
        pass(Duration::from_millis(1)).await;
    }
    assert!(b.frontier.is_unsure(), "others may own its shards before its lease would have run out");
    drop(c);
}

/// (the seats task of b is delayed in a look, and a renewal on its way) (the row of b goes, or ends as by a step of the store's
/// clock) (a takes all shards and changes one) (b renews its row, though by its own clock its lease has not expired)
/// (b is asked about that shard, which still has an owner there) (the seats task of b continues).
#[tokio::test(start_paused = true)]
async fn a_renewal_that_finds_its_row_dead_or_gone_is_a_lapse() {
    for gone in [true, false] {
        let world = World::new();
        let a = world.start().await;
        let (gates, b) = Gates::start(&world).await;
        world.settle(&[&a, &b]).await;
        pass(Duration::from_millis(TTL.0)).await;
        let host = (0..).map(|n| format!("h{n}.example")).find(|host| b.frontier.owns(home(host, SHARDS))).unwrap();
        let url = format!("http://{host}/");
        gates.looks.send_replace(false);
        gates.renewals.send_replace(false);
        pass(Duration::from_millis(TTL.0 / 4)).await;
        let stored = world.engine.get_many(&[node::key(b.id)]).await.unwrap().remove(0).unwrap();
        let mut row = node::decode(&stored).unwrap();
        row.expires_at = world.engine.now();
        let value = (!gone).then(|| node::encode(&row));
        let writes = vec![Write { key: node::key(b.id), value }];
        world.engine.commit(Batch { writes, ..Batch::default() }).await.unwrap();
        while !a.frontier.owns(home(&host, SHARDS)) {
            pass(Duration::from_millis(10)).await;
        }
        assert_eq!(a.put(&[&url]).await, [PutOutcome::Added]);
        let lives = || b.member.as_ref().unwrap().is_alive();
        assert!(lives(), "its lease lasts by its own clock");
        gates.renewals.send_replace(true);
        pass(Duration::from_millis(50)).await;
        assert!(lives() && b.frontier.is_unsure(), "its row went: {gone}");
        let answer = b.frontier.host(host.as_str().into()).await;
        assert!(
            !matches!(answer, Err(Refusal::UnknownHost(_))),
            "an owner that was fenced out answers from its old memory"
        );
        gates.looks.send_replace(true);
        world.settle(&[&a, &b]).await;
        assert_eq!(b.put(&[&url]).await, [PutOutcome::Known]);
    }
}
