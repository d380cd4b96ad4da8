//! Facts: the rows a decision needs, read from the store and decoded into core types.
//!
//! A row that cannot be read costs itself: it comes back as a [`Fact`] that says why. The engine fails a read as a whole, so
//! after a `Corrupt` the read is bisected.

use wayleave_core::frontier::row::{DueRow, UrlRow};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::visit::{LaneScan, ScannedUrl, Visit};
use wayleave_core::ids::QueueId;
use wayleave_core::limits::READ_AHEAD;
use wayleave_core::time::Time;
use wayleave_engine::rows::{due, url};
use wayleave_engine::{Engine, Error, Key, Row, Scan, Value};

use crate::cache::lane_cache::LaneCache;

/// A row, if there is one, or why it cannot be read.
pub(crate) type Fact<T> = Result<Option<T>, String>;

/// The rows of a scan up to the first that cannot be read, and why that one cannot.
pub(crate) type Found = (Vec<Row>, Option<String>);

/// The lanes of a visit, as far as they were needed, or why one of them cannot be read.
pub(crate) type Fronts = Result<Vec<Vec<ScannedUrl>>, String>;

/// The rows of some URLs, in the order given. Keys are sorted for the read: the store reads neighbours cheaply.
pub(crate) async fn url_rows(engine: &dyn Engine, urls: &[(QueueId, UrlKey)]) -> Result<Vec<Fact<UrlRow>>, Error> {
    let mut keys: Vec<(Key, usize)> =
        urls.iter().enumerate().map(|(i, (queue, key))| (url::key(*queue, &key.0), i)).collect();
    keys.sort_unstable();
    let (keys, order): (Vec<Key>, Vec<usize>) = keys.into_iter().unzip();
    let mut rows: Vec<Fact<UrlRow>> = vec![Ok(None); urls.len()];
    for (value, at) in get_each(engine, &keys).await?.into_iter().zip(order) {
        if let Some(place) = rows.get_mut(at) {
            *place = decoded(value, url::decode);
        }
    }
    Ok(rows)
}

/// The due rows of queued URLs, in the order given.
pub(crate) async fn due_rows(engine: &dyn Engine, keys: &[Key]) -> Result<Vec<Fact<DueRow>>, Error> {
    Ok(get_each(engine, keys).await?.into_iter().map(|value| decoded(value, due::decode)).collect())
}

fn decoded<T>(value: Fact<Value>, decode: impl Fn(&[u8]) -> Result<T, wayleave_core::codec::Damaged>) -> Fact<T> {
    value?.map(|value| decode(&value)).transpose().map_err(|damage| damage.to_string())
}

/// The values of some keys.
pub(crate) async fn get_each(engine: &dyn Engine, keys: &[Key]) -> Result<Vec<Fact<Value>>, Error> {
    match engine.get_many(keys).await {
        Ok(values) => return Ok(values.into_iter().map(Ok).collect()),
        Err(Error::Corrupt(_)) => {}
        Err(error) => return Err(error),
    }
    let mut found = Vec::with_capacity(keys.len());
    // The next part is last. Parts are whole halves, so they come in order.
    let mut parts = vec![keys];
    while let Some(part) = parts.pop() {
        match engine.get_many(part).await {
            Ok(values) => found.extend(values.into_iter().map(Ok)),
            Err(Error::Corrupt(cause)) if part.len() <= 1 => found.push(Err(cause)),
            Err(Error::Corrupt(_)) => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The rows of some scans.
pub(crate) async fn scan_each(engine: &dyn Engine, scans: &[Scan]) -> Result<Vec<Found>, Error> {
    match engine.scan_many(scans).await {
        Ok(found) => return Ok(found.into_iter().map(|rows| (rows, None)).collect()),
        Err(Error::Corrupt(_)) => {}
        Err(error) => return Err(error),
    }
    let mut found = Vec::with_capacity(scans.len());
    for scan in scans {
        found.push(scan_to_damage(engine, scan).await?);
    }
    Ok(found)
}

/// The rows of a scan. After a failure it goes on in ever smaller steps, up to the row that cannot be read.
pub(crate) async fn scan_to_damage(engine: &dyn Engine, scan: &Scan) -> Result<Found, Error> {
    let (mut rows, mut step) = (Vec::new(), scan.limit);
    let mut from = scan.from.clone();
    loop {
        let limit = step.min(scan.limit - rows.len());
        match engine.scan_many(&[Scan { from: from.clone(), to: scan.to.clone(), limit }]).await {
            Ok(mut found) => {
                let page = found.pop().unwrap_or_default();
                let ended = page.len() < limit;
                rows.extend(page);
                if ended || rows.len() >= scan.limit {
                    return Ok((rows, None));
                }
                from = rows.last().map_or(from, |last| key_after(&last.key));
            }
            Err(Error::Corrupt(cause)) if step <= 1 => return Ok((rows, Some(cause))),
            Err(Error::Corrupt(_)) => step /= 2,
            Err(error) => return Err(error),
        }
    }
}

/// The least key after this one.
pub(crate) fn key_after(key: &[u8]) -> Key {
    [key, &[0]].concat()
}

/// The results of the scans of several visits: for each visit, the rows of each scan that was needed. Where one of them ends at a
/// row that cannot be read, the visit takes what comes before it.
pub(crate) async fn fronts(
    engine: &dyn Engine,
    lane_cache: &mut LaneCache,
    visits: &mut [Visit],
    (most, now): (usize, Time),
) -> Result<Vec<Fronts>, Error> {
    // The first lane of a visit seldom runs short, so the first lanes of all visits are read in one batch.
    let first: Vec<&LaneScan> = visits.iter().filter_map(|visit| visit.scans.first()).collect();
    let mut first = scan_lanes(engine, lane_cache, &first).await?.into_iter();
    let mut fronts = Vec::with_capacity(visits.len());
    for visit in visits {
        let mut found = Vec::new();
        let (mut due, mut damage) = (0, None);
        for (i, scan) in visit.scans.iter_mut().enumerate() {
            if i > 0 && due >= most {
                break;
            }
            let lane = if i == 0 { first.next() } else { scan_lanes(engine, lane_cache, &[&*scan]).await?.pop() };
            let Lane { rows, damage: met } = lane.unwrap_or_default();
            due += rows.iter().filter(|found| found.position.due <= now).count();
            damage = met;
            if damage.is_none() {
                found.push(rows);
                continue;
            }
            let Some(last) = rows.last() else { break };
            // The next visit begins behind the last row, and meets the damage.
            let behind = ScannedUrl { key: UrlKey(key_after(&last.key.0).into()), ..last.clone() };
            scan.limit = rows.len() + 1;
            found.push(rows.into_iter().chain([behind]).collect());
            break;
        }
        fronts.push(match damage {
            Some(cause) if found.is_empty() => Err(cause),
            _ => Ok(found),
        });
    }
    Ok(fronts)
}

/// The first rows of a lane, up to the first that cannot be read; and why that one cannot, if it is among those that are wanted.
#[derive(Default)]
struct Lane {
    rows: Vec<ScannedUrl>,
    damage: Option<String>,
}

async fn scan_lanes(engine: &dyn Engine, lane_cache: &mut LaneCache, lanes: &[&LaneScan]) -> Result<Vec<Lane>, Error> {
    let cached = |lane: &&LaneScan| lane_cache.get(lane).map(|rows| Lane { rows, damage: None });
    let mut found: Vec<Option<Lane>> = lanes.iter().map(cached).collect();
    let missing: Vec<&LaneScan> =
        lanes.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(lane, _)| *lane).collect();
    if !missing.is_empty() {
        let scans: Vec<Scan> = missing.iter().map(|lane| scan(lane)).collect();
        let mut pages = scan_each(engine, &scans).await?.into_iter();
        for (lane, place) in lanes.iter().zip(&mut found).filter(|(_, place)| place.is_none()) {
            let (page, mut damage) = pages.next().unwrap_or_default();
            if damage.is_none() {
                lane_cache.fill(lane, &page, limit(lane));
            }
            let mut rows = Vec::new();
            for row in page.iter().take(lane.limit) {
                match read_found(&row.key, &row.value) {
                    Ok(read) => rows.push(read),
                    Err(cause) => {
                        damage = Some(cause);
                        break;
                    }
                }
            }
            // A row further on may be due before this visit is over, so its queue counts as unreadable only when it is next.
            let damage = damage.filter(|_| rows.len() < lane.limit);
            *place = Some(Lane { rows, damage });
        }
    }
    Ok(found.into_iter().map(Option::unwrap_or_default).collect())
}

fn limit(lane: &LaneScan) -> usize {
    lane.limit.max(READ_AHEAD)
}

fn scan(lane: &LaneScan) -> Scan {
    let position = wayleave_core::frontier::row::QueuePosition { lane: lane.lane, due: lane.from.0 };
    Scan {
        from: due::key(lane.queue, position, &lane.from.1),
        to: due::lane_end(lane.queue, lane.lane),
        limit: limit(lane),
    }
}

fn read_found(key: &[u8], value: &[u8]) -> Result<ScannedUrl, String> {
    let found = || {
        let (_, position, key) = due::parse_key(key)?;
        Ok(ScannedUrl { position, key, row: due::decode(value)? })
    };
    found().map_err(|damage: wayleave_core::codec::Damaged| damage.to_string())
}
