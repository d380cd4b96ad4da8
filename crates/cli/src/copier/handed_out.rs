//! Rebuilds reservations and holds that are lost from the rows of the URLs that they have handed out: nothing else would ever
//! return these to their queues, and their groups could be visited by two at once.

use std::collections::BTreeMap;

use wayleave_core::frontier::row::{LeaseRow, UrlStatus};
use wayleave_core::ids::{CrawlNo, ShardId, Token};
use wayleave_engine::rows::{Kind, hold, key as keys, lease, url};
use wayleave_engine::salvage::lost_lease_ends;
use wayleave_engine::{Key, Row};

use super::hot;
use super::losses::host_key;
use super::source::Source;

/// The reservations and holds of a shard between two keys. A reservation keeps its token; its holder and its end are lost, so it
/// ends as late as any can.
///
/// # Errors
/// If nothing can be read at all.
pub fn rebuild(source: &mut dyn Source, shard: ShardId, from: &[u8], to: &[u8]) -> anyhow::Result<Vec<Row>> {
    let (first, end) = keys::range(shard, Kind::Hold, Kind::Lease);
    if to <= first.as_slice() || end.as_slice() <= from {
        return Ok(Vec::new());
    }
    let is_lost = |key: &Key| from <= key.as_slice() && key.as_slice() < to;
    let at = source.header().at;
    let (mut holds, mut leases) = (Vec::new(), BTreeMap::<Token, LeaseRow>::new());
    for host in hot::hosts(source, shard)? {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wayleave_core::frontier::row::{Details, HostRow, HotRow, QueuePosition, UrlRow};
    use wayleave_core::frontier::url_key::UrlKey;
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
        let rebuilt = losses::rebuild(&mut source, &lost_hold, &[lost_lease.as_slice(), &[0]].concat()).unwrap();
        let keys: Vec<&Key> = rebuilt.iter().map(|row| &row.key).collect();
        assert_eq!(keys, [&lost_hold, &lost_lease]);
        let found = lease::decode(&rebuilt[1].value).unwrap();
        assert_eq!((found.token, found.host, found.urls.len(), found.link), (token, id, 2, None));
        assert_eq!(found.expires_at, Time(3_600_000), "whoever has it may be visiting until then");
        assert_eq!(losses::rebuild(&mut source, &lost_hold, &lost_hold).unwrap(), []);
    }
}
