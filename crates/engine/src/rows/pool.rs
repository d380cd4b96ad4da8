//! A pool of workers.
//! Lifetime: from its first setting until it is deleted and nothing of it is left.
//! Key: shard · 29 · its name. Value: version, owner, settings (recipe first), generation, counters, failures, failures by
//! site, sites that may have something left of it, whether it is being deleted, whether it is paused, when it was created,
//! row version.

use std::collections::BTreeMap;

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::ids::ShardId;
use wayleave_core::limits::{COMMAND_ARGS_MAX, ENV_VARS_MAX};
use wayleave_core::matches::row::Trouble;
use wayleave_core::matches::settings::PullPolicy;
use wayleave_core::matches::{PoolRow, Recipe, RuntimeKind, Settings, Write as CoreWrite};
use wayleave_core::names::PoolName;
use wayleave_core::time::{Millis, Time};

use super::machine::{number, one_of};
use super::{Kind, key as keys, match_row, worker};
use crate::{Key, Write};

const VERSION: u8 = 1;
const RUNTIMES: [RuntimeKind; 2] = [RuntimeKind::Process, RuntimeKind::Docker];
const PULLS: [PullPolicy; 3] = [PullPolicy::Never, PullPolicy::Missing, PullPolicy::Always];

/// The key of a pool.
#[must_use]
pub fn key(shard: ShardId, pool: &PoolName) -> Key {
    let mut key = keys::start(shard, Kind::Pool, pool.len());
    key.extend_from_slice(pool.as_bytes());
    key
}

/// The pool that a key names.
///
/// # Errors
/// If the key does not decode.
pub fn parse_key(key: &[u8]) -> Result<PoolName, Damaged> {
    let mut parts = keys::Parts(key);
    parts.prefix()?;
    read_name(parts.rest())
}

/// The write of a decision about a pool.
#[must_use]
pub fn encode_write(shard: ShardId, name: &PoolName, write: &CoreWrite) -> Write {
    match write {
        CoreWrite::Pool(row) => Write { key: key(shard, name), value: row.as_deref().map(encode) },
        CoreWrite::Worker(no, row) => {
            Write { key: worker::key(shard, name, *no), value: row.as_deref().map(worker::encode) }
        }
        CoreWrite::Match(client, row) => {
            Write { key: match_row::key(shard, name, client), value: row.as_deref().map(match_row::encode) }
        }
    }
}

/// Encodes a pool.
#[must_use]
pub fn encode(row: &PoolRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(256);
    out.byte(VERSION);
    out.text(&row.owner);
    write_settings(&mut out, &row.settings);
    out.raw(&row.generation.to_be_bytes());
    out.number(row.recipe_no.into());
    out.number(row.next_worker);
    out.number(row.next_making);
    out.byte(row.trouble.is_some().into());
    row.trouble.iter().for_each(|trouble| write_trouble(&mut out, trouble));
    out.number(row.site_trouble.len() as u64);
    for (site, trouble) in &row.site_trouble {
        out.text(site);
        write_trouble(&mut out, trouble);
    }
    out.number(row.owed.len() as u64);
    for (site, since) in &row.owed {
        out.text(site);
        out.number(since.0);
    }
    out.byte(row.closing.into());
    out.byte(row.paused.into());
    out.number(row.created_at.0);
    out.number(row.version);
    out.into()
}

/// Decodes a pool.
///
/// # Errors
/// If key or value do not decode.
pub fn decode(key: &[u8], bytes: &[u8]) -> Result<PoolRow, Damaged> {
    let name = parse_key(key)?;
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("the row of a pool has an unknown version"));
    }
    let owner = input.text()?.into();
    let settings = read_settings(&mut input)?;
    let generation = input.raw(8)?.try_into().map_err(|_| Damaged("a generation is too short"))?;
    let (recipe_no, next_worker, next_making) = (input.small()?, input.number()?, input.number()?);
    let trouble = if input.byte()? == 0 { None } else { Some(read_trouble(&mut input)?) };
    // Whatever was written is read, or the whole shard would not open: how many sites there may be is decided when one is
    // noted. A count that is damaged ends with the bytes.
    let mut site_trouble = BTreeMap::new();
    for _ in 0..input.number()? {
        let site = input.text()?.into();
        site_trouble.insert(site, read_trouble(&mut input)?);
    }
    let mut owed = BTreeMap::new();
    for _ in 0..input.number()? {
        let site = input.text()?.into();
        owed.insert(site, Time(input.number()?));
    }
    Ok(PoolRow {
        name,
        owner,
        settings,
        generation: u64::from_be_bytes(generation),
        recipe_no,
        next_worker,
        next_making,
        trouble,
        site_trouble,
        owed,
        closing: input.byte()? != 0,
        paused: input.byte()? != 0,
        created_at: Time(input.number()?),
        version: input.number()?,
    })
}

fn write_settings(out: &mut Writer, settings: &Settings) {
    let recipe = &settings.recipe;
    out.byte(number(&RUNTIMES, &recipe.runtime));
    out.number(recipe.command.len() as u64);
    recipe.command.iter().for_each(|word| out.text(word));
    write_text(out, recipe.image.as_deref());
    out.number(recipe.env.len() as u64);
    for (name, value) in &recipe.env {
        out.text(name);
        out.text(value);
    }
    out.maybe(recipe.port.map(u64::from));
    write_text(out, recipe.advertise.as_deref());
    out.maybe(recipe.memory_bytes);
    out.maybe(recipe.cpu_millis);
    out.number(recipe.slots.into());
    out.byte(number(&PULLS, &settings.pull));
    out.number(settings.min.into());
    out.number(settings.max.into());
    out.number(settings.buffer.into());
    out.number(settings.idle.0);
    out.maybe(settings.age_max.map(|age| age.0));
    out.maybe(settings.uses_max);
    out.number(settings.start_max.0);
    out.number(settings.queue_max.into());
    out.number(settings.match_max.0);
    out.number(settings.reservation.0);
    out.number(settings.makers_max.into());
}

fn read_settings(input: &mut Reader<'_>) -> Result<Settings, Damaged> {
    let runtime = one_of(&RUNTIMES, input.byte()?)?;
    let command = count(input, COMMAND_ARGS_MAX)?;
    let command: Result<_, _> = (0..command).map(|_| input.text().map(str::to_owned)).collect();
    let (command, image) = (command?, read_text(input)?);
    let mut env = BTreeMap::new();
    for _ in 0..count(input, ENV_VARS_MAX)? {
        let name = input.text()?.to_owned();
        env.insert(name, input.text()?.to_owned());
    }
    let port = input.maybe()?.map(u16::try_from).transpose().map_err(|_| Damaged("a port is out of range"))?;
    let advertise = read_text(input)?;
    let (memory_bytes, cpu_millis, slots) = (input.maybe()?, input.maybe()?, input.small()?);
    let recipe = Recipe { runtime, command, image, env, port, advertise, memory_bytes, cpu_millis, slots };
    if slots == 0 {
        return Err(Damaged("the workers of a pool have no slots"));
    }
    Ok(Settings {
        recipe,
        pull: one_of(&PULLS, input.byte()?)?,
        min: input.small()?,
        max: input.small()?,
        buffer: input.small()?,
        idle: Millis(input.number()?),
        age_max: input.maybe()?.map(Millis),
        uses_max: input.maybe()?,
        start_max: Millis(input.number()?),
        queue_max: input.small()?,
        match_max: Millis(input.number()?),
        reservation: Millis(input.number()?),
        makers_max: input.small()?,
    })
}

fn write_trouble(out: &mut Writer, trouble: &Trouble) {
    out.number(trouble.failures.into());
    out.text(&trouble.reason);
    out.number(trouble.at.0);
    out.number(trouble.next_making);
    out.number(trouble.until.0);
}

fn read_trouble(input: &mut Reader<'_>) -> Result<Trouble, Damaged> {
    Ok(Trouble {
        failures: input.small()?,
        reason: input.text()?.into(),
        at: Time(input.number()?),
        next_making: input.number()?,
        until: Time(input.number()?),
    })
}

/// An optional text.
pub(super) fn write_text(out: &mut Writer, text: Option<&str>) {
    out.byte(text.is_some().into());
    text.into_iter().for_each(|text| out.text(text));
}

/// Reads an optional text.
pub(super) fn read_text<T: for<'a> From<&'a str>>(input: &mut Reader<'_>) -> Result<Option<T>, Damaged> {
    if input.byte()? == 0 { Ok(None) } else { Ok(Some(input.text()?.into())) }
}

/// The length of a list, which has at most so many entries.
pub(super) fn count(input: &mut Reader<'_>, most: usize) -> Result<usize, Damaged> {
    let count: usize = input.small()?;
    if count <= most { Ok(count) } else { Err(Damaged("a list in the row of a pool is too long")) }
}

/// A pool's name in a key.
pub(super) fn read_name(bytes: &[u8]) -> Result<PoolName, Damaged> {
    let name = std::str::from_utf8(bytes).map_err(|_| Damaged("the name of a pool is not UTF-8"))?;
    wayleave_core::names::pool(name).map_err(|_| Damaged("a key has no valid name of a pool"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;
    use wayleave_core::limits::SITES_MAX;

    use super::*;

    fn trouble() -> impl Strategy<Value = Trouble> {
        (any::<u32>(), "[a-zø ]{0,9}", any::<[u32; 3]>()).prop_map(|(failures, reason, [at, next, until])| Trouble {
            failures,
            reason: reason.into(),
            at: Time(at.into()),
            next_making: next.into(),
            until: Time(until.into()),
        })
    }

    fn recipe() -> impl Strategy<Value = Recipe> {
        let words = prop::collection::vec("[a-zø ]{0,5}", 0..4);
        let env = prop::collection::btree_map("[A-Z]{1,4}", "[a-zø=]{0,5}", 0..4);
        let texts = (prop::option::of("[a-z:/]{0,9}"), prop::option::of("[a-z.]{1,9}"));
        (select(&RUNTIMES[..]), words, env, texts, any::<(Option<u16>, Option<u32>, Option<u32>)>(), 1..u32::MAX)
            .prop_map(|(runtime, command, env, (image, advertise), (port, memory, cpu), slots)| Recipe {
                runtime,
                command,
                image,
                env,
                port,
                advertise,
                memory_bytes: memory.map(u64::from),
                cpu_millis: cpu.map(u64::from),
                slots,
            })
    }

    fn settings() -> impl Strategy<Value = Settings> {
        let maybe = any::<(Option<u32>, Option<u32>)>();
        (recipe(), select(&PULLS[..]), any::<[u32; 9]>(), maybe).prop_map(|(recipe, pull, numbers, (age, uses))| {
            let [min, max, buffer, idle, start, queue_max, matching, reservation, makers_max] = numbers;
            Settings {
                recipe,
                pull,
                min,
                max,
                buffer,
                idle: Millis(idle.into()),
                age_max: age.map(|age| Millis(age.into())),
                uses_max: uses.map(u64::from),
                start_max: Millis(start.into()),
                queue_max,
                match_max: Millis(matching.into()),
                reservation: Millis(reservation.into()),
                makers_max,
            }
        })
    }

    proptest! {
        #[test]
        fn pools_read_back_and_what_is_cut_off_is_refused(
            settings in settings(), trouble in prop::option::of(trouble()),
            site_trouble in prop::collection::btree_map("[a-zø:]{1,5}", trouble(), 0..3),
            owed in prop::collection::btree_map("[a-zø:]{1,5}", any::<u32>(), 0..3),
            numbers: (u64, u32, u64, u64, u64), [closing, paused]: [bool; 2], created_at: u32, name in "[a-z0-9][a-z0-9._-]{0,9}", shard: u16,
        ) {
            let (generation, recipe_no, next_worker, next_making, version) = numbers;
            let row = PoolRow {
                name: name.as_str().into(), owner: "0123".into(), settings, generation, recipe_no, next_worker, next_making, trouble,
                site_trouble: site_trouble.into_iter().map(|(site, trouble)| (site.as_str().into(), trouble)).collect(),
                owed: owed.into_iter().map(|(site, at)| (site.as_str().into(), Time(at.into()))).collect(),
                closing, paused, created_at: Time(created_at.into()), version,
            };
            let (key, bytes) = (key(ShardId(shard), &row.name), encode(&row));
            prop_assert_eq!(decode(&key, &bytes), Ok(row));
            for cut in 0..bytes.len() {
                prop_assert!(decode(&key, &bytes[..cut]).is_err(), "{} bytes", cut);
            }
        }

        #[test]
        fn a_damaged_pool_is_refused_or_read_but_never_panics(key: Vec<u8>, bytes: Vec<u8>) {
            _ = decode(&key, &bytes);
            _ = decode(&super::key(ShardId(0), &"p".into()), &[&[VERSION], bytes.as_slice()].concat());
        }
    }

    #[test]
    fn a_pool_that_has_noted_very_many_sites_is_read_as_it_was_written() {
        let Ok(settings) = wayleave_core::matches::PoolSpec { command: vec!["w".into()], ..Default::default() }.check()
        else {
            panic!("the settings are valid")
        };
        let trouble = Trouble { failures: 1, reason: "r".into(), at: Time(1), next_making: 1, until: Time(2) };
        let sites = || (0..2 * SITES_MAX).map(|n| format!("site-{n}"));
        let row = PoolRow {
            name: "p".into(),
            owner: "o".into(),
            settings,
            generation: 1,
            recipe_no: 1,
            next_worker: 1,
            next_making: 1,
            trouble: None,
            site_trouble: sites().map(|site| (site.as_str().into(), trouble.clone())).collect(),
            owed: sites().map(|site| (site.as_str().into(), Time(1))).collect(),
            closing: false,
            paused: false,
            created_at: Time(1),
            version: 1,
        };
        assert!(decode(&key(ShardId(0), &row.name), &encode(&row)) == Ok(row), "its shard could not be opened");
    }

    #[test]
    fn lists_that_are_too_long_and_names_that_are_none_are_damage() {
        let mut out = Writer::default();
        out.number(COMMAND_ARGS_MAX as u64 + 1);
        assert!(count(&mut Reader::new(out.as_bytes()), COMMAND_ARGS_MAX).is_err());
        for bad in [&b""[..], b"a/b", b"\xff", b"-a"] {
            assert!(read_name(bad).is_err());
        }
    }

    #[test]
    fn what_is_gone_has_no_row() {
        let (shard, pool) = (ShardId(3), PoolName::from("p"));
        for gone in
            [CoreWrite::Pool(None), CoreWrite::Worker(Default::default(), None), CoreWrite::Match("c".into(), None)]
        {
            assert_eq!(encode_write(shard, &pool, &gone).value, None);
        }
    }
}
