//! The bounds of the fields of requests. Each is stated once, beside the type of its field; the check, its error and the OpenAPI
//! document follow from it.
//!
//! What no schema can express is checked by the types of the core and stated in the descriptions: lengths in bytes, fields that exclude
//! each other, and the bounds of a single URL in a batch, which is rejected individually while the others are accepted.

use std::fmt;

use serde::de::Expected;
use serde_json::{Map, Value};
use wayleave_core::limits;
use wayleave_core::whole::{Number, Whole};

use crate::bad_value::{BadValue, between};
use crate::{
    Patch, artifact, chunks, continue_mode, crawls, fleet, groups, hosts, jobs, placements, pool_workers, pools,
};
use crate::{reservations, revisit, roles, urls};

/// Text without control characters.
const PRINTABLE: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";
/// The same with at least one visible character.
const VISIBLE: &str = r"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$";
const GRAPHIC: &str = "^[!-~]+$";
const PEER: &str = r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$";

/// What a field may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// A whole number.
    Whole(Whole),
    /// Any number from 0 to this one.
    Number(f64),
    /// A text of this many characters that matches a pattern, if there is one.
    Text(usize, usize, &'static str),
    /// A list of at most this many entries, each with a bound.
    List(usize, Option<&'static Self>),
}

/// A whole number between two others.
pub(crate) const fn whole(least: u64, most: u64) -> Bound {
    Bound::Whole(Whole::new(least, most))
}

pub(crate) const fn text(least: usize, most: usize, pattern: &'static str) -> Bound {
    Bound::Text(least, most, pattern)
}

pub(crate) const fn list(most: usize) -> Bound {
    Bound::List(most, None)
}

/// A text that is not empty.
pub(crate) const SOME: Bound = text(1, usize::MAX, "");
/// A host or a queue key.
pub(crate) const KEY: Bound = text(1, limits::KEY_UNITS_MAX, PRINTABLE);
/// A crawl.
pub(crate) const CRAWL: Bound = text(0, limits::CRAWL_BYTES_MAX, PRINTABLE);
/// An alias.
pub const ALIAS: Bound = text(1, limits::ALIAS_BYTES_MAX, "^[A-Za-z0-9_-]+$");
/// A machine.
pub(crate) const MACHINE: Bound = text(1, limits::MACHINE_BYTES_MAX, PRINTABLE);
/// A role.
pub(crate) const ROLE: Bound = text(1, limits::ROLE_BYTES_MAX, "^[A-Za-z0-9._-]+$");
/// A candidate.
pub(crate) const UUID: Bound = text(1, limits::UUID_BYTES_MAX, GRAPHIC);
/// A slot of a role.
pub(crate) const SLOT: Bound = text(1, limits::SLOT_BYTES_MAX, GRAPHIC);
/// The id of a chunk.
pub(crate) const CHUNK: Bound = text(1, 20, "^(0|[1-9][0-9]*)$");
/// 128 bits in 22 characters; the last character carries two of them.
pub(crate) const TOKEN: Bound = text(22, 22, "^[A-Za-z0-9_-]{21}[AQgw]$");
/// The row of an index server.
pub(crate) const ROW: Bound = whole(0, limits::ROW_MAX);
/// The rows of a page.
pub(crate) const PAGE: Bound = whole(1, limits::PAGE_MAX as u64).or(limits::PAGE_DEFAULT as u64);
/// The time of a long poll.
pub(crate) const WAIT: Bound = whole(0, limits::WAIT_MS_MAX).or(0);
/// The bytes of a worker's output.
pub(crate) const LOG: Bound = whole(1, limits::WORKER_LOG_BYTES_MAX).or(limits::WORKER_LOG_BYTES_DEFAULT);
/// An integer that every JSON parser represents exactly.
pub(crate) const EXACT: Bound = whole(0, limits::NUMBER_MAX);
pub(crate) const SHORT: Bound = whole(0, u32::MAX as u64);
pub(crate) const ATTEMPTS: Bound = whole(1, u32::MAX as u64);
pub(crate) const PRIORITY: Bound = whole(0, limits::PRIORITY_MAX as u64).or(limits::PRIORITY_DEFAULT as u64);
pub(crate) const LEASE: Bound = whole(limits::LEASE_MS_MIN, limits::LEASE_MS_MAX).or(limits::LEASE_MS_DEFAULT);
pub(crate) const DELAY: Bound = whole(0, limits::DELAY_MAX.0);
pub(crate) const HOLDER: Bound = text(1, limits::HOLDER_BYTES_MAX, VISIBLE);
pub(crate) const REQUEST_ID: Bound = text(1, limits::REQUEST_ID_BYTES_MAX, VISIBLE);
pub(crate) const ADDRESS: Bound = text(1, limits::ADDRESS_BYTES_MAX, PRINTABLE);
pub(crate) const PEER_ADDRESS: Bound = text(1, limits::ADDRESS_BYTES_MAX, PEER);
pub(crate) const VERSION: Bound = text(0, limits::MACHINE_VERSION_BYTES_MAX, PRINTABLE);
pub(crate) const CHECKSUM: Bound = text(71, 71, "^sha256:[0-9A-Fa-f]{64}$");

impl Bound {
    /// The same with what an absent number means.
    pub(crate) const fn or(self, default: u64) -> Self {
        match self {
            Self::Whole(bounds) => Self::Whole(bounds.or(default)),
            other => other,
        }
    }

    /// Accepts a number within the bounds; the message of the error names both.
    pub fn check(&self, field: &str, value: u64) -> Result<u64, BadValue> {
        match *self {
            Self::Whole(Whole { least, most, .. }) => between(field, value, least, most),
            _ => Ok(value),
        }
    }

    /// The same, of a number that has a default.
    pub fn check_or_default(&self, field: &str, value: Option<u64>) -> Result<u64, BadValue> {
        match (value, *self) {
            (None, Self::Whole(bounds)) => Ok(bounds.default.unwrap_or_default()),
            (value, _) => self.check(field, value.unwrap_or_default()),
        }
    }

    /// States the bounds in a schema. They replace the format of a number, which says less and is wrong for unsigned 32-bit integers.
    pub fn state(&self, schema: &mut Map<String, Value>) {
        let mut say = |word: &str, value: Value| schema.insert(word.to_owned(), value);
        match *self {
            Self::Whole(Whole { least, most, default }) => {
                if let Some(default) = default {
                    say("default", default.into());
                }
                say("minimum", least.into());
                say("maximum", most.into());
                schema.remove("format");
            }
            Self::Number(most) => {
                say("minimum", 0.into());
                say("maximum", most.into());
                schema.remove("format");
            }
            Self::Text(least, most, pattern) => {
                let parts = [
                    (least > 0, "minLength", Value::from(least)),
                    (most < usize::MAX, "maxLength", most.into()),
                    (!pattern.is_empty(), "pattern", pattern.into()),
                ];
                parts.into_iter().filter(|part| part.0).for_each(|(_, word, value)| drop(say(word, value)));
            }
            Self::List(most, each) => {
                say("maxItems", most.into());
                if let (Some(each), Some(items)) = (each, schema.get_mut("items").and_then(Value::as_object_mut)) {
                    each.state(items);
                }
            }
        }
    }
}

/// What a value that cannot be one is refused with.
impl Expected for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(Whole { least, most, .. }) => write!(f, "a whole number between {least} and {most}"),
            Self::Number(_) => f.write_str("a number"),
            Self::Text(..) => f.write_str("a text"),
            Self::List(..) => f.write_str("a list"),
        }
    }
}

/// The bounds of the fields of a type.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// The name under which it is parsed.
    pub of: &'static str,
    /// Where its schema is in the document, below those of the components.
    pub schema: &'static str,
    /// Its fields that have bounds.
    pub bounds: &'static [(&'static str, Bound)],
}

/// A type that states the bounds of its fields with `bounds!`.
pub(crate) trait Bounded {
    const FIELDS: Fields;

    /// Fails at the first number that is out of its bounds.
    fn check_bounds(&self) -> Result<(), BadValue>;
}

impl<N: Number> Number for Patch<N> {
    fn of(number: Option<u64>) -> Option<Self> {
        N::of(number).map(Self::Set)
    }

    fn number(&self) -> Option<u64> {
        self.value()?.number()
    }
}

/// States the bounds of a type's fields: first of whole numbers, which `check_bounds` checks; then of others, which their own types
/// check.
macro_rules! bounds {
    ($type:ident { $($field:ident: $bound:expr),* $(,)? } $({ $($other:ident: $shown:expr),* $(,)? })?) => {
        impl $crate::bounds::Bounded for $type {
            const FIELDS: $crate::bounds::Fields = $crate::bounds::Fields {
                of: stringify!($type),
                schema: stringify!($type),
                bounds: &[$((stringify!($field), $bound),)* $($((stringify!($other), $shown),)*)?],
            };

            fn check_bounds(&self) -> Result<(), $crate::BadValue> {
                $(if let Some(value) = ::wayleave_core::whole::Number::number(&self.$field) {
                    $bound.check(stringify!($field), value)?;
                })*
                Ok(())
            }
        }
    };
}
pub(crate) use bounds;

/// The types of bodies that have bounds. A type that is missing here is noticed by the test that tries each body against the document.
pub const BODIES: &[Fields] = &[
    artifact::Artifact::FIELDS,
    chunks::ClaimChunksRequest::FIELDS,
    chunks::CompleteChunkRequest::FIELDS,
    chunks::FailChunkRequest::FIELDS,
    chunks::RenewChunkRequest::FIELDS,
    chunks::ReportLinksRequest::FIELDS,
    continue_mode::Peer::FIELDS,
    continue_mode::TakeOver::FIELDS,
    crawls::CrawlLimitsPatch::FIELDS,
    crawls::RetryPatch::FIELDS,
    crawls::SetCrawlRequest::FIELDS,
    fleet::ReportMachineRequest::FIELDS,
    groups::SetGroupRequest::FIELDS,
    hosts::SetHostRequest::FIELDS,
    jobs::ReworkUrlsRequest::FIELDS,
    jobs::RevokeRequest::FIELDS,
    placements::ReportPlacementRequest::FIELDS,
    pool_workers::ReportWorkerRequest::FIELDS,
    pools::SetPoolRequest::FIELDS,
    reservations::ReleaseReservationRequest::FIELDS,
    reservations::RenewReservationRequest::FIELDS,
    reservations::ReserveGroupsRequest::FIELDS,
    reservations::UrlResult::FIELDS,
    revisit::ADAPTIVE,
    revisit::FIXED,
    roles::HeartbeatRequest::FIELDS,
    roles::RaiseEpochRequest::FIELDS,
    roles::SetRoleRequest::FIELDS,
    urls::AddUrlsRequest::FIELDS,
    urls::UrlToAdd::FIELDS,
];

/// The bounds of a parameter, and of a host or key in any path.
#[must_use]
pub fn parameter(path: &str, name: &str) -> Option<Bound> {
    Some(match (name, path) {
        ("host" | "key", _) | ("group", "/v1/groups/{group}") => KEY,
        ("crawl", _) => CRAWL,
        ("chunk", _) | ("after", "/v1/chunks") => CHUNK,
        ("token" | "job", _) => TOKEN,
        ("utype", _) | ("after", "/v1/roles") => ROLE,
        ("id" | "server", _) | ("after", "/v1/fleet") => MACHINE,
        ("client", _) => text(1, limits::CLIENT_BYTES_MAX, PRINTABLE),
        ("pool", _) | ("after", "/v1/pools") => text(1, limits::POOL_BYTES_MAX, "^[A-Za-z0-9][A-Za-z0-9._-]*$"),
        ("worker", _) => text(1, limits::WORKER_BYTES_MAX, PRINTABLE),
        ("bytes", _) => LOG,
        ("row", _) => ROW,
        ("uuid", _) => UUID,
        ("slot", _) => SLOT,
        ("url", _) => text(1, limits::URL_BYTES_MAX, VISIBLE),
        ("limit", _) => PAGE,
        // A cursor is opaque, but never empty.
        ("after", "/v1/hosts" | "/v1/groups" | "/v1/urls" | "/v1/reservations" | "/v1/placements" | "/v1/matches") => {
            SOME
        }
        ("wait_ms", _) => WAIT,
        ("min_epoch" | "older_than_ms" | "since", _) => EXACT,
        _ => return None,
    })
}
