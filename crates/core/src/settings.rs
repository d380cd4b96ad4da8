//! Operator settings of hosts, groups and crawls. All are optional; docs/politeness.md and docs/crawls.md give the
//! defaults.

use crate::limits;
use crate::time::{Millis, Time};
use serde::{Deserialize, Serialize};

/// A change to one setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change<T> {
    /// Leave it unchanged.
    #[default]
    Keep,
    /// Clear it.
    Clear,
    /// Set it.
    Set(T),
}

impl<T: Copy> Change<T> {
    /// Applies the change.
    pub fn apply(self, place: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Clear => *place = None,
            Self::Set(value) => *place = Some(value),
        }
    }
}

/// How a host or group is visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaceSettings {
    /// Time between two visits.
    pub delay: Option<Millis>,
    /// Delay as a multiple of the last visit's duration, in thousandths.
    pub factor_milli: Option<u32>,
    /// Lower bound of the delay computed from the factor.
    pub delay_min: Option<Millis>,
    /// Upper bound of the delay computed from the factor.
    pub delay_max: Option<Millis>,
    /// Blocked until this time.
    pub blocked_until: Option<Time>,
    /// Paused by an operator.
    pub paused: Option<bool>,
    /// Page limit, per crawl.
    pub limit: Option<u64>,
    /// Concurrent visits (groups only; 1 where unset).
    pub parallel: Option<u32>,
}

impl PaceSettings {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Changes to [`PaceSettings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each changes the setting of its name")]
pub struct PaceChanges {
    pub delay: Change<Millis>,
    pub factor_milli: Change<u32>,
    pub delay_min: Change<Millis>,
    pub delay_max: Change<Millis>,
    pub blocked_until: Change<Time>,
    pub paused: Change<bool>,
    pub limit: Change<u64>,
    pub parallel: Change<u32>,
    /// Crawl-delay of robots.txt (hosts only); once cleared it is unknown until a worker reports it again.
    pub crawl_delay: Change<Millis>,
}

impl PaceChanges {
    /// Applies the changes.
    pub fn apply(&self, settings: &mut PaceSettings) {
        self.delay.apply(&mut settings.delay);
        self.factor_milli.apply(&mut settings.factor_milli);
        self.delay_min.apply(&mut settings.delay_min);
        self.delay_max.apply(&mut settings.delay_max);
        self.blocked_until.apply(&mut settings.blocked_until);
        self.paused.apply(&mut settings.paused);
        self.limit.apply(&mut settings.limit);
        self.parallel.apply(&mut settings.parallel);
    }
}

/// When a fetched URL is visited again, where the worker does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Revisit {
    /// Never.
    #[default]
    Never,
    /// After a fixed time.
    Fixed(Millis),
    /// Sooner if it changed, later if not, within bounds.
    Adaptive {
        /// Shortest time.
        min: Millis,
        /// Longest time.
        max: Millis,
    },
}

/// Limits of a crawl.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlLimits {
    /// URLs of one host.
    pub urls_per_host: Option<u64>,
    /// Pages fetched of one host.
    pub pages_per_host: Option<u64>,
    /// URLs of the whole crawl.
    pub urls: Option<u64>,
    /// Pages fetched in the whole crawl; a revisited page counts each time.
    pub pages: Option<u64>,
    /// Maximum depth accepted.
    pub depth: Option<u32>,
    /// Attempts after which a URL is set aside.
    pub attempts: Option<u32>,
    /// Hosts of the whole crawl.
    pub hosts: Option<u64>,
}

/// Exponential back-off of a URL between attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryWaits {
    /// The first wait.
    pub first: Option<Millis>,
    /// The longest wait.
    pub most: Option<Millis>,
}

impl RetryWaits {
    /// The first wait in force.
    #[must_use]
    pub fn first(&self) -> Millis {
        self.first.unwrap_or(limits::RETRY_BASE)
    }

    /// The longest wait in force.
    #[must_use]
    pub fn most(&self) -> Millis {
        self.most.unwrap_or_else(|| limits::RETRY_MAX.max(self.first()))
    }

    /// The wait after this many attempts, at least one.
    #[must_use]
    pub fn after(&self, attempts: u32) -> Millis {
        let doubled = self.first().0.saturating_mul(1 << attempts.saturating_sub(1).min(20));
        Millis(doubled).min(self.most())
    }
}

/// How a crawl is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlSettings {
    /// Its share of visits relative to other crawls.
    pub weight: u32,
    /// Paused by an operator.
    pub paused: bool,
    /// Delay where neither group nor host sets one.
    pub delay: Option<Millis>,
    /// Its limits.
    pub limits: CrawlLimits,
    /// When pages are visited again.
    pub revisit: Revisit,
    /// Waits between attempts.
    pub retry: RetryWaits,
}

impl Default for CrawlSettings {
    fn default() -> Self {
        let (limits, retry) = (CrawlLimits::default(), RetryWaits::default());
        Self { weight: 1, paused: false, delay: None, limits, revisit: Revisit::Never, retry }
    }
}

impl CrawlSettings {
    /// Attempts after which a URL is set aside as failed.
    #[must_use]
    pub fn attempts_max(&self) -> u32 {
        self.limits.attempts.unwrap_or(limits::ATTEMPTS_MAX_DEFAULT)
    }
}

/// Changes to [`CrawlSettings`]. The limits change one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each changes the setting of its name")]
pub struct CrawlChanges {
    /// Cleared it is 1.
    pub weight: Change<u32>,
    /// Cleared it is false.
    pub paused: Change<bool>,
    pub delay: Change<Millis>,
    /// Cleared it is never.
    pub revisit: Change<Revisit>,
    pub urls_per_host: Change<u64>,
    pub pages_per_host: Change<u64>,
    pub urls: Change<u64>,
    pub pages: Change<u64>,
    pub depth: Change<u32>,
    pub attempts: Change<u32>,
    pub hosts: Change<u64>,
    pub retry_first: Change<Millis>,
    pub retry_most: Change<Millis>,
}

impl CrawlChanges {
    /// A contradiction between the changes and the crawl's present settings, in a sentence that names both.
    #[must_use]
    pub fn contradiction(&self, before: &CrawlSettings) -> Option<String> {
        let mut after = *before;
        self.apply(&mut after);
        let touched = self.retry_first != Change::Keep || self.retry_most != Change::Keep;
        let RetryWaits { first: Some(first), most: Some(most) } = after.retry else { return None };
        let (first, most) = (first.0, most.0);
        (touched && first > most).then(|| {
            format!("retry.first_ms would be {first} and retry.max_ms {most}: the first wait for another attempt cannot be longer than the longest; change both in one call")
        })
    }

    /// Applies the changes.
    pub fn apply(&self, settings: &mut CrawlSettings) {
        let mut weight = Some(settings.weight);
        self.weight.apply(&mut weight);
        settings.weight = weight.unwrap_or(1);
        let mut paused = Some(settings.paused);
        self.paused.apply(&mut paused);
        settings.paused = paused.unwrap_or(false);
        self.delay.apply(&mut settings.delay);
        let mut revisit = Some(settings.revisit);
        self.revisit.apply(&mut revisit);
        settings.revisit = revisit.unwrap_or_default();
        self.urls_per_host.apply(&mut settings.limits.urls_per_host);
        self.pages_per_host.apply(&mut settings.limits.pages_per_host);
        self.urls.apply(&mut settings.limits.urls);
        self.pages.apply(&mut settings.limits.pages);
        self.depth.apply(&mut settings.limits.depth);
        self.attempts.apply(&mut settings.limits.attempts);
        self.hosts.apply(&mut settings.limits.hosts);
        self.retry_first.apply(&mut settings.retry.first);
        self.retry_most.apply(&mut settings.retry.most);
    }
}
