//! The inbox of an owner: puts stand in one line, everything else in another, so that a hand-out does not wait behind all
//! the URLs that are coming in. In each turn the short line goes first, up to a bound: nobody starves.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc::{self, Receiver, Sender, error::SendError};
use wayleave_core::limits::SHARD_QUEUE_MAX;

use crate::message::Message;

/// Messages of the short line that go first in one turn.
const FIRST_MAX: usize = 64;

static TERMS: AtomicU64 = AtomicU64::new(0);

/// The end that senders hold.
#[derive(Clone)]
pub(crate) struct Inbox {
    /// Tells this owner from the one before and the one after it.
    pub term: u64,
    others: Sender<Message>,
    puts: Sender<Message>,
}

/// The end that the owner holds.
pub(crate) struct Mail {
    pub term: u64,
    others: Receiver<Message>,
    puts: Receiver<Message>,
    first_left: usize,
}

/// An inbox with both its ends.
pub(crate) fn inbox() -> (Inbox, Mail) {
    let (others, their_others) = mpsc::channel(SHARD_QUEUE_MAX);
    let (puts, their_puts) = mpsc::channel(SHARD_QUEUE_MAX);
    let term = TERMS.fetch_add(1, Ordering::Relaxed);
    (Inbox { term, others, puts }, Mail { term, others: their_others, puts: their_puts, first_left: FIRST_MAX })
}

impl Inbox {
    /// Leaves a message; waits while its line is full.
    pub async fn send(&self, message: Message) -> Result<(), SendError<Message>> {
        match message {
            Message::Put { .. } => self.puts.send(message).await,
            _ => self.others.send(message).await,
        }
    }
}

impl Mail {
    /// Waits for the first message of a turn; none when all senders are gone.
    pub async fn recv(&mut self) -> Option<Message> {
        self.first_left = FIRST_MAX;
        tokio::select! {
            biased;
            Some(message) = self.others.recv() => Some(message),
            Some(message) = self.puts.recv() => Some(message),
            else => None,
        }
    }

    /// Takes no more, and gives what is left.
    pub async fn close(&mut self) -> Vec<Message> {
        self.others.close();
        self.puts.close();
        let mut left = Vec::new();
        while let Some(message) = self.others.recv().await {
            left.push(message);
        }
        while let Some(message) = self.puts.recv().await {
            left.push(message);
        }
        left
    }

    /// The next message of this turn, if one waits.
    pub fn try_recv(&mut self) -> Option<Message> {
        if self.first_left > 0
            && let Ok(message) = self.others.try_recv()
        {
            self.first_left -= 1;
            return Some(message);
        }
        self.puts.try_recv().or_else(|_| self.others.try_recv()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put() -> Message {
        Message::Put { items: Vec::new(), sink: mpsc::unbounded_channel().0 }
    }

    fn other() -> Message {
        Message::Ask { ask: crate::ask::Ask::Stats, reply: tokio::sync::oneshot::channel().0 }
    }

    #[tokio::test]
    async fn others_go_before_puts_but_not_for_ever() {
        let (inbox, mut mail) = inbox();
        for _ in 0..100 {
            inbox.send(put()).await.unwrap();
            inbox.send(other()).await.unwrap();
        }
        let is_put = |message: Message| matches!(message, Message::Put { .. });
        assert!(!is_put(mail.recv().await.unwrap()));
        let turn: Vec<bool> = std::iter::from_fn(|| mail.try_recv()).map(is_put).collect();
        assert_eq!(turn.len(), 199);
        assert_eq!(turn.iter().position(|put| *put), Some(FIRST_MAX), "then the puts have their turn");
        assert!(!turn[198], "what is left of the others comes after them");
    }
}
