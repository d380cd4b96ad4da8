//! Pipelining: sends requests back to back without waiting for responses, in one round trip.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use futures::future::{MaybeDone, maybe_done};

/// Runs all futures to completion. Each is polled in its position from the first round on, and a request is sent at its
/// first poll, so requests reach the server in this order. (The join functions of the libraries guarantee no order.)
pub(crate) async fn in_order<F: Future + Unpin>(questions: Vec<F>) -> Vec<F::Output> {
    let mut waiting: Vec<MaybeDone<F>> = questions.into_iter().map(maybe_done).collect();
    poll_fn(|context| {
        let mut ready = true;
        for question in &mut waiting {
            ready &= Pin::new(question).poll(context).is_ready();
        }
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    waiting.iter_mut().filter_map(|question| Pin::new(question).take_output()).collect()
}
