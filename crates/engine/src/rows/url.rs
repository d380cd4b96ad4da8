//! A known URL.
//! Lifetime: from its first put until it is purged or its queue is deleted.
//! Key: birth shard · 6 · host · queue · URL. Value: version, created, whole URL if it was truncated, state, then fields by state.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::row::{Details, End, QueuePosition, UrlRow, UrlStatus};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::view::LastVisit;
use wayleave_core::ids::QueueId;

use super::field::{self, Field, Numbered, codec, fields, numbered, or_empty, sparse, write_all};
use super::{Kind, key as keys};
use crate::Key;

fields!(UrlRow { created, whole as or_empty, status });
fields!(QueuePosition { lane, due });
fields!(LastVisit { at, status, exhausted });
// Most URLs have none of these; then it is one zero byte.
sparse!(Details { ; attempts, depth, last, interval, metadata, digest });
numbered! {
    End: Fetched, Gone, Failed;
}
codec!(UrlRow);

/// The key of a URL.
#[must_use]
pub fn key(queue: QueueId, url: &[u8]) -> Key {
    keys::of(queue.host.birth(), Kind::Url, &[&keys::host(queue.host), &keys::queue_no(queue.no), url])
}

/// The key prefix of a queue's URLs.
#[must_use]
pub fn prefix(queue: QueueId) -> Key {
    key(queue, &[])
}

/// The URL that a key names.
pub fn parse_key(key: &[u8]) -> Result<(QueueId, UrlKey), Damaged> {
    let mut parts = keys::Parts(key);
    let (shard, _) = parts.prefix()?;
    let queue = parts.queue(shard)?;
    Ok((queue, UrlKey(parts.rest().into())))
}

/// The URL that follows a key without a row: where a scan continues behind damage.
pub fn parse_place(key: &[u8]) -> Result<(QueueId, UrlKey), Damaged> {
    parse_key(&keys::padded(key, keys::PREFIX_BYTES + 9))
}

/// A number, which also says how it ended if it is done, then the fields.
impl Field for UrlStatus {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::Queued(position) => {
                out.byte(0);
                position.write(out);
            }
            Self::Held { until, position, details } => {
                out.byte(1);
                write_all!(out, until, position, details);
            }
            Self::Reserved { token, position, details } => {
                out.byte(2);
                write_all!(out, token, position, details);
            }
            Self::Done { end, lane, details } => {
                out.byte(3 + end.number() as u8);
                write_all!(out, lane, details);
            }
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(match input.byte()? {
            0 => Self::Queued(Field::read(input)?),
            1 => Self::Held { until: Field::read(input)?, position: Field::read(input)?, details: Field::read(input)? },
            2 => Self::Reserved {
                token: Field::read(input)?,
                position: Field::read(input)?,
                details: Field::read(input)?,
            },
            done => Self::Done {
                end: End::numbered(u64::from(done) - 3)?,
                lane: Field::read(input)?,
                details: Field::read(input)?,
            },
        })
    }
}
