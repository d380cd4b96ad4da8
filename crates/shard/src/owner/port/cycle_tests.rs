//! What each call of a cycle is answered, for every outcome of its own commits and of those around it.

use std::sync::Mutex;

use futures::FutureExt;
use wayleave_core::ids::Epoch;

use super::*;

type Heard = Arc<Mutex<Vec<(&'static str, &'static str)>>>;

fn unavailable() -> Result<(), Error> {
    Err(Error::Unavailable("no room".to_owned()))
}

fn unknown() -> Result<(), Error> {
    Err(Error::OutcomeUnknown("lost".to_owned()))
}

fn fenced() -> Result<(), Error> {
    Err(Error::Fenced { shard: 0, epoch: 1, seq: 0 })
}

fn word(durable: &Result<(), Refusal>) -> &'static str {
    match durable {
        Ok(()) => "done",
        Err(Refusal::Unavailable(why)) if why == "no room" => "unavailable: no room",
        Err(Refusal::Unavailable(why)) if why == "lost" => "unavailable: lost",
        Err(Refusal::Unavailable(_)) => "unavailable",
        Err(Refusal::OutcomeUnknown(_)) => "unknown",
        Err(_) => "other",
    }
}

/// A cycle of calls, each with the outcomes of its commits.
fn cycle(calls: &[(&'static str, Vec<Result<(), Error>>)], heard: &Heard) -> Cycle {
    let mut cycle = Cycle::default();
    for (name, commits) in calls {
        let mark = cycle.mark();
        for outcome in commits {
            cycle.commit(1, std::future::ready(outcome.clone()).boxed());
        }
        let (name, heard) = (*name, heard.clone());
        cycle.answer(mark, Box::new(move |durable| heard.lock().unwrap().push((name, word(&durable)))));
    }
    cycle
}

async fn hear(cycles: Vec<Cycle>, heard: &Heard) -> Vec<(&'static str, &'static str)> {
    let (send, receive) = mpsc::channel(cycles.len());
    for cycle in cycles {
        send.send(cycle).await.unwrap_or_else(|_| panic!("nobody listens"));
    }
    drop(send);
    answer(receive, Arc::new(Term::new(Epoch(1), 0)), Arc::new(Readiness::new(1))).await;
    std::mem::take(&mut *heard.lock().unwrap())
}

#[tokio::test]
async fn each_call_hears_what_became_of_its_own_commits() {
    let heard = Heard::default();
    let first = cycle(
        &[
            ("reads first", vec![]),
            ("is done", vec![Ok(())]),
            ("reads on", vec![]),
            ("is lost", vec![unknown()]),
            ("reads too late", vec![]),
            ("comes after", vec![fenced()]),
        ],
        &heard,
    );
    let second = cycle(&[("next turn reads", vec![]), ("next turn writes", vec![fenced()])], &heard);
    let told = hear(vec![first, second], &heard).await;
    assert_eq!(
        told,
        [
            ("reads first", "done"),
            ("is done", "done"),
            ("reads on", "done"),
            ("is lost", "unknown"),
            ("reads too late", "unavailable: lost"),
            ("comes after", "unavailable: lost"),
            ("next turn reads", "unavailable: lost"),
            ("next turn writes", "unavailable: lost"),
        ]
    );
}

#[tokio::test]
async fn a_call_of_several_commits_is_refused_as_unavailable_only_if_none_was_applied() {
    let heard = Heard::default();
    for (commits, expected) in [
        (vec![unavailable(), fenced()], "unavailable: no room"),
        (vec![Ok(()), unavailable()], "unknown"),
        (vec![unknown(), unavailable()], "unknown"),
        (vec![unavailable(), unknown()], "unknown"),
        (vec![unknown(), Ok(())], "unknown"),
        (vec![Ok(()), Ok(())], "done"),
    ] {
        let case = format!("{commits:?}");
        let told = hear(vec![cycle(&[("call", commits)], &heard)], &heard).await;
        assert_eq!(told, [("call", expected)], "{case}");
    }
}

#[tokio::test]
async fn a_commit_that_is_known_to_be_there_is_acknowledged_whatever_became_of_the_one_before() {
    let heard = Heard::default();
    let told = hear(vec![cycle(&[("a", vec![unknown()]), ("b", vec![Ok(())])], &heard)], &heard).await;
    assert_eq!(told, [("a", "unknown"), ("b", "done")]);
}

#[tokio::test]
async fn a_node_that_may_have_lost_the_shard_answers_no_read_that_no_commit_confirms() {
    let heard = Heard::default();
    let mut unsure = cycle(&[("reads", vec![]), ("writes", vec![fenced()])], &heard);
    unsure.set_unsure();
    assert_eq!(hear(vec![unsure], &heard).await, [("reads", "unavailable"), ("writes", "unavailable")]);
}
