//! A node whose commits are in flight for a while: what leaves a shard must wait for them.

use tokio::sync::Mutex;

use crate::prelude::*;

/// A node's own connection to the store. While it is shut, commits of shard owners queue up; everything else passes.
struct Gate {
    store: Arc<Memory>,
    open: watch::Sender<bool>,
    line: Arc<Mutex<()>>,
}

impl Engine for Gate {
    wayleave_engine::pass_on! { store: now own get_many scan_many look }

    fn commit(&self, batch: Batch) -> Commit {
        if batch.fences.is_empty() || *self.open.borrow() {
            return self.store.commit(batch);
        }
        let (store, mut open, line) = (self.store.clone(), self.open.subscribe(), self.line.clone());
        let waiting = tokio::spawn(async move {
            // The lock is fair: batches keep their order.
            let _in_line = line.lock().await;
            _ = open.wait_for(|open| *open).await;
            store.commit(batch).await
        });
        async move { waiting.await.unwrap() }.boxed()
    }
}

impl Gate {
    fn shut(&self, shut: bool) {
        self.open.send_replace(!shut);
    }
}

/// Two nodes, each with its gate.
async fn pair(world: &World) -> [(Node, Arc<Gate>); 2] {
    let mut nodes = Vec::new();
    for id in [NodeId(50), NodeId(51)] {
        let (store, open, line) = (world.engine.clone(), watch::Sender::new(true), Arc::default());
        let gate = Arc::new(Gate { store, open, line });
        nodes.push((world.start_on(gate.clone(), id, &format!("http://node-{}", id.0)).await, gate));
    }
    world.settle(&[&nodes[0].0, &nodes[1].0]).await;
    nodes.try_into().ok().unwrap()
}

/// The first of some names whose home a node owns.
fn home_at(node: &Node, mut name: impl FnMut(usize) -> String) -> String {
    (0..).map(&mut name).find(|name| node.frontier.owns(home(name, SHARDS))).unwrap()
}

/// Puts a URL and waits until its commit is in flight.
async fn put_on_its_way(node: &Node, url: &str) -> tokio::task::JoinHandle<Vec<PutOutcome>> {
    let (frontier, item) = (node.frontier.clone(), put(url));
    let putting = tokio::spawn(async move { frontier.put(vec![item]).await });
    pass(Duration::from_millis(100)).await;
    assert!(!putting.is_finished(), "the gate is shut");
    putting
}

#[tokio::test(start_paused = true)]
async fn a_shard_is_handed_over_only_when_nothing_of_it_is_under_way() {
    let world = World::new();
    let [(a, _), (b, gate)] = pair(&world).await;
    let host = home_at(&b, |n| format!("h{n}.example"));
    let (url, shard) = (format!("http://{host}/"), home(&host, SHARDS));
    gate.shut(true);
    let putting = put_on_its_way(&b, &url).await;
    let member = b.member.clone().unwrap();
    let leaving = tokio::spawn(async move { member.leave(Duration::from_secs(60)).await });
    pass(Duration::from_secs(1)).await;
    assert!(a.owned() > usize::from(SHARDS) / 2, "what has nothing under way goes at once");
    assert!(!a.frontier.owns(shard), "a commit is still under way, and the next owner would fence it out");
    gate.shut(false);
    assert_eq!(putting.await.unwrap(), [PutOutcome::Added], "no owner was fenced out");
    leaving.await.unwrap();
    world.settle(&[&a]).await;
    assert_eq!(a.put(&[&url]).await, [PutOutcome::Known]);
}

#[tokio::test(start_paused = true)]
async fn a_host_moves_only_when_nothing_of_its_shard_is_in_flight() {
    let world = World::new();
    let [(a, a_gate), (b, b_gate)] = pair(&world).await;
    let host = home_at(&b, |n| format!("h{n}.example"));
    let alias = home_at(&a, |n| format!("alias{n}"));
    let url = format!("http://{host}/");
    b.put(&[&format!("http://{host}/before")]).await;
    // All shards are asked where hosts are before the alias is created; then only its own commit is awaited.
    a_gate.shut(true);
    let moving = tokio::spawn({
        let (frontier, hosts) = (a.frontier.clone(), vec![host.as_str().into()]);
        async move { frontier.set_group(alias.as_str().into(), Some(hosts), PaceChanges::default(), false).await }
    });
    pass(Duration::from_millis(100)).await;
    b_gate.shut(true);
    let putting = put_on_its_way(&b, &url).await;
    a_gate.shut(false);
    pass(Duration::from_millis(100)).await;
    assert!(!moving.is_finished(), "the taker's commit would come before what the giver has under way");
    b_gate.shut(false);
    assert_eq!(putting.await.unwrap(), [PutOutcome::Added]);
    let group = moving.await.unwrap().expect("the first try succeeds");
    assert_eq!(group.hosts.len(), 1);
    assert_eq!(a.put(&[&url]).await, [PutOutcome::Known], "it took its URL along");
}
