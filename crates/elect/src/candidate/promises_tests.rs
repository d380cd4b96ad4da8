//! Scenarios of continuing by agreement: T is 15 s, I is 3 s, the response timeout is 1.5 s.

use wayleave_api::roles::{GoingOn, LastTerm, Member, Peer, TakeOver};

use super::*;

const T: Millis = Millis(15_000);
const FULL: u64 = u64::MAX;

fn member(name: &str, reachable: bool) -> Member {
    let peer = Peer { address: format!("{name}:1"), secret: name.repeat(22) };
    Member { uuid: name.into(), peer: reachable.then_some(peer), from: None }
}

fn list(version: u64, secs: u64, members: &[Member]) -> Option<GoingOn> {
    Some(GoingOn { version, continue_for_ms: secs * 1_000, members: members.to_vec() })
}

fn primary(going_on: Option<GoingOn>) -> HeartbeatReply {
    HeartbeatReply::Primary { epoch: 1, token: "t".into(), ttl: T, remaining: T, step_down: false, going_on }
}

fn beat(effects: &[Effect]) -> Heartbeat {
    effects.iter().find_map(|effect| if let Effect::Send(beat) = effect { Some(beat.clone()) } else { None }).unwrap()
}

fn questions(effects: &[Effect]) -> Vec<Question> {
    effects
        .iter()
        .filter_map(|effect| if let Effect::Ask(question) = effect { Some(question.clone()) } else { None })
        .collect()
}

/// Primary since 0; at 3,000 it learned by whose agreement it may continue.
fn leading(going_on: Option<GoingOn>) -> Candidate {
    let mut candidate = Candidate::new(Wish::default());
    let first = beat(&candidate.on_wake(Moment(0), FULL));
    candidate.on_answer(Moment(10), first.call, primary(None), FULL);
    let second = beat(&candidate.on_wake(Moment(3_010), FULL));
    assert_eq!(second.heard, None, "nothing was announced yet");
    candidate.on_answer(Moment(3_020), second.call, primary(going_on), FULL);
    candidate
}

/// Loses every heartbeat until a moment; returns all questions that were asked.
fn lose_until(candidate: &mut Candidate, end: u64) -> Vec<Question> {
    let mut asked = Vec::new();
    while let Some(at) = candidate.wake_at().filter(|at| at.0 <= end) {
        asked.extend(questions(&candidate.on_wake(at, FULL)));
    }
    asked
}

/// The next heartbeat that it sends, and when.
fn next_beat(candidate: &mut Candidate) -> (u64, Heartbeat) {
    loop {
        let at = candidate.wake_at().unwrap();
        let effects = candidate.on_wake(at, FULL);
        if effects.iter().any(|effect| matches!(effect, Effect::Send(_))) {
            return (at.0, beat(&effects));
        }
    }
}

fn until(candidate: &Candidate) -> u64 {
    candidate.working().unwrap().1.0
}

#[test]
fn a_term_continues_only_with_a_promise_of_every_member() {
    let mut candidate = leading(list(7, 600, &[member("b", true), member("c", true)]));
    let own = 3_010 + 15_000 - 155;
    assert_eq!(until(&candidate), own);
    assert!(questions(&candidate.on_wake(Moment(4_000), FULL)).is_empty(), "no member is asked while a server answers");
    let asked = lose_until(&mut candidate, 9_000);
    let (b, c) = (asked.iter().rfind(|q| q.member == "b").unwrap(), asked.iter().rfind(|q| q.member == "c").unwrap());
    assert_eq!((b.epoch, b.span), (1, T));
    assert_eq!(candidate.on_promise(b), [], "one of two is none");
    let end = c.sent.0 + 15_000 - 155;
    assert_eq!(candidate.on_promise(c), [Effect::Extend { epoch: 1, until: Moment(end) }], "from the sending");
    assert!(until(&candidate) > own);
    // An older promise that arrives late takes nothing back.
    assert_eq!(candidate.on_promise(&asked[0]), []);
    let effects = candidate.on_wake(Moment(end), FULL);
    assert!(effects.contains(&Effect::StepDown { epoch: 1, why: Reason::OutOfAgreement }), "{effects:?}");
}

#[test]
fn no_primary_continues_past_the_announced_time() {
    let mut candidate = leading(list(7, 2, &[member("b", true)]));
    let last = lose_until(&mut candidate, 12_000).pop().unwrap();
    candidate.on_promise(&last);
    assert_eq!(until(&candidate), 3_010 + 17_000 - 175, "the margin grows with the time");
    // Without members this is the only bound.
    assert_eq!(until(&leading(list(7, 2, &[]))), 3_010 + 17_000 - 175);
}

#[test]
fn a_member_that_cannot_be_asked_makes_the_role_strict_and_is_named() {
    let mut candidate = leading(list(7, 600, &[member("b", true), member("old", false)]));
    let mute = candidate.members().filter(|member| member.peer.is_none());
    assert_eq!(mute.map(|member| &*member.uuid).collect::<Vec<_>>(), ["old"]);
    assert_eq!(lose_until(&mut candidate, 12_000), []);
    assert_eq!(until(&candidate), 3_010 + 15_000 - 155);
}

#[test]
fn the_latest_list_counts_and_is_acknowledged() {
    let mut candidate = leading(list(7, 600, &[]));
    let third = beat(&candidate.on_wake(Moment(6_100), FULL));
    assert_eq!(third.heard, Some(7));
    let effects = candidate.on_answer(Moment(6_110), third.call, primary(list(9, 600, &[member("b", true)])), FULL);
    assert_eq!(
        effects,
        [Effect::Extend { epoch: 1, until: Moment(6_100 + 15_000 - 155) }],
        "b must be asked from now on"
    );
    let fourth = beat(&candidate.on_wake(Moment(9_200), FULL));
    // An outdated list that arrives late, and then none: neither restores a longer term.
    candidate.on_answer(Moment(9_210), third.call, primary(list(8, 600, &[])), FULL);
    assert_eq!((until(&candidate), candidate.agreement.heard()), (6_100 + 15_000 - 155, Some(9)));
    candidate.on_answer(Moment(9_220), fourth.call, primary(None), FULL);
    candidate.on_answer(Moment(9_230), third.call, primary(list(9, 600, &[])), FULL);
    assert_eq!(until(&candidate), 9_200 + 15_000 - 155, "strict stays strict");
}

/// A standby that last got a response at 10, with this information about the last term.
fn standby(last: Option<LastTerm>) -> Candidate {
    let mut candidate = Candidate::new(Wish::default());
    let first = beat(&candidate.on_wake(Moment(0), FULL));
    candidate.on_answer(Moment(10), first.call, HeartbeatReply::Standby { ttl: T, remaining: T, last }, FULL);
    candidate
}

const fn last(expires_at_ms: u64, take_over: bool) -> Option<LastTerm> {
    Some(LastTerm { epoch: 1, expires_at_ms, remaining_ms: 0, take_over })
}

#[test]
fn a_standby_promises_only_when_it_hears_no_server_itself() {
    let mut candidate = standby(last(99, false));
    assert_eq!(candidate.on_question(Moment(4_509), 1, T), Err(Decline::ServerAnswers));
    assert_eq!(candidate.on_question(Moment(4_510), 1, T), Ok(()), "an interval and a wait for an answer later");
    assert_eq!(candidate.on_question(Moment(4_510), 1, Millis(u64::MAX)), Err(Decline::TooLong));
    assert_eq!(candidate.on_question(Moment(4_510), 0, T), Err(Decline::Later(1)));
    candidate.on_wake(Moment(4_600), FULL);
    candidate.on_resign();
    assert_eq!(candidate.on_question(Moment(4_700), 1, T), Err(Decline::Leaving));
    let mut leader = leading(None);
    assert_eq!(leader.on_question(Moment(9_000), 1, T), Err(Decline::Primary));
}

#[test]
fn a_promise_is_kept_though_the_server_would_let_it_take_over() {
    let mut candidate = standby(last(99, false));
    candidate.on_question(Moment(5_000), 1, T).unwrap();
    let free = HeartbeatReply::Standby { ttl: T, remaining: T, last: last(99, true) };
    let plain = beat(&candidate.on_wake(Moment(6_000), FULL));
    candidate.on_answer(Moment(6_010), plain.call, free.clone(), FULL);
    let mut at = candidate.wake_at().unwrap();
    while at < Moment(20_000) {
        let sent = beat(&candidate.on_wake(at, FULL));
        assert_eq!(sent.take_over, None, "at {at:?}");
        candidate.on_answer(at, sent.call, free.clone(), FULL);
        at = candidate.wake_at().unwrap();
    }
    assert_eq!(at, Moment(20_000), "it comes when the promise ends");
    let sent = beat(&candidate.on_wake(at, FULL));
    candidate.on_answer(Moment(20_010), sent.call, free, FULL);
    let asks = beat(&candidate.on_wake(Moment(20_010), FULL));
    assert_eq!(asks.take_over, Some(TakeOver { epoch: 1, expires_at_ms: 99 }), "at once after the answer");
}

#[test]
fn a_member_that_asked_for_a_term_promises_nothing_until_that_ask_expires() {
    let mut candidate = standby(last(99, true));
    let asks = beat(&candidate.on_wake(Moment(10), FULL));
    assert!(asks.take_over.is_some());
    candidate.on_lost(Moment(20), asks.call, FULL);
    assert_eq!(candidate.on_question(Moment(9_000), 1, T), Err(Decline::Asked));
    // The same end, or an earlier one in an outdated response: the bid may still be in flight.
    for (sent, end, want) in
        [(9_000, 99, Err(Decline::Asked)), (18_000, 98, Err(Decline::Asked)), (27_000, 100, Ok(()))]
    {
        let beat = beat(&candidate.on_wake(Moment(sent), FULL));
        let answer = HeartbeatReply::Standby { ttl: T, remaining: T, last: last(end, false) };
        candidate.on_answer(Moment(sent + 10), beat.call, answer, FULL);
        assert_eq!(candidate.on_question(Moment(sent + 8_000), 1, T), want, "{end}");
    }
}

#[test]
fn an_unsuccessful_ask_for_a_term_is_not_repeated_without_a_pause() {
    let mut candidate = standby(last(99, true));
    let asks = beat(&candidate.on_wake(Moment(10), FULL));
    let answer = HeartbeatReply::Standby { ttl: T, remaining: T, last: last(99, true) };
    candidate.on_answer(Moment(20), asks.call, answer, FULL);
    assert!(candidate.wake_at().unwrap() > Moment(1_000), "{:?}", candidate.wake_at());
}

#[test]
fn a_store_that_lost_its_lists_ends_the_agreement() {
    let mut candidate = leading(list(500, 600, &[]));
    let third = beat(&candidate.on_wake(Moment(6_100), FULL));
    candidate.on_answer(Moment(6_110), third.call, primary(list(20, 600, &[])), FULL);
    assert_eq!((until(&candidate), candidate.agreement.heard()), (6_100 + 15_000 - 155, None));
    let fourth = beat(&candidate.on_wake(Moment(9_200), FULL));
    candidate.on_answer(Moment(9_210), fourth.call, primary(list(21, 600, &[])), FULL);
    assert_eq!(candidate.agreement.heard(), Some(21), "what it says from then on counts");
}

#[test]
fn a_term_that_ended_here_is_not_revived_by_a_late_answer() {
    let mut candidate = leading(list(7, 600, &[member("b", true)]));
    let third = beat(&candidate.on_wake(Moment(6_100), FULL));
    let end = until(&candidate);
    assert_eq!(candidate.on_answer(Moment(end), third.call, primary(list(9, 600, &[])), FULL), []);
    let effects = candidate.on_wake(Moment(end), FULL);
    assert!(effects.contains(&Effect::StepDown { epoch: 1, why: Reason::OutOfAgreement }), "{effects:?}");
}

#[test]
fn who_has_promised_takes_the_role_in_no_way() {
    let mut candidate = standby(last(99, false));
    candidate.on_question(Moment(5_000), 1, T).unwrap();
    let sent = beat(&candidate.on_wake(Moment(6_000), FULL));
    assert!(!sent.ready, "a store that has lost the term must not give it the role");
    // A bid that was in flight before is granted anyway: it waits with it.
    let granted =
        HeartbeatReply::Primary { epoch: 2, token: "u".into(), ttl: T, remaining: T, step_down: false, going_on: None };
    assert_eq!(candidate.on_answer(Moment(6_010), sent.call, granted.clone(), FULL), []);
    assert!(candidate.wake_at().unwrap() > Moment(6_500), "without haste");
    let renews = beat(&candidate.on_wake(Moment(20_000), FULL));
    assert_eq!((renews.token.as_deref(), renews.ready), (Some("u"), true));
    let effects = candidate.on_answer(Moment(20_010), renews.call, granted, FULL);
    assert!(matches!(effects[..], [Effect::Lead { epoch: 2, .. }]), "{effects:?}");
}

#[test]
fn a_promise_moves_nothing_of_a_term_that_the_server_has_ended() {
    let mut candidate = leading(list(7, 600, &[member("b", true)]));
    let asked = lose_until(&mut candidate, 9_000).pop().unwrap();
    let (at, beat) = next_beat(&mut candidate);
    let over = HeartbeatReply::Standby { ttl: T, remaining: T, last: None };
    candidate.on_answer(Moment(at + 10), beat.call, over, FULL);
    assert_eq!(candidate.on_promise(&asked), []);
}

#[test]
fn a_term_that_no_server_took_back_is_given_back_when_one_answers_again() {
    let mut candidate = leading(list(7, 600, &[member("b", true)]));
    lose_until(&mut candidate, 60_000);
    let effects = candidate.on_stopped(Moment(60_000), Then::StandAgain(Millis(0)));
    let release = Effect::Release { identity: 0, token: Some("t".into()) };
    assert_eq!(effects, std::slice::from_ref(&release));
    assert_eq!(candidate.on_release_lost(Moment(63_000)), []);
    let beat_on = |candidate: &mut Candidate, at: u64| {
        let sent = beat(&candidate.on_wake(Moment(at), FULL));
        assert_eq!(sent.token, None);
        candidate.on_answer(
            Moment(at + 10),
            sent.call,
            HeartbeatReply::Standby { ttl: T, remaining: T, last: None },
            FULL,
        )
    };
    assert_eq!(beat_on(&mut candidate, 90_000), [release]);
    candidate.on_released(Moment(90_020));
    assert_eq!(beat_on(&mut candidate, 90_020), [], "once is enough");
}

#[test]
fn no_member_is_asked_without_a_plan() {
    let mut candidate = Candidate::new(Wish { grace: Millis(2_000), ..Wish::default() });
    let first = beat(&candidate.on_wake(Moment(0), FULL));
    candidate.on_answer(Moment(10), first.call, primary(None), FULL);
    let second = beat(&candidate.on_wake(Moment(3_010), FULL));
    candidate.on_answer(Moment(3_020), second.call, primary(list(7, 600, &[member("b", true)])), FULL);
    let third = beat(&candidate.on_wake(Moment(6_100), FULL));
    let short = HeartbeatReply::Primary {
        epoch: 1,
        token: "t".into(),
        ttl: Millis(2_000),
        remaining: T,
        step_down: false,
        going_on: list(9, 600, &[member("b", true)]),
    };
    candidate.on_answer(Moment(6_110), third.call, short, FULL);
    for _ in 0..3 {
        let at = candidate.wake_at().unwrap();
        assert!(questions(&candidate.on_wake(at, FULL)).is_empty());
        assert!(candidate.wake_at().unwrap() > at, "it sleeps in between");
    }
}

#[test]
fn a_promise_ends_where_the_store_protects_the_term_for_as_long() {
    let renewed = |remaining_ms: u64| Some(LastTerm { epoch: 1, expires_at_ms: 99, remaining_ms, take_over: false });
    let ready_after = |remaining_ms: u64| {
        let mut candidate = standby(last(99, false));
        candidate.on_question(Moment(5_000), 1, T).unwrap();
        let sent = beat(&candidate.on_wake(Moment(6_000), FULL));
        let answer = HeartbeatReply::Standby { ttl: T, remaining: T, last: renewed(remaining_ms) };
        candidate.on_answer(Moment(7_000), sent.call, answer, FULL);
        next_beat(&mut candidate).1.ready
    };
    assert!(ready_after(14_000), "from 6,000 on for 14 s: as long as the promise");
    assert!(!ready_after(13_999), "renewed before the promise, perhaps: the primary counts on it");
}
