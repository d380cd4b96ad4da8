//! The inbox of an owner: puts stand in one line, everything else in another, so that a hand-out does not wait behind all
//! the URLs that are coming in. In each turn the short line goes first, up to a bound: nobody starves.

use tokio::sync::mpsc::{self, Receiver, Sender, error::SendError};
use wayleave_core::limits::SHARD_QUEUE_MAX;

use crate::message::Message;

/// Messages of the short line that go first in one turn.
const FIRST_MAX: usize = 64;

/// The end that senders hold.
#[derive(Clone)]
pub(crate) struct Inbox {
    others: Sender<Message>,
    puts: Sender<Message>,
}

/// The end that the owner holds.
pub(crate) struct Mail {
    others: Receiver<Message>,
    puts: Receiver<Message>,
    first_left: usize,
}

/// An inbox with both its ends.
pub(crate) fn inbox() -> (Inbox, Mail) {
    let (others, their_others) = mpsc::channel(SHARD_QUEUE_MAX);
    let (puts, their_puts) = mpsc::channel(SHARD_QUEUE_MAX);
    (Inbox { others, puts }, Mail { others: their_others, puts: their_puts, first_left: FIRST_MAX })
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
        Message::Decide(Box::new(|_, _, _| Box::new(|_| ())))
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
