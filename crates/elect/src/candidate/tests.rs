//! Scenarios of candidates: T is 15 s, I is 3 s, the response timeout is 1.5 s.

use proptest::prelude::*;

use super::*;
use crate::plan::TooTight;

const T: Millis = Millis(15_000);
/// Entropy that shortens nothing by more than a millisecond.
const FULL: u64 = u64::MAX;

fn primary(epoch: u64, remaining: u64) -> HeartbeatReply {
    HeartbeatReply::Primary {
        epoch,
        token: format!("t{epoch}"),
        ttl: T,
        remaining: Millis(remaining),
        step_down: false,
        going_on: None,
    }
}

fn sent(effects: &[Effect]) -> Heartbeat {
    let mut beats = effects.iter().filter_map(|effect| if let Effect::Send(beat) = effect { Some(beat) } else { None });
    let beat = beats.next().unwrap_or_else(|| panic!("no heartbeat in {effects:?}")).clone();
    assert!(beats.next().is_none());
    beat
}

/// A candidate that was granted epoch 1 by the response to its first heartbeat, sent at 1,000 and answered at 1,100.
fn leading(wish: Wish) -> Candidate {
    let mut candidate = Candidate::new(wish);
    let beat = sent(&candidate.on_wake(Moment(1_000), FULL));
    assert_eq!(beat.token, None);
    let effects = candidate.on_answer(Moment(1_100), beat.call, primary(1, 15_000), FULL);
    assert_eq!(effects, [Effect::Lead { epoch: 1, until: Moment(1_000 + 15_000 - 155) }]);
    candidate
}

/// Wakes a candidate whenever it wants until a moment, losing every heartbeat; returns its effects other than sends.
fn lose_all_until(candidate: &mut Candidate, end: u64) -> (Vec<(u64, Effect)>, usize) {
    let (mut seen, mut lost) = (Vec::new(), 0);
    while let Some(at) = candidate.wake_at().filter(|at| at.0 <= end) {
        for effect in candidate.on_wake(at, FULL) {
            if matches!(effect, Effect::Send(_)) { lost += 1 } else { seen.push((at.0, effect)) }
        }
    }
    (seen, lost)
}

#[test]
fn a_term_counts_from_the_sending_of_its_heartbeat() {
    let mut candidate = leading(Wish::default());
    let beat = sent(&candidate.on_wake(Moment(4_100), FULL));
    assert_eq!(beat.token.as_deref(), Some("t1"));
    // The response takes 1.4 s: the term ends 15 s after 4,100 anyway, less the margin.
    let effects = candidate.on_answer(Moment(5_500), beat.call, primary(1, 15_000), FULL);
    assert_eq!(effects, [Effect::Extend { epoch: 1, until: Moment(18_945) }]);
}

#[test]
fn lost_heartbeats_end_the_term_in_time() {
    // The original model's gap: reads that kept working kept a primary alive whose writes were lost. Here nothing
    // extends a term by a read; a push that the role is free, which is a read, changes nothing either.
    let mut candidate = leading(Wish::default());
    candidate.on_vacancy(Moment(3_000));
    let (seen, lost) = lose_all_until(&mut candidate, 60_000);
    assert_eq!(seen.first(), Some(&(15_845, Effect::StepDown { epoch: 1, why: Reason::OutOfTime })));
    assert!(lost >= 3, "it must have tried: {lost}");
    // The server's term ends at 1,000 + 15,000 at the earliest.
    assert!(seen[0].0 < 16_000);
}

#[test]
fn the_grace_period_ends_before_the_term() {
    let mut candidate = leading(Wish { interval: None, grace: Millis(5_000) });
    let (seen, _) = lose_all_until(&mut candidate, 60_000);
    assert_eq!(seen[0], (10_845, Effect::StepDown { epoch: 1, why: Reason::OutOfTime }));
}

#[test]
fn a_lost_answer_is_asked_for_again_sooner_than_the_next_interval() {
    let mut candidate = leading(Wish::default());
    let beat = sent(&candidate.on_wake(Moment(4_100), FULL));
    candidate.on_lost(Moment(4_200), beat.call, FULL);
    assert!(candidate.wake_at() <= Some(Moment(4_200 + 750)), "{:?}", candidate.wake_at());
    // A response that never arrives is abandoned after half an interval.
    let beat = sent(&candidate.on_wake(Moment(4_950), FULL));
    assert_eq!(candidate.wake_at(), Some(beat.call.sent.after(Millis(1_500))));
}

#[test]
fn as_many_heartbeats_may_be_lost_as_the_plan_says() {
    let mut candidate = leading(Wish::default());
    let tolerated = candidate.plan().unwrap().tolerance();
    // The worst case: every lost heartbeat is followed by a whole interval, and the last response is slow.
    for _ in 0..tolerated {
        candidate.in_flight = None;
        candidate.next_send = candidate.next_send.after(Millis(3_000));
    }
    let at = candidate.next_send;
    let beat = sent(&candidate.on_wake(at, FULL));
    let effects = candidate.on_answer(at.after(Millis(1_499)), beat.call, primary(1, 15_000), FULL);
    assert!(matches!(effects[..], [Effect::Extend { .. }]), "{effects:?} at {at:?}");
}

#[test]
fn work_stops_before_the_role_is_released_and_then_stands_by() {
    let mut candidate = leading(Wish::default());
    assert_eq!(candidate.on_resign(), [Effect::StepDown { epoch: 1, why: Reason::Resigned }]);
    assert_eq!(candidate.on_released(Moment(2_000)), [], "nothing was given back yet");
    // The work takes long to stop: the term is renewed meanwhile.
    let beat = sent(&candidate.on_wake(Moment(4_100), FULL));
    let effects = candidate.on_answer(Moment(4_200), beat.call, primary(1, 15_000), FULL);
    assert!(matches!(effects[..], [Effect::Extend { .. }]));
    let effects = candidate.on_stopped(Moment(5_000), Then::StandAgain(Millis(0)));
    assert_eq!(effects, [Effect::Release { identity: 0, token: Some("t1".into()) }]);
    assert_eq!(candidate.wake_at(), None);
    assert_eq!(candidate.on_released(Moment(5_001)), [Effect::Finished(Ok(()))]);
}

#[test]
fn work_that_ends_releases_the_role_at_once() {
    let mut candidate = leading(Wish::default());
    let effects = candidate.on_stopped(Moment(2_000), Then::StandAgain(Millis(700)));
    assert!(matches!(effects[..], [Effect::Release { .. }]));
    assert_eq!(candidate.on_released(Moment(2_010)), []);
    assert_eq!(candidate.wake_at(), Some(Moment(2_710)));
    assert_eq!(sent(&candidate.on_wake(Moment(2_710), FULL)).token, None);
}

#[test]
fn an_answer_that_was_overtaken_by_the_release_starts_nothing() {
    let mut candidate = leading(Wish::default());
    let late = sent(&candidate.on_wake(Moment(4_100), FULL));
    candidate.on_stopped(Moment(4_200), Then::StandAgain(Millis(0)));
    candidate.on_released(Moment(4_250));
    assert_eq!(candidate.on_answer(Moment(4_300), late.call, primary(1, 15_000), FULL), []);
    assert!(candidate.is_standing() && candidate.working().is_none());
    // The next term has another epoch, and is led.
    let beat = sent(&candidate.on_wake(Moment(4_300), FULL));
    let effects = candidate.on_answer(Moment(4_301), beat.call, primary(2, 15_000), FULL);
    assert!(matches!(effects[..], [Effect::Lead { epoch: 2, .. }]), "{effects:?}");
}

#[test]
fn a_grant_that_took_too_long_is_renewed_before_it_is_used() {
    let mut candidate = Candidate::new(Wish::default());
    let beat = sent(&candidate.on_wake(Moment(0), FULL));
    assert_eq!(candidate.on_answer(Moment(16_000), beat.call, primary(1, 15_000), FULL), []);
    let beat = sent(&candidate.on_wake(Moment(16_000), FULL));
    assert_eq!(beat.token.as_deref(), Some("t1"));
    let effects = candidate.on_answer(Moment(16_001), beat.call, primary(1, 15_000), FULL);
    assert!(matches!(effects[..], [Effect::Lead { epoch: 1, until: Moment(30_845) }]), "{effects:?}");
}

#[test]
fn a_standby_is_there_when_the_present_term_ends() {
    let mut candidate = Candidate::new(Wish::default());
    let beat = sent(&candidate.on_wake(Moment(0), FULL));
    candidate.on_answer(
        Moment(10),
        beat.call,
        HeartbeatReply::Standby { ttl: T, remaining: Millis(14_000), last: None },
        FULL,
    );
    assert!(candidate.wake_at().unwrap() >= Moment(3_000), "every interval, to be counted on");
    let beat = sent(&candidate.on_wake(Moment(3_010), FULL));
    candidate.on_answer(
        Moment(3_020),
        beat.call,
        HeartbeatReply::Standby { ttl: T, remaining: Millis(1_200), last: None },
        FULL,
    );
    assert_eq!(candidate.wake_at(), Some(Moment(4_220)));
    candidate.on_vacancy(Moment(3_500));
    assert_eq!(candidate.wake_at(), Some(Moment(3_500)));
}

#[test]
fn an_identity_that_is_used_up_is_given_up_for_a_new_one() {
    let mut candidate = Candidate::new(Wish::default());
    let first = sent(&candidate.on_wake(Moment(0), FULL));
    candidate.on_lost(Moment(100), first.call, FULL);
    let again = sent(&candidate.on_wake(Moment(2_000), FULL));
    assert_eq!(candidate.on_answer(Moment(2_010), again.call, HeartbeatReply::NotCurrent, FULL), []);
    // The lost response arrives after all: its identity no longer exists.
    assert_eq!(candidate.on_answer(Moment(2_020), first.call, primary(1, 15_000), FULL), []);
    let at = candidate.wake_at().unwrap();
    assert_eq!(sent(&candidate.on_wake(at, FULL)).call.identity, 1);
}

#[test]
fn a_primary_whose_term_ended_at_the_server_stops_and_releases_nothing() {
    for answer in [HeartbeatReply::NotCurrent, HeartbeatReply::Standby { ttl: T, remaining: Millis(9_000), last: None }]
    {
        let mut candidate = leading(Wish::default());
        let beat = sent(&candidate.on_wake(Moment(4_100), FULL));
        let effects = candidate.on_answer(Moment(4_200), beat.call, answer, FULL);
        assert_eq!(effects, [Effect::StepDown { epoch: 1, why: Reason::Superseded }]);
        assert_eq!(
            candidate.on_stopped(Moment(4_300), Then::Finish),
            [],
            "it asks for the role again, as decided before"
        );
        assert!(candidate.is_standing());
    }
}

#[test]
fn a_new_epoch_is_led_only_after_the_work_of_the_old_one_stopped() {
    let mut candidate = leading(Wish::default());
    let beat = sent(&candidate.on_wake(Moment(4_100), FULL));
    let effects = candidate.on_answer(Moment(4_200), beat.call, primary(3, 15_000), FULL);
    assert_eq!(effects, [Effect::StepDown { epoch: 1, why: Reason::Superseded }]);
    assert_eq!(candidate.on_stopped(Moment(5_000), Then::StandAgain(Millis(0))), []);
    let beat = sent(&candidate.on_wake(Moment(5_000), FULL));
    assert_eq!(beat.token.as_deref(), Some("t3"));
    let effects = candidate.on_answer(Moment(5_010), beat.call, primary(3, 15_000), FULL);
    assert!(matches!(effects[..], [Effect::Lead { epoch: 3, .. }]), "{effects:?}");
}

#[test]
fn who_leaves_while_an_answer_is_on_its_way_gives_the_grant_in_it_back() {
    let mut candidate = Candidate::new(Wish::default());
    let beat = sent(&candidate.on_wake(Moment(0), FULL));
    assert_eq!(candidate.on_resign(), []);
    let effects = candidate.on_answer(Moment(10), beat.call, primary(1, 15_000), FULL);
    assert_eq!(effects, [Effect::Release { identity: 0, token: Some("t1".into()) }]);
    assert_eq!(candidate.on_released(Moment(20)), [Effect::Finished(Ok(()))]);

    let mut unanswered = Candidate::new(Wish::default());
    unanswered.on_wake(Moment(0), FULL);
    unanswered.on_resign();
    let effects = unanswered.on_wake(Moment(2_000), FULL);
    assert_eq!(effects, [Effect::Release { identity: 0, token: None }]);
}

#[test]
fn an_operators_wish_ends_the_term_gently() {
    let mut candidate = leading(Wish::default());
    let beat = sent(&candidate.on_wake(Moment(4_100), FULL));
    let asked = HeartbeatReply::Primary {
        epoch: 1,
        token: "t1".into(),
        ttl: T,
        remaining: Millis(15_000),
        step_down: true,
        going_on: None,
    };
    let effects = candidate.on_answer(Moment(4_110), beat.call, asked, FULL);
    assert_eq!(effects.last(), Some(&Effect::StepDown { epoch: 1, why: Reason::Asked }));
}

#[test]
fn a_t_that_cannot_be_used_ends_the_candidate_and_gives_the_role_back() {
    let wish = Wish { interval: Some(Millis(3_000)), grace: Millis(5_000) };
    let mut candidate = Candidate::new(wish);
    let beat = sent(&candidate.on_wake(Moment(0), FULL));
    let effects = candidate.on_answer(Moment(10), beat.call, primary(1, 15_000), FULL);
    assert_eq!(effects, [Effect::Release { identity: 0, token: Some("t1".into()) }]);
    let effects = candidate.on_released(Moment(20));
    assert!(matches!(effects[..], [Effect::Finished(Err(TooTight { needed: Millis(17_155), .. }))]), "{effects:?}");
}

#[test]
fn a_candidate_whose_t_becomes_too_short_stands_by_until_it_fits() {
    let mut candidate = leading(Wish { interval: None, grace: Millis(5_000) });
    let beat = sent(&candidate.on_wake(Moment(4_100), FULL));
    assert!(beat.ready);
    let (ttl, remaining) = (Millis(4_000), Millis(12_000));
    let tight =
        HeartbeatReply::Primary { epoch: 1, token: "t1".into(), ttl, remaining, step_down: false, going_on: None };
    let effects = candidate.on_answer(Moment(4_110), beat.call, tight, FULL);
    assert!(effects.contains(&Effect::StepDown { epoch: 1, why: Reason::TooTight }), "{effects:?}");
    assert!(candidate.too_tight().is_some());
    let effects = candidate.on_stopped(Moment(4_200), Then::StandAgain(Millis(0)));
    assert_eq!(effects, [Effect::Release { identity: 0, token: Some("t1".into()) }]);
    assert_eq!(candidate.on_released(Moment(4_300)), [], "it does not end");
    let at = candidate.wake_at().unwrap();
    let beat = sent(&candidate.on_wake(at, FULL));
    assert!(!beat.ready, "it cannot get the role meanwhile");
    // A grant in flight is released and not led.
    let grant =
        HeartbeatReply::Primary { epoch: 2, token: "t2".into(), ttl, remaining: ttl, step_down: false, going_on: None };
    let effects = candidate.on_answer(at, beat.call, grant, FULL);
    assert_eq!(effects, [Effect::Release { identity: 0, token: Some("t2".into()) }]);
    candidate.on_released(at);
    let at = candidate.wake_at().unwrap();
    let beat = sent(&candidate.on_wake(at, FULL));
    candidate.on_answer(at, beat.call, HeartbeatReply::Standby { ttl: T, remaining: Millis(9_000), last: None }, FULL);
    assert_eq!(candidate.too_tight(), None);
    let at = candidate.wake_at().unwrap();
    assert!(sent(&candidate.on_wake(at, FULL)).ready);
}

#[test]
fn a_shorter_t_moves_the_end_of_the_term_forward_too() {
    let mut candidate = leading(Wish::default());
    let beat = sent(&candidate.on_wake(Moment(4_100), FULL));
    let shorter = HeartbeatReply::Primary {
        epoch: 1,
        token: "t1".into(),
        ttl: Millis(2_000),
        remaining: Millis(2_000),
        step_down: false,
        going_on: None,
    };
    let effects = candidate.on_answer(Moment(4_110), beat.call, shorter, FULL);
    assert_eq!(effects, [Effect::Extend { epoch: 1, until: Moment(4_100 + 2_000 - 25) }]);
    assert!(candidate.wake_at().unwrap() <= Moment(4_110 + 400));
}

proptest! {
    #[test]
    fn it_never_sleeps_past_the_moment_to_stop(entropy: u64, lost in proptest::collection::vec(any::<bool>(), 1..40)) {
        let mut candidate = leading(Wish { interval: None, grace: Millis(2_000) });
        for lost in lost {
            let Some((_, until)) = candidate.working() else { break };
            let at = candidate.wake_at().unwrap();
            prop_assert!(at <= until.before(Millis(2_000)));
            for effect in candidate.on_wake(at, entropy) {
                if let Effect::Send(beat) = effect && !lost {
                    candidate.on_answer(at.after(Millis(20)), beat.call, primary(1, 15_000), entropy);
                }
            }
            if matches!(candidate.stage, CandidateStage::Stopping { .. }) { break }
        }
    }
}
