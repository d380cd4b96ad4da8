//! Facts: the rows a decision needs, read from the store and decoded into core types.
//!
//! A row that cannot be read costs itself: it comes back as a [`Fact`] that says why. The engine fails a read as a whole, so
//! after a `Corrupt` the read is bisected. A scan goes on behind what it cannot read, and says that there is a gap.

use wayleave_core::frontier::row::{DueRow, UrlRow};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::visit::{LaneGap, LaneScan, ScannedUrl, Visit};
use wayleave_core::ids::QueueId;
use wayleave_core::limits::READ_AHEAD;
use wayleave_core::time::Time;
use wayleave_engine::rows::{due, url};
use wayleave_engine::{Engine, Error, Key, Row, Scan, Value};

use crate::cache::lane_cache::LaneCache;

/// A row, if there is one, or why it cannot be read.
pub(crate) type Fact<T> = Result<Option<T>, String>;

/// The lanes of a visit, as far as they were needed.
pub(crate) type Fronts = Vec<Vec<ScannedUrl>>;

/// The rows of a scan up to the first that cannot be read, and why that one cannot.
pub(crate) type ToDamage = (Vec<Row>, Option<String>);

/// The most gaps that one scan passes over: an engine may have to search for the end of each.
const GAPS_MAX: usize = 64;

/// The rows of a scan that can be read.
#[derive(Default)]
pub(crate) struct Found {
    pub rows: Vec<Row>,
    /// What cannot be read between them.
    pub gaps: Option<Gaps>,
    /// Where to go on, unless the end of the range was reached. Behind a gap it may be a key that no row could have.
    pub next: Option<Key>,
}

/// What a scan could not read.
pub(crate) struct Gaps {
    /// Where. Each gap may hold any number of rows.
    pub ranges: Vec<(Key, Key)>,
    /// The number of rows that were read before the first.
    pub first: usize,
    /// Why rows cannot be read there.
    pub cause: String,
}

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
        Ok(found) => {
            let whole = |(rows, scan): (Vec<Row>, &Scan)| {
                let next = rows.last().filter(|_| rows.len() >= scan.limit).map(|last| key_after(&last.key));
                Found { rows, gaps: None, next }
            };
            return Ok(found.into_iter().zip(scans).map(whole).collect());
        }
        Err(Error::Corrupt(_)) => {}
        Err(error) => return Err(error),
    }
    let mut found = Vec::with_capacity(scans.len());
    for scan in scans {
        found.push(scan_past_damage(engine, scan).await?);
    }
    Ok(found)
}

/// The rows of a scan that can be read, before and behind what cannot.
pub(crate) async fn scan_past_damage(engine: &dyn Engine, scan: &Scan) -> Result<Found, Error> {
    let mut found = Found::default();
    let mut rest = scan.clone();
    loop {
        let (rows, damage) = scan_to_damage(engine, &rest).await?;
        let (full, before) = (rows.len() >= rest.limit, found.rows.len() + rows.len());
        rest.from = rows.last().map_or(rest.from, |last| key_after(&last.key));
        found.rows.extend(rows);
        let Some(cause) = damage.filter(|_| !full) else {
            found.next = full.then_some(rest.from);
            return Ok(found);
        };
        rest.limit = scan.limit - before;
        let (end, mut certain) = engine.past_damage(&rest).await?;
        let cut = certain.len() > rest.limit;
        certain.truncate(rest.limit);
        let end = certain.last().filter(|_| cut).map_or(end, |last| key_after(&last.key));
        let begin = std::mem::replace(&mut rest.from, end.clone());
        let gaps = found.gaps.get_or_insert(Gaps { ranges: Vec::new(), first: before, cause });
        gaps.ranges.push((begin, end));
        let count = gaps.ranges.len();
        rest.limit -= certain.len();
        found.rows.extend(certain);
        if rest.from >= rest.to {
            return Ok(found);
        }
        if rest.limit == 0 || count >= GAPS_MAX {
            found.next = Some(rest.from);
            return Ok(found);
        }
    }
}

/// The rows of a scan. After a failure it goes on in ever smaller steps, up to the row that cannot be read.
pub(crate) async fn scan_to_damage(engine: &dyn Engine, scan: &Scan) -> Result<ToDamage, Error> {
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

/// The results of the scans of several visits: for each visit, the rows of each scan that was needed. A scan that passes over
/// rows which cannot be read is given the gap.
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
        let mut due = 0;
        for (i, scan) in visit.scans.iter_mut().enumerate() {
            if i > 0 && due >= most {
                break;
            }
            let lane = if i == 0 { first.next() } else { scan_lanes(engine, lane_cache, &[&*scan]).await?.pop() };
            let Lane { rows, gap } = lane.unwrap_or_default();
            due += rows.iter().filter(|found| found.position.due <= now).count();
            found.push(rows);
            scan.gap = gap;
        }
        fronts.push(found);
    }
    Ok(fronts)
}

/// The first rows of a lane that can be read, and what cannot be before them or between them.
#[derive(Default)]
struct Lane {
    rows: Vec<ScannedUrl>,
    gap: Option<LaneGap>,
}

async fn scan_lanes(engine: &dyn Engine, lane_cache: &mut LaneCache, lanes: &[&LaneScan]) -> Result<Vec<Lane>, Error> {
    // A cached prefix begins with the first row of its lane, so none is made of what is behind a gap.
    let mut cached = |lane: &&LaneScan| {
        let rows = if lane.gap.is_none() { lane_cache.get(lane) } else { None };
        rows.map(|rows| Lane { rows, gap: None })
    };
    let mut found: Vec<Option<Lane>> = lanes.iter().map(&mut cached).collect();
    let missing: Vec<&LaneScan> =
        lanes.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(lane, _)| *lane).collect();
    if !missing.is_empty() {
        let scans: Vec<Scan> = missing.iter().map(|lane| scan(lane)).collect();
        let mut pages = scan_each(engine, &scans).await?.into_iter();
        for (lane, place) in lanes.iter().zip(&mut found).filter(|(_, place)| place.is_none()) {
            let page = pages.next().unwrap_or_default();
            if lane.gap.is_none() && page.gaps.is_none() {
                lane_cache.fill(lane, &page.rows, limit(lane));
            }
            *place = Some(read_lane(lane, page));
        }
    }
    Ok(found.into_iter().map(Option::unwrap_or_default).collect())
}

/// A row further on may be due before this visit is over, so a gap counts only if it is next.
fn read_lane(lane: &LaneScan, page: Found) -> Lane {
    let mut rows: Vec<ScannedUrl> = Vec::new();
    let mut gap = lane.gap.clone();
    let met = |rows: &[ScannedUrl], cause: &str| LaneGap {
        from: rows.last().map_or_else(|| lane.from.clone(), |row| (row.position.due, key_after(&row.key.0).into())),
        ended: None,
        cause: cause.into(),
    };
    for (at, row) in page.rows.iter().enumerate() {
        if rows.len() >= lane.limit {
            return Lane { rows, gap };
        }
        if let Some(gaps) = page.gaps.as_ref().filter(|gaps| gaps.first == at) {
            gap.get_or_insert_with(|| met(&rows, &gaps.cause));
        }
        match read_found(&row.key, &row.value) {
            Ok(read) => rows.push(read),
            Err(cause) => _ = gap.get_or_insert_with(|| met(&rows, &cause)),
        }
    }
    if rows.len() < lane.limit {
        if let Some(gaps) = &page.gaps {
            gap.get_or_insert_with(|| met(&rows, &gaps.cause));
        }
        let ended =
            page.next.and_then(|next| due::parse_place(&next).ok()).map(|(_, position, key)| (position.due, key.0));
        if let Some(gap) = &mut gap {
            gap.ended = ended;
        }
    }
    Lane { rows, gap }
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
