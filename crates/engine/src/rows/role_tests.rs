//! Role rows round-trip.

use proptest::prelude::*;
use wayleave_core::ids::{Epoch, Token};
use wayleave_core::limits;
use wayleave_core::metadata::Metadata;
use wayleave_core::roles::{
    Agreement, Candidate, Mode, Origin, Peer, RoleRow, RoleSettings, Run, Runs, StandbyRow, Term,
};
use wayleave_core::time::{Millis, Time};

use super::*;

fn time() -> impl Strategy<Value = Time> {
    (0..1u64 << 48).prop_map(Time)
}

fn candidate() -> impl Strategy<Value = Candidate> {
    let metadata = prop::collection::vec(any::<u8>(), 0..20).prop_map(|b| Metadata::from_bytes(b).unwrap_or_default());
    let peer = prop::option::of(("[a-z:/]{1,12}", any::<[u8; 16]>()));
    let rest = (any::<bool>(), 0..10u8, any::<Option<u32>>(), peer);
    ("[!-~]{1,12}", prop::option::of("[a-z:/]{1,12}"), metadata, rest).prop_map(
        |(uuid, address, metadata, (ready, priority, interval, peer))| Candidate {
            uuid: uuid.into(),
            address: address.map(Into::into),
            metadata,
            ready,
            priority,
            interval: interval.map(|ms| Millis(ms.into())),
            peer: peer.map(|(address, secret)| Peer { address: address.into(), secret: Token(secret) }),
        },
    )
}

fn term() -> impl Strategy<Value = Term> {
    let agreement = prop_oneof![Just(None), any::<Option<[u64; 5]>>()];
    (candidate(), any::<[u8; 16]>(), any::<u64>(), time(), time(), time(), any::<bool>(), agreement).prop_map(
        |(holder, token, epoch, granted_at, renewed_at, expires_at, step_down, agreement)| Term {
            holder,
            token: Token(token),
            epoch: Epoch(epoch),
            granted_at,
            renewed_at,
            expires_at,
            step_down,
            agreement: agreement.map_or_else(Agreement::default, |[goes_on, told, told_at, heard, counts_from]| {
                Agreement { goes_on: Millis(goes_on), told: Millis(told), told_at, heard, counts_from }
            }),
        },
    )
}

fn runs() -> impl Strategy<Value = Runs> {
    let run = ("[!-~]{1,9}", any::<u64>(), time());
    let run = run.prop_map(|(slot, epoch, at)| Run { slot: slot.into(), epoch: Epoch(epoch), at });
    prop::collection::vec(run, 0..4).prop_map(|runs| Runs(runs.into()))
}

fn role_row() -> impl Strategy<Value = RoleRow> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), time(), time());
    let parts = (prop::option::of(term()), any::<Option<[u8; 16]>>(), prop::option::of("[!-~]{1,9}"), any::<bool>());
    let parts = (parts, prop_oneof![Just(limits::ROLE_CONTINUE_DEFAULT), any::<u64>().prop_map(Millis)], runs());
    (numbers, parts).prop_map(
        |(
            (version, ttl, epoch, incarnation, vacant_since, quiet_until),
            ((term, released, avoided, strict), on, runs),
        )| {
            RoleRow {
                version,
                settings: RoleSettings {
                    ttl: Millis(ttl),
                    mode: if strict { Mode::Strict } else { Mode::Continue },
                    continue_for: on,
                },
                epoch: Epoch(epoch),
                term,
                vacant_since,
                released: released.map(Token),
                avoided: avoided.map(Into::into),
                incarnation,
                quiet_until,
                runs,
            }
        },
    )
}

proptest! {
    #[test]
    fn roles_read_back(row in role_row(), name in "[a-zA-Z0-9._-]{1,20}") {
        prop_assert_eq!(role::decode(&role::encode(&row)), Ok(row));
        prop_assert_eq!(role::parse_key(&role::key(&name)), Ok(name.as_str().into()));
        prop_assert!(role::origin_key() < role::key(&name));
    }

    #[test]
    fn standbys_read_back_and_lie_with_their_role_alone(
        candidate in candidate(), from: Option<std::net::IpAddr>, times in (time(), time()), joined: u64, name in "[a-z.]{1,4}", other in "[a-z.]{1,4}",
    ) {
        let key = standby::key(&name, &candidate.uuid);
        prop_assert_eq!(standby::parse_key(&key), Ok((name.clone().into(), candidate.uuid.clone())));
        let scan = standby::scan(&other, 1);
        prop_assert_eq!(key >= scan.from && key < scan.to, name == other);
        let row = StandbyRow { candidate, from, seen_at: times.0, expires_at: times.1, joined };
        prop_assert_eq!(standby::decode(&standby::encode(&row)), Ok(row));
    }

    #[test]
    fn origins_read_back(epoch: u64, roles: u64, incarnation: u64, noticed_at in time()) {
        let origin = Origin { epoch: Epoch(epoch), roles, incarnation, noticed_at };
        prop_assert_eq!(role::decode_origin(&role::encode_origin(&origin)), Ok(origin));
    }

    #[test]
    fn damaged_role_rows_are_refused_without_a_panic(bytes: Vec<u8>) {
        let _ = role::decode(&bytes);
        let _ = role::decode_origin(&bytes);
        let _ = role::parse_key(&bytes);
        let _ = standby::decode(&bytes);
        let _ = standby::parse_key(&bytes);
    }
}
