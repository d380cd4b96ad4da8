//! Crawls on the wire.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use wayleave_core::frontier::view;
use wayleave_core::limits;
use wayleave_core::settings::{self, CrawlChanges};
use wayleave_core::time::Millis;

use crate::BadValue;
use crate::bounds::{ATTEMPTS, Bound, Bounded, DELAY, EXACT, SHORT, WAIT, whole};
use crate::object;
use crate::patch::patches;
pub use crate::revisit::Revisit;
use crate::stats::Counts;
use crate::{Patch, Timestamp};

patches! {
    /// Changes to the limits of a crawl.
    #[derive(Copy, Eq)]
    CrawlLimitsPatch {
        /// URLs of the whole crawl. Concurrent additions may exceed it.
        urls: u64 = EXACT,
        /// Pages fetched in the whole crawl, including those handed out. Never exceeded.
        pages: u64 = EXACT,
        /// URLs per host.
        urls_per_host: u64 = EXACT,
        /// Pages fetched per host.
        pages_per_host: u64 = EXACT,
        /// The greatest depth accepted.
        depth: u32 = SHORT,
        /// Attempts after which a URL fails.
        attempts: u32 = ATTEMPTS,
        /// Hosts of the whole crawl. Concurrent additions may exceed it; URLs of hosts that it already has are accepted.
        hosts: u64 = EXACT,
    }
}

impl CrawlLimitsPatch {
    const CLEAR: Self = Self {
        urls: Patch::Clear,
        pages: Patch::Clear,
        urls_per_host: Patch::Clear,
        pages_per_host: Patch::Clear,
        depth: Patch::Clear,
        attempts: Patch::Clear,
        hosts: Patch::Clear,
    };
}

patches! {
    /// Changes to the retry policy.
    #[derive(Copy, Eq)]
    RetryPatch {
        /// Attempts after which a URL fails, including the first one; the same as `limits.attempts`. 5 if unset.
        attempts: u32 = ATTEMPTS.or(limits::ATTEMPTS_MAX_DEFAULT as u64),
        /// The wait after the first attempt, doubling with each further one; 240,000 if unset.
        first_ms: u64 = RETRY.or(limits::RETRY_BASE.0),
        /// The longest wait; 3,600,000 if unset.
        max_ms: u64 = RETRY.or(limits::RETRY_MAX.0),
    }
}

const RETRY: Bound = whole(1, limits::RETRY_AFTER_MAX.0);

/// The retry policy in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetryPolicy {
    /// Attempts after which a URL fails, including the first one.
    pub attempts: u32,
    /// The wait after the first attempt, doubling with each further one.
    pub first_ms: u64,
    /// The longest wait.
    pub max_ms: u64,
}

patches! {
    /// Creates or changes a crawl. PATCH keeps what is absent, PUT clears it; `null` clears.
    #[derive(Copy, Eq)]
    SetCrawlRequest {
        /// Its share of visits relative to other crawls; 1 if unset.
        weight: u32 = whole(1, limits::WEIGHT_MAX as u64).or(1),
        /// Whether an operator has paused it.
        #[schema(default = false)]
        paused: bool,
        /// Delay where neither group nor host sets one.
        delay_ms: u64 = DELAY.or(limits::DELAY_DEFAULT.0),
        /// Its limits; `null` clears all of them.
        #[serde(deserialize_with = "object::patch")]
        limits: CrawlLimitsPatch,
        /// When pages are revisited.
        revisit: Revisit,
        /// How URLs are retried whose outcome was `retry` or whose lease expired; `null` clears all of it.
        #[serde(deserialize_with = "object::patch")]
        retry: RetryPatch,
    }
}

impl TryFrom<&SetCrawlRequest> for CrawlChanges {
    type Error = BadValue;

    fn try_from(request: &SetCrawlRequest) -> Result<Self, BadValue> {
        let bounds = match request.limits {
            Patch::Keep => CrawlLimitsPatch::default(),
            Patch::Clear => CrawlLimitsPatch::CLEAR,
            Patch::Set(bounds) => bounds,
        };
        let retry = match request.retry {
            Patch::Keep => RetryPatch::default(),
            Patch::Clear => RetryPatch { attempts: Patch::Clear, first_ms: Patch::Clear, max_ms: Patch::Clear },
            Patch::Set(retry) => retry,
        };
        if let (Some(first), Some(most)) = (retry.first_ms.value(), retry.max_ms.value())
            && first > most
        {
            return Err(BadValue::contradiction(
                "retry.first_ms",
                format!("{first} is more than max_ms, which is {most}"),
            ));
        }
        request.check_bounds()?;
        bounds.check_bounds().map_err(|e| e.within("limits"))?;
        retry.check_bounds().map_err(|e| e.within("retry"))?;
        Ok(Self {
            weight: request.weight.into(),
            paused: request.paused.into(),
            delay: request.delay_ms.map(Millis),
            revisit: request.revisit.try_into_change(settings::Revisit::try_from)?,
            urls_per_host: bounds.urls_per_host.into(),
            pages_per_host: bounds.pages_per_host.into(),
            urls: bounds.urls.into(),
            pages: bounds.pages.into(),
            depth: bounds.depth.into(),
            attempts: if retry.attempts.is_keep() { bounds.attempts } else { retry.attempts }.into(),
            hosts: bounds.hosts.into(),
            retry_first: retry.first_ms.map(Millis),
            retry_most: retry.max_ms.map(Millis),
        })
    }
}

/// The limits of a crawl; null where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CrawlLimits {
    /// URLs of the whole crawl. Concurrent additions may exceed it.
    pub urls: Option<u64>,
    /// Pages fetched in the whole crawl, including those handed out. Never exceeded.
    pub pages: Option<u64>,
    /// URLs per host.
    pub urls_per_host: Option<u64>,
    /// Pages fetched per host.
    pub pages_per_host: Option<u64>,
    /// The greatest depth accepted.
    pub depth: Option<u32>,
    /// Attempts after which a URL fails.
    pub attempts: Option<u32>,
    /// Hosts of the whole crawl. Concurrent additions may exceed it; URLs of hosts that it already has are accepted.
    #[serde(default)]
    pub hosts: Option<u64>,
}

/// A crawl: its settings and its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Crawl {
    /// Its name.
    pub crawl: String,
    /// Its share of visits relative to other crawls.
    pub weight: u32,
    /// Whether an operator has paused it.
    pub paused: bool,
    /// Delay where neither group nor host sets one.
    pub delay_ms: Option<u64>,
    /// Its limits.
    pub limits: CrawlLimits,
    /// When pages are revisited.
    pub revisit: Revisit,
    /// The retry policy in force.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// Its URLs.
    pub counts: Counts,
    /// Hosts that have a queue of it, including empty ones.
    pub hosts: u64,
    /// Hosts that have URLs of it which will be handed out.
    pub active_hosts: u64,
    /// Whether nothing of it is handed out, and nothing queued can become due; URLs over a limit do not count (in
    /// listings of crawls they do). A crawl that has received no URL yet is not finished.
    #[serde(default)]
    pub finished: bool,
    /// If it is finished: the end of the last visit to a group with URLs of it; null if there was none.
    #[serde(default)]
    pub finished_at: Option<Timestamp>,
    /// If it is not finished: the reason, in a sentence.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// If it is finished: queued URLs that a limit keeps from being handed out.
    #[serde(default)]
    pub over_limit: u64,
    /// Which limit keeps URLs of it from being handed out, in a sentence; null if none does.
    #[serde(default)]
    pub limit_reached: Option<String>,
}

impl From<view::CrawlView> for Crawl {
    fn from(view: view::CrawlView) -> Self {
        let settings::CrawlLimits { urls_per_host, pages_per_host, urls, pages, depth, attempts, hosts } =
            view.settings.limits;
        Self {
            crawl: view.crawl.to_string(),
            weight: view.settings.weight,
            paused: view.settings.paused,
            delay_ms: view.settings.delay.map(|ms| ms.0),
            limits: CrawlLimits { urls, pages, urls_per_host, pages_per_host, depth, attempts, hosts },
            revisit: view.settings.revisit.into(),
            retry: RetryPolicy {
                attempts: view.settings.attempts_max(),
                first_ms: view.settings.retry.first().0,
                max_ms: view.settings.retry.most().0,
            },
            counts: view.counts.into(),
            hosts: view.queues,
            active_hosts: view.active_queues,
            finished: view.waits_for.is_none(),
            finished_at: view.last_visit_at.filter(|_| view.waits_for.is_none()).map(Timestamp),
            waits_for: view.waits_for,
            over_limit: view.over_limit,
            limit_reached: view.limit_reached,
        }
    }
}

/// One page of crawls, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListCrawlsResponse {
    /// The crawls.
    pub crawls: Vec<Crawl>,
    /// Pass it as `after` to get the next page; null at the end.
    pub next: Option<String>,
}

/// What to wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CrawlWaitFor {
    /// That nothing of it is handed out or can become due.
    #[default]
    Finished,
}

/// Whether and how long to wait for a crawl.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetCrawlQuery {
    /// The long-poll time in milliseconds, at most 60,000; 0 answers at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// What to wait for: `finished`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub wait_for: Option<CrawlWaitFor>,
}

impl GetCrawlQuery {
    /// Waits up to `wait_ms` for the end of the crawl.
    #[must_use]
    pub const fn finished(wait_ms: u64) -> Self {
        Self { wait_ms: Some(wait_ms), wait_for: Some(CrawlWaitFor::Finished) }
    }

    /// How long to wait.
    pub fn wait(&self) -> Result<Millis, BadValue> {
        WAIT.check_or_default("wait_ms", self.wait_ms).map(Millis)
    }
}

/// Which URLs of a crawl to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PurgeCrawlQuery {
    /// Those that were stored longer ago than this.
    pub older_than_ms: u64,
    /// Only those of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl PurgeCrawlQuery {
    /// How long ago. Fails if the number is too large to be exact.
    pub fn older_than(&self) -> Result<Millis, BadValue> {
        EXACT.check("older_than_ms", self.older_than_ms).map(Millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wayleave_core::settings::Change;

    fn changes(text: &str) -> Result<CrawlChanges, BadValue> {
        CrawlChanges::try_from(&serde_json::from_str::<SetCrawlRequest>(text).unwrap())
    }

    #[test]
    fn limits_change_one_by_one_and_null_clears_them_all() {
        let one = changes(r#"{"limits":{"depth":3,"urls":null}}"#).unwrap();
        assert_eq!(one, CrawlChanges { depth: Change::Set(3), urls: Change::Clear, ..CrawlChanges::default() });
        let all = changes(r#"{"limits":null}"#).unwrap();
        assert_eq!((all.depth, all.attempts, all.pages_per_host), (Change::Clear, Change::Clear, Change::Clear));
        assert_eq!(changes("{}").unwrap(), CrawlChanges::default());
    }

    #[test]
    fn a_revisit_policy_reads_back_in_each_of_its_forms() {
        for (text, want) in [
            (r#""never""#, settings::Revisit::Never),
            (r#"{"fixed_ms":5}"#, settings::Revisit::Fixed(Millis(5))),
            (r#"{"adaptive":{"min_ms":1,"max_ms":2}}"#, settings::Revisit::Adaptive { min: Millis(1), max: Millis(2) }),
        ] {
            let wire: Revisit = serde_json::from_str(text).unwrap();
            assert_eq!(settings::Revisit::try_from(wire), Ok(want));
            assert_eq!(serde_json::to_string(&Revisit::from(want)).unwrap(), text);
        }
    }

    #[test]
    fn bad_policies_and_bounds_name_their_field() {
        for (text, field) in [
            (r#"{"weight":0}"#, "weight"),
            (r#"{"weight":1001}"#, "weight"),
            (r#"{"revisit":{"fixed_ms":0}}"#, "revisit.fixed_ms"),
            (r#"{"revisit":{"adaptive":{"min_ms":9,"max_ms":2}}}"#, "revisit.adaptive.min_ms"),
            (r#"{"limits":{"attempts":0}}"#, "limits.attempts"),
        ] {
            assert_eq!(changes(text).expect_err(text).field, field);
        }
        for text in [r#"{"limit":1}"#, r#"{"limits":{"queues":1}}"#, r#"{"revisit":"sometimes"}"#] {
            assert!(serde_json::from_str::<SetCrawlRequest>(text).is_err(), "{text}");
        }
    }
}
