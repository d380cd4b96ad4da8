//! URLs on the wire: add, list, look up.

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};
use wayleave_core::asked::AskedHost;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Past, Put, PutKind, PutOutcome};
use wayleave_core::frontier::row::End;
use wayleave_core::frontier::view;
use wayleave_core::limits::{PRIORITY_DEFAULT, PRIORITY_MAX};
use wayleave_core::names::{self, CrawlName, HostName};
use wayleave_core::time::Time;
use wayleave_core::{crawl_url, limits, redact};

use crate::Timestamp;
use crate::bad_value::{BadValue, TooMany, at_most};
use crate::bounded::bounded;
use crate::bounds::{Bounded, CRAWL, PRIORITY, SHORT, bounds, list};
use crate::metadata::Metadata;
use crate::words::words;

/// A priority that is out of bounds is refused with the whole body, because many of them are no numbers of this type at all.
fn priority<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    match Option::<u8>::deserialize(deserializer)? {
        Some(priority) if priority > PRIORITY_MAX => {
            Err(D::Error::invalid_value(Unexpected::Unsigned(priority.into()), &PRIORITY))
        }
        priority => Ok(priority),
    }
}

/// A URL to add.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UrlToAdd {
    /// The URL; http, https or ftp, at most 8,192 bytes.
    #[schema(example = "https://example.com/")]
    pub url: String,
    /// Its queue key, if not its host; not normalised: `Example.COM` and `example.com` are two queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its crawl, if it differs from that of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl: Option<String>,
    /// When it is due; absent or in the past means now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// 0 to 9, 9 first; 5 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "priority")]
    pub priority: Option<u8>,
    /// Number of links from the seed; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Metadata that is stored and handed out with it.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// Whether to requeue it if it is known and not handed out: due at `at`, with its attempts reset. False if absent:
    /// then a known URL stays as it was, except for a higher priority.
    #[serde(default, skip_serializing_if = "is_false")]
    pub again: bool,
    /// For imports: its state in another store. With `fetched`, `gone` or `failed` it is stored as completed, otherwise it is
    /// queued. With this or one of the following fields a known URL stays as it is, also with `again` or a higher priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<UrlState>,
    /// For imports: when it was first stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// For imports: attempts that did not end in a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// For imports: its last result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastVisit>,
}

bounds!(UrlToAdd { priority: PRIORITY.or(PRIORITY_DEFAULT as u64), depth: SHORT.or(0), attempts: SHORT });

impl UrlToAdd {
    /// The core's form, with `crawl` and `depth` as defaults. Fails if the URL or one of its fields is invalid.
    pub fn to_put(&self, crawl: &CrawlName, depth: u32) -> Result<Put, BadValue> {
        let page = crawl_url::parse(&self.url, self.key.as_deref()).map_err(|e| match e {
            crawl_url::BadUrl::Key(e) if self.key.is_some() => BadValue::new("key", e),
            e => BadValue::new("url", e),
        })?;
        let crawl = match &self.crawl {
            Some(own) => names::crawl(own).map_err(|e| BadValue::new("crawl", e))?,
            None => crawl.clone(),
        };
        self.check_bounds()?;
        let priority = self.priority.unwrap_or(PRIORITY_DEFAULT);
        let (at, depth) = (self.at.map(Into::into), self.depth.unwrap_or(depth));
        let (explicit, again) = (self.priority.is_some(), self.again);
        let kind = if let Some((end, past)) = self.past() {
            // Zero is now: what was never given a time is not older than everything else.
            let due = if end { None } else { Some(at.unwrap_or(Time::ZERO)) };
            PutKind::Restored { due, priority, depth, past: Box::new(past) }
        } else if explicit || again {
            PutKind::Wanted { at, priority, explicit, depth, again }
        } else {
            PutKind::Discovered { at, priority, depth }
        };
        let metadata = (&self.metadata).try_into().map_err(|e| BadValue::new("metadata", e))?;
        Ok(Put { url: page.url.into(), host: page.host, crawl, kind, metadata })
    }

    /// What another store knew of it, if that is told, and whether it was completed.
    fn past(&self) -> Option<(bool, Past)> {
        let is_told =
            self.state.is_some() || self.created_at.is_some() || self.attempts.is_some() || self.last.is_some();
        let end = match self.state {
            Some(UrlState::Fetched) => Some(End::Fetched),
            Some(UrlState::Gone) => Some(End::Gone),
            Some(UrlState::Failed) => Some(End::Failed),
            Some(UrlState::Queued | UrlState::Reserved) | None => None,
        };
        let last = self.last.map(|LastVisit { at, status, exhausted }| view::LastVisit { at: at.0, status, exhausted });
        let past = Past {
            created: self.created_at.map(|at| at.0),
            end: end.unwrap_or(End::Fetched),
            last,
            attempts: self.attempts.unwrap_or(0),
        };
        is_told.then_some((end.is_some(), past))
    }
}

/// Adds URLs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddUrlsRequest {
    /// Their crawl; `DEFAULT` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(default = "DEFAULT")]
    pub crawl: Option<String>,
    /// The URLs, at most 10,000.
    #[serde(deserialize_with = "bounded::<_, _, { limits::BATCH_URLS_MAX }>")]
    pub urls: Vec<UrlToAdd>,
}

bounds!(AddUrlsRequest {} { crawl: CRAWL, urls: list(limits::BATCH_URLS_MAX) });

impl AddUrlsRequest {
    /// Whether there are more URLs than one request may carry. The message of the error names the limit.
    pub fn check_size(&self) -> Result<(), TooMany> {
        at_most("urls", self.urls.len(), limits::BATCH_URLS_MAX)
    }
}

/// The crawl that a request names, or the default one.
pub fn crawl_or_default(crawl: Option<&str>) -> Result<CrawlName, BadValue> {
    names::crawl(crawl.unwrap_or_default()).map_err(|e| BadValue::new("crawl", e))
}

/// Options of an NDJSON upload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AddUrlsQuery {
    /// The default crawl of the URLs, if neither the body nor the line names one; `DEFAULT` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(default = "DEFAULT")]
    pub crawl: Option<String>,
    /// Whether each URL gets a result; `false` returns only the counts. True if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(default = true)]
    pub results: Option<bool>,
}

/// The result of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AddStatus {
    /// It was unknown and is stored.
    Added,
    /// It was known and stays as it was, except for a higher priority.
    Known,
    /// It was known and is requeued.
    Requeued,
    /// It is refused permanently; the reason says why.
    Rejected,
    /// It could not be stored now; retry.
    Failed,
}

/// The result of one URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddResult {
    /// The number of its line, from 1 (NDJSON only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The URL as sent, without credentials; absent if its line could not be parsed, or the result stayed unread for
    /// too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its status.
    pub status: AddStatus,
    /// Why it was rejected or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl AddResult {
    /// The result of a URL that reached the frontier.
    #[must_use]
    pub fn new(url: Option<String>, outcome: PutOutcome) -> Self {
        let (status, reason) = match outcome {
            PutOutcome::Added => (AddStatus::Added, None),
            // A URL whose priority was raised was known as well.
            PutOutcome::Known | PutOutcome::Updated => (AddStatus::Known, None),
            PutOutcome::Requeued => (AddStatus::Requeued, None),
            PutOutcome::Rejected(reason) => (AddStatus::Rejected, Some(reason.into())),
            PutOutcome::Failed(reason) => (AddStatus::Failed, Some(reason.to_string())),
            PutOutcome::Moved => (AddStatus::Failed, Some(Refusal::Moved.to_string())),
        };
        Self { line: None, url: url.map(redact::owned_url), status, reason }
    }
}

/// URLs by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddCounts {
    /// New and stored.
    pub added: u64,
    /// Known already.
    pub known: u64,
    /// Known and requeued; absent if none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub requeued: u64,
    /// Refused permanently.
    pub rejected: u64,
    /// Not stored now; retry them.
    pub failed: u64,
}

impl AddCounts {
    /// Counts one more.
    pub const fn count(&mut self, status: AddStatus) {
        match status {
            AddStatus::Added => self.added += 1,
            AddStatus::Known => self.known += 1,
            AddStatus::Requeued => self.requeued += 1,
            AddStatus::Rejected => self.rejected += 1,
            AddStatus::Failed => self.failed += 1,
        }
    }
}

/// The results of the URLs of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddUrlsResponse {
    /// The number of each.
    pub counts: AddCounts,
    /// One for each URL, in the order sent; absent if not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<AddResult>>,
}

/// The last line of an NDJSON response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddUrlsSummary {
    /// The number of each.
    pub counts: AddCounts,
    /// Results that were omitted because too many were unread; they are included in the counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

pub(crate) const fn is_zero(number: &u64) -> bool {
    *number == 0
}

words! {
    /// The state of a URL.
    #[derive(Hash)]
    UrlState = view::UrlState {
        /// Waiting to be handed out.
        Queued,
        /// Handed out.
        Reserved,
        /// Fetched for good.
        Fetched,
        /// No longer existing.
        Gone,
        /// Given up.
        Failed,
    }
}

/// Which URLs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListUrlsQuery {
    /// Only those of this crawl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl: Option<String>,
    /// Only those of this host or queue key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Only those in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub state: Option<UrlState>,
    /// Only those that contain this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// The `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Whether to show credentials in URLs (`user:password@`), as an export must; hidden if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<bool>,
    /// Rows per page, 1 to 1,000, 100 if absent; as NDJSON: lines in total, any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl ListUrlsQuery {
    /// The host as requested, if there is one.
    pub fn host(&self) -> Result<Option<AskedHost>, BadValue> {
        self.host.as_deref().map(AskedHost::parse).transpose().map_err(|e| BadValue::new("host", e))
    }

    /// The core's form, with the host under its stored name.
    pub fn filter(&self, host: Option<HostName>) -> Result<view::UrlFilter, BadValue> {
        let crawl = self.crawl.as_deref().map(names::crawl).transpose();
        Ok(view::UrlFilter {
            crawl: crawl.map_err(|e| BadValue::new("crawl", e))?,
            host,
            state: self.state.map(Into::into),
            contains: self.contains.as_deref().filter(|text| !text.is_empty()).map(Into::into),
            ignore_case: false,
        })
    }
}

/// Which URL to look up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LookupUrlQuery {
    /// The URL, percent-encoded.
    pub url: String,
    /// Its crawl; `DEFAULT` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(default = "DEFAULT")]
    pub crawl: Option<String>,
    /// Its queue key, if that is not its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The last result of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastVisit {
    /// When it was reported.
    pub at: Timestamp,
    /// The HTTP status, if it was reported.
    pub status: Option<u16>,
    /// Whether it failed because its attempts were used up.
    pub exhausted: bool,
}

/// A URL with everything known about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Url {
    /// The URL. `***@` stands for credentials, unless a listing asked for them.
    pub url: String,
    /// Its host or queue key.
    pub host: String,
    /// Its crawl.
    pub crawl: String,
    /// Its state.
    pub state: UrlState,
    /// When it is due, while it is queued or handed out.
    pub due_at: Option<Timestamp>,
    /// When its reservation or hold ends.
    pub held_until: Option<Timestamp>,
    /// When it was first stored.
    pub created_at: Timestamp,
    /// 0 to 9, 9 first.
    pub priority: u8,
    /// Number of links from the seed.
    pub depth: u32,
    /// Attempts that did not end in a result.
    pub attempts: u32,
    /// Its last result.
    pub last: Option<LastVisit>,
    /// Metadata stored with it.
    pub metadata: Metadata,
}

impl From<view::UrlView> for Url {
    fn from(view: view::UrlView) -> Self {
        let last = |visit: view::LastVisit| LastVisit {
            at: Timestamp(visit.at),
            status: visit.status,
            exhausted: visit.exhausted,
        };
        Self {
            url: view.url.into(),
            host: view.host.to_string(),
            crawl: view.crawl.to_string(),
            state: view.state.into(),
            due_at: view.due_at.map(Timestamp),
            held_until: view.held_until.map(Timestamp),
            created_at: Timestamp(view.created_at),
            priority: view.priority,
            depth: view.depth,
            attempts: view.attempts,
            last: view.last.map(last),
            metadata: Metadata::from(&view.metadata),
        }
    }
}

impl Url {
    /// The same without credentials, as shown to everyone but the worker that fetches it.
    #[must_use]
    pub fn redacted(self) -> Self {
        Self { url: redact::owned_url(self.url), ..self }
    }
}

/// One page of URLs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListUrlsResponse {
    /// The URLs; with a filter a page may be short and still have a next one.
    pub urls: Vec<Url>,
    /// Pass it as `after` to get the next page; null at the end.
    pub next: Option<String>,
    /// Hosts of which URLs may be missing on this page, because the store is damaged there; absent if none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
}

#[cfg(test)]
#[path = "urls_tests.rs"]
mod tests;
