//! Questions that go out one after the other without waiting for answers: one round trip.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use futures::future::{MaybeDone, maybe_done};

/// Runs all of them to their ends. Each is polled in its place from the first round on, and a question is sent at its
/// first poll, so they reach the server in this order. (The joins of the libraries promise no order.)
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
