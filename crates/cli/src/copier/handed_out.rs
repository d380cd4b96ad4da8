//! Rebuilds reservations and holds that are lost from the rows of the URLs that they have handed out, and these rows from
//! them: nothing else would ever return the URLs to their queues, and their groups could be visited by two at once.

use std::collections::BTreeMap;

use wayleave_core::frontier::put::LANE_DEFAULT;
use wayleave_core::frontier::row::{Details, LeaseRow, QueuePosition, UrlRow, UrlStatus};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{CrawlNo, ShardId, Token};
use wayleave_engine::rows::{Kind, hold, key as keys, lease, url};
use wayleave_engine::salvage::lost_lease_ends;
use wayleave_engine::{Key, Row};

use super::homes::Homes;
use super::hot::{self, HotRows};
use super::losses::host_key;
use super::source::Source;

/// The reservations and holds of a shard between two keys. A reservation keeps its token; its holder and its end are lost, so it
/// ends as late as any can.
pub fn rebuild(
    source: &mut dyn Source,
    homes: &Homes,
    shard: ShardId,
    from: &[u8],
    to: &[u8],
) -> anyhow::Result<Vec<Row>> {
    let (first, end) = keys::range(shard, Kind::Hold, Kind::Lease);
    if to <= first.as_slice() || end.as_slice() <= from {
        return Ok(Vec::new());
    }
    let is_lost = |key: &Key| from <= key.as_slice() && key.as_slice() < to;
    let at = source.header().at;
    let (mut holds, mut leases) = (Vec::new(), BTreeMap::<Token, LeaseRow>::new());
    let mut rows = HotRows::load(source, shard)?;
    // What it has handed out is told where it lives.
    homes.settle(shard, source.header().shards, &mut rows, &mut Vec::new());
    for host in rows.hosts.into_values() {
        let (birth, number) = (host.id.birth(), host.id.counter());
        let urls = (host_key(birth, Kind::Url, number), host_key(birth, Kind::Url, number + 1));
        hot::each(source, urls, |row| {
            let (Ok((queue, key)), Ok(found)) = (url::parse_key(&row.key), url::decode(&row.value)) else { return };
            match found.status {
                UrlStatus::Held { until, .. } => {
                    let hold = hold::key(shard, until, queue, &key.0);
                    holds.extend(is_lost(&hold).then_some(hold));
                }
                UrlStatus::Reserved { token, .. } if is_lost(&lease::key(shard, token)) => {
                    let crawl = host.queues.iter().find(|known| known.no == queue.no).map(|known| known.crawl);
                    let lease = leases.entry(token).or_insert_with(|| LeaseRow {
                        token,
                        host: host.id,
                        holder: "(lost)".into(),
                        granted_at: at,
                        expires_at: lost_lease_ends(at),
                        crawl: crawl.unwrap_or(CrawlNo::NONE),
                        queued_at: None,
                        urls: Vec::new(),
                        taken_away: 0,
                        request: None,
                        link: None,
                        ended_chunk: None,
                    });
                    lease.urls.push((queue, key));
                }
                _ => {}
            }
        })?;
    }
    let holds = holds.into_iter().map(|key| Row { key, value: Vec::new() });
    let leases = leases.into_values().map(|row| Row { key: lease::key(shard, row.token), value: lease::encode(&row) });
    Ok(holds.chain(leases).collect())
}

/// The rows between two keys of URLs that a shard has handed out. Where in their queues they were, and what was known of
/// earlier visits, is lost.
pub fn rebuild_urls(source: &mut dyn Source, shard: ShardId, from: &[u8], to: &[u8]) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let at = source.header().at;
    hot::each(source, keys::range(shard, Kind::Hold, Kind::Lease), |row| {
        let position = |due| QueuePosition { lane: LANE_DEFAULT, due };
        let mut add = |queue, key: &UrlKey, created, status| {
            let key = url::key(queue, &key.0);
            if from <= key.as_slice() && key.as_slice() < to {
                rows.push(Row { key, value: url::encode(&UrlRow { created, whole: None, status }) });
            }
        };
        if row.key.get(2) == Some(&(Kind::Hold as u8)) {
            let Ok((until, queue, key)) = hold::parse_key(&row.key) else { return };
            let status = UrlStatus::Held { until, position: position(at), details: Details::default() };
            add(queue, &key, at, status);
        } else if let Ok(LeaseRow { token, granted_at, urls, .. }) = lease::decode(&row.value) {
            for (queue, key) in &urls {
                let position = position(granted_at);
                add(*queue, key, granted_at, UrlStatus::Reserved { token, position, details: Details::default() });
            }
        }
    })?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wayleave_core::frontier::row::{HostRow, HotRow};
    use wayleave_core::ids::{HostId, QueueId};
    use wayleave_core::time::Time;
    use wayleave_engine::rows::hot as hot_row;

    use super::*;
    use crate::copier::blocks::Blocks;
    use crate::copier::losses;

    const SHARD: ShardId = ShardId(1);

    fn stored(write: wayleave_engine::Write) -> (Key, Vec<u8>) {
        (write.key, write.value.unwrap())
    }

    #[test]
    fn lost_reservations_and_holds_are_rebuilt_from_their_urls() {
        // It was born in another shard.
        let id = HostId::new(ShardId(0), 7);
        let host = HostRow::new(id, "h.example".into());
        let mut rows: BTreeMap<Key, Vec<u8>> = [stored(hot_row::encode(SHARD, &HotRow::Host(host)))].into();
        let (queue, token) = (QueueId { host: id, no: 0 }, Token::new(SHARD, 77));
        let (position, details) = (QueuePosition { lane: 4, due: Time(5) }, Details::default);
        for (name, status) in [
            ("a", UrlStatus::Reserved { token, position, details: details() }),
            ("b", UrlStatus::Reserved { token, position, details: details() }),
            ("c", UrlStatus::Held { until: Time(900), position, details: details() }),
            ("d", UrlStatus::Queued(position)),
        ] {
            let row = UrlRow { created: Time(1), whole: None, status };
            rows.insert(url::key(queue, &UrlKey::new("h", name).0), url::encode(&row));
        }
        let (lost_lease, lost_hold) =
            (lease::key(SHARD, token), hold::key(SHARD, Time(900), queue, &UrlKey::new("h", "c").0));
        rows.insert(lost_lease.clone(), vec![1]);
        rows.insert(lost_hold.clone(), Vec::new());
        let mut source = Blocks::new(rows, vec![(lost_hold.clone(), lost_lease.clone())]);
        let rebuilt =
            losses::rebuild(&mut source, &Homes::default(), &lost_hold, &[lost_lease.as_slice(), &[0]].concat())
                .unwrap();
        let keys: Vec<&Key> = rebuilt.iter().map(|row| &row.key).collect();
        assert_eq!(keys, [&lost_hold, &lost_lease]);
        let found = lease::decode(&rebuilt[1].value).unwrap();
        assert_eq!((found.token, found.host, found.urls.len(), found.link), (token, id, 2, None));
        assert_eq!(found.expires_at, Time(3_600_000), "whoever has it may be visiting until then");
        assert_eq!(losses::rebuild(&mut source, &Homes::default(), &lost_hold, &lost_hold).unwrap(), []);
    }

    /// A regression: a reservation whose URLs were lost ended without them, and its queue counted them as handed out for ever.
    #[test]
    fn lost_rows_of_urls_that_are_handed_out_are_rebuilt() {
        let queue = QueueId { host: HostId::new(ShardId(0), 7), no: 0 };
        let (key, token) = (UrlKey::new("h", "a"), Token::new(SHARD, 77));
        let lease = LeaseRow {
            token,
            host: queue.host,
            holder: "w".into(),
            granted_at: Time(50),
            expires_at: Time(900),
            crawl: CrawlNo::NONE,
            queued_at: None,
            urls: vec![(queue, key.clone())],
            taken_away: 0,
            request: None,
            link: None,
            ended_chunk: None,
        };
        let (held, until) = (UrlKey::new("h", "b"), Time(800));
        let (first, second) = (url::key(queue, &key.0), url::key(queue, &held.0));
        let rows = [
            (first.clone(), vec![1]),
            (second.clone(), vec![1]),
            (lease::key(SHARD, token), lease::encode(&lease)),
            (hold::key(SHARD, until, queue, &held.0), Vec::new()),
        ];
        let mut source = Blocks::new(rows.into(), vec![(first.clone(), second.clone())]);
        let to = [second.as_slice(), &[0]].concat();
        let rebuilt = losses::rebuild(&mut source, &Homes::default(), &first, &to).unwrap();
        let statuses: Vec<_> = rebuilt.iter().map(|row| (&row.key, url::decode(&row.value).unwrap().status)).collect();
        let [(a, UrlStatus::Reserved { token: of, .. }), (b, UrlStatus::Held { until: ends, .. })] = &statuses[..]
        else {
            panic!("{statuses:?}")
        };
        assert_eq!((*a, *of, *b, *ends), (&first, token, &second, until));
    }
}
