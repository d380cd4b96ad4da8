//! A network within one process, for tests and the simulator: real calls in real bytes, and links that can be cut.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use wayleave_core::ids::NodeId;
use wayleave_shard::{Frontier, LinkError, Links};

use crate::beats::beats;
use crate::network::Network;
use crate::service::Hints;

/// What becomes of a call on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives and is answered.
    Arrives,
    /// It never leaves.
    NotSent,
    /// It is done and the answer is lost.
    AnswerLost,
    /// It is done after this time.
    Late(Duration),
}

/// Decides what becomes of a call.
pub type Fates = Arc<dyn Fn(NodeId, NodeId) -> Fate + Send + Sync>;

#[derive(Default)]
struct State {
    nodes: BTreeMap<NodeId, (Frontier, Hints)>,
    cut: BTreeSet<(NodeId, NodeId)>,
    fates: Option<Fates>,
}

/// All nodes of a process.
#[derive(Clone, Default)]
pub struct Switchboard(Arc<Mutex<State>>);

impl Switchboard {
    /// A node's own end. It is reached by others once it is there, by [`Switchboard::answer`].
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
    }

    /// Cuts or mends the link between two nodes, both ways.
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

    /// Lets somebody decide what becomes of every call.
    pub fn set_fates(&self, fates: Option<Fates>) {
        self.lock().fates = fates;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

/// One node's end of the switchboard.
pub struct Line {
    board: Switchboard,
    me: NodeId,
}

impl Links for Line {
    fn call(&self, node: NodeId, call: Vec<u8>, within: Duration) -> BoxFuture<'static, Result<Vec<u8>, LinkError>> {
        let (board, me) = (self.board.clone(), self.me);
        async move {
            let fate = board.fate(me, node);
            let Some((frontier, _)) = board.reach(me, node).filter(|_| fate != Fate::NotSent) else {
                return Err(LinkError::NotSent(format!("node {node} cannot be reached")));
            };
            let lost = || LinkError::Lost(format!("node {node} did not answer"));
            // The other side goes on though the caller may have given up.
            let answering = tokio::spawn(async move {
                if let Fate::Late(span) = fate {
                    tokio::time::sleep(span).await;
                }
                frontier.answer(&call).await
            });
            let answer = tokio::time::timeout(within, answering).await.map_err(|_| lost())?.map_err(|_| lost())?;
            // A link that was cut meanwhile brings no answer back.
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
        beats(frontier).take_while(move |_| std::future::ready(board.reach(me, node).is_some())).boxed()
    }

    fn nudge(&self, node: NodeId, role: Option<&str>) {
        if let Some((_, hints)) = self.board.reach(self.me, node) {
            hints(role);
        }
    }
}
