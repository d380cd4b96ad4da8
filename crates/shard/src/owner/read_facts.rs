//! Facts: the rows a decision needs, read from the store and decoded into core types.

use wayleave_core::frontier::row::{DueRow, UrlRow};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::visit::{LaneScan, ScannedUrl, Visit};
use wayleave_core::ids::QueueId;
use wayleave_core::limits::READ_AHEAD;
use wayleave_core::time::Time;
use wayleave_engine::rows::{due, url};
use wayleave_engine::{Engine, Error, Key, Scan};

use crate::cache::lane_cache::LaneCache;
use crate::owner::open::damaged;

/// The rows of some URLs, in the order given. Keys are sorted for the read: the store reads neighbours cheaply.
pub(crate) async fn url_rows(engine: &dyn Engine, urls: &[(QueueId, UrlKey)]) -> Result<Vec<Option<UrlRow>>, Error> {
    let mut keys: Vec<(Key, usize)> =
        urls.iter().enumerate().map(|(i, (queue, key))| (url::key(*queue, &key.0), i)).collect();
    keys.sort_unstable();
    let (keys, order): (Vec<Key>, Vec<usize>) = keys.into_iter().unzip();
    let values = engine.get_many(&keys).await?;
    let mut rows: Vec<Option<UrlRow>> = vec![None; urls.len()];
    for (value, at) in values.into_iter().zip(order) {
        let Some(value) = value else { continue };
        let row = url::decode(&value).map_err(damaged)?;
        if let Some(place) = rows.get_mut(at) {
            *place = Some(row);
        }
    }
    Ok(rows)
}

/// The due rows of queued URLs, in the order given.
pub(crate) async fn due_rows(engine: &dyn Engine, keys: &[Key]) -> Result<Vec<Option<DueRow>>, Error> {
    let values = engine.get_many(keys).await?;
    let decode = |value: Option<Vec<u8>>| value.map(|v| due::decode(&v)).transpose();
    values.into_iter().map(decode).collect::<Result<_, _>>().map_err(damaged)
}

/// The results of the scans of several visits: for each visit, the rows of each scan that was needed.
pub(crate) async fn fronts(
    engine: &dyn Engine,
    lane_cache: &mut LaneCache,
    visits: &[Visit],
    (most, now): (usize, Time),
) -> Result<Vec<Vec<Vec<ScannedUrl>>>, Error> {
    // The first lane of a visit seldom runs short, so the first lanes of all visits are read in one batch.
    let first: Vec<&LaneScan> = visits.iter().filter_map(|visit| visit.scans.first()).collect();
    let mut first = scan_lanes(engine, lane_cache, &first).await?.into_iter();
    let mut fronts = Vec::with_capacity(visits.len());
    for visit in visits {
        let mut found = Vec::new();
        let mut due = 0;
        for (i, scan) in visit.scans.iter().enumerate() {
            if i > 0 && due >= most {
                break;
            }
            let lane = if i == 0 { first.next() } else { scan_lanes(engine, lane_cache, &[scan]).await?.pop() };
            let lane = lane.unwrap_or_default();
            due += lane.iter().filter(|found| found.position.due <= now).count();
            found.push(lane);
        }
        fronts.push(found);
    }
    Ok(fronts)
}

async fn scan_lanes(
    engine: &dyn Engine,
    lane_cache: &mut LaneCache,
    lanes: &[&LaneScan],
) -> Result<Vec<Vec<ScannedUrl>>, Error> {
    let mut found: Vec<Option<Vec<ScannedUrl>>> = lanes.iter().map(|lane| lane_cache.get(lane)).collect();
    let missing: Vec<&LaneScan> =
        lanes.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(lane, _)| *lane).collect();
    if !missing.is_empty() {
        let scans: Vec<Scan> = missing.iter().map(|lane| scan(lane)).collect();
        let mut pages = engine.scan_many(&scans).await?.into_iter();
        for (lane, place) in lanes.iter().zip(&mut found).filter(|(_, place)| place.is_none()) {
            let rows = pages.next().unwrap_or_default();
            lane_cache.fill(lane, &rows, limit(lane));
            let rows = rows.iter().take(lane.limit).map(|row| read_found(&row.key, &row.value));
            *place = Some(rows.collect::<Result<_, _>>()?);
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

fn read_found(key: &[u8], value: &[u8]) -> Result<ScannedUrl, Error> {
    let (_, position, key) = due::parse_key(key).map_err(damaged)?;
    Ok(ScannedUrl { position, key, row: due::decode(value).map_err(damaged)? })
}
