//! Reservations on the wire: reserve, renew, release, list.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wayleave_core::frontier::{request, view};
use wayleave_core::time::Millis;
use wayleave_core::{limits, names};

use crate::Timestamp;
use crate::bad_value::{BadValue, TooMany, at_most};
use crate::bounded::bounded;
use crate::bounds::{Bounded, CRAWL, EXACT, HOLDER, LEASE, REQUEST_ID, WAIT, bounds, list, text, whole};
use crate::metadata::Metadata;
use crate::urls::{AddUrlsResponse, UrlToAdd};
use crate::words::words;

const fn one() -> u64 {
    1
}

const fn lease_default() -> u64 {
    limits::LEASE_MS_DEFAULT
}

/// Requests groups to visit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReserveGroupsRequest {
    /// Name of the worker, for people.
    pub holder: String,
    /// Maximum number of groups, 1 to 1,000.
    #[serde(default = "one")]
    pub groups: u64,
    /// Maximum number of URLs per group, 0 to 1,000; 0 reserves a host alone.
    #[serde(default = "one")]
    pub urls: u64,
    /// Only URLs of this crawl; of any crawl if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl: Option<String>,
    /// The lease time of the reservations, 100 to 3,600,000.
    #[serde(default = "lease_default")]
    pub lease_ms: u64,
    /// The long-poll time for a group to become ready, at most 60,000.
    #[serde(default)]
    pub wait_ms: u64,
    /// Idempotency key, unique per request. The same request with the same id gets the same reservations again while
    /// they are current, so a lost response costs nothing. At most 128 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

bounds! {
    ReserveGroupsRequest {
        groups: whole(1, limits::RESERVE_GROUPS_MAX as u64).or(1), urls: whole(0, limits::RESERVE_URLS_MAX as u64).or(1),
        lease_ms: LEASE, wait_ms: WAIT,
    } { holder: HOLDER, crawl: CRAWL, request_id: REQUEST_ID }
}

impl ReserveGroupsRequest {
    /// A request of `holder` with all other fields at their defaults.
    #[must_use]
    pub fn new(holder: impl Into<String>) -> Self {
        let (holder, lease_ms) = (holder.into(), lease_default());
        Self { holder, groups: 1, urls: 1, crawl: None, lease_ms, wait_ms: 0, request_id: None }
    }
}

impl TryFrom<&ReserveGroupsRequest> for request::Reserve {
    type Error = BadValue;

    fn try_from(body: &ReserveGroupsRequest) -> Result<Self, BadValue> {
        body.check_bounds()?;
        let crawl = body.crawl.as_deref().map(names::crawl).transpose();
        let request = Self {
            holder: named_worker("holder", &body.holder, "reserves")?.into(),
            groups: body.groups as usize,
            urls: body.urls as usize,
            crawl: crawl.map_err(|e| BadValue::new("crawl", e))?,
            lease: Millis(body.lease_ms),
            wait: Millis(body.wait_ms),
            request: None,
        };
        Ok(match &body.request_id {
            Some(id) => request.named(request_id(id)?),
            None => request,
        })
    }
}

pub(crate) fn request_id(id: &str) -> Result<&str, BadValue> {
    let bad = |reason: String| Err(BadValue::new("request_id", reason));
    if id.trim().is_empty() {
        return bad("must not be empty: give every new request a fresh id, or leave it out".to_owned());
    }
    if id.len() > limits::REQUEST_ID_BYTES_MAX {
        return bad(format!("has {} bytes; the limit is {}", id.len(), limits::REQUEST_ID_BYTES_MAX));
    }
    if id.chars().any(char::is_control) {
        return bad("must not contain control characters".to_owned());
    }
    Ok(id)
}

/// The name of a worker, which `does` something.
pub(crate) fn named_worker<'a>(field: &str, name: &'a str, does: &str) -> Result<&'a str, BadValue> {
    if name.trim().is_empty() {
        return Err(BadValue::new(field, format!("must not be empty: say who {does}, for people to read")));
    }
    if name.len() > limits::HOLDER_BYTES_MAX {
        let reason = format!("has {} bytes; the limit is {}", name.len(), limits::HOLDER_BYTES_MAX);
        return Err(BadValue::new(field, reason));
    }
    if name.chars().any(char::is_control) {
        return Err(BadValue::new(field, "must not contain control characters"));
    }
    Ok(name)
}

/// A URL that was handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UrlToFetch {
    /// The URL.
    pub url: String,
    /// Its crawl.
    pub crawl: String,
    /// 0 to 9, 9 first.
    pub priority: u8,
    /// Number of links from the seed.
    pub depth: u32,
    /// Earlier attempts that did not end in a result.
    pub attempts: u32,
    /// Metadata stored with it.
    pub metadata: Metadata,
}

impl From<request::UrlToFetch> for UrlToFetch {
    fn from(url: request::UrlToFetch) -> Self {
        Self {
            url: url.url.into(),
            crawl: url.crawl.to_string(),
            priority: url.priority,
            depth: url.depth,
            attempts: url.attempts,
            metadata: (&url.metadata).into(),
        }
    }
}

/// A lease on a group: until it ends no other worker visits the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reservation {
    /// The token that renews and releases it.
    pub token: String,
    /// The group: an alias, or the host's own name.
    pub group: String,
    /// The host to visit.
    pub host: String,
    /// Its deadline.
    pub expires_at: Timestamp,
    /// The minimum time between two requests.
    pub delay_ms: u64,
    /// The URLs to fetch.
    pub urls: Vec<UrlToFetch>,
}

impl From<request::Reservation> for Reservation {
    fn from(granted: request::Reservation) -> Self {
        Self {
            token: granted.token.to_string(),
            group: granted.group.to_string(),
            host: granted.host.to_string(),
            expires_at: Timestamp(granted.expires_at),
            delay_ms: granted.delay.0,
            urls: granted.urls.into_iter().map(UrlToFetch::from).collect(),
        }
    }
}

/// The reservations; an empty list if nothing became ready in time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReserveGroupsResponse {
    /// The reservations.
    pub reservations: Vec<Reservation>,
    /// Whether the requested crawl is finished: nothing of it is handed out or can become due, so a worker may exit.
    /// Only with an empty list and a `crawl` in the request; absent if false. A crawl that is not known, or was deleted, is not
    /// finished: its first URL may still come. `GET /v1/crawls/{crawl}` tells whether it is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub finished: bool,
}

/// Extends a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewReservationRequest {
    /// The new lease time from now, 100 to 3,600,000.
    #[serde(default = "lease_default")]
    pub lease_ms: u64,
}

bounds!(RenewReservationRequest { lease_ms: LEASE });

impl Default for RenewReservationRequest {
    fn default() -> Self {
        Self { lease_ms: lease_default() }
    }
}

impl TryFrom<&RenewReservationRequest> for Millis {
    type Error = BadValue;

    fn try_from(body: &RenewReservationRequest) -> Result<Self, BadValue> {
        body.check_bounds()?;
        Ok(Millis(body.lease_ms))
    }
}

/// The new deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RenewReservationResponse {
    /// The new deadline of the reservation.
    pub expires_at: Timestamp,
}

words! {
    /// How a visit to a URL ended.
    Outcome = request::Outcome {
        /// It was fetched.
        Fetched,
        /// It must be retried.
        Retry,
        /// It no longer exists.
        Gone,
        /// It cannot be fetched.
        Failed,
    }
}

/// The result of one URL of a reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UrlResult {
    /// The URL, as it was handed out.
    pub url: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The HTTP status, 100 to 999.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the fetch took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// How much was fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The Crawl-delay of its robots.txt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl_delay_ms: Option<u64>,
    /// The Retry-After of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// When to revisit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Whether the content has changed since the last visit, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
    /// A digest of the content, at most 128 bytes, of any kind. Without `changed`, the same digest as at the last visit
    /// means unchanged, another one changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Links found on it; they default to its crawl, one level deeper.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::<_, _, { limits::FOUND_MAX }>"
    )]
    pub found: Vec<UrlToAdd>,
}

bounds! {
    UrlResult {
        status: whole(100, 999), duration_ms: EXACT, bytes: EXACT, crawl_delay_ms: EXACT, retry_after_ms: EXACT,
    } { digest: text(1, limits::DIGEST_BYTES_MAX, ""), found: list(limits::FOUND_MAX) }
}

impl UrlResult {
    /// A result with nothing but an outcome.
    #[must_use]
    pub fn new(url: impl Into<String>, outcome: Outcome) -> Self {
        Self {
            url: url.into(),
            outcome,
            status: None,
            duration_ms: None,
            bytes: None,
            crawl_delay_ms: None,
            retry_after_ms: None,
            next_at: None,
            changed: None,
            digest: None,
            found: Vec::new(),
        }
    }
}

impl TryFrom<&UrlResult> for request::UrlResult {
    type Error = BadValue;

    fn try_from(result: &UrlResult) -> Result<Self, BadValue> {
        result.check_bounds()?;
        Ok(Self {
            url: result.url.as_str().into(),
            outcome: result.outcome.into(),
            status: result.status,
            duration: result.duration_ms.map(Millis),
            bytes: result.bytes,
            crawl_delay: result.crawl_delay_ms.map(Millis),
            retry_after: result.retry_after_ms.map(Millis),
            next_at: result.next_at.map(Into::into),
            changed: result.changed,
            digest: result.digest.as_deref().map(digest).transpose()?,
        })
    }
}

fn digest(text: &str) -> Result<Box<str>, BadValue> {
    let most = limits::DIGEST_BYTES_MAX;
    if text.is_empty() || text.len() > most {
        return Err(BadValue::new("digest", format!("{} bytes; expected 1 to {most}", text.len())));
    }
    Ok(text.into())
}

/// Ends a reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseReservationRequest {
    /// The results of its URLs, at most 1,000; URLs not named return to the queue unchanged.
    #[serde(default, deserialize_with = "bounded::<_, _, { limits::RESULTS_MAX }>")]
    pub results: Vec<UrlResult>,
    /// Requeues the host itself, without a URL, at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Timestamp>,
}

bounds!(ReleaseReservationRequest {} { results: list(limits::RESULTS_MAX) });

impl ReleaseReservationRequest {
    /// Whether there are more results or found URLs than one request may carry. The message of the error
    /// names the limit.
    pub fn check_size(&self) -> Result<(), TooMany> {
        check_results(&self.results)
    }

    /// The results in the core's form. Fails if one of them is invalid; the field says which.
    pub fn core_results(&self) -> Result<Vec<request::UrlResult>, BadValue> {
        core_results(&self.results)
    }
}

/// Whether there are more results or found URLs than one request may carry.
pub(crate) fn check_results(results: &[UrlResult]) -> Result<(), TooMany> {
    at_most("results", results.len(), limits::RESULTS_MAX)?;
    at_most("found", results.iter().map(|r| r.found.len()).sum(), limits::FOUND_MAX)
}

/// The results in the core's form.
pub(crate) fn core_results(results: &[UrlResult]) -> Result<Vec<request::UrlResult>, BadValue> {
    let within = |i: usize, e: BadValue| e.within(&format!("results[{i}]"));
    results.iter().enumerate().map(|(i, r)| r.try_into().map_err(|e| within(i, e))).collect()
}

/// The response to a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseReservationResponse {
    /// The group.
    pub group: String,
    /// When it may be visited again.
    pub ready_at: Timestamp,
    /// The results of the found URLs, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<AddUrlsResponse>,
}

/// A current reservation as others see it: without its token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LiveReservation {
    /// The group.
    pub group: String,
    /// The host that is visited.
    pub host: String,
    /// Who holds it.
    pub holder: String,
    /// When it was granted.
    pub granted_at: Timestamp,
    /// Its deadline.
    pub expires_at: Timestamp,
    /// The number of its URLs.
    pub urls: u64,
}

impl From<view::ReservationView> for LiveReservation {
    fn from(view: view::ReservationView) -> Self {
        Self {
            group: view.group.to_string(),
            host: view.host.to_string(),
            holder: view.holder.to_string(),
            granted_at: Timestamp(view.granted_at),
            expires_at: Timestamp(view.expires_at),
            urls: view.urls as u64,
        }
    }
}

/// One page of current reservations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListReservationsResponse {
    /// The reservations.
    pub reservations: Vec<LiveReservation>,
    /// Pass it as `after` to get the next page; null at the end.
    pub next: Option<String>,
}

#[cfg(test)]
#[path = "reservations_tests.rs"]
mod tests;
