use std::collections::BTreeSet;

use super::*;
use crate::frontier::view::{Counts, Standing, State};
use crate::ids::{ShardId, Token};
use crate::time::{Millis, Time};

fn visit(place: &str, start: u64, end: u64) -> Visit {
    let span = Span { start: Time(start), end: Time(end) };
    let urls = vec![("c".into(), format!("http://{place}/{start}").into())];
    Visit { place: place.into(), span, parallel: 1, delay: Millis(10), urls }
}

#[test]
fn two_visitors_at_once_break_the_first_law() {
    assert_eq!(one_visitor(&[visit("a", 0, 10), visit("a", 10, 20), visit("b", 5, 9)]), Ok(()));
    let overlap = [visit("a", 5, 20), visit("a", 0, 10)];
    assert_eq!(one_visitor(&overlap).unwrap_err().law, 1);
    let pair = overlap.map(|v| Visit { parallel: 2, ..v });
    assert_eq!(one_visitor(&pair), Ok(()));
}

#[test]
fn a_visit_that_begins_too_soon_breaks_the_second() {
    assert_eq!(politeness(&[visit("a", 0, 10), visit("a", 20, 30)]), Ok(()));
    assert_eq!(politeness(&[visit("a", 19, 30), visit("a", 0, 10)]).unwrap_err().law, 2);
}

#[test]
fn what_is_lost_given_twice_or_answered_early_is_named() {
    let (one, two) = (BTreeSet::from(["a"]), BTreeSet::from(["a", "b"]));
    assert_eq!((nothing_lost(&one, &two), durable_before_answered(&one, &two)), (Ok(()), Ok(())));
    assert!(nothing_lost(&two, &one).unwrap_err().to_string().contains("\"b\""));
    assert_eq!(durable_before_answered(&two, &one).unwrap_err().law, 7);
    let mut twice = [visit("a", 0, 10), visit("b", 5, 15)];
    assert_eq!(nothing_twice(&twice), Ok(()));
    twice[1].urls = twice[0].urls.clone();
    assert_eq!(nothing_twice(&twice).unwrap_err().law, 4);
}

#[test]
fn a_clock_that_steps_back_is_seen() {
    assert_eq!(clock_never_goes_back(&[Time(1), Time(1), Time(2)]), Ok(()));
    assert_eq!(clock_never_goes_back(&[Time(2), Time(1)]).unwrap_err().law, 8);
}

#[test]
fn an_audit_with_a_fault_is_judged() {
    let lease = LeaseAudit {
        link: None,
        token: Token::new(ShardId(0), 1),
        granted_at: Time(0),
        expires_at: Time(100),
        in_group: true,
        in_line: true,
    };
    let good = Audit { leases: vec![lease.clone()], ..Audit::default() };
    assert_eq!(everything_ends(&good, Time(100), Millis(0)), Ok(()));
    assert_eq!(everything_ends(&good, Time(102), Millis(1)).unwrap_err().law, 5);
    let lost = Audit { leases: vec![LeaseAudit { in_line: false, ..lease }], ..Audit::default() };
    assert_eq!(everything_ends(&lost, Time(0), Millis(0)).unwrap_err().law, 5);
    let drift = Audit { totals: (Counts { queued: 1, ..Counts::default() }, Counts::default()), ..Audit::default() };
    assert_eq!((counts_agree(&good), counts_agree(&drift).is_err()), (Ok(()), true));
    let standing = |state, reason: &str, at| Audit {
        standings: vec![("a".into(), Standing { state, reason: reason.into(), ready_at: at })],
        ..Audit::default()
    };
    assert_eq!(explained(&standing(State::Waiting, "so", Some(Time(6))), Time(5)), Ok(()));
    assert!(explained(&standing(State::Waiting, "so", Some(Time(5))), Time(5)).is_err());
    assert!(explained(&standing(State::Ready, "", Some(Time(5))), Time(5)).is_err());
    assert!(explained(&standing(State::Blocked, "so", None), Time(5)).is_err());
    let lost = Audit { misplaced: vec!["a slot".into()], ..Audit::default() };
    assert!(scheduled(&lost).is_err() && scheduled(&good).is_ok());
}

#[test]
fn two_primaries_at_once_and_epochs_that_do_not_grow_break_the_sixth() {
    let tenure = |epoch, holder: &str, start, end| Tenure {
        role: "r".into(),
        epoch: crate::ids::Epoch(epoch),
        holder: holder.into(),
        span: Span { start: Time(start), end: Time(end) },
    };
    assert_eq!(one_primary(&[tenure(2, "b", 10, 20), tenure(1, "a", 0, 10)]), Ok(()));
    assert_eq!(one_primary(&[tenure(1, "a", 0, 11), tenure(2, "b", 10, 20)]).unwrap_err().law, 6);
    assert_eq!(one_primary(&[tenure(1, "a", 0, 10), tenure(1, "b", 10, 20)]).unwrap_err().law, 6);
    assert_eq!(one_primary(&[tenure(2, "a", 0, 10), tenure(1, "a", 10, 20)]).unwrap_err().law, 6);
}

#[test]
fn a_step_of_a_role_is_judged() {
    use crate::ids::Epoch;
    use crate::roles::{Candidate, RoleRow, RoleSettings, Term};
    let candidate = |uuid: &str| Candidate {
        uuid: uuid.into(),
        address: None,
        metadata: crate::metadata::Metadata::default(),
        ready: true,
        priority: 5,
        interval: None,
        peer: None,
    };
    let row = |version, epoch, uuid: &str, expires| RoleRow {
        version,
        settings: RoleSettings::default(),
        epoch: Epoch(epoch),
        term: Some(Term {
            holder: candidate(uuid),
            token: Token([epoch as u8; 16]),
            epoch: Epoch(epoch),
            granted_at: Time(0),
            renewed_at: Time(0),
            expires_at: Time(expires),
            step_down: false,
            agreement: Default::default(),
        }),
        vacant_since: Time(0),
        released: None,
        avoided: None,
        incarnation: 0,
        quiet_until: Time(0),
        quiet_for: Millis(0),
        runs: Default::default(),
    };
    let old = row(1, 1, "a", 100);
    let judged = |after: &RoleRow, now| lawful_step(Some(&old), Some(after), Time(now)).map_err(|broken| broken.law);
    assert_eq!(judged(&row(2, 1, "a", 150), 50), Ok(()));
    assert_eq!(judged(&row(2, 2, "b", 200), 100), Ok(()));
    assert_eq!(judged(&row(2, 2, "b", 200), 99), Err(6), "while another lives");
    assert_eq!(judged(&row(2, 1, "b", 200), 100), Err(6), "under the same epoch");
    assert_eq!(judged(&row(2, 1, "a", 99), 50), Err(6), "a shorter promise");
    assert_eq!(judged(&row(1, 1, "a", 150), 50), Err(6), "the same version");
    assert_eq!(lawful_step(Some(&old), None, Time(99)).unwrap_err().law, 6);
    assert_eq!((lawful_step(Some(&old), None, Time(100)), lawful_step(None, Some(&old), Time(0))), (Ok(()), Ok(())));
}
