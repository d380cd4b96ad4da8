//! Two nodes that join with one address at the same moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::Barrier;
use wayleave_cluster::JoinError;
use wayleave_core::ids::NodeId;
use wayleave_engine::rows::node;
use wayleave_engine::{Batch, Commit, Engine, Look, Memory, Pending, Scan};

use crate::support::{World, pass};

const ADDRESS: &str = "http://same";

/// A node's own connection to the store: its first look is late, its row is written together with the other node's, and
/// what it looks at afterwards is later than both writes.
struct Joining {
    store: Arc<Memory>,
    me: NodeId,
    first_look: Duration,
    after_writing: Duration,
    both_write: Arc<Barrier>,
    writes: AtomicBool,
}

impl Engine for Joining {
    wayleave_engine::pass_on! { store: now own get_many scan_many }

    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look> {
        async move {
            pass(if self.writes.load(Ordering::Relaxed) { self.after_writing } else { self.first_look }).await;
            self.store.look(scans).await
        }
        .boxed()
    }

    fn commit(&self, batch: Batch) -> Commit {
        let mine = batch.writes.iter().any(|write| write.key == node::key(self.me));
        let joins = mine && !self.writes.swap(true, Ordering::Relaxed);
        let (store, both_write) = (self.store.clone(), self.both_write.clone());
        async move {
            if joins {
                both_write.wait().await;
            }
            store.commit(batch).await
        }
        .boxed()
    }
}

/// (look A) (look B) (write A) (write B) (confirm either): both checked the address before either had written its row. Whichever
/// confirms first, the later one gives way.
#[tokio::test(start_paused = true)]
async fn of_two_that_join_at_the_same_moment_the_later_one_gives_way() {
    for later_first in [false, true] {
        let world = World::new();
        let both_write = Arc::new(Barrier::new(2));
        let joining = |me, looks_at: u64, confirms_late: bool| {
            let first_look = Duration::from_millis(looks_at);
            let after_writing = Duration::from_millis(if confirms_late { 100 } else { 1 });
            let (store, both_write) = (world.engine.clone(), both_write.clone());
            Arc::new(Joining { store, me, first_look, after_writing, both_write, writes: AtomicBool::new(false) })
        };
        let (earlier, later) = (joining(NodeId(8), 0, later_first), joining(NodeId(7), 1, !later_first));
        let (first, second) = tokio::join!(
            world.try_start_on(earlier, NodeId(8), ADDRESS),
            world.try_start_on(later, NodeId(7), ADDRESS)
        );
        let refused = second.err();
        assert!(matches!(refused, Some(JoinError::AddressTaken { id: NodeId(8), .. })), "{refused:?} {later_first}");
        let first = first.unwrap();
        world.settle(&[&first]).await;
        let nodes = first.member.as_ref().unwrap().nodes().unwrap();
        assert_eq!(nodes.iter().map(|node| node.row.id).collect::<Vec<_>>(), [NodeId(8)]);
    }
}
