//! Requeues and deletions of known URLs, the jobs that carry them out, and revoked reservations, on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wayleave_core::asked::AskedHost;
use wayleave_core::frontier::bulk_job::JobState as CoreState;
use wayleave_core::frontier::requeue::{BulkAction, BulkOutcome};
use wayleave_core::frontier::view;
use wayleave_core::names::{self, HostName};
use wayleave_core::{crawl_url, limits};

use crate::Timestamp;
use crate::bad_value::{BadValue, TooMany, at_most};
use crate::bounded::bounded_texts;
use crate::bounds::{Bounded, CRAWL, KEY, SOME, TOKEN, bounds, list, whole};
use crate::urls::UrlState;

/// Which known URLs to requeue or delete: those named in `urls`, or all that match the filter. One of the two is
/// required. URLs that are handed out are left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReworkUrlsRequest {
    /// Only those of this crawl. With `urls`, their crawl; `DEFAULT` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl: Option<String>,
    /// Only those of this host or queue key. With `urls`, their queue, if it is not their host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Only those in this state; not `reserved`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<UrlState>,
    /// Only those that contain this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// Only those that were last visited (requeue) or stored (delete) longer ago than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_ms: Option<u64>,
    /// These URLs, at most 10,000; combined only with `crawl` and `host`.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded_texts::<_, { limits::BATCH_URLS_MAX }>"
    )]
    pub urls: Vec<String>,
}

bounds! {
    ReworkUrlsRequest { older_than_ms: whole(0, limits::JOB_AGE_MS_MAX) }
        { crawl: CRAWL, host: KEY, contains: SOME, urls: list(limits::BATCH_URLS_MAX) }
}

/// The request: some URLs, or a job over many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// These URLs of a crawl, each with its host or queue key.
    Urls(names::CrawlName, Vec<(HostName, Box<str>)>),
    /// All that match a filter, if they are older than this many milliseconds.
    All(view::UrlFilter, Option<u64>),
}

impl ReworkUrlsRequest {
    /// Whether there are more URLs than one request may carry. The message of the error names the limit.
    pub fn check_size(&self) -> Result<(), TooMany> {
        at_most("urls", self.urls.len(), limits::BATCH_URLS_MAX)
    }

    /// The host as requested, if there is one.
    pub fn asked_host(&self) -> Result<Option<AskedHost>, BadValue> {
        self.host.as_deref().map(AskedHost::parse).transpose().map_err(|e| BadValue::new("host", e))
    }

    /// The request, with the host under its stored name. Fails if a field is invalid, or nothing is named.
    pub fn wanted(&self, host: Option<HostName>) -> Result<Wanted, BadValue> {
        let Self { crawl, host: _, state, contains, older_than_ms, urls } = self;
        let is_filter = state.is_some() || contains.is_some() || older_than_ms.is_some();
        if !urls.is_empty() {
            if is_filter {
                let reason = "goes with 'crawl' and 'host' alone; leave 'state', 'contains' and 'older_than_ms' out, or the URLs";
                return Err(BadValue::contradiction("urls", reason));
            }
            let crawl = crate::urls::crawl_or_default(crawl.as_deref())?;
            let url = |(at, url): (usize, &String)| {
                let page = crawl_url::parse(url, host.as_deref()).map_err(|e| match e {
                    crawl_url::BadUrl::Key(e) if host.is_some() => BadValue::new("host", e),
                    e => BadValue::new(format!("urls[{at}]"), e),
                })?;
                Ok((page.host, page.url.into()))
            };
            return Ok(Wanted::Urls(crawl, urls.iter().enumerate().map(url).collect::<Result<_, BadValue>>()?));
        }
        if *state == Some(UrlState::Reserved) {
            let reason = "URLs that are handed out are left alone; see `POST /v1/reservations/revoke`";
            return Err(BadValue::new("state", reason));
        }
        if crawl.is_none() && host.is_none() && !is_filter {
            let reason = "is missing, and so is every filter: that would be all URLs of the server; name URLs, or at least one of \
                'crawl', 'host', 'state', 'contains' and 'older_than_ms'";
            return Err(BadValue::new("urls", reason));
        }
        if contains.as_deref() == Some("") {
            return Err(BadValue::new("contains", "is empty; name a text, or leave it out"));
        }
        let crawl = crawl.as_deref().map(names::crawl).transpose().map_err(|e| BadValue::new("crawl", e))?;
        let contains = contains.as_deref().map(Into::into);
        let filter = view::UrlFilter { crawl, host, state: state.map(Into::into), contains, ignore_case: false };
        self.check_bounds()?;
        Ok(Wanted::All(filter, *older_than_ms))
    }
}

/// The results of named URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReworkUrlsResponse {
    /// Those that were requeued or deleted.
    pub done: u64,
    /// Those that are handed out and were left alone.
    pub reserved: u64,
    /// Those that are unknown.
    pub unknown: u64,
}

impl From<BulkOutcome> for ReworkUrlsResponse {
    fn from(outcome: BulkOutcome) -> Self {
        let BulkOutcome { done, reserved, unknown, unreadable: _ } = outcome;
        Self { done, reserved, unknown }
    }
}

/// The job that carries out the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartedJob {
    /// Its id: see `GET /v1/jobs/{id}`.
    pub job: String,
}

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Requeues known URLs.
    Requeue,
    /// Deletes URLs.
    Delete,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It is running, also across restarts.
    Running,
    /// It is complete.
    Done,
    /// It was cancelled; what was done stays done.
    Cancelled,
}

/// A job over many URLs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// What it does.
    pub kind: JobKind,
    /// Its state.
    pub state: JobState,
    /// The same in a sentence; never empty.
    pub reason: String,
    /// URLs that were requeued or deleted so far.
    pub done: u64,
    /// URLs that are handed out and were left alone.
    pub reserved: u64,
    /// URLs examined so far.
    pub looked_at: u64,
    /// URLs, and ranges of URLs, that were passed over because the store is damaged there; absent if none.
    #[serde(default, skip_serializing_if = "crate::urls::is_zero")]
    pub unreadable: u64,
    /// When it began: what was stored or visited since then is left alone.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Only URLs of this crawl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl: Option<String>,
    /// Only URLs of this host or queue key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Only URLs that were in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_state: Option<UrlState>,
    /// Only URLs that contain this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// Only URLs that were last visited (requeue) or stored (delete) before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Timestamp>,
}

impl From<view::JobView> for Job {
    fn from(view: view::JobView) -> Self {
        let (kind, verb) = match view.what {
            BulkAction::Requeue => (JobKind::Requeue, "requeued"),
            BulkAction::Delete => (JobKind::Delete, "deleted"),
        };
        let view::JobView { shards, shards_done, looked_at, .. } = view;
        let (done, unreadable) = (view.outcome.done, view.outcome.unreadable);
        let (state, reason) = match view.state {
            CoreState::Waiting | CoreState::Running => {
                let reason = format!(
                    "{done} URLs were {verb} so far, {looked_at} looked at; {shards_done} of {shards} shards are done"
                );
                (JobState::Running, reason)
            }
            CoreState::Done if unreadable > 0 => {
                let reason = format!(
                    "{done} of {looked_at} URLs were {verb}; {unreadable} URLs or ranges of URLs were passed over, because the store is damaged there"
                );
                (JobState::Done, reason)
            }
            CoreState::Done => (JobState::Done, format!("all is done: {done} of {looked_at} URLs were {verb}")),
            CoreState::Cancelled => (JobState::Cancelled, format!("it was cancelled after {done} URLs were {verb}")),
        };
        Self {
            id: view.id.to_string(),
            kind,
            state,
            reason,
            done,
            reserved: view.outcome.reserved,
            looked_at,
            unreadable,
            started_at: Timestamp(view.started_at),
            ended_at: view.ended_at.map(Timestamp),
            crawl: view.filter.crawl.map(|crawl| crawl.to_string()),
            host: view.filter.host.map(|host| host.to_string()),
            only_state: view.filter.state.map(Into::into),
            contains: view.filter.contains.map(Into::into),
            before: view.before.map(Timestamp),
        }
    }
}

/// The jobs of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListJobsResponse {
    /// Running jobs, and the last hundred that ended; the latest first.
    pub jobs: Vec<Job>,
}

/// Which reservations to revoke before their deadline: name exactly one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// The one with this token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// All of this holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// All of this host or queue key; also what URLFrontier's GetURLs has handed out of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

bounds!(RevokeRequest {} { token: TOKEN, host: KEY });

/// What was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevokeResponse {
    /// Revoked reservations.
    pub reservations: u64,
    /// URLs that GetURLs had handed out.
    pub holds: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(json: &str) -> ReworkUrlsRequest {
        serde_json::from_str(json).unwrap()
    }

    fn refused(json: &str) -> String {
        request(json).wanted(None).unwrap_err().to_string()
    }

    #[test]
    fn a_filter_that_names_nothing_is_refused() {
        assert!(refused("{}").starts_with("urls: is missing"), "{}", refused("{}"));
        assert!(refused(r#"{"contains": ""}"#).starts_with("contains: is empty"));
        assert!(refused(r#"{"state": "reserved"}"#).starts_with("state: URLs that are handed out"));
        assert!(refused(r#"{"urls": ["http://a.example/"], "state": "failed"}"#).starts_with("urls: goes with"));
        assert!(refused(r#"{"urls": ["http://a.example/", "nonsense"]}"#).starts_with("urls[1]: "));
    }

    #[test]
    fn urls_and_filters_become_what_the_frontier_takes() {
        let Wanted::Urls(crawl, urls) =
            request(r#"{"urls": ["HTTP://A.example"], "crawl": "news"}"#).wanted(None).unwrap()
        else {
            panic!("these are URLs");
        };
        assert_eq!((&*crawl, &*urls[0].0, &*urls[0].1), ("news", "a.example", "http://a.example/"));
        let wanted = request(r#"{"state": "failed", "older_than_ms": 5}"#).wanted(None);
        let filter = view::UrlFilter { state: Some(view::UrlState::Failed), ..Default::default() };
        assert_eq!(wanted, Ok(Wanted::All(filter, Some(5))));
    }
}
