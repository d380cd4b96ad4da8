//! A client's request for a worker of a pool.
//! Lifetime: from when it is queued until it has ended and its reservations are given back.
//! Key: shard · 31 · the pool's name · 0 · the client. Value: version, principal, place in the queue, times, attempts, state,
//! reservations that are being given back, reason, row version.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::ids::ShardId;
use wayleave_core::matches::row::Leftover;
use wayleave_core::matches::{Booking, MatchRow, MatchState, WorkerNo};
use wayleave_core::names::{ClientName, PoolName};
use wayleave_core::time::{Millis, Time};

use super::Kind;
use super::pool::{count, read_text, write_text};
use super::worker::{pool_key, read_token, split_key};
use crate::Key;

const VERSION: u8 = 1;
/// More reservations than this are never given back at the same time; see [`wayleave_core::limits::LEFTOVERS_MAX`].
const LEFTOVERS_READ_MAX: usize = 64;

const QUEUED: u8 = 0;
const MAKING: u8 = 1;
const MATCHED: u8 = 2;
const VACANT: u8 = 3;
const FAILED: u8 = 4;
const ENDED: u8 = 5;

/// The key of a client's request.
#[must_use]
pub fn key(shard: ShardId, pool: &PoolName, client: &ClientName) -> Key {
    let mut key = pool_key(shard, Kind::Match, pool, client.len());
    key.extend_from_slice(client.as_bytes());
    key
}

/// The client that a key names, and its pool.
///
/// # Errors
/// If the key does not decode.
pub fn parse_key(key: &[u8]) -> Result<(PoolName, ClientName), Damaged> {
    let (pool, client) = split_key(key)?;
    let client = std::str::from_utf8(client).map_err(|_| Damaged("the name of a client is not UTF-8"))?;
    let client = wayleave_core::names::client(client).map_err(|_| Damaged("a key has no valid name of a client"))?;
    Ok((pool, client))
}

/// Encodes a request.
#[must_use]
pub fn encode(row: &MatchRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(128);
    out.byte(VERSION);
    write_text(&mut out, row.principal.as_deref());
    out.number(row.queue_number);
    out.number(row.queued_at.0);
    out.number(row.deadline.0);
    out.number(row.attempts.into());
    match &row.state {
        MatchState::Queued { not_before } => {
            out.byte(QUEUED);
            out.number(not_before.0);
        }
        MatchState::Making(booking) => {
            out.byte(MAKING);
            write_booking(&mut out, booking);
        }
        MatchState::Matched { booking, expires_at } => {
            out.byte(MATCHED);
            write_booking(&mut out, booking);
            out.number(expires_at.0);
        }
        MatchState::Vacant { until } => {
            out.byte(VACANT);
            out.number(until.0);
        }
        MatchState::Failed { until, retry_at, told } => {
            out.byte(FAILED);
            out.number(until.0);
            out.number(retry_at.0);
            out.byte((*told).into());
        }
        MatchState::Ended => out.byte(ENDED),
    }
    out.number(row.leftovers.len() as u64);
    for left in &row.leftovers {
        write_booking(&mut out, &left.booking);
        out.number(left.until.0);
    }
    out.text(&row.reason);
    out.number(row.version);
    out.into()
}

/// Decodes a request.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<MatchRow, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("the row of a match has an unknown version"));
    }
    Ok(MatchRow {
        principal: read_text(&mut input)?,
        queue_number: input.number()?,
        queued_at: Time(input.number()?),
        deadline: Time(input.number()?),
        attempts: input.small()?,
        state: read_state(&mut input)?,
        leftovers: read_leftovers(&mut input)?,
        reason: input.text()?.into(),
        version: input.number()?,
    })
}

fn read_state(input: &mut Reader<'_>) -> Result<MatchState, Damaged> {
    Ok(match input.byte()? {
        QUEUED => MatchState::Queued { not_before: Time(input.number()?) },
        MAKING => MatchState::Making(read_booking(input)?),
        MATCHED => {
            let booking = read_booking(input)?;
            MatchState::Matched { booking, expires_at: Time(input.number()?) }
        }
        VACANT => MatchState::Vacant { until: Time(input.number()?) },
        FAILED => {
            let (until, retry_at) = (Time(input.number()?), Time(input.number()?));
            MatchState::Failed { until, retry_at, told: input.byte()? != 0 }
        }
        ENDED => MatchState::Ended,
        _ => return Err(Damaged("a match has an unknown state")),
    })
}

fn read_leftovers(input: &mut Reader<'_>) -> Result<Vec<Leftover>, Damaged> {
    let read = |input: &mut Reader<'_>| {
        let booking = read_booking(input)?;
        Ok(Leftover { booking, until: Time(input.number()?) })
    };
    (0..count(input, LEFTOVERS_READ_MAX)?).map(|_| read(input)).collect()
}

fn write_booking(out: &mut Writer, booking: &Booking) {
    out.number(booking.worker.0);
    out.raw(&booking.token.0);
    out.number(booking.reservation.0);
    out.number(booking.asked_until.0);
}

fn read_booking(input: &mut Reader<'_>) -> Result<Booking, Damaged> {
    Ok(Booking {
        worker: WorkerNo(input.number()?),
        token: read_token(input)?,
        reservation: Millis(input.number()?),
        asked_until: Time(input.number()?),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wayleave_core::ids::Token;

    use super::*;

    fn booking() -> impl Strategy<Value = Booking> {
        any::<(u64, [u8; 16], u32, u32)>().prop_map(|(worker, token, reservation, until)| Booking {
            worker: WorkerNo(worker),
            token: Token(token),
            reservation: Millis(reservation.into()),
            asked_until: Time(until.into()),
        })
    }

    fn time() -> impl Strategy<Value = Time> {
        any::<u32>().prop_map(|at| Time(at.into()))
    }

    fn state() -> impl Strategy<Value = MatchState> {
        prop_oneof![
            time().prop_map(|not_before| MatchState::Queued { not_before }),
            booking().prop_map(MatchState::Making),
            (booking(), time()).prop_map(|(booking, expires_at)| MatchState::Matched { booking, expires_at }),
            time().prop_map(|until| MatchState::Vacant { until }),
            (time(), time(), any::<bool>()).prop_map(|(until, retry_at, told)| MatchState::Failed {
                until,
                retry_at,
                told
            }),
            Just(MatchState::Ended),
        ]
    }

    proptest! {
        #[test]
        fn matches_read_back_and_what_is_cut_off_is_refused(
            principal in prop::option::of("[a-zø]{0,9}"), numbers: (u64, u32, u64), queued_at in time(), deadline in time(), state in state(),
            leftovers in prop::collection::vec((booking(), time()), 0..4), reason in "[a-zø ]{0,9}",
            pool in "[a-z0-9][a-z0-9._-]{0,9}", client in "[a-zø/ %]{1,20}", shard: u16,
        ) {
            let (queue_number, attempts, version) = numbers;
            let leftovers = leftovers.into_iter().map(|(booking, until)| Leftover { booking, until }).collect();
            let row = MatchRow {
                principal: principal.map(Into::into), queue_number, queued_at, deadline, attempts, state, leftovers, reason: reason.into(), version,
            };
            let (pool, client) = (PoolName::from(pool.as_str()), ClientName::from(client.as_str()));
            prop_assert_eq!(parse_key(&key(ShardId(shard), &pool, &client)), Ok((pool, client)));
            let bytes = encode(&row);
            prop_assert_eq!(decode(&bytes), Ok(row));
            for cut in 0..bytes.len() {
                prop_assert!(decode(&bytes[..cut]).is_err(), "{} bytes", cut);
            }
        }

        #[test]
        fn a_damaged_match_is_refused_or_read_but_never_panics(bytes: Vec<u8>) {
            _ = (decode(&bytes), parse_key(&bytes));
            _ = decode(&[&[VERSION], bytes.as_slice()].concat());
        }
    }

    #[test]
    fn a_client_without_a_name_and_a_state_without_a_meaning_are_damage() {
        let pool = PoolName::from("p");
        assert!(parse_key(&pool_key(ShardId(0), Kind::Match, &pool, 0)).is_err());
        assert!(read_state(&mut Reader::new(&[6, 0, 0])).is_err());
    }
}
