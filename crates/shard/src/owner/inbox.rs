//! An owner's inbox: three bounded queues, for puts, for slices of listings, and for everything else, so that a
//! hand-out waits neither behind incoming URLs nor behind readers. Each turn serves "everything else" first, up to a
//! bound, then puts, then at most one slice. So no queue starves, and between two slices every waiting visit is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc::{self, Receiver, Sender, error::SendError};
use tokio::time::Instant;
use wayleave_core::limits::SHARD_QUEUE_MAX;

use crate::message::Message;
use crate::routing::admission::Admission;

/// Messages of the "everything else" queue that go first in one turn.
const FIRST_MAX: usize = 64;

static TERMS: AtomicU64 = AtomicU64::new(0);

/// The sending end.
#[derive(Clone)]
pub(crate) struct InboxSender {
    /// Distinguishes this owner from its predecessor and successor.
    pub term: u64,
    others: Sender<Message>,
    puts: Sender<Message>,
    slices: Sender<Message>,
}

/// The receiving end.
pub(crate) struct InboxReceiver {
    pub term: u64,
    others: Receiver<Message>,
    puts: Receiver<Message>,
    slices: Receiver<Message>,
    first_left: usize,
    admission: Arc<Admission>,
    /// The next put, held back by admission control.
    held_back: Option<Message>,
    /// Draining before a stop: puts are no longer held back.
    stopping: bool,
}

/// Creates an inbox.
pub(crate) fn inbox(admission: Arc<Admission>) -> (InboxSender, InboxReceiver) {
    let (to_others, others) = mpsc::channel(SHARD_QUEUE_MAX);
    let (to_puts, puts) = mpsc::channel(SHARD_QUEUE_MAX);
    let (to_slices, slices) = mpsc::channel(SHARD_QUEUE_MAX);
    let term = TERMS.fetch_add(1, Ordering::Relaxed);
    let receiver = InboxReceiver {
        term,
        others,
        puts,
        slices,
        first_left: FIRST_MAX,
        admission,
        held_back: None,
        stopping: false,
    };
    (InboxSender { term, others: to_others, puts: to_puts, slices: to_slices }, receiver)
}

impl InboxSender {
    /// Sends a message; waits while its queue is full.
    pub async fn send(&self, message: Message) -> Result<(), SendError<Message>> {
        match message {
            Message::Put { .. } => self.puts.send(message).await,
            _ if message.is_slice() => self.slices.send(message).await,
            _ => self.others.send(message).await,
        }
    }
}

impl InboxReceiver {
    /// Waits for the first message of a turn; `None` when all senders are gone.
    pub async fn recv(&mut self) -> Option<Message> {
        self.first_left = FIRST_MAX;
        loop {
            if let Some(message) = self.try_other().or_else(|| self.try_put()).or_else(|| self.try_slice()) {
                return Some(message);
            }
            let until = self.held_back.as_ref().and_then(|message| self.admission.held_until(message));
            tokio::select! {
                biased;
                Some(message) = self.others.recv() => return Some(self.note(message)),
                Some(message) = self.puts.recv(), if self.held_back.is_none() => self.held_back = Some(message),
                Some(message) = self.slices.recv() => return Some(message),
                () = self.admission.wait(until.unwrap_or_else(Instant::now)), if self.held_back.is_some() => {}
                else => return None,
            }
        }
    }

    /// The next slice of a listing.
    pub fn try_slice(&mut self) -> Option<Message> {
        self.slices.try_recv().ok()
    }

    fn try_other(&mut self) -> Option<Message> {
        let message = self.others.try_recv().ok()?;
        Some(self.note(message))
    }

    /// The next put, unless it is held back.
    fn try_put(&mut self) -> Option<Message> {
        let message = self.held_back.take().or_else(|| self.puts.try_recv().ok())?;
        if !self.stopping && self.admission.held_until(&message).is_some() {
            self.held_back = Some(message);
            return None;
        }
        Some(message)
    }

    fn note(&mut self, message: Message) -> Message {
        self.stopping |= matches!(message, Message::Stop { .. });
        message
    }

    /// Closes the inbox and returns the remaining messages.
    pub async fn close(&mut self) -> Vec<Message> {
        self.others.close();
        self.puts.close();
        self.slices.close();
        let mut left = Vec::from_iter(self.held_back.take());
        while let Some(message) = self.others.recv().await {
            left.push(message);
        }
        while let Some(message) = self.puts.recv().await {
            left.push(message);
        }
        while let Some(message) = self.slices.recv().await {
            left.push(message);
        }
        left
    }

    /// The next message of this turn that is not a slice, if any is queued.
    pub fn try_recv(&mut self) -> Option<Message> {
        if self.first_left > 0
            && let Some(message) = self.try_other()
        {
            self.first_left -= 1;
            return Some(message);
        }
        self.try_put().or_else(|| self.try_other())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;
    use crate::message::new_url;

    fn admission() -> Arc<Admission> {
        Arc::new(Admission::new(Duration::from_millis(10)))
    }

    fn put() -> Message {
        Message::Put { items: Vec::new(), sink: mpsc::unbounded_channel().0 }
    }

    fn other() -> Message {
        Message::Ask { ask: crate::ask::StateQuery::Stats.into(), reply: tokio::sync::oneshot::channel().0 }
    }

    #[tokio::test]
    async fn others_go_before_puts_but_not_for_ever() {
        let (inbox, mut receiver) = inbox(admission());
        for _ in 0..100 {
            inbox.send(put()).await.unwrap();
            inbox.send(other()).await.unwrap();
        }
        let is_put = |message: Message| matches!(message, Message::Put { .. });
        assert!(!is_put(receiver.recv().await.unwrap()));
        let turn: Vec<bool> = std::iter::from_fn(|| receiver.try_recv()).map(is_put).collect();
        assert_eq!(turn.len(), 199);
        assert_eq!(turn.iter().position(|put| *put), Some(FIRST_MAX), "then the puts have their turn");
        assert!(!turn[198], "what is left of the others comes after them");
    }

    fn new_put() -> Message {
        Message::Put { items: vec![(0, new_url()); 100], sink: mpsc::unbounded_channel().0 }
    }

    #[tokio::test(start_paused = true)]
    async fn new_urls_let_others_go_first_and_lose_nothing() {
        let admission = admission();
        let (inbox, mut receiver) = inbox(admission.clone());
        inbox.send(new_put()).await.unwrap();
        let visit = admission.await_visit();
        assert!(receiver.recv().now_or_never().is_none() && receiver.try_recv().is_none());
        inbox.send(other()).await.unwrap();
        assert!(matches!(receiver.recv().await, Some(Message::Ask { .. })));
        drop(visit);
        assert_eq!(receiver.recv().await.map(|message| message.weight()), Some(100));
        let _visit = {
            tokio::time::advance(Duration::from_millis(50)).await;
            admission.await_visit()
        };
        inbox.send(new_put()).await.unwrap();
        assert!(receiver.recv().now_or_never().is_none());
        let (done, _) = tokio::sync::oneshot::channel();
        inbox.send(Message::Stop { done }).await.unwrap();
        assert!(matches!(receiver.recv().await, Some(Message::Stop { .. })));
        assert_eq!(receiver.try_recv().map(|message| message.weight()), Some(100), "who stops does all that waits");
    }

    #[tokio::test(start_paused = true)]
    async fn a_put_that_stands_goes_on_in_time_or_is_left_to_the_next_owner() {
        let admission = admission();
        let (inbox, mut receiver) = inbox(admission.clone());
        let _visit = admission.await_visit();
        inbox.send(new_put()).await.unwrap();
        assert!(receiver.recv().now_or_never().is_none());
        assert_eq!(receiver.recv().await.map(|message| message.weight()), Some(100), "not for ever");
        tokio::time::advance(Duration::from_millis(50)).await;
        let _later = admission.await_visit();
        inbox.send(new_put()).await.unwrap();
        assert!(receiver.recv().now_or_never().is_none());
        assert_eq!(receiver.close().await.len(), 1);
    }
}
