//! What pools, workers and tasks share: permits, polls and reports.

use std::sync::atomic::Ordering;

use wayleave_core::matches::{Effect, Input, Verdict, WorkerAsk, WorkerNo};
use wayleave_core::time::Time;

use super::scripted::{answer, instance, order, start};
use super::support::{ask, eventually};

/// A question to a worker, one of many.
fn question(worker: u64, address: &str, n: u64, until: Time) -> WorkerAsk {
    let asked = ask(&format!("client {worker}"), &instance(), 1);
    WorkerAsk { worker: WorkerNo(worker), address: address.into(), sent_at: Time(n), until, ..asked }
}

fn of_client(news: &Input, worker: u64) -> bool {
    match news {
        Input::Checked { asker, .. } => *asker.client == *format!("client {worker}"),
        Input::Reserved { client, .. } | Input::Released { client, .. } => **client == *format!("client {worker}"),
        _ => false,
    }
}

#[tokio::test]
async fn a_worker_that_hangs_takes_no_permit_of_others() {
    let (maker, _, pools) = start();
    // A port that takes connections and never answers.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (hung, well) = (mute.local_addr().unwrap().to_string(), answer().await);
    let late = Time(121_000);
    for n in 0..2_000 {
        pools.order("a", Effect::Check(question(1, &hung, n, late)));
        pools.order("a", Effect::Release(question(1, &hung, n, late)));
    }
    pools.order("a", Effect::Reserve(question(1, &hung, 1, late)));
    for kind in [Effect::Reserve, Effect::Check, Effect::Release] {
        pools.order("a", kind(question(2, &well, 1, late)));
    }
    let well = || async { (pools.reports().iter().filter(|(_, news)| of_client(news, 2)).count() == 3).then_some(()) };
    eventually("the other worker's answers", well).await;
    let reports = pools.reports();
    let asked = |news: &Input| {
        !matches!(news, Input::Checked { verdict: Verdict::Unknown(why), .. }
        | Input::Released { verdict: Verdict::Unknown(why), .. } if why.starts_with("it was not asked"))
    };
    let early = reports.iter().filter(|(_, news)| of_client(news, 1) && asked(news)).count();
    assert_eq!(early, 0, "calls to the worker that hangs were under way meanwhile");
    maker.stop().await;
}

#[tokio::test]
async fn a_question_that_queues_too_long_behind_a_hung_worker_counts_as_unasked() {
    let (maker, _, pools) = start();
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hung = mute.local_addr().unwrap().to_string();
    (0..300).for_each(|n| pools.order("a", Effect::Check(question(1, &hung, n, Time(1_500)))));
    eventually("all are reported", || async { (pools.reports().len() == 300).then_some(()) }).await;
    let begins = |what: &str| {
        let reports = pools.reports();
        let is_it = |news: &Input| matches!(news, Input::Checked { verdict: Verdict::Unknown(why), .. } if why.starts_with(what));
        reports.iter().filter(|(_, news)| is_it(news)).count()
    };
    let (asked, not_asked) = (begins("it did not answer GET"), begins("it was not asked"));
    // A call that was accepted a little later ends a little later, and may take the permit of one that has ended.
    assert!(asked >= 16 && not_asked > 100 && asked + not_asked == 300, "{asked} {not_asked}");
    maker.stop().await;
}

#[tokio::test]
async fn two_reports_of_a_pool_run_at_once_and_a_workers_outcomes_stay_in_order() {
    let (maker, _, pools) = start();
    pools.holds.store(true, Ordering::SeqCst);
    let held = |count: usize| {
        let pools = &pools;
        eventually(
            "reports under way",
            move || async move { (pools.held.lock().unwrap().len() == count).then_some(()) },
        )
    };
    pools.order("a", Effect::Stop(order(1, 1, "x")));
    held(1).await;
    pools.order("a", Effect::Stop(order(2, 1, "x")));
    held(2).await;
    (2..=9).for_each(|step| pools.order("a", Effect::Stop(order(1, step, "x"))));
    // Steps of a worker that come at once may be outdated by later ones; the last one is carried out.
    let last = |news: &Input| matches!(news, Input::Stopped { step, .. } if step.worker.0 == 1 && step.step == 9);
    pools.may_report.add_permits(1_000);
    pools.hears("the last step", |_, news| last(news)).await;
    let reports = pools.reports();
    let steps = |worker| {
        let of = move |news: &Input| match news {
            Input::Stopped { step, .. } if step.worker.0 == worker => Some(step.step),
            _ => None,
        };
        reports.iter().filter_map(|(_, news)| of(news)).collect::<Vec<_>>()
    };
    assert!(steps(1).is_sorted() && steps(1).first() == Some(&1), "{:?}", steps(1));
    assert_eq!(steps(2), [1]);
    let workers = |batch: &Vec<Input>| -> Vec<u64> {
        let of = |news: &Input| match news {
            Input::Stopped { step, .. } => step.worker.0,
            _ => 0,
        };
        batch.iter().map(of).collect()
    };
    let held = pools.held.lock().unwrap().clone();
    assert_eq!(held.iter().take(2).map(workers).collect::<Vec<_>>(), [vec![1], vec![2]]);
    maker.stop().await;
}

#[tokio::test]
async fn a_panic_in_a_report_does_not_silence_its_pool() {
    let (maker, _, pools) = start();
    pools.breaks.store(2, Ordering::SeqCst);
    for step in 1..=3 {
        pools.order("a", Effect::Stop(order(step, 1, "x")));
        let or_broken = || async {
            let reported = pools
                .reports()
                .iter()
                .any(|(_, news)| matches!(news, Input::Stopped { step: s, .. } if s.worker.0 == step));
            (reported || pools.breaks.load(Ordering::SeqCst) == 2 - (step as usize).min(2)).then_some(())
        };
        eventually("reported, or broken", or_broken).await;
    }
    pools.order("a", Effect::Stop(order(5, 1, "x")));
    pools.hears("what came later", |_, news| matches!(news, Input::Stopped { step, .. } if step.worker.0 == 5)).await;
    maker.stop().await;
}
