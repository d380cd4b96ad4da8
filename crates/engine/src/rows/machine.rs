//! A machine of the fleet.
//! Lifetime: from its registration until it is deleted.
//! Key: shard 0 · 23 · its name. Value: version, type, address, where its reports come from, capacity, row, version
//! text, token, whether it was presented, the three columns, the cause, times, failures, where else its reports come
//! from, whether it is written off, the interval that it was told.

use std::sync::Arc;

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::fleet::{
    Cause, Desired, Judged, Kind as MachineKind, MachineRow, Reported, RowNo, Write as CoreWrite,
};
use wayleave_core::ids::{ShardId, Token};
use wayleave_core::names::MachineId;
use wayleave_core::time::{Millis, Time};

use super::ip_address::{read_ip, write_ip};
use super::{Kind, key as keys};
use crate::{Key, Write};

const VERSION: u8 = 1;
const KINDS: [MachineKind; 3] = [MachineKind::Crawler, MachineKind::Builder, MachineKind::Server];
pub(super) const DESIRED: [Desired; 3] = [Desired::Online, Desired::Paused, Desired::Drain];
const REPORTED: [Reported; 4] = [Reported::Online, Reported::Waiting, Reported::Paused, Reported::Error];
pub(super) const JUDGED: [Judged; 4] = [Judged::Healthy, Judged::Suspect, Judged::Failed, Judged::Probation];
const CAUSES: [Cause; 5] = [Cause::Well, Cause::Silent, Cause::SaidError, Cause::Probes, Cause::Returned];

/// The key of a machine.
#[must_use]
pub fn key(shard: ShardId, id: &MachineId) -> Key {
    name_key(shard, Kind::Machine, id)
}

/// The machine that a key names.
///
/// # Errors
/// If the key does not decode.
pub fn parse_key(key: &[u8]) -> Result<MachineId, Damaged> {
    let mut parts = keys::Parts(key);
    parts.prefix()?;
    read_name(parts.rest())
}

/// The write of a decision about the fleet.
#[must_use]
pub fn encode_write(shard: ShardId, write: &CoreWrite) -> Write {
    let CoreWrite::Machine(id, row) = write;
    Write { key: key(shard, id), value: row.as_ref().map(encode) }
}

/// Encodes a machine.
#[must_use]
pub fn encode(row: &MachineRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(128);
    out.byte(VERSION);
    out.byte(number(&KINDS, &row.kind));
    out.text(&row.address);
    write_ip(&mut out, row.from);
    out.number(row.capacity.into());
    out.maybe(row.row.map(|row| row.0.into()));
    out.byte(row.version.is_some().into());
    out.text(row.version.as_deref().unwrap_or_default());
    out.raw(&row.token.0);
    out.byte(row.confirmed.into());
    out.byte(number(&DESIRED, &row.desired));
    out.byte(number(&REPORTED, &row.reported));
    out.byte(number(&JUDGED, &row.judged));
    out.byte(number(&CAUSES, &row.cause));
    out.number(row.judged_at.0);
    out.number(row.failures.into());
    out.number(row.seen_at.0);
    out.number(row.registered_at.0);
    write_ip(&mut out, row.also_from);
    out.byte(row.written_off.into());
    out.number(row.told.0);
    out.into()
}

/// Decodes a machine.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<MachineRow, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("the row of a machine has an unknown version"));
    }
    let kind = one_of(&KINDS, input.byte()?)?;
    let address = input.text()?.into();
    let from = read_ip(input.bytes()?)?;
    let capacity = input.small()?;
    let row = input.maybe()?.map(u8::try_from).transpose().map_err(|_| Damaged("a row is out of range"))?;
    let (has_version, version) = (input.byte()? != 0, input.text()?);
    let token = Token(input.raw(16)?.try_into().map_err(|_| Damaged("a token is too short"))?);
    let mut row = MachineRow {
        kind,
        address,
        from,
        also_from: None,
        capacity,
        row: row.map(RowNo),
        version: has_version.then(|| Arc::from(version)),
        token,
        confirmed: input.byte()? != 0,
        desired: one_of(&DESIRED, input.byte()?)?,
        reported: one_of(&REPORTED, input.byte()?)?,
        judged: one_of(&JUDGED, input.byte()?)?,
        cause: one_of(&CAUSES, input.byte()?)?,
        judged_at: Time(input.number()?),
        written_off: false,
        failures: input.small()?,
        seen_at: Time(input.number()?),
        registered_at: Time(input.number()?),
        told: Millis(0),
    };
    row.also_from = read_ip(input.bytes()?)?;
    row.written_off = input.byte()? != 0;
    row.told = Millis(input.number()?);
    Ok(row)
}

/// A key that ends in a machine's name.
pub(super) fn name_key(shard: ShardId, kind: Kind, id: &MachineId) -> Key {
    let mut key = keys::start(shard, kind, id.len());
    key.extend_from_slice(id.as_bytes());
    key
}

/// A machine's name at the end of a key.
pub(super) fn read_name(bytes: &[u8]) -> Result<MachineId, Damaged> {
    match std::str::from_utf8(bytes) {
        Ok("") | Err(_) => Err(Damaged("a key has no readable name of a machine")),
        Ok(name) => Ok(name.into()),
    }
}

/// The number of a value: its position in a list that only grows.
pub(super) fn number<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|other| other == one).unwrap_or_default() as u8
}

/// The value with a number.
pub(super) fn one_of<T: Copy>(all: &[T], number: u8) -> Result<T, Damaged> {
    all.get(usize::from(number)).copied().ok_or(Damaged("a row of the fleet has an unknown number"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn ip() -> impl Strategy<Value = Option<std::net::IpAddr>> {
        prop_oneof![
            Just(None),
            any::<[u8; 4]>().prop_map(|ip| Some(ip.into())),
            any::<[u8; 16]>().prop_map(|ip| Some(ip.into()))
        ]
    }

    proptest! {
        #[test]
        fn machines_read_back_and_what_is_cut_off_is_refused(
            columns in (select(&KINDS[..]), select(&DESIRED[..]), select(&REPORTED[..]), select(&JUDGED[..]), select(&CAUSES[..])),
            from in ip(), also_from in ip(), written_off: bool, capacity: u32, row: Option<u8>, version in prop::option::of("[a-z]{0,9}"), token: [u8; 16],
            confirmed: bool, times: [u32; 3], told in 0..128u64, failures: u32, id in "[a-zø:.]{1,20}", shard: u16,
        ) {
            let (kind, desired, reported, judged, cause) = columns;
            let [judged_at, seen_at, registered_at] = times.map(|at| Time(at.into()));
            let row = MachineRow {
                kind, address: "10.0.0.1:80".into(), from, also_from, written_off, capacity, row: row.map(RowNo), version: version.map(Into::into),
                token: Token(token), confirmed, desired, reported, judged, cause, judged_at, failures, seen_at, registered_at,
                told: Millis(told),
            };
            let write = encode_write(ShardId(shard), &CoreWrite::Machine(id.as_str().into(), Some(row.clone())));
            prop_assert_eq!(parse_key(&write.key), Ok(id.into()));
            let bytes = write.value.unwrap();
            prop_assert_eq!(decode(&bytes), Ok(row));
            for cut in 0..bytes.len() {
                prop_assert!(decode(&bytes[..cut]).is_err(), "{} bytes", cut);
            }
        }

        #[test]
        fn a_damaged_machine_is_refused_or_read_but_never_panics(bytes: Vec<u8>) {
            _ = decode(&bytes);
            _ = decode(&[&[VERSION], bytes.as_slice()].concat());
            _ = parse_key(&bytes);
        }
    }

    #[test]
    fn a_deleted_machine_has_no_row_and_a_strange_key_is_damage() {
        let gone = encode_write(ShardId(0), &CoreWrite::Machine("m".into(), None));
        assert_eq!(gone, Write { key: key(ShardId(0), &"m".into()), value: None });
        let nameless = keys::start(ShardId(0), Kind::Machine, 0);
        assert!(parse_key(&nameless).is_err() && parse_key(&[nameless.as_slice(), &[0xff]].concat()).is_err());
        assert!(decode(&[9]).is_err(), "an unknown version");
        assert!(read_ip(&[1, 2, 3]).is_err() && one_of(&KINDS, 3).is_err());
    }
}
