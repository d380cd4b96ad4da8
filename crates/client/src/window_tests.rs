use std::cell::{Cell, RefCell};

use super::*;

impl Payload for u64 {
    fn size(&self) -> usize {
        8
    }
}

impl Payload for bytes::Bytes {
    fn size(&self) -> usize {
        self.len()
    }
}

const FAST: Retry = Retry { attempts: 3, base: Duration::from_millis(1), max: Duration::from_millis(1) };

fn lost() -> Broken {
    (Error::Lost { server: "s".into(), cause: "cut".into() }, None)
}

fn numbers(count: u64) -> impl Stream<Item = (u64, u64)> + Unpin {
    futures::stream::iter((1..=count).map(|n| (n, n)))
}

#[tokio::test]
async fn after_a_broken_connection_it_goes_on_from_the_first_entry_without_an_answer() {
    let window = Window::new();
    let (connections, told) = (Cell::new(0), RefCell::new(Vec::new()));
    let done = drive(&window, FAST, numbers(10), async |mut receiver| {
        connections.set(connections.get() + 1);
        let mut answered = 0;
        while let Some((number, _)) = receiver.recv().await {
            if connections.get() == 1 && answered == 4 {
                return Err(lost());
            }
            told.borrow_mut().extend(window.settle(number));
            answered += 1;
        }
        Ok(())
    });
    done.await.unwrap();
    assert_eq!(*told.borrow(), (1..=10).collect::<Vec<u64>>());
    assert_eq!(connections.get(), 2);
    assert!(window.resent() > 0);
}

#[tokio::test]
async fn connections_that_bring_nothing_forward_are_bounded() {
    let window = Window::new();
    let connections = Cell::new(0);
    let done = drive(&window, FAST, numbers(1), async |_receiver| {
        connections.set(connections.get() + 1);
        Err(lost())
    });
    assert!(matches!(done.await, Err(Error::Lost { .. })));
    assert_eq!(connections.get(), FAST.attempts);
}

#[tokio::test]
async fn entries_that_fail_are_sent_again_and_given_up_in_the_end() {
    let window = Window::new();
    let (tries, given_up) = (Cell::new(0), RefCell::new(Vec::new()));
    let done = drive(&window, FAST, numbers(3), async |mut receiver| {
        while let Some((number, _)) = receiver.recv().await {
            if number == 2 {
                tries.set(tries.get() + 1);
                given_up.borrow_mut().extend(window.fail(number));
            } else {
                window.settle(number);
            }
        }
        Ok(())
    });
    done.await.unwrap();
    assert_eq!((tries.get(), given_up.into_inner()), (TRIES_MAX, vec![2]));
}

#[tokio::test]
async fn a_sender_never_runs_further_ahead_than_the_window_is_wide() {
    let window = Window::new();
    let taken = Cell::new(0_u64);
    let source = futures::stream::iter(1..=u64::MAX).map(|n| {
        taken.set(n);
        (n, n)
    });
    let never = drive(&window, FAST, source, async |mut receiver| {
        // Receives everything and acknowledges nothing.
        while receiver.recv().await.is_some() {}
        Ok(())
    });
    let waited = tokio::time::timeout(Duration::from_millis(200), never).await;
    assert!(waited.is_err());
    assert_eq!(taken.get(), ENTRIES_MAX as u64);
}

/// The rounds of an upload whose entries all fail in the first one.
async fn rounds_of<P: Payload>(source: impl Stream<Item = (u64, P)> + Unpin) -> u32 {
    let window = Window::new();
    let rounds = Cell::new(0);
    let done = drive(&window, FAST, source, async |mut receiver| {
        rounds.set(rounds.get() + 1);
        while let Some((number, _)) = receiver.recv().await {
            if rounds.get() == 1 {
                window.fail(number)
            } else {
                window.settle(number)
            };
        }
        Ok(())
    });
    tokio::time::timeout(SILENCE / 3, done).await.expect("it hangs").unwrap();
    rounds.get()
}

#[tokio::test]
async fn a_window_full_of_failures_begins_a_new_round() {
    assert!(rounds_of(numbers(3_000)).await >= 2);
}

/// A regression: it waited until the server was taken for lost, because so few entries asked for no new round.
#[tokio::test(start_paused = true)]
async fn a_window_full_of_few_large_failures_begins_a_new_round() {
    let large = bytes::Bytes::from(vec![0; BYTES_MAX / 4]);
    assert_eq!(rounds_of(futures::stream::iter((1..=20).map(|n| (n, large.clone())))).await, 2);
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_last_entry_was_read_is_followed_by_another() {
    let window = Window::<u32, bytes::Bytes>::new();
    // A stream that panics when it is polled after its end.
    let entry = |n: u32| ((n, bytes::Bytes::from_static(b"x")), n + 1);
    let source = Box::pin(futures::stream::unfold(0, async |n: u32| (n < 3).then(|| entry(n))));
    let mut connections = 0;
    let sent = drive(&window, Retry { attempts: 3, ..Retry::default() }, source, async |mut receiver| {
        connections += 1;
        while let Some((number, _)) = receiver.recv().await {
            if connections > 1 {
                window.settle(number);
            }
        }
        Ok(())
    });
    sent.await.unwrap();
    assert_eq!((connections, window.resent()), (2, 3));
}

/// A regression: a source without a line for half a minute cost one of five attempts each time.
#[tokio::test(start_paused = true)]
async fn a_source_may_be_slow_for_days() {
    let window = Window::new();
    let (connections, told) = (Cell::new(0), RefCell::new(Vec::new()));
    let source = Box::pin(futures::stream::unfold(1, async |n: u64| {
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        (n <= 100).then_some(((n, n), n + 1))
    }));
    let done = drive(&window, FAST, source, async |mut receiver| {
        connections.set(connections.get() + 1);
        // As a server does, it ends a body that pauses for half a minute.
        while let Ok(next) = tokio::time::timeout(Duration::from_secs(30), receiver.recv()).await {
            let Some((number, _)) = next else { return Ok(()) };
            told.borrow_mut().extend(window.settle(number));
        }
        Err(lost())
    });
    done.await.unwrap();
    assert_eq!(*told.borrow(), (1..=100).collect::<Vec<u64>>());
    assert_eq!((connections.get(), window.resent()), (101, 0), "one for each, and the first");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_acknowledges_nothing_is_taken_for_lost() {
    let client = Client::new("127.0.0.1:1").unwrap();
    let window = Window::new();
    let started = tokio::time::Instant::now();
    let done = drive(&window, FAST, numbers(3), async |mut receiver| {
        let silent = async |_: &Here| {
            while receiver.recv().await.is_some() {}
            std::future::pending().await
        };
        window.over(&client, silent).await
    });
    let error = done.await.expect_err("it waits without end");
    assert!(matches!(&error, Error::Lost { .. }) && error.to_string().contains("nothing was acknowledged"), "{error}");
    assert!(started.elapsed() < 2 * FAST.attempts * SILENCE, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_acknowledges_slowly_is_not() {
    let client = Client::new("127.0.0.1:1").unwrap();
    let window = Window::new();
    let done = drive(&window, FAST, numbers(20), async |mut receiver| {
        let slow = async |_: &Here| {
            while let Some((number, _)) = receiver.recv().await {
                tokio::time::sleep(SILENCE / 2).await;
                window.settle(number);
            }
            Ok(())
        };
        window.over(&client, slow).await
    });
    done.await.unwrap();
    assert_eq!(window.resent(), 0);
}

/// Entries without a result fill the window: they must not wait for room that they take themselves.
#[tokio::test]
async fn a_window_full_of_missing_results_begins_a_new_round() {
    let window = Window::new();
    let rounds = Cell::new(0);
    let done = drive(&window, FAST, numbers(2 * ENTRIES_MAX as u64), async |mut receiver| {
        rounds.set(rounds.get() + 1);
        while let Some((number, _)) = receiver.recv().await {
            if rounds.get() == 1 {
                window.miss(number);
            } else {
                window.settle(number);
            }
        }
        if rounds.get() == 1 { Err(lost()) } else { Ok(()) }
    });
    tokio::time::timeout(Duration::from_secs(20), done).await.expect("it hangs").unwrap();
    assert!(rounds.get() >= 2);
}
