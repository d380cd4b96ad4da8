//! An in-process network for tests and the simulator: real calls with real encoding, and links that can be cut.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::sync::Notify;
use wayleave_cluster::{Network, readiness_stream};
use wayleave_core::ids::NodeId;
use wayleave_engine::Key;
use wayleave_registry::Hints;
use wayleave_shard::{Frontier, LinkError, Links, Service};

/// The fate of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives and is answered.
    Arrives,
    /// It never leaves.
    NotSent,
    /// It is carried out and the response is lost.
    AnswerLost,
    /// It is carried out after this time.
    Late(Duration),
}

/// Decides the fate of a call.
pub type Fates = Arc<dyn Fn(NodeId, NodeId) -> Fate + Send + Sync>;

#[derive(Default)]
struct State {
    nodes: BTreeMap<NodeId, (Frontier, Hints)>,
    cut: BTreeSet<(NodeId, NodeId)>,
    still: BTreeSet<NodeId>,
    fates: Option<Fates>,
}

/// All nodes of a process.
#[derive(Clone, Default)]
pub struct Switchboard {
    state: Arc<Mutex<State>>,
    /// Notified when a paused node continues, or is gone.
    moved: Arc<Notify>,
}

impl Switchboard {
    /// A node's own endpoint. Others reach it after [`Switchboard::answer`].
    #[must_use]
    pub fn line(&self, node: NodeId) -> Arc<Line> {
        Arc::new(Line { board: self.clone(), me: node })
    }

    /// From now on a node answers with this frontier.
    pub fn answer(&self, node: NodeId, frontier: Frontier, hints: Hints) {
        self.lock().nodes.insert(node, (frontier, hints));
    }

    /// A node is gone.
    pub fn remove(&self, node: NodeId) {
        self.lock().nodes.remove(&node);
        self.stand_still(node, false);
    }

    /// Pauses or resumes a node: meanwhile it neither sends nor answers, and calls to it wait.
    pub fn stand_still(&self, node: NodeId, still: bool) {
        if still {
            self.lock().still.insert(node);
        } else {
            self.lock().still.remove(&node);
            self.moved.notify_waiters();
        }
    }

    async fn until_moves(&self, node: NodeId) {
        loop {
            let moved = self.moved.notified();
            if !self.lock().still.contains(&node) {
                return;
            }
            moved.await;
        }
    }

    /// Cuts or restores the link between two nodes, in both directions.
    pub fn cut(&self, one: NodeId, other: NodeId, cut: bool) {
        let mut state = self.lock();
        for pair in [(one, other), (other, one)] {
            if cut {
                state.cut.insert(pair);
            } else {
                state.cut.remove(&pair);
            }
        }
    }

    /// Sets the function that decides the fate of every call.
    pub fn set_fates(&self, fates: Option<Fates>) {
        self.lock().fates = fates;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reach(&self, from: NodeId, to: NodeId) -> Option<(Frontier, Hints)> {
        let state = self.lock();
        if state.cut.contains(&(from, to)) { None } else { state.nodes.get(&to).cloned() }
    }

    fn fate(&self, from: NodeId, to: NodeId) -> Fate {
        let fates = self.lock().fates.clone();
        fates.map_or(Fate::Arrives, |fates| fates(from, to))
    }
}

/// One node's endpoint.
pub struct Line {
    board: Switchboard,
    me: NodeId,
}

impl Links for Line {
    fn call(
        &self,
        node: NodeId,
        service: Service,
        call: Vec<u8>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Vec<u8>, LinkError>> {
        let (board, me) = (self.board.clone(), self.me);
        async move {
            board.until_moves(me).await;
            let fate = board.fate(me, node);
            let Some((frontier, _)) = board.reach(me, node).filter(|_| fate != Fate::NotSent) else {
                return Err(LinkError::NotSent(format!("node {node} cannot be reached")));
            };
            let lost = || LinkError::Lost(format!("node {node} did not answer"));
            // The other side continues even if the caller has given up.
            let there = board.clone();
            let answering = tokio::spawn(async move {
                if let Fate::Late(span) = fate {
                    tokio::time::sleep(span).await;
                }
                there.until_moves(node).await;
                let answer = frontier.answer(service, &call).await;
                there.until_moves(node).await;
                answer
            });
            let answer = tokio::time::timeout(within, answering).await;
            board.until_moves(me).await;
            let answer = answer.map_err(|_| lost())?.map_err(|_| lost())?;
            // A link that was cut meanwhile delivers no response.
            if fate == Fate::AnswerLost || board.reach(me, node).is_none() {
                return Err(lost());
            }
            answer.map_err(LinkError::NotSent)
        }
        .boxed()
    }
}

impl Network for Line {
    fn meet(&self, _: &[(NodeId, Box<str>)]) {}

    fn listen(&self, node: NodeId) -> BoxStream<'static, Vec<u8>> {
        let (board, me) = (self.board.clone(), self.me);
        let Some((frontier, _)) = board.reach(me, node) else { return futures::stream::empty().boxed() };
        let hears = move |_: &Vec<u8>| {
            let board = board.clone();
            async move {
                board.until_moves(node).await;
                board.until_moves(me).await;
                board.reach(me, node).is_some()
            }
        };
        readiness_stream(&frontier).take_while(hears).boxed()
    }

    fn hint(&self, node: NodeId, keys: &[Key]) {
        if let Some((_, hints)) = self.board.reach(self.me, node) {
            keys.iter().for_each(|key| hints.wake(key));
        }
    }
}
