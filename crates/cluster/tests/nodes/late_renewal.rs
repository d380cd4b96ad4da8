//! A node renews its lease just after another one has seen it expired.

use std::sync::atomic::AtomicU64;

use crate::prelude::*;

/// Through this engine a dead node is seen, and at once it renews after all.
struct LateSigns {
    store: Arc<Memory>,
    node: NodeId,
    signs: AtomicU64,
}

impl LateSigns {
    async fn give_sign(&self, look: &Look) {
        let key = node::key(self.node);
        for row in look.rows.iter().flatten().filter(|row| row.key == key) {
            let mut alive = node::decode(&row.value).unwrap();
            if !alive.is_alive(look.now) {
                alive.expires_at = look.now.after(TTL);
                let writes = vec![Write { key: key.clone(), value: Some(node::encode(&alive)) }];
                self.store.commit(Batch { writes, ..Batch::default() }).await.unwrap();
                self.signs.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Engine for LateSigns {
    wayleave_engine::pass_on! { store: now own get_many scan_many commit }

    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look> {
        async move {
            let look = self.store.look(scans).await?;
            self.give_sign(&look).await;
            Ok(look)
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_heard_of_in_the_last_moment_keeps_its_shards() {
    let world = World::new();
    let b = world.start().await;
    let late = Arc::new(LateSigns { store: world.engine.clone(), node: b.id, signs: AtomicU64::new(0) });
    let a = world.start_on(late.clone(), NodeId(50), "http://node-50").await;
    world.settle(&[&a, &b]).await;
    b.tasks.stand_still(true);
    while late.signs.load(Ordering::Relaxed) < 3 {
        // At all times: shards that were taken would soon be returned, because b is alive.
        assert_eq!(a.owned(), usize::from(SHARDS) / 2, "b was seen dead and yet it was not");
        pass(Duration::from_millis(1)).await;
    }
}
