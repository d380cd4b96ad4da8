//! A worker of a pool.
//! Lifetime: from before its runtime is told to create it until nothing of it is left.
//! Key: shard · 30 · the pool's name · 0 · its number (8 bytes). Value: version, site, recipe number, slots, phase with its
//! times and counters, attempt, secret, instance, what it reported, uses, times, where the report of its address came from, reason, row version.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::ids::{ShardId, Token};
use wayleave_core::matches::row::Secret;
use wayleave_core::matches::{Instance, Phase, WorkerNo, WorkerRow};
use wayleave_core::names::PoolName;
use wayleave_core::time::Time;

use super::ip_address::{read_ip, write_ip};
use super::machine::{number, one_of};
use super::pool::read_name;
use super::{Kind, key as keys};
use crate::Key;

const VERSION: u8 = 1;
const PHASES: [Phase; 8] = [
    Phase::Creating,
    Phase::Restarting,
    Phase::Starting,
    Phase::Running,
    Phase::Draining,
    Phase::Stopping,
    Phase::Exited,
    Phase::Removing,
];

/// The key of a worker.
#[must_use]
pub fn key(shard: ShardId, pool: &PoolName, no: WorkerNo) -> Key {
    let mut key = pool_key(shard, Kind::Worker, pool, 8);
    key.extend_from_slice(&no.0.to_be_bytes());
    key
}

/// The worker that a key names, and its pool.
///
/// # Errors
/// If the key does not decode.
pub fn parse_key(key: &[u8]) -> Result<(PoolName, WorkerNo), Damaged> {
    let (pool, rest) = split_key(key)?;
    let no = rest.try_into().map_err(|_| Damaged("the number of a worker has a wrong length"))?;
    Ok((pool, WorkerNo(u64::from_be_bytes(no))))
}

/// A key that begins with the name of a pool, which has no NUL.
pub(super) fn pool_key(shard: ShardId, kind: Kind, pool: &PoolName, room: usize) -> Key {
    let mut key = keys::start(shard, kind, pool.len() + 1 + room);
    key.extend_from_slice(pool.as_bytes());
    key.push(0);
    key
}

/// The pool that a key begins with, and the rest.
pub(super) fn split_key(key: &[u8]) -> Result<(PoolName, &[u8]), Damaged> {
    let mut parts = keys::Parts(key);
    parts.prefix()?;
    let rest = parts.rest();
    let end = rest.iter().position(|byte| *byte == 0).ok_or(Damaged("a key has no name of a pool"))?;
    let (pool, rest) = rest.split_at(end);
    Ok((read_name(pool)?, rest.get(1..).unwrap_or_default()))
}

/// Encodes a worker.
#[must_use]
pub fn encode(row: &WorkerRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(192);
    out.byte(VERSION);
    out.text(&row.site);
    out.number(row.recipe_no.into());
    out.number(row.slots.into());
    out.byte(number(&PHASES, &row.phase));
    out.number(row.since.0);
    out.number(row.deadline.0);
    out.number(row.step.into());
    out.number(row.tries.into());
    out.number(row.run.into());
    out.number(row.making);
    out.number(row.making_since.0);
    out.byte(row.proven.into());
    out.raw(&row.secret.0.0);
    out.number(row.secret_run.into());
    out.byte(row.instance.is_some().into());
    if let Some(Instance { id, started, address }) = &row.instance {
        out.text(id);
        out.number(*started);
        out.text(address);
    }
    out.number(row.used_elsewhere.into());
    out.number(row.reported_at.0);
    out.number(row.restart_at.0);
    out.number(row.uses);
    out.number(row.created_at.0);
    out.maybe(row.idle_since.map(|since| since.0));
    write_ip(&mut out, row.reported_from);
    out.text(&row.reason);
    out.number(row.version);
    out.into()
}

/// Decodes a worker.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<WorkerRow, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("the row of a worker has an unknown version"));
    }
    Ok(WorkerRow {
        site: input.text()?.into(),
        recipe_no: input.small()?,
        slots: input.small()?,
        phase: one_of(&PHASES, input.byte()?)?,
        since: Time(input.number()?),
        deadline: Time(input.number()?),
        step: input.small()?,
        tries: input.small()?,
        run: input.small()?,
        making: input.number()?,
        making_since: Time(input.number()?),
        proven: input.byte()? != 0,
        secret: Secret(read_token(&mut input)?),
        secret_run: input.small()?,
        instance: read_instance(&mut input)?,
        used_elsewhere: input.small()?,
        reported_at: Time(input.number()?),
        restart_at: Time(input.number()?),
        uses: input.number()?,
        created_at: Time(input.number()?),
        idle_since: input.maybe()?.map(Time),
        reported_from: read_ip(input.bytes()?)?,
        reason: input.text()?.into(),
        version: input.number()?,
    })
}

fn read_instance(input: &mut Reader<'_>) -> Result<Option<Instance>, Damaged> {
    if input.byte()? == 0 {
        return Ok(None);
    }
    let (id, started) = (input.text()?.into(), input.number()?);
    Ok(Some(Instance { id, started, address: input.text()?.into() }))
}

/// A token.
pub(super) fn read_token(input: &mut Reader<'_>) -> Result<Token, Damaged> {
    Ok(Token(input.raw(16)?.try_into().map_err(|_| Damaged("a token is too short"))?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn instance() -> impl Strategy<Value = Instance> {
        ("[a-f0-9]{1,9}", any::<u64>(), "[a-z.]{1,5}:[0-9]{1,4}").prop_map(|(id, started, address)| Instance {
            id: id.into(),
            started,
            address: address.into(),
        })
    }

    proptest! {
        #[test]
        fn workers_read_back_and_what_is_cut_off_is_refused(
            phase in select(&PHASES[..]), instance in prop::option::of(instance()), small: [u32; 7], large: [u64; 3], times: [u32; 6],
            idle_since: Option<u32>, proven: bool, secret: [u8; 16], reason in "[a-zø ]{0,9}", site in "[a-zø:]{1,9}",
            pool in "[a-z0-9][a-z0-9._-]{0,9}", no: u64, shard: u16, reported_from: Option<std::net::IpAddr>,
        ) {
            let [recipe_no, slots, step, tries, run, secret_run, used_elsewhere] = small;
            let [making, uses, version] = large;
            let [since, deadline, making_since, reported_at, restart_at, created_at] = times.map(|at| Time(at.into()));
            let row = WorkerRow {
                site: site.as_str().into(), recipe_no, slots, phase, since, deadline, step, tries, run, making, making_since, proven,
                secret: Secret(Token(secret)), secret_run, instance, used_elsewhere, reported_at, restart_at, uses, created_at, reported_from,
                idle_since: idle_since.map(|at| Time(at.into())), reason: reason.into(), version,
            };
            let pool = PoolName::from(pool.as_str());
            prop_assert_eq!(parse_key(&key(ShardId(shard), &pool, WorkerNo(no))), Ok((pool, WorkerNo(no))));
            let bytes = encode(&row);
            prop_assert_eq!(decode(&bytes), Ok(row));
            for cut in 0..bytes.len() {
                prop_assert!(decode(&bytes[..cut]).is_err(), "{} bytes", cut);
            }
        }

        #[test]
        fn a_damaged_worker_is_refused_or_read_but_never_panics(bytes: Vec<u8>) {
            _ = (decode(&bytes), parse_key(&bytes));
            _ = decode(&[&[VERSION], bytes.as_slice()].concat());
        }
    }

    #[test]
    fn workers_of_a_pool_are_not_those_of_a_pool_whose_name_begins_like_it() {
        let keys =
            [("a", 1), ("a", 256), ("a-b", 0), ("ab", 0)].map(|(pool, no)| key(ShardId(1), &pool.into(), WorkerNo(no)));
        assert!(keys.is_sorted());
        assert!(parse_key(&keys[0][..keys[0].len() - 1]).is_err(), "a number that is cut off");
    }
}
